//! The file descriptors of this process, some of which are reserved for files.
//!
//! A coordinator without free descriptors could not store a result, so connections get only the others.

use std::{
    fs::{self, File},
    io,
    sync::Mutex,
};

/// Descriptors reserved for occasional files, for listening, and for libraries.
const RESERVED_FOR_FILES: u64 = 64;

/// The number of descriptors held open so that other code cannot use them.
/// Writing one file needs two at a time, and another thread may take the first one that is released.
const SPARE: usize = 8;

/// Minimum number of connections, even with a low limit.
const FEWEST_CONNECTIONS: u64 = 4;

static SPARES: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Raises the limit of open files as far as permitted, and reserves descriptors.
pub fn prepare() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    take_spares();
}

/// Returns the maximum number of connections, given the descriptors in use.
pub fn left_for_connections() -> usize {
    let limit = open_files_limit().unwrap_or(u64::MAX);
    let taken = open_now() + RESERVED_FOR_FILES.min(limit / 4);
    let free = limit.saturating_sub(taken).max(FEWEST_CONNECTIONS);
    usize::try_from(free).unwrap_or(usize::MAX)
}

/// Formats the limit of open files.
pub fn limit() -> String {
    open_files_limit().map_or_else(|| "unknown".to_owned(), |limit| limit.to_string())
}

/// Returns the limit of open files and sockets; `None` if it is unknown.
fn open_files_limit() -> Option<u64> {
    #[cfg(unix)]
    return rlimit::Resource::NOFILE.get_soft().ok();
    #[cfg(not(unix))]
    None
}

/// Opens a file, with a reserved descriptor if no other is free.
pub fn open<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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

/// Returns whether an error means too many open files in the process or system.
pub fn exhausted(error: &io::Error) -> bool {
    /// ENFILE and EMFILE, the same on Linux, macOS and the BSDs.
    const NO_DESCRIPTOR: [i32; 2] = [23, 24];
    cfg!(unix) && error.raw_os_error().is_some_and(|code| NO_DESCRIPTOR.contains(&code))
}

fn take_spares() {
    let mut spares = SPARES.lock().expect("nothing panics here");
    while spares.len() < SPARE {
        // Without a free descriptor, a later call tries again.
        let Ok(spare) = File::open("/dev/null") else {
            return;
        };
        spares.push(spare);
    }
}

/// Returns the number of descriptors in use; a guess if the number is unknown.
fn open_now() -> u64 {
    const GUESS: u64 = 32;
    let listed = ["/proc/self/fd", "/dev/fd"].into_iter().find_map(|dir| fs::read_dir(dir).ok());
    listed.map_or(GUESS, |entries| entries.count() as u64)
}
