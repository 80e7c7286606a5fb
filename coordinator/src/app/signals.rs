//! What the signals to stop mean for a coordinator.

use std::process;

use worker::signals::Signals;

use crate::exit::Exit;

/// From now on the next signal ends the process at once: what is acknowledged is on disk.
pub(super) fn next_one_exits(mut signals: Signals) {
    tokio::spawn(async move {
        signals.next_apart().await;
        process::exit(Exit::Interrupted.code().into());
    });
}
