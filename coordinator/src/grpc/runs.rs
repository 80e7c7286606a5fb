//! The service that operators call.

use std::{pin::Pin, sync::Arc, time::Duration};

use common::{plan::Plan, run::RunId};
use proto::v1::{self, runs_server::Runs};
use tokio::{sync::mpsc, task::spawn_blocking};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::watch::StatusWatch;
use crate::{
    doors::{Keys, Principal},
    driver::{Clock, DriverHandle, StatusReport, Submission, new_manifest},
    http::Dashboard,
    ledger::{BadRecheck, Recheck},
    render::{Statuses, message},
    sched::{Command, ControlError, RunSummary},
    store::{JournalCursor, RunManifest},
};

pub(super) struct RunsService {
    pub(super) driver: DriverHandle,
    pub(super) clock: Clock,
    pub(super) statuses: Statuses,
    /// Set once the server closes: streams send their last message and end.
    pub(super) closing: tokio::sync::watch::Receiver<bool>,
    /// `None` where no pages are served.
    pub(super) dashboard: Option<Dashboard>,
    /// `None` where nobody is asked for a token.
    pub(super) keys: Option<Arc<Keys>>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Messages that a stream holds ready for a slow reader.
const READY: usize = 16;

/// Between two status messages when the caller does not say.
const WATCH_INTERVAL_MS: u32 = 1000;

/// The shortest interval that is granted.
const LEAST_INTERVAL_MS: u32 = 50;

#[tonic::async_trait]
impl Runs for RunsService {
    type WatchStatusStream = Streamed<v1::Status>;
    type ExportStream = Streamed<v1::Record>;

    async fn submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::Run>, Status> {
        let run = submitted(&self.driver, self.clock, request.into_inner()).await?;
        Ok(Response::new(message::run(&run)))
    }

    async fn list(
        &self,
        _request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let runs = self.driver.runs().await?;
        let runs = runs.iter().map(message::run).collect();
        Ok(Response::new(v1::ListResponse { runs }))
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let status = self.status(request.into_inner().run).await?;
        Ok(Response::new(message::status(&status)))
    }

    async fn watch_status(
        &self,
        request: Request<v1::WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        let v1::WatchStatusRequest { run, interval_ms } = request.into_inner();
        // The run is fixed now: "the one served first" may be another one later.
        let run = self.status(run).await?.status.manifest.run;
        let interval = match interval_ms {
            0 => WATCH_INTERVAL_MS,
            ms => ms.max(LEAST_INTERVAL_MS),
        };
        let interval = Duration::from_millis(u64::from(interval));
        let (sender, receiver) = mpsc::channel(1);
        let watch = StatusWatch {
            statuses: self.statuses.clone(),
            closing: self.closing.clone(),
            sender,
            interval,
        };
        tokio::spawn(watch.send_all(run));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn pause(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::Run>, Status> {
        self.control(request, Command::Pause).await
    }

    async fn resume(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::Run>, Status> {
        self.control(request, Command::Resume).await
    }

    async fn cancel(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::Run>, Status> {
        self.control(request, Command::Cancel).await
    }

    async fn retry(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::Run>, Status> {
        self.control(request, Command::Unpark).await
    }

    async fn delete(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::Run>, Status> {
        let run = self.driver.delete(RunId(request.into_inner().run)).await?;
        Ok(Response::new(message::run(&run)))
    }

    async fn recheck(
        &self,
        request: Request<v1::RecheckRequest>,
    ) -> Result<Response<v1::Run>, Status> {
        let v1::RecheckRequest { run, recheck } = request.into_inner();
        let command = Command::Recheck(asked_recheck(&recheck)?);
        self.control(Request::new(v1::RunRequest { run }), command)
            .await
    }

    async fn trust(
        &self,
        request: Request<v1::TrustRequest>,
    ) -> Result<Response<v1::TrustResponse>, Status> {
        let worker = self.driver.trust(request.into_inner().worker).await?;
        Ok(Response::new(v1::TrustResponse { worker }))
    }

    async fn drain(
        &self,
        request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        let worker = self.driver.drain(request.into_inner().worker).await?;
        Ok(Response::new(v1::DrainResponse { worker }))
    }

    async fn dashboard(
        &self,
        request: Request<v1::DashboardRequest>,
    ) -> Result<Response<v1::DashboardResponse>, Status> {
        let dashboard = self.dashboard.as_ref().ok_or_else(|| {
            Status::failed_precondition(
                "this coordinator serves no pages; start it with --http HOST:PORT",
            )
        })?;
        let token = match (request.extensions().get::<Principal>(), &self.keys) {
            (Some(Principal::Token { name, .. }), Some(keys)) => keys.named(name),
            _ => None,
        };
        let link = token.and_then(|token| dashboard.sessions.link(token));
        let url = match link {
            Some(link) => format!("{}/login/{link}", dashboard.url),
            None => format!("{}/", dashboard.url),
        };
        Ok(Response::new(v1::DashboardResponse {
            url,
            only_there: dashboard.only_here,
        }))
    }

    async fn workers(
        &self,
        _request: Request<v1::WorkersRequest>,
    ) -> Result<Response<v1::WorkersResponse>, Status> {
        let workers = self.driver.workers().await?;
        let workers = workers.iter().take(message::NAMED_WORKERS);
        let workers = workers.map(message::worker).collect();
        Ok(Response::new(v1::WorkersResponse { workers }))
    }

    async fn export(
        &self,
        request: Request<v1::RunRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let run = RunId(request.into_inner().run);
        let driver = self.driver.clone();
        let mut page = driver
            .journal(run, JournalCursor::default())
            .await?
            .ok_or_else(|| no_such_run(run))?;
        let (sender, receiver) = mpsc::channel(READY);
        tokio::spawn(async move {
            loop {
                for (sequence, entry, line) in page.lines {
                    let record = message::record(sequence, &entry, line);
                    // The reader went away: nothing more to read for.
                    if sender.send(Ok(record)).await.is_err() {
                        return;
                    }
                }
                let Some(next) = page.next else { return };
                page = match driver.journal(run, next).await {
                    Ok(Some(page)) => page,
                    Ok(None) => return,
                    Err(error) => {
                        let _ = sender.send(Err(error.into())).await;
                        return;
                    }
                };
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl RunsService {
    async fn status(&self, run: Option<u64>) -> Result<StatusReport, Status> {
        let run = run.map(RunId);
        let status = self.driver.status(run).await?;
        status.ok_or_else(|| match run {
            Some(run) => no_such_run(run),
            None => Status::not_found("there are no runs; submit one with `queensctl submit`"),
        })
    }

    async fn control(
        &self,
        request: Request<v1::RunRequest>,
        command: Command,
    ) -> Result<Response<v1::Run>, Status> {
        let run = RunId(request.into_inner().run);
        let run = self.driver.control(run, command).await?;
        Ok(Response::new(message::run(&run)))
    }
}

/// Starts the run that is asked for, or finds the one that the same request has started: one way for
/// both faces.
pub(crate) async fn submitted(
    driver: &DriverHandle,
    clock: Clock,
    request: v1::SubmitRequest,
) -> Result<RunSummary, Status> {
    let v1::SubmitRequest {
        spec,
        priority,
        again,
        idempotency_key,
        recheck,
    } = request;
    let spec = proto::submitted_spec(spec)?;
    let recheck = match recheck.as_str() {
        "" => Recheck::default(),
        text => asked_recheck(text)?,
    };
    let key = proto::submitted_key(&idempotency_key)?;
    // Enumerating the units of a large board takes a while: not on an async thread.
    let plan = spawn_blocking(move || Plan::new(spec))
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(|bad| Status::invalid_argument(format!("spec: {bad}")))?;
    let manifest = RunManifest {
        key,
        ..new_manifest(&plan, priority, clock.now())
    };
    let submission = Submission {
        manifest,
        plan,
        again,
        recheck,
    };
    Ok(driver.submit(submission).await?)
}

fn no_such_run(run: RunId) -> Status {
    ControlError::NoSuchRun(run).into()
}

fn asked_recheck(text: &str) -> Result<Recheck, Status> {
    let bad = |error| Status::invalid_argument(format!("recheck: {error}"));
    text.parse()
        .map_err(|error: BadRecheck| bad(error.to_string()))
}
