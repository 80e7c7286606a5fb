//! Work that brings a runtime of its own along, from where there is one already.

use std::{panic::resume_unwind, thread};

/// Does it on a thread without async tasks, and waits for that.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let done = scope.spawn(work).join();
        done.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
