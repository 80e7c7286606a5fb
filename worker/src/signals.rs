//! What tells a process to stop, whatever the system.

use std::{
    io,
    time::{Duration, Instant},
};

/// Signals so close together are one: `timeout` and some shells send theirs to the process and then
/// to its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// What tells a program to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C: SIGINT.
    Interrupt,
    /// A service manager: SIGTERM; a terminal that is closed: SIGHUP on Linux, on Windows the end of the
    /// console or of the session.
    Terminate,
}

/// The signals to stop, in the order they come.
#[derive(Debug)]
pub struct Signals(system::Streams);

impl Signals {
    /// From now on, none of them ends the process by itself.
    pub fn new() -> io::Result<Self> {
        Ok(Self(system::Streams::new()?))
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        self.0.next().await
    }

    /// The next one that is not the same word twice.
    pub async fn next_apart(&mut self) -> Signal {
        let before = Instant::now();
        loop {
            let signal = self.next().await;
            if before.elapsed() >= TOGETHER {
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

    #[derive(Debug)]
    pub(super) struct Streams {
        interrupt: Stream,
        terminate: Stream,
        /// `None` where it is left to what the system does of it.
        hangup: Option<Stream>,
    }

    impl Streams {
        pub(super) fn new() -> io::Result<Self> {
            let hangup = !outlives_its_terminal();
            let hangup = hangup.then(|| signal(SignalKind::hangup()));
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: hangup.transpose()?,
            })
        }

        pub(super) async fn next(&mut self) -> Signal {
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

    /// Whether whoever started this process (`nohup`) has it ignore the end of its terminal, which a
    /// handler would undo. Where the system does not say, it may be so.
    fn outlives_its_terminal() -> bool {
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

    #[derive(Debug)]
    pub(super) struct Streams {
        interrupt: CtrlC,
        stop: CtrlBreak,
        close: CtrlClose,
        logoff: CtrlLogoff,
        shutdown: CtrlShutdown,
    }

    impl Streams {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: windows::ctrl_c()?,
                stop: windows::ctrl_break()?,
                close: windows::ctrl_close()?,
                logoff: windows::ctrl_logoff()?,
                shutdown: windows::ctrl_shutdown()?,
            })
        }

        pub(super) async fn next(&mut self) -> Signal {
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

#[cfg(not(any(unix, windows)))]
mod system {
    use std::io;

    use super::Signal;

    /// Nothing that is known here tells a process to stop.
    #[derive(Debug)]
    pub(super) struct Streams;

    impl Streams {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn next(&mut self) -> Signal {
            std::future::pending().await
        }
    }
}
