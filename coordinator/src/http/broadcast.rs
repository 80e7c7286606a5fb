//! Live updates for open pages: a run is rendered once per second for all pages.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex as BlockingMutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use common::messages::run::RunId;
use proto::v1;
use serde_json::json;
use store::{Clock, Note, RunState};
use tokio::{
    sync::{Mutex, watch},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_stream::{Stream, StreamExt as _, wrappers::WatchStream};
use view::{History, RunView};

use super::{
    machines::MachineCounts,
    map::{self, BoardDrawing, Sheets, TaskMap, Window, task_map},
};
use crate::{
    driver::{DriverHandle, Stopped},
    status_cache::StatusCache,
};

const TICK: Duration = Duration::from_secs(1);

/// Ticks between two history points of a run that no page shows.
const UNWATCHED_TICKS: u64 = 10;

const GRID_INTERVAL: Duration = Duration::from_secs(5);
const BOARD_INTERVAL: Duration = Duration::from_secs(4);
const SHARES_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two writes of a history to the store.
const HISTORY_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum wait of a page for shares, which otherwise follow in an update.
const SHARES_WAIT: Duration = Duration::from_millis(150);

/// Maximum number of runs with a history: running ones, and those that pages show.
const MAX_RUNS: usize = 50;

/// Renderings of the runs, cached for all requests.
pub(super) struct Broadcast {
    driver: DriverHandle,
    statuses: StatusCache,
    clock: Clock,
    runs: BlockingMutex<BTreeMap<RunId, CachedRun>>,
}

/// A value and the time of its computation.
type Cached<T> = Option<(Instant, T)>;

#[derive(Default)]
struct CachedRun {
    frames: watch::Sender<Bytes>,
    ended: bool,
    /// `None` until the stored history is read.
    history: Option<History>,
    /// Time of the first point of the history that is not stored.
    unstored_since: Option<Instant>,
    shares: Cached<MachineCounts>,
    /// Lock that is held while the journal is read.
    reading: Arc<Mutex<()>>,
    map: Cached<TaskMap>,
    grid: Cached<Sheets>,
    /// Lock of the grid's computation: after a change, all pages request it at once.
    drawing: Arc<Mutex<()>>,
    /// Number of parked tasks, and the disputed tasks, which alerts report. A map from
    /// before their last change (`problems_since`) may contradict the alerts.
    problem_tasks: (u64, Vec<u64>),
    problems_since: Option<Instant>,
    board: Cached<Option<Arc<BoardDrawing>>>,
}

impl CachedRun {
    fn is_watched(&self) -> bool {
        self.frames.receiver_count() > 0
    }
}

impl Broadcast {
    pub(super) fn new(driver: DriverHandle, statuses: StatusCache, clock: Clock) -> Self {
        Self { driver, statuses, clock, runs: BlockingMutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, CachedRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a part of a run's cache.
    fn cached<T>(&self, run: RunId, pick: impl Fn(&CachedRun) -> T) -> Option<T> {
        self.lock().get(&run).map(pick)
    }

    /// Changes a run's cache, if it has one.
    fn update(&self, run: RunId, change: impl FnOnce(&mut CachedRun)) {
        if let Some(cached) = self.lock().get_mut(&run) {
            change(cached);
        }
    }

    /// Sends updates until the driver stops.
    pub(super) async fn run(self: Arc<Self>) -> Result<(), Stopped> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0u64;
        loop {
            ticks.tick().await;
            let include_unwatched = number.is_multiple_of(UNWATCHED_TICKS);
            number += 1;
            for run in self.due(include_unwatched).await? {
                let is_watched = self.cached(run, CachedRun::is_watched).unwrap_or_default();
                if is_watched {
                    self.refresh_shares(run, Duration::ZERO).await;
                }
                let Some(view) = self.view(run).await? else {
                    self.lock().remove(&run);
                    continue;
                };
                let is_due = |run: &CachedRun| {
                    let since = run.unstored_since;
                    since.is_some_and(|since| run.ended || since.elapsed() >= HISTORY_INTERVAL)
                };
                if self.cached(run, is_due).unwrap_or_default() {
                    self.store_history(run).await;
                }
                if is_watched {
                    let map = self.whole_map(run).await?.unwrap_or_default();
                    let board = self.next_board(run).await?;
                    let frame = frame(&view, &map, board.as_deref());
                    self.update(run, |cached| drop(cached.frames.send_replace(frame)));
                }
            }
            self.lock()
                .retain(|_, run| !run.ended || run.is_watched() || run.unstored_since.is_some());
        }
    }

    /// Returns the runs to render in this tick.
    async fn due(&self, include_unwatched: bool) -> Result<Vec<RunId>, Stopped> {
        if include_unwatched {
            let runs = self.driver.runs().await?;
            let running = runs.iter().filter(|run| run.state == RunState::Running);
            let mut known = self.lock();
            for run in running {
                if known.len() < MAX_RUNS {
                    known.entry(run.manifest.run).or_default();
                }
            }
            return Ok(known.keys().copied().collect());
        }
        let known = self.lock();
        let watched = known.iter().filter(|(_, run)| run.is_watched());
        Ok(watched.map(|(run, _)| *run).collect())
    }

    /// Returns a run's view and adds it to the history; `None` if the run is unknown.
    pub(super) async fn view(&self, run: RunId) -> Result<Option<RunView>, Stopped> {
        let Some(status) = self.statuses.get(run).await? else {
            return Ok(None);
        };
        let now = self.clock.now().0;
        let is_read = self.cached(run, |run| run.history.is_some()).unwrap_or_default();
        let stored = if is_read { None } else { self.stored_history(run).await };
        let mut runs = self.lock();
        let is_full = runs.len() >= MAX_RUNS;
        let cached = match runs.get_mut(&run) {
            Some(cached) => cached,
            None if is_full => &mut CachedRun::default(),
            None => runs.entry(run).or_default(),
        };
        let state = status.run.as_ref().map(v1::Run::state);
        cached.ended = status.result.is_some() || state == Some(v1::RunState::Cancelled);
        let disputed = status.rechecks.clone().unwrap_or_default().disputed_tasks;
        let problem_tasks = (status.tasks_parked, disputed);
        if cached.problem_tasks != problem_tasks {
            (cached.problem_tasks, cached.problems_since) = (problem_tasks, Some(Instant::now()));
        }
        let history = cached.history.get_or_insert_with(|| stored.unwrap_or_default());
        if !cached.ended {
            history.record(&status, now);
            cached.unstored_since.get_or_insert_with(Instant::now);
        }
        let mut view = RunView::new(&status, history, now);
        let none = MachineCounts::default();
        let shares = cached.shares.as_ref().map_or(&none, |(_, shares)| shares);
        shares.complete(&mut view, &history.names);
        Ok(Some(view))
    }

    /// Returns the view for a new page, with machine shares if they are read in time.
    pub(super) async fn view_with_shares(
        self: &Arc<Self>,
        run: RunId,
    ) -> Result<Option<RunView>, Stopped> {
        if self.view(run).await?.is_some() {
            self.refresh_shares(run, SHARES_WAIT).await;
        }
        self.view(run).await
    }

    /// Reads new lines of a run's journal unless done recently; waits at most `wait`.
    async fn refresh_shares(self: &Arc<Self>, run: RunId, wait: Duration) {
        let state = self.cached(run, |cached| {
            let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < SHARES_INTERVAL;
            (cached.shares.as_ref().is_some_and(is_fresh), cached.reading.clone())
        });
        let Some((false, reading)) = state else { return };
        let this = self.clone();
        let read = tokio::spawn(async move {
            // Another page is reading.
            let Ok(_guard) = reading.try_lock() else { return };
            let known = this.cached(run, |cached| cached.shares.clone()).flatten();
            let mut shares = known.map(|(_, shares)| shares).unwrap_or_default();
            // A run that was deleted meanwhile has no shares.
            if shares.read(&this.driver, run).await.is_ok() {
                this.update(run, |cached| cached.shares = Some((Instant::now(), shares)));
            }
        });
        let _ = timeout(wait, read).await;
    }

    /// Returns all tasks, at most half a tick old; `None` if there is no such run.
    pub(super) async fn whole_map(&self, run: RunId) -> Result<Option<TaskMap>, Stopped> {
        let make = async {
            let tasks = self.driver.map_states(run).await?;
            Ok(tasks.map(|(_, map_states)| task_map(&map_states, 0, u64::MAX)))
        };
        self.cached_map(run, TICK / 2, |cached| &mut cached.map, make).await
    }

    /// Returns all tasks by frame or prefix; `None` if there is no such run.
    /// The map may be some seconds old, but not older than the last change of parked and disputed tasks
    /// that [`Self::view`] has seen.
    pub(super) async fn whole_grid(&self, run: RunId) -> Result<Option<Sheets>, Stopped> {
        let drawing = self.cached(run, |cached| cached.drawing.clone()).unwrap_or_default();
        let _guard = drawing.lock().await;
        let make = self.grid(run, Window::default());
        self.cached_map(run, GRID_INTERVAL, |cached| &mut cached.grid, make).await
    }

    /// Returns the cached map, or a new one if that is too old.
    async fn cached_map<T: Clone>(
        &self,
        run: RunId,
        lifetime: Duration,
        place: fn(&mut CachedRun) -> &mut Cached<T>,
        make: impl Future<Output = Result<Option<T>, Stopped>>,
    ) -> Result<Option<T>, Stopped> {
        if let Some(cached) = self.lock().get_mut(&run) {
            let since = cached.problems_since;
            if let Some((computed, map)) = place(cached)
                && computed.elapsed() < lifetime
                && since.is_none_or(|since| *computed >= since)
            {
                return Ok(Some(map.clone()));
            }
        }
        // Read before the call of the driver, so that later changes count as newer.
        let computed = Instant::now();
        let map = make.await?;
        if let Some(map) = &map {
            self.update(run, |cached| *place(cached) = Some((computed, map.clone())));
        }
        Ok(map)
    }

    /// Returns a part of the grouped tasks.
    /// The driver only copies their states; the rest runs on another thread.
    pub(super) async fn grid(&self, run: RunId, window: Window) -> Result<Option<Sheets>, Stopped> {
        let Some((plan, map_states)) = self.driver.map_states(run).await? else {
            return Ok(None);
        };
        let drawn = spawn_blocking(move || map::sheets(&plan, &map_states, &window)).await;
        Ok(drawn.ok().flatten())
    }

    /// Returns a solution from a task of a run; `None` if none was found quickly.
    pub(super) async fn board(&self, run: RunId) -> Result<Option<Arc<BoardDrawing>>, Stopped> {
        match self.cached(run, |run| run.board.clone()).flatten() {
            Some((_, board)) => Ok(board),
            None => self.next_board(run).await,
        }
    }

    /// Returns another solution if the last one is old enough.
    async fn next_board(&self, run: RunId) -> Result<Option<Arc<BoardDrawing>>, Stopped> {
        let known = self.cached(run, |run| run.board.clone()).flatten();
        if known.as_ref().is_some_and(|(since, _)| since.elapsed() < BOARD_INTERVAL) {
            return Ok(None);
        }
        let next = map::find_board(&self.driver, run).await?.map(Arc::new);
        let shown = next.clone().or_else(|| known?.1);
        self.update(run, |cached| cached.board = Some((Instant::now(), shown)));
        Ok(next)
    }

    /// Returns a run's history; empty if there is none.
    pub(super) fn history(&self, run: RunId) -> History {
        self.cached(run, |run| run.history.clone()).flatten().unwrap_or_default()
    }

    async fn stored_history(&self, run: RunId) -> Option<History> {
        let stored = self.driver.note(run, Note::History).await;
        Some(History::decode(&stored.ok()??))
    }

    /// Stores the history of a run. A failure affects only the charts.
    async fn store_history(&self, run: RunId) {
        let text = self.history(run).encode();
        self.update(run, |cached| cached.unstored_since = None);
        if let Err(error) = self.driver.keep_note(run, Note::History, text).await {
            tracing::warn!("run {run}: cannot store its history: {error}");
        }
    }

    /// Stores every history and ends every stream.
    pub(super) async fn close(&self) {
        let unstored = |(run, cached): (&RunId, &CachedRun)| cached.unstored_since.map(|_| *run);
        let runs: Vec<_> = self.lock().iter().filter_map(unstored).collect();
        for run in runs {
            self.store_history(run).await;
        }
        self.lock().clear();
    }

    /// Returns server-sent events about a run, until the server closes.
    pub(super) fn follow(
        &self,
        run: RunId,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
        let frames = self.lock().entry(run).or_default().frames.subscribe();
        let frames = WatchStream::from_changes(frames).map(Ok);
        // The browser's delay before it reconnects.
        tokio_stream::once(Ok(Bytes::from_static(b"retry: 2000\n\n"))).chain(frames)
    }
}

/// Encodes a server-sent event; the JSON contains no line breaks.
fn frame(view: &RunView, map: &TaskMap, board: Option<&BoardDrawing>) -> Bytes {
    let update = json!({ "view": view, "map": map, "board": board });
    Bytes::from(format!("data: {update}\n\n"))
}

#[cfg(test)]
mod tests {
    use common::{messages::run::Partial, method::Layout};
    use kit::FakeWorker;
    use scheduler::{
        Config, Scheduler,
        ledger::{Caller, Recheck},
    };
    use store::{MemoryStore, Store as _};
    use view::AlertKind;

    use super::*;
    use crate::driver::{Driver, Submission, new_manifest};

    #[tokio::test]
    async fn the_maps_show_every_dispute_that_an_alert_names() {
        let (scheduler, clock) = (Scheduler::new(Config::default(), 1), Clock::start());
        let store = MemoryStore::new();
        let secret = store.secret();
        let (driver, _) = Driver::start(scheduler, Box::new(store), clock).unwrap();
        let plan = kit::plan(8, Layout::FirstRows, 1);
        let manifest = new_manifest(&plan, 0, clock.now());
        let run = manifest.run;
        let recheck = Recheck::default();
        let submission = Submission { manifest, plan, new_run: false, recheck };
        driver.submit(submission, None).await.unwrap();
        let sync = async |id: u64, partials: Vec<Partial>| {
            let worker = FakeWorker { seconds_wanted: 1000.0, ..FakeWorker::new(id) };
            let caller = Caller::new(worker.id, None);
            driver.sync(caller, worker.report(partials)).await.unwrap()
        };
        let broadcast = Broadcast::new(driver.clone(), StatusCache::new(driver.clone()), clock);
        let seen = async || {
            let view = broadcast.view(run).await.unwrap().unwrap();
            let grid = broadcast.whole_grid(run).await.unwrap().unwrap();
            let map = broadcast.whole_map(run).await.unwrap().unwrap();
            let cells = [&grid.sheets[0].cells, &map.cells];
            let on_maps = cells.map(|cells| cells.contains('x'));
            (view.alerts.iter().any(|alert| alert.kind == AlertKind::TaskDisputed), on_maps)
        };
        let right = kit::count(&sync(1, Vec::new()).await.grants[0]);
        sync(1, vec![right]).await;
        assert_eq!(seen().await, (false, [false; 2]));
        let wrong = Partial { count: right.count + 1, ..right };
        sync(2, vec![kit::as_if_leased(secret, 2, wrong)]).await;
        assert_eq!(seen().await, (true, [true; 2]));
    }
}
