//! Time of the processor, by the system's own account, so that whatever else the machine does is left
//! out.

use std::time::{Duration, Instant};

use common::crews::Crew;

/// Started with a crew's piece of work; tells how much time of one core it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    account: Account,
    threads: u32,
    began: Instant,
    before: Option<Duration>,
}

/// Whose time a crew's is.
#[derive(Clone, Copy, Debug)]
enum Account {
    /// The calling thread's: a crew of one.
    Thread,
    /// The whole process's: the only crew.
    Process,
    /// Nobody keeps it: its threads have the time of the clock.
    Clock,
}

impl Stopwatch {
    /// For one of `crews` crews, on the thread that leads it.
    pub(crate) fn start(crew: Crew, crews: u16) -> Self {
        let account = match (crew.threads.get(), crews) {
            (1, _) => Account::Thread,
            (_, 1) => Account::Process,
            (_, _) => Account::Clock,
        };
        Self {
            account,
            threads: crew.threads.get().into(),
            began: Instant::now(),
            before: account.now(),
        }
    }

    /// Core seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        match (self.before, self.account.now()) {
            (Some(before), Some(now)) => now.saturating_sub(before).as_secs_f64(),
            (None, _) | (_, None) => self.began.elapsed().as_secs_f64() * f64::from(self.threads),
        }
    }
}

impl Account {
    #[cfg(unix)]
    fn now(self) -> Option<Duration> {
        use rustix::time::{ClockId, clock_gettime};

        let clock = match self {
            Self::Thread => ClockId::ThreadCPUTime,
            Self::Process => ClockId::ProcessCPUTime,
            Self::Clock => return None,
        };
        clock_gettime(clock).try_into().ok()
    }

    /// Other systems' accounts are too coarse for a task.
    #[cfg(not(unix))]
    fn now(self) -> Option<Duration> {
        match self {
            Self::Thread | Self::Process | Self::Clock => None,
        }
    }
}
