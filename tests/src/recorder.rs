//! A way to a coordinator that writes down what it acknowledges.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use proto::v1::{
    Acknowledgement, SyncRequest, SyncResponse,
    work_queue_client::WorkQueueClient,
    work_queue_server::{WorkQueue, WorkQueueServer},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, Server},
};

/// Passes workers' calls on to a coordinator that comes and goes.
pub struct Recorder {
    /// Where workers find it.
    pub url: String,
    acknowledged: Arc<Mutex<Vec<(Instant, Acknowledgement)>>>,
}

impl Recorder {
    /// Passes on to the coordinator at `url`, until the runtime ends.
    pub async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound port");
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let endpoint = Endpoint::from_shared(url.to_owned()).expect("a URL");
        let service = Passing {
            // It connects anew whenever the coordinator is there again.
            client: WorkQueueClient::new(endpoint.connect_lazy()),
            acknowledged: Arc::clone(&acknowledged),
        };
        let server = Server::builder().add_service(WorkQueueServer::new(service));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self {
            url: format!("http://{address}"),
            acknowledged,
        }
    }

    /// Every acknowledgement that left the coordinator until now, in order.
    pub fn acknowledged(&self) -> Vec<Acknowledgement> {
        let recorded = self.recorded().into_iter();
        recorded
            .map(|(_, acknowledgement)| acknowledgement)
            .collect()
    }

    /// The same, with the time of each.
    pub fn recorded(&self) -> Vec<(Instant, Acknowledgement)> {
        self.acknowledged.lock().expect("no call panics").clone()
    }
}

struct Passing {
    client: WorkQueueClient<Channel>,
    acknowledged: Arc<Mutex<Vec<(Instant, Acknowledgement)>>>,
}

#[tonic::async_trait]
impl WorkQueue for Passing {
    async fn sync(&self, request: Request<SyncRequest>) -> Result<Response<SyncResponse>, Status> {
        let reply = self.client.clone().sync(request.into_inner()).await?;
        let reply = reply.into_inner();
        let now = Instant::now();
        let told = reply.acknowledgements.iter().cloned();
        self.acknowledged
            .lock()
            .expect("no call panics")
            .extend(told.map(|acknowledgement| (now, acknowledgement)));
        Ok(Response::new(reply))
    }
}
