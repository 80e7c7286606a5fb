//! File descriptors: how many this process may have, and which of them are kept for files.
//!
//! A coordinator that ran out of them could not keep a result, so connections get what is left when
//! everything else has its own.

use std::{
    fs::{self, File},
    io,
    sync::Mutex,
};

/// Kept back for the files that the store opens now and then, for listening, and for what the
/// libraries open on their own.
const KEPT_FOR_FILES: u64 = 64;

/// Of those, so many are held open, so that nothing else can have them: writing one file takes two
/// at a time, and another thread may catch the first that is let go.
const SPARE: usize = 8;

/// Connections that are served however low the limit is: fewer would serve nobody.
const FEWEST_CONNECTIONS: u64 = 4;

static SPARES: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Raises this process's limit of open files as far as the system lets it, and takes the spare
/// descriptors.
pub(crate) fn prepare() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
    take_spares();
}

/// How many connections may be served at the same time, given what is open now.
pub(crate) fn left_for_connections() -> usize {
    let limit = of_this_process().unwrap_or(u64::MAX);
    let taken = open_now() + KEPT_FOR_FILES.min(limit / 4);
    let left = limit.saturating_sub(taken).max(FEWEST_CONNECTIONS);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// What the limit of open files is, for people.
pub(crate) fn limit() -> String {
    of_this_process().map_or_else(|| "unknown".to_owned(), |limit| limit.to_string())
}

/// The limit of open files, which is one of sockets too; `None` where the system has none, or does not
/// tell.
fn of_this_process() -> Option<u64> {
    #[cfg(unix)]
    return rlimit::Resource::NOFILE.get_soft().ok();
    #[cfg(not(unix))]
    None
}

/// Opens a file; where no descriptor is left, with one of those kept back.
pub(crate) fn open<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    take_spares();
    loop {
        match open() {
            Err(error) if exhausted(&error) => {
                let spare = SPARES.lock().expect("nothing panics here").pop();
                match spare {
                    Some(spare) => drop(spare),
                    None => return Err(error),
                }
            }
            opened => return opened,
        }
    }
}

/// Whether a process, or the whole system, has as many open files as it may.
pub(crate) fn exhausted(error: &io::Error) -> bool {
    /// ENFILE and EMFILE, the same on Linux, macOS and the BSDs.
    const NO_DESCRIPTOR: [i32; 2] = [23, 24];
    cfg!(unix)
        && error
            .raw_os_error()
            .is_some_and(|code| NO_DESCRIPTOR.contains(&code))
}

fn take_spares() {
    let mut spares = SPARES.lock().expect("nothing panics here");
    while spares.len() < SPARE {
        // Where there is none to take, a later call finds one.
        let Ok(spare) = File::open("/dev/null") else {
            return;
        };
        spares.push(spare);
    }
}

/// Descriptors in use; a guess where the system does not tell.
fn open_now() -> u64 {
    const GUESS: u64 = 32;
    let listed = ["/proc/self/fd", "/dev/fd"]
        .into_iter()
        .find_map(|dir| fs::read_dir(dir).ok());
    listed.map_or(GUESS, |entries| entries.count() as u64)
}
