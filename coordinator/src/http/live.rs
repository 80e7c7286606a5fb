//! What pages are sent while they are open: one rendering a second of every run that somebody looks
//! at, shared by all who do.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use common::run::RunId;
use serde_json::Value;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_stream::{Stream, StreamExt as _, wrappers::WatchStream};

use super::{
    grid::{Window, grid_json},
    map::{MAP_CELLS, map_json},
};
use crate::{
    driver::{Clock, DriverHandle, Stopped},
    render::{Facts, History, Point, Statuses},
    store::RunState,
};

const TICK: Duration = Duration::from_secs(1);

/// A run that nobody looks at is noted for its history once in so many ticks.
const UNWATCHED_TICKS: u64 = 10;

/// A map by what units have in common is drawn again after so long.
const GRID_LASTS: Duration = Duration::from_secs(5);

/// Runs with a history: those that are running, and those looked at.
const MOST_RUNS: usize = 50;

/// The runs, as they are looked at.
pub(super) struct Live {
    driver: DriverHandle,
    statuses: Statuses,
    clock: Clock,
    runs: Mutex<BTreeMap<RunId, Watched>>,
}

#[derive(Default)]
struct Watched {
    frames: watch::Sender<Bytes>,
    history: History,
    /// Its map, and when it was drawn.
    map: Option<(Instant, Value)>,
    /// The same by what units have in common.
    grid: Option<(Instant, Value)>,
}

impl Live {
    pub(super) fn new(driver: DriverHandle, statuses: Statuses, clock: Clock) -> Self {
        Self {
            driver,
            statuses,
            clock,
            runs: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Watched>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends frames until the driver stops.
    pub(super) async fn tick(&self) -> Result<(), Stopped> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0u64;
        loop {
            ticks.tick().await;
            let all = number.is_multiple_of(UNWATCHED_TICKS);
            number += 1;
            for run in self.due(all).await? {
                if let Some(facts) = self.look(run).await? {
                    let map = self.whole_map(run).await?.unwrap_or_default();
                    let frame = frame(&facts, map);
                    if let Some(watched) = self.lock().get(&run) {
                        watched.frames.send_replace(frame);
                    }
                } else {
                    self.lock().remove(&run);
                }
            }
        }
    }

    /// The runs to look at in this tick.
    async fn due(&self, all: bool) -> Result<Vec<RunId>, Stopped> {
        if all {
            let runs = self.driver.runs().await?;
            let running = runs.iter().filter(|run| run.state == RunState::Running);
            let mut known = self.lock();
            for run in running {
                if known.len() < MOST_RUNS {
                    known.entry(run.manifest.run).or_default();
                }
            }
            return Ok(known.keys().copied().collect());
        }
        let known = self.lock();
        let watched = known
            .iter()
            .filter(|(_, run)| run.frames.receiver_count() > 0);
        Ok(watched.map(|(run, _)| *run).collect())
    }

    /// What is said of a run now, which is noted in its history; `None` if there is none.
    pub(super) async fn look(&self, run: RunId) -> Result<Option<Facts>, Stopped> {
        let Some(status) = self.statuses.get(run).await? else {
            return Ok(None);
        };
        let now = self.clock.now().0;
        let mut runs = self.lock();
        let few = runs.len() < MOST_RUNS;
        let history = match runs.get_mut(&run) {
            Some(watched) => &mut watched.history,
            None if few => &mut runs.entry(run).or_default().history,
            None => &mut History::default(),
        };
        if status.result.is_none() {
            history.add(Point::of(&status, now));
        }
        Ok(Some(Facts::of(&status, history, now)))
    }

    /// All tasks of a run, as they stood at most a tick ago: it takes a look at every task, which is
    /// not repeated for all who open a page. `None` if there is no such run.
    pub(super) async fn whole_map(&self, run: RunId) -> Result<Option<Value>, Stopped> {
        let known = self.lock().get(&run).and_then(|run| run.map.clone());
        if let Some((drawn, map)) = known
            && drawn.elapsed() < TICK / 2
        {
            return Ok(Some(map));
        }
        let map = self.driver.task_map(run, 0..u64::MAX, MAP_CELLS).await?;
        let map = map.map(|map| map_json(&map));
        if let (Some(map), Some(watched)) = (&map, self.lock().get_mut(&run)) {
            watched.map = Some((Instant::now(), map.clone()));
        }
        Ok(map)
    }

    /// All tasks of a run by what their units have in common, as they stood some seconds ago at most.
    /// `None` if there is no such run.
    pub(super) async fn whole_grid(&self, run: RunId) -> Result<Option<Value>, Stopped> {
        let known = self.lock().get(&run).and_then(|run| run.grid.clone());
        if let Some((drawn, grid)) = known
            && drawn.elapsed() < GRID_LASTS
        {
            return Ok(Some(grid));
        }
        let grid = self.grid(run, Window::default()).await?;
        if let (Some(grid), Some(watched)) = (&grid, self.lock().get_mut(&run)) {
            watched.grid = Some((Instant::now(), grid.clone()));
        }
        Ok(grid)
    }

    /// A part of it. The driver says where tasks stand; what takes longer is done where nobody waits.
    pub(super) async fn grid(&self, run: RunId, window: Window) -> Result<Option<Value>, Stopped> {
        let Some((plan, standings)) = self.driver.standings(run).await? else {
            return Ok(None);
        };
        let drawn = spawn_blocking(move || grid_json(&plan, &standings, &window)).await;
        Ok(drawn.ok().flatten())
    }

    /// A run's history; empty if there is none.
    pub(super) fn history(&self, run: RunId) -> History {
        let runs = self.lock();
        runs.get(&run)
            .map(|run| run.history.clone())
            .unwrap_or_default()
    }

    /// Server-sent events about a run, until the server closes.
    pub(super) fn follow(
        &self,
        run: RunId,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
        let frames = self.lock().entry(run).or_default().frames.subscribe();
        let frames = WatchStream::from_changes(frames).map(Ok);
        // Told at once to come back in two seconds should the connection break.
        tokio_stream::once(Ok(Bytes::from_static(b"retry: 2000\n\n"))).chain(frames)
    }

    /// Ends every stream.
    pub(super) fn close(&self) {
        self.lock().clear();
    }
}

/// One event; JSON has no line ends.
fn frame(facts: &Facts, map: Value) -> Bytes {
    let mut said = facts.json();
    said["map"] = map;
    Bytes::from(format!("data: {said}\n\n"))
}
