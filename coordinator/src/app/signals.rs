//! Ctrl-C and SIGTERM.

use std::{
    io, process,
    time::{Duration, Instant},
};

use crate::exit::Exit;

/// Signals so close together are one: `timeout` and some shells send theirs to the process and then
/// to its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// The signals that ask the process to stop.
#[derive(Debug)]
pub(super) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Takes the signals over: none is lost from here on.
    pub(super) fn new() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// From now on the next signal ends the process at once: what is acknowledged is on disk.
    pub(super) fn next_one_exits(mut self) {
        tokio::spawn(async move {
            let before = Instant::now();
            self.next().await;
            while before.elapsed() < TOGETHER {
                self.next().await;
            }
            process::exit(Exit::Interrupted.code().into());
        });
    }
}
