//! Exit codes of the programs, and the signals that stop them, on every system.

use std::{
    fmt::Display,
    process::ExitCode,
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success; for a run: complete and consistent with all checks.
    Success = 0,
    /// Failure.
    Error = 1,
    /// Invalid command line.
    Usage = 2,
    /// A check of the total failed, or tasks are disputed.
    Contradicted = 3,
    /// Complete, but nothing bounds the wrong counts, and no published total matches.
    Unverified = 4,
    /// A time limit for waiting expired; the code of `timeout`.
    TimedOut = 124,
    /// Stopped by a signal, with everything saved.
    Interrupted = 130,
}

/// A usage error that the command line parser cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadUsage(pub String);

impl BadUsage {
    /// Converts an error into a usage error.
    pub fn of(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Minimum time between two signals: `timeout` signals a process, then its group.
const DEBOUNCE: Duration = Duration::from_millis(300);

/// A request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C (SIGINT).
    Interrupt,
    /// SIGTERM; on Linux SIGHUP; on Windows Ctrl-Break or end of console or session.
    Terminate,
}

pub use system::{Signals, suspend};

impl Signals {
    /// Waits for the next signal, ignoring repetitions of the previous one.
    pub async fn next_distinct(&mut self) -> Signal {
        let before = Instant::now();
        loop {
            let signal = self.next().await;
            if before.elapsed() >= DEBOUNCE {
                return signal;
            }
        }
    }
}

#[cfg(unix)]
mod system {
    use std::io;

    use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

    use super::Signal;

    /// A stream of stop signals.
    #[derive(Debug)]
    pub struct Signals {
        interrupt: Stream,
        terminate: Stream,
        /// `None` if the process ignores SIGHUP, which a handler would undo.
        hangup: Option<Stream>,
    }

    impl Signals {
        /// Installs handlers; the signals no longer end the process by default.
        pub fn new() -> io::Result<Self> {
            let hangup = !ignores_hangup();
            let hangup = hangup.then(|| signal(SignalKind::hangup()));
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: hangup.transpose()?,
            })
        }

        pub async fn next(&mut self) -> Signal {
            tokio::select! {
                _ = self.interrupt.recv() => Signal::Interrupt,
                _ = self.terminate.recv() => Signal::Terminate,
                () = hung_up(&mut self.hangup) => Signal::Terminate,
            }
        }
    }

    async fn hung_up(hangup: &mut Option<Stream>) {
        match hangup {
            Some(hangup) => {
                hangup.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Stops this job as Ctrl-Z does; returns when the shell continues it.
    pub fn suspend() -> io::Result<()> {
        // SAFETY: `kill` only reads numbers; 0 is this process group, as for the terminal's Ctrl-Z.
        match unsafe { libc::kill(0, libc::SIGTSTP) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns whether SIGHUP is ignored, as under `nohup`; `true` if unknown.
    fn ignores_hangup() -> bool {
        const SIGHUP: u32 = 1;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ignored.is_none_or(|mask| mask & (1 << (SIGHUP - 1)) != 0)
    }
}

#[cfg(windows)]
mod system {
    use std::io;

    use tokio::signal::windows::{self, CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown};

    use super::Signal;

    /// A stream of stop signals.
    #[derive(Debug)]
    pub struct Signals {
        interrupt: CtrlC,
        stop: CtrlBreak,
        close: CtrlClose,
        logoff: CtrlLogoff,
        shutdown: CtrlShutdown,
    }

    /// Does nothing: Windows has no job control.
    pub fn suspend() -> io::Result<()> {
        Ok(())
    }

    impl Signals {
        /// Installs handlers; the signals no longer end the process by default.
        pub fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: windows::ctrl_c()?,
                stop: windows::ctrl_break()?,
                close: windows::ctrl_close()?,
                logoff: windows::ctrl_logoff()?,
                shutdown: windows::ctrl_shutdown()?,
            })
        }

        pub async fn next(&mut self) -> Signal {
            tokio::select! {
                _ = self.interrupt.recv() => Signal::Interrupt,
                _ = self.stop.recv() => Signal::Terminate,
                _ = self.close.recv() => Signal::Terminate,
                _ = self.logoff.recv() => Signal::Terminate,
                _ = self.shutdown.recv() => Signal::Terminate,
            }
        }
    }
}
