//! A coordinator for tests: the real service on a real socket, answered by a closure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use common::{
    plan::Plan,
    run::Partial,
    sync::{Acknowledgement, SyncReply, SyncRequest, Verdict},
};
use proto::v1::{
    self,
    work_queue_server::{WorkQueue, WorkQueueServer},
};
use tokio::{
    net::TcpListener,
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use crate::{
    config::Address,
    testing::{grant, task_ref},
};

type Answer = Box<dyn FnMut(&SyncRequest) -> Result<SyncReply, Status> + Send>;

/// A coordinator that listens until the test's runtime ends.
pub(super) struct Fake {
    pub(super) address: Address,
    /// Every request, after it was answered.
    pub(super) calls: UnboundedReceiver<SyncRequest>,
}

struct Service {
    answer: Mutex<Answer>,
    calls: UnboundedSender<SyncRequest>,
}

#[tonic::async_trait]
impl WorkQueue for Service {
    async fn sync(
        &self,
        request: Request<v1::SyncRequest>,
    ) -> Result<Response<v1::SyncResponse>, Status> {
        let request = SyncRequest::try_from(request.into_inner())?;
        let reply = (self.answer.lock().unwrap())(&request);
        // Not every test listens to the end.
        let _ = self.calls.send(request);
        reply.map(|reply| Response::new(reply.into()))
    }
}

pub(super) async fn serve(
    answer: impl FnMut(&SyncRequest) -> Result<SyncReply, Status> + Send + 'static,
) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, calls) = unbounded_channel();
    let service = Service {
        answer: Mutex::new(Box::new(answer)),
        calls: sender,
    };
    let server = Server::builder()
        .add_service(WorkQueueServer::new(service))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    tokio::spawn(server);
    Fake {
        address: Address::new(&address, false).unwrap(),
        calls,
    }
}

/// Nothing new; call again at your leisure.
pub(super) fn quiet() -> SyncReply {
    SyncReply {
        next_sync_ms: 10_000,
        lease_ms: 60_000,
        ..SyncReply::default()
    }
}

pub(super) fn accept(partial: &Partial) -> Acknowledgement {
    Acknowledgement {
        task: partial.task,
        epoch: partial.epoch,
        verdict: Verdict::Accepted,
        reason: String::new(),
    }
}

/// Hands out the tasks of a plan, a few a call, and takes their counts. What a worker does not list
/// any more is handed out again.
#[derive(Clone)]
pub(super) struct Board(Arc<Inner>);

struct Inner {
    plan: Plan,
    per_call: usize,
    state: Mutex<State>,
    done: Notify,
}

#[derive(Default)]
struct State {
    pending: BTreeSet<u64>,
    leased: BTreeSet<u64>,
    counts: BTreeMap<u64, u64>,
}

impl Board {
    pub(super) fn new(plan: Plan, per_call: usize) -> Self {
        let state = State {
            pending: (0..plan.tasks()).collect(),
            ..State::default()
        };
        Self(Arc::new(Inner {
            plan,
            per_call,
            state: Mutex::new(state),
            done: Notify::new(),
        }))
    }

    /// Resolves when every task has its count.
    pub(super) fn done(&self) -> impl Future<Output = ()> + use<> {
        let inner = self.0.clone();
        async move { inner.done.notified().await }
    }

    /// Whether every task has its count.
    pub(super) fn is_done(&self) -> bool {
        self.0.state.lock().unwrap().counts.len() as u64 == self.0.plan.tasks()
    }

    pub(super) fn total(&self) -> u64 {
        self.0.state.lock().unwrap().counts.values().sum()
    }

    pub(super) fn answer(&self, request: &SyncRequest) -> SyncReply {
        let Inner {
            plan,
            per_call,
            state,
            done,
        } = &*self.0;
        let State {
            pending,
            leased,
            counts,
        } = &mut *state.lock().unwrap();
        let mut reply = quiet();
        reply.next_sync_ms = 30;
        for partial in &request.partials {
            let task = partial.task.task.0;
            assert_eq!(partial.task, task_ref(plan, task));
            let before = counts.insert(task, partial.count);
            assert!(before.is_none_or(|before| before == partial.count));
            leased.remove(&task);
            pending.remove(&task);
            reply.acknowledgements.push(Acknowledgement {
                verdict: before.map_or(Verdict::Accepted, |_| Verdict::Duplicate),
                ..accept(partial)
            });
        }
        let held: BTreeSet<u64> = request.held.iter().map(|held| held.task.task.0).collect();
        pending.extend(leased.extract_if(.., |task| !held.contains(task)));
        if request.seconds_wanted > 0.0 {
            let granted: Vec<u64> = pending.iter().take(*per_call).copied().collect();
            for task in granted {
                pending.remove(&task);
                leased.insert(task);
                reply.grants.push(grant(plan, task));
            }
        }
        if counts.len() as u64 == plan.tasks() {
            done.notify_one();
        }
        reply
    }
}
