//! The service `Runs`, and streams of a run's statuses.

use std::{pin::Pin, time::Duration};

use auth::Subject;
use axum::body::Bytes;
use common::messages::run::{RunId, WorkerId};
use futures_util::stream::unfold;
use http_body::Frame;
use http_body_util::StreamBody;
use proto::v1::{self, runs_server::Runs, set_request::Setting};
use scheduler::{Command, ControlError};
use store::{Clock, JournalCursor};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, body::Body, codegen::http};

use super::Answer;
use crate::{
    driver::{By, DriverHandle, RequestError, served_first},
    http::Dashboard,
    message::{self, start_run, workers_page},
    status_cache::StatusCache,
};

pub(super) struct RunsService {
    pub(super) driver: DriverHandle,
    pub(super) clock: Clock,
    pub(super) statuses: StatusCache,
    /// Shutdown signal: streams send their last message and end.
    pub(super) closing: tokio::sync::watch::Receiver<bool>,
    /// `None` without HTTP.
    pub(super) dashboard: Result<Dashboard, String>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Messages that a stream buffers for a slow reader.
const STREAM_CAPACITY: usize = 16;

/// Default interval of status messages.
const WATCH_INTERVAL_MS: u32 = 1000;

const MIN_INTERVAL_MS: u32 = 50;

#[tonic::async_trait]
impl Runs for RunsService {
    type WatchStatusStream = Streamed<v1::Status>;
    type ExportStream = Streamed<v1::Record>;
    type CreditsStream = Streamed<v1::Credit>;
    type EventsStream = Streamed<v1::Event>;

    async fn submit(&self, request: Request<v1::SubmitRequest>) -> Answer<v1::Run> {
        let by = by(&request);
        let run = start_run(&self.driver, self.clock, request.into_inner(), by).await?;
        Ok(Response::new(message::run(&run)))
    }

    async fn list(&self, _request: Request<v1::ListRequest>) -> Answer<v1::ListResponse> {
        let runs = self.driver.runs().await?;
        let runs = runs.iter().map(message::run).collect();
        Ok(Response::new(v1::ListResponse { runs }))
    }

    async fn get_status(&self, request: Request<v1::GetStatusRequest>) -> Answer<v1::Status> {
        let run = self.run(request.into_inner().run).await?;
        let mut answer = Response::new(v1::Status::default());
        answer.extensions_mut().insert(StatusWatch::new(self.statuses.clone(), run, None));
        Ok(answer)
    }

    async fn watch_status(
        &self,
        request: Request<v1::WatchStatusRequest>,
    ) -> Answer<Self::WatchStatusStream> {
        let v1::WatchStatusRequest { run, interval_ms } = request.into_inner();
        // The stream stays with this run, even if another one is served first later.
        let run = self.run(run).await?;
        let interval = match interval_ms {
            0 => WATCH_INTERVAL_MS,
            ms => ms.max(MIN_INTERVAL_MS),
        };
        let interval = Duration::from_millis(u64::from(interval));
        let following =
            Following { changed: self.driver.changes(), closing: self.closing.clone(), interval };
        let mut answer: Response<Self::WatchStatusStream> =
            Response::new(Box::pin(tokio_stream::empty()));
        let watch = StatusWatch::new(self.statuses.clone(), run, Some(following));
        answer.extensions_mut().insert(watch);
        Ok(answer)
    }

    async fn pause(&self, request: Request<v1::RunRequest>) -> Answer<v1::Run> {
        self.control(request, Command::Pause).await
    }

    async fn resume(&self, request: Request<v1::RunRequest>) -> Answer<v1::Run> {
        self.control(request, Command::Resume).await
    }

    async fn cancel(&self, request: Request<v1::RunRequest>) -> Answer<v1::Run> {
        self.control(request, Command::Cancel).await
    }

    async fn retry(&self, request: Request<v1::RunRequest>) -> Answer<v1::Run> {
        self.control(request, Command::Unpark).await
    }

    async fn delete(&self, request: Request<v1::RunRequest>) -> Answer<v1::Run> {
        let run = self.driver.delete(RunId(request.get_ref().run), by(&request)).await?;
        Ok(Response::new(message::run(&run)))
    }

    async fn set(&self, request: Request<v1::SetRequest>) -> Answer<v1::Run> {
        let v1::SetRequest { run, setting } = request.get_ref();
        let command = match setting {
            Some(Setting::Recheck(part)) => {
                Command::Recheck(proto::requested_recheck(Some(*part))?)
            }
            Some(Setting::Priority(priority)) => Command::Priority(*priority),
            None => return Err(Status::invalid_argument("setting: expected one")),
        };
        let run = self.driver.control(RunId(*run), command, by(&request)).await?;
        Ok(Response::new(message::run(&run)))
    }

    async fn trust(&self, request: Request<v1::TrustRequest>) -> Answer<v1::TrustResponse> {
        let by = by(&request);
        let worker = self.driver.trust(request.into_inner().worker, by).await?;
        Ok(Response::new(v1::TrustResponse { worker }))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Answer<v1::DrainResponse> {
        let by = by(&request);
        let worker = self.driver.drain(request.into_inner().worker, by).await?;
        Ok(Response::new(v1::DrainResponse { worker }))
    }

    async fn dashboard(
        &self,
        request: Request<v1::DashboardRequest>,
    ) -> Answer<v1::DashboardResponse> {
        let Dashboard { url, loopback_only, sessions } =
            self.dashboard.as_ref().map_err(|why| {
                Status::failed_precondition(format!("this coordinator has no dashboard: {why}"))
            })?;
        let url = match request.extensions().get::<Subject>() {
            Some(Subject::Token { id, .. }) => {
                format!("{url}/login/{}", sessions.links.add(*id))
            }
            _ => format!("{url}/"),
        };
        Ok(Response::new(v1::DashboardResponse { url, loopback_only: *loopback_only }))
    }

    async fn workers(&self, request: Request<v1::WorkersRequest>) -> Answer<v1::WorkersResponse> {
        let v1::WorkersRequest { after, limit } = request.into_inner();
        let after = match after.as_slice() {
            [] => None,
            bytes => Some(bytes.try_into().map(u128::from_be_bytes).map_err(|_| {
                Status::invalid_argument("after: expected the 16 bytes of a worker's identity")
            })?),
        };
        let page = workers_page(&self.driver, after.map(WorkerId), limit.into());
        Ok(Response::new(self.driver.in_time(page).await??))
    }

    async fn export(&self, request: Request<v1::RunRequest>) -> Answer<Self::ExportStream> {
        let run = RunId(request.into_inner().run);
        let driver = self.driver.clone();
        let first = driver.in_time(driver.journal(run, JournalCursor::default()));
        let mut page = first.await??.ok_or_else(|| not_found(run))?;
        Ok(stream(|sender| async move {
            loop {
                for (sequence, entry, line) in page.lines {
                    let record = message::record(sequence, &entry, line);
                    // An error means that the reader has gone.
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
        }))
    }

    async fn credits(&self, request: Request<v1::RunRequest>) -> Answer<Self::CreditsStream> {
        let run = RunId(request.into_inner().run);
        let credits = self.driver.in_time(message::credits(&self.driver, run)).await??;
        let credits = credits.ok_or_else(|| not_found(run))?;
        let credits = tokio_stream::iter(credits.into_iter().map(Ok));
        Ok(Response::new(Box::pin(credits)))
    }

    async fn events(&self, request: Request<v1::EventsRequest>) -> Answer<Self::EventsStream> {
        let v1::EventsRequest { run, mut after, follow } = request.into_inner();
        let run = match run {
            Some(_) => Some(self.run(run).await?),
            None => None,
        };
        let (driver, mut closing) = (self.driver.clone(), self.closing.clone());
        let last = driver.in_time(driver.last_event()).await??;
        if after > last {
            return Err(Status::out_of_range(format!(
                "the event log ends at event {last}, before event {after}: this coordinator has other \
                 data; read its events from the start"
            )));
        }
        let mut changes = driver.changes();
        Ok(stream(|sender| async move {
            loop {
                changes.mark_unchanged();
                let Ok(events) = driver.events(run, after).await else { return };
                for event in events {
                    after = event.1.sequence;
                    // An error means that the reader has gone.
                    if sender.send(Ok(message::event(&event))).await.is_err() {
                        return;
                    }
                }
                let ends = !follow
                    || tokio::select! {
                        changed = changes.changed() => changed.is_err(),
                        _ = closing.wait_for(|closing| *closing) => true,
                        () = sender.closed() => true,
                    };
                if ends {
                    return;
                }
            }
        }))
    }
}

/// Returns a response that streams the messages of a task.
fn stream<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
    task: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> F,
) -> Response<Streamed<T>> {
    let (sender, receiver) = mpsc::channel(STREAM_CAPACITY);
    tokio::spawn(task(sender));
    Response::new(Box::pin(ReceiverStream::new(receiver)))
}

impl RunsService {
    /// Returns the given run, if it exists, or else the one served first.
    async fn run(&self, run: Option<u64>) -> Result<RunId, Status> {
        let runs = self.driver.runs().await?;
        match run.map(RunId) {
            Some(run) if runs.iter().any(|known| known.manifest.run == run) => Ok(run),
            Some(run) => Err(not_found(run)),
            None => served_first(&runs).ok_or_else(|| {
                Status::not_found("there are no runs; submit one with `queensctl submit`")
            }),
        }
    }

    async fn control(&self, request: Request<v1::RunRequest>, command: Command) -> Answer<v1::Run> {
        let run = RunId(request.get_ref().run);
        let run = self.driver.control(run, command, by(&request)).await?;
        Ok(Response::new(message::run(&run)))
    }
}

/// Returns the name of the caller's token or certificate.
fn by<T>(request: &Request<T>) -> By {
    request.extensions().get::<Subject>().and_then(Subject::name).cloned()
}

pub(super) fn not_found(run: RunId) -> Status {
    RequestError::from(ControlError::NoSuchRun(run)).into()
}

/// The statuses of a run for one caller, an extension of a response.
/// [`encoded_once`] turns it into the body.
#[derive(Clone)]
pub(super) struct StatusWatch {
    statuses: StatusCache,
    run: RunId,
    /// `None` for a single status.
    following: Option<Following>,
    is_first: bool,
    is_last: bool,
}

/// Conditions under which a stream sends further statuses.
#[derive(Clone)]
pub(super) struct Following {
    /// The driver's changes since the last status.
    pub(super) changed: watch::Receiver<u64>,
    /// Shutdown signal: the stream sends its last message and ends.
    pub(super) closing: watch::Receiver<bool>,
    /// Minimum time between two messages.
    pub(super) interval: Duration,
}

impl Following {
    /// Waits for a change. Returns whether it is the shutdown; `None` without a driver.
    async fn wait(&mut self) -> Option<bool> {
        let Self { changed, closing, interval } = self;
        let change = async {
            sleep(*interval).await;
            changed.changed().await
        };
        tokio::select! {
            changed = change => changed.ok().map(|()| false),
            _ = closing.wait_for(|closing| *closing) => Some(true),
        }
    }
}

impl StatusWatch {
    pub(super) fn new(statuses: StatusCache, run: RunId, following: Option<Following>) -> Self {
        Self { statuses, run, following, is_first: true, is_last: false }
    }

    /// Returns the next status as a gRPC frame; `None` after the result or shutdown.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        if self.is_last {
            return None;
        }
        let is_first = std::mem::replace(&mut self.is_first, false);
        let mut closing = false;
        if let Some(following) = &mut self.following {
            if !is_first {
                closing = following.wait().await?;
            }
            following.changed.mark_unchanged();
        }
        match self.statuses.get_framed(self.run).await {
            Ok(Some((status, framed))) => {
                // The result of a complete run that is rechecked is not its last.
                let state = status.run.as_ref().map(v1::Run::state);
                let is_rechecked =
                    state == Some(v1::RunState::Complete) && !status.reason.is_empty();
                let has_ended = status.result.is_some() && !is_rechecked;
                self.is_last = self.following.is_none() || has_ended || closing;
                Some(Ok(framed))
            }
            // The run was deleted.
            Ok(None) if !is_first => None,
            Ok(None) => Some(Err(not_found(self.run))),
            Err(stopped) => Some(Err(stopped.into())),
        }
    }
}

/// Turns a response's [`StatusWatch`] into a body that creates a status only when
/// the transport can send it. A slow reader then holds only references to shared messages.
pub(super) fn encoded_once(mut answer: http::Response<Body>) -> http::Response<Body> {
    match answer.extensions_mut().remove::<StatusWatch>() {
        Some(watch) => answer.map(|_| Body::new(StreamBody::new(unfold(Some(watch), next_frame)))),
        None => answer,
    }
}

/// Returns the next frame and the watch for later ones; `None` after the trailers.
async fn next_frame(
    watch: Option<StatusWatch>,
) -> Option<(Result<Frame<Bytes>, Status>, Option<StatusWatch>)> {
    let mut watch = watch?;
    let end = match watch.next().await {
        Some(Ok(message)) => return Some((Ok(Frame::data(message)), Some(watch))),
        Some(Err(status)) => status,
        None => Status::ok(""),
    };
    let mut trailers = http::HeaderMap::new();
    let trailers = end.add_header(&mut trailers).map(|()| Frame::trailers(trailers));
    Some((trailers, None))
}
