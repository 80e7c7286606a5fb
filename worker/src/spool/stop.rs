//! Stopping a worker by its spool, from another process, on any system: a file that says so.
//!
//! Deliberately no signal to a number that the worker left behind: by the time that somebody reads it, it
//! may be another program's.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, interval, sleep};

use super::SpoolError;

/// The file that asks a worker to stop.
const STOP: &str = "stop";

/// How often a worker looks for it.
const LOOK: Duration = Duration::from_secs(2);

/// How long whoever asked waits: a planned stop takes less, unless the worker was told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at whether it is gone.
const AGAIN: Duration = Duration::from_millis(200);

/// Which workers are to stop.
#[derive(Clone, Debug)]
pub enum Which {
    /// The one with this spool directory.
    Directory(PathBuf),
    /// Of those with a usual spool directory the one of this name, or all.
    Usual(Option<String>),
}

/// Why workers were not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Nobody is there.
    #[error("no worker runs with a spool in {}: give the --spool that it was started with", .0.display())]
    Nobody(PathBuf),
    /// Nobody is there, and where the worker is nobody said.
    #[error(
        "no worker runs with a spool below {}: ask where it was started, or give its --spool, which its \
         first line names",
        .0.display()
    )]
    NobodyHere(PathBuf),
    /// It was told, and is still there.
    #[error(
        "the worker with spool {} was told to stop and still runs after {} s: it may take as long as its \
         --drain-limit",
        .0.display(),
        PATIENCE.as_secs()
    )]
    Stays(PathBuf),
    /// A directory cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

/// Asks workers on this machine to stop in good order, and waits until they have. Their spool
/// directories.
pub async fn stop(which: &Which) -> Result<Vec<PathBuf>, StopError> {
    let (nobody, directories) = match which {
        Which::Directory(directory) => (
            StopError::Nobody(directory.clone()),
            vec![directory.clone()],
        ),
        Which::Usual(name) => {
            let base = super::usual_base();
            let directories = match name {
                Some(name) => vec![base.join(super::directory_name(name))],
                None => directories(&base),
            };
            (StopError::NobodyHere(super::absolute(&base)), directories)
        }
    };
    let mut told = Vec::new();
    for directory in directories {
        if is_in_use(&directory).map_err(unusable(&directory))? {
            File::create(directory.join(STOP)).map_err(unusable(&directory))?;
            told.push(directory);
        }
    }
    if told.is_empty() {
        return Err(nobody);
    }
    for directory in &told {
        wait(directory).await?;
    }
    Ok(told)
}

async fn wait(directory: &Path) -> Result<(), StopError> {
    let begun = Instant::now();
    while is_in_use(directory).map_err(unusable(directory))? {
        if begun.elapsed() >= PATIENCE {
            return Err(StopError::Stays(directory.to_owned()));
        }
        sleep(AGAIN).await;
    }
    Ok(())
}

/// Resolves when somebody asks the worker with this spool to stop; never where it has none.
pub(crate) async fn asked(directory: Option<PathBuf>) {
    let Some(file) = directory.map(|directory| directory.join(STOP)) else {
        return std::future::pending().await;
    };
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        if fs::exists(&file).unwrap_or(false) {
            tracing::info!("`worker stop` asks this worker to stop");
            return;
        }
    }
}

/// A new process is not meant by what the one before it was asked.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(STOP)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether a worker holds the lock of this spool.
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
    let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn unusable(path: &Path) -> impl Fn(io::Error) -> SpoolError {
    move |error| SpoolError::Unusable {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use common::run::WorkerId;

    use super::*;
    use crate::spool::Spool;

    #[tokio::test]
    async fn a_worker_stops_when_its_spool_says_so() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().to_owned();
        let which = Which::Directory(directory.clone());
        assert!(matches!(stop(&which).await, Err(StopError::Nobody(_))));
        // What was asked of nobody, or of a worker that is gone.
        File::create(directory.join(STOP)).unwrap();
        let spool = Spool::open(&directory, WorkerId(1)).unwrap();
        let worker = tokio::spawn({
            let directory = directory.clone();
            async move {
                asked(Some(directory)).await;
                drop(spool);
            }
        });
        assert_eq!(stop(&which).await.unwrap(), [directory]);
        worker.await.unwrap();
    }
}
