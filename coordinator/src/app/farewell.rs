//! The last word to the workers: a worker that was told that every run is over ends by itself, while
//! one that finds its coordinator gone waits for it to come back.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::{
    driver::{DriverHandle, LOCAL_WORKER},
    sched::{RunSummary, WorkerState, WorkerStatus},
    store::RunState,
    text::{plural, tell},
};

/// Between two looks at who knows.
const LOOK: Duration = Duration::from_millis(50);

/// Nobody waits longer than this without a word about why.
const SILENCE: Duration = Duration::from_secs(2);

/// Nobody waits longer than this for workers that may never call again.
const LONGEST: Duration = Duration::from_secs(25);

/// Waits until every worker that may call within `limit` was told that every run is over. Not if one
/// is not: its workers had better wait.
pub(super) async fn farewell(driver: &DriverHandle, limit: Duration) {
    let started = Instant::now();
    let mut said = false;
    while started.elapsed() < limit.min(LONGEST) {
        let (Ok(runs), Ok(workers)) = (driver.runs().await, driver.workers().await) else {
            return;
        };
        let unaware = workers
            .iter()
            .filter(|worker| waits_in_vain(worker))
            .count();
        if unaware == 0 || runs.iter().any(is_open) {
            return;
        }
        if !said && started.elapsed() > SILENCE {
            said = true;
            tell(&format!(
                "telling {} that every run is over, for {} s at most (Ctrl-C: exit at once)",
                plural(unaware, "worker"),
                limit.min(LONGEST).as_secs()
            ));
        }
        sleep(LOOK).await;
    }
}

fn is_open(run: &RunSummary) -> bool {
    matches!(run.state, RunState::Running | RunState::Paused)
}

fn waits_in_vain(worker: &WorkerStatus) -> bool {
    let calls = matches!(
        worker.state,
        WorkerState::Working | WorkerState::Idle | WorkerState::Paused
    );
    calls && !worker.knows_the_end && worker.info.id != LOCAL_WORKER
}
