//! Stopping a worker from another process on any system, by a file in its spool.
//!
//! A signal to a stored process ID could reach another program that the system gave the same ID.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use proto::connect::claim_folder;
use tokio::{
    task::spawn_blocking,
    time::{Instant, interval, sleep},
};

use super::SpoolError;

/// The file that asks a worker to stop.
const STOP: &str = "stop";

/// Interval at which a worker looks for the stop file.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum wait for a worker to exit; a drain takes less by default.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which [`stop`] checks whether the worker has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Reason why workers were not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error("no worker runs with a spool in {}: give the --spool of a running worker", .0.display())]
    None(PathBuf),
    #[error(
        "no worker{} runs with a spool below {}: run this where the worker was started, or give its \
         --spool, which the first line of its log shows",
        .name.as_ref().map_or_else(String::new, |name| format!(" called '{name}' (--name)")),
        .base.display()
    )]
    NoneBelow { name: Option<String>, base: PathBuf },
    #[error(
        "the worker with spool {} was asked to stop and still runs after {} s: its --drain-limit may be \
         longer",
        .0.display(),
        STOP_TIMEOUT.as_secs()
    )]
    StillRuns(PathBuf),
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

/// Drains workers on this machine, waits for their exit, and returns their spools.
///
/// Stops the worker with directory `spool`. Without it, stops the worker called `name` or, without a
/// name, all workers, among those with a default directory.
pub async fn stop(spool: Option<PathBuf>, name: Option<&str>) -> Result<Vec<PathBuf>, StopError> {
    let base = super::default_base();
    let not_running = match &spool {
        Some(directory) => StopError::None(directory.clone()),
        None => {
            StopError::NoneBelow { name: name.map(str::to_owned), base: super::absolute(&base) }
        }
    };
    let owned = spool.as_ref().unwrap_or(&base);
    if owned.exists() {
        // A link in the place of a stop file would be followed.
        claim_folder(owned).map_err(SpoolError::unusable(owned))?;
    }
    let named = spool.or_else(|| Some(base.join(super::directory_name(name?))));
    let directories = named.map_or_else(|| directories(&base), |directory| vec![directory]);
    let mut stopping = Vec::new();
    for directory in directories {
        let unusable = SpoolError::unusable(&directory);
        if is_in_use(&directory).map_err(unusable)? {
            File::create(directory.join(STOP)).map_err(unusable)?;
            stopping.push(directory);
        }
    }
    if stopping.is_empty() {
        return Err(not_running);
    }
    for directory in &stopping {
        wait(directory).await?;
    }
    Ok(stopping)
}

async fn wait(directory: &Path) -> Result<(), StopError> {
    let started = Instant::now();
    while is_in_use(directory).map_err(SpoolError::unusable(directory))? {
        if started.elapsed() >= STOP_TIMEOUT {
            return Err(StopError::StillRuns(directory.to_owned()));
        }
        sleep(EXIT_POLL_INTERVAL).await;
    }
    Ok(())
}

/// Resolves when the worker with this spool is asked to stop; never without one.
pub(crate) async fn requested(directory: Option<PathBuf>) {
    let Some(file) = directory.map(|directory| directory.join(STOP)) else {
        return std::future::pending().await;
    };
    let mut polls = interval(POLL_INTERVAL);
    loop {
        polls.tick().await;
        let file = file.clone();
        // A network disk that does not respond must not delay the calls.
        if spawn_blocking(move || fs::exists(file).unwrap_or(false)).await.unwrap_or(false) {
            tracing::info!("stop requested by `worker stop`");
            return;
        }
    }
}

/// Removes a stop request to an earlier process.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(STOP)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns whether a worker has locked this spool.
fn is_in_use(directory: &Path) -> io::Result<bool> {
    let lock = match File::open(directory.join(super::LOCK)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn directories(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Spool;

    #[tokio::test]
    async fn a_worker_stops_on_a_request_in_its_spool() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().to_owned();
        let here = || Some(directory.clone());
        assert!(matches!(stop(here(), None).await, Err(StopError::None(_))));
        // A request to an earlier process, which this worker ignores.
        File::create(directory.join(STOP)).unwrap();
        let spool = Spool::open(&directory).unwrap();
        let worker = tokio::spawn({
            let directory = directory.clone();
            async move {
                requested(Some(directory)).await;
                drop(spool);
            }
        });
        assert_eq!(stop(here(), None).await.unwrap(), [directory]);
        worker.await.unwrap();
    }
}
