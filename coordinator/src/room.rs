//! How much room is left on the disk of a data directory.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);

/// A file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What this process may still write.
    pub free: u64,
    /// What it holds in all.
    pub all: u64,
}

/// What was last seen of it. A disk across a network may take its time, which nobody waits for who asks.
#[derive(Clone, Debug)]
pub struct SeenRoom(Arc<Mutex<Option<Room>>>);

impl SeenRoom {
    /// Looks at the disk of `directory` now, and again while somebody holds this. Within a runtime.
    pub fn watch(directory: PathBuf) -> Self {
        let seen = Arc::new(Mutex::new(room(&directory)));
        tokio::spawn(look_again(directory, Arc::downgrade(&seen)));
        Self(seen)
    }

    /// `None` where the operating system does not say.
    pub fn get(&self) -> Option<Room> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look_again(directory: PathBuf, seen: Weak<Mutex<Option<Room>>>) {
    loop {
        sleep(LOOK).await;
        let asked = directory.clone();
        let Ok(room) = spawn_blocking(move || room(&asked)).await else {
            return;
        };
        match seen.upgrade() {
            Some(seen) => *seen.lock().unwrap_or_else(PoisonError::into_inner) = room,
            None => return,
        }
    }
}

#[cfg(unix)]
fn room(directory: &Path) -> Option<Room> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(Room {
        free: found.f_bavail.checked_mul(found.f_frsize)?,
        all: found.f_blocks.checked_mul(found.f_frsize)?,
    })
}

#[cfg(not(unix))]
fn room(_: &Path) -> Option<Room> {
    None
}
