//! The service that workers call.

use common::sync::SyncRequest;
use proto::{
    CallId,
    v1::{self, work_queue_server::WorkQueue},
};
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use crate::{doors::Principal, driver::DriverHandle};

pub(super) struct WorkQueueService {
    pub(super) driver: DriverHandle,
}

#[tonic::async_trait]
impl WorkQueue for WorkQueueService {
    async fn sync(
        &self,
        request: Request<v1::SyncRequest>,
    ) -> Result<Response<v1::SyncResponse>, Status> {
        let span = match CallId::read(request.metadata()) {
            Some(id) => tracing::debug_span!("call", %id),
            None => tracing::Span::none(),
        };
        let principal = request.extensions().get::<Principal>();
        let token = principal.and_then(Principal::name).cloned();
        let answer = async {
            let answer = async {
                let request = SyncRequest::try_from(request.into_inner())?;
                Ok::<_, Status>(self.driver.sync(token, request).await?)
            };
            let answer = answer.await;
            match &answer {
                Ok(_) => tracing::debug!("answered"),
                Err(status) => tracing::debug!("refused: {}", status.message()),
            }
            answer
        };
        let reply = answer.instrument(span).await?;
        Ok(Response::new(reply.into()))
    }
}
