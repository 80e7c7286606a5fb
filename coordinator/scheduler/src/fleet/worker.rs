//! One worker: its session, leases and speed; and the coordinator's own referee.

use std::collections::{BTreeSet, VecDeque};

use common::messages::{run::SessionId, sync::WorkerInfo};

use super::{LeaseIx, RunIx};
use crate::clock::Ticks;

/// Cost per second of one reference thread: a cost is its time in microseconds.
pub(crate) const REFERENCE_SPEED: f64 = 1e6;

/// Number of earlier sessions of a worker that are remembered.
const SESSION_HISTORY: usize = 4;

/// Number of declines in a row after which a worker gets no tasks of a run for a while.
const MAX_DECLINES: u32 = 3;

/// Number of runs of which a worker's declines are remembered.
const MAX_DECLINED_RUNS: usize = 16;

/// Maximum plausible speed of a thread, as a multiple of the reference thread.
const MAX_SPEEDUP: f64 = 20.0;

/// Maximum plausible number of a machine's threads, however many it states.
const MAX_MACHINE_THREADS: u32 = 1_024;

/// Weight of a measurement relative to the next one in a measured speed.
const SPEED_DECAY: f64 = 0.9;

/// A run whose tasks a worker declines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declined {
    pub(crate) run: RunIx,
    pub(crate) times: u32,
    pub(crate) until: Ticks,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) info: WorkerInfo,
    /// Current session; `None` if only the worker's leases on disk are known.
    pub(crate) session: Option<SessionId>,
    pub(crate) past_sessions: VecDeque<SessionId>,
    pub(crate) draining: bool,
    /// Whether an operator drains this process.
    pub(crate) drain_requested: bool,
    /// Reason for the pause; empty if the worker is not paused.
    pub(crate) paused: String,
    /// Whether the worker has drained, or left with a package: it holds no other lease.
    pub(crate) has_stopped: bool,
    /// Time of the next expected call.
    pub(crate) due: Ticks,
    pub(crate) leases: BTreeSet<LeaseIx>,
    /// Cost of the leased tasks.
    pub(crate) leased_cost: u64,
    pub(crate) round: u64,
    pub(crate) seen: Ticks,
    /// Time at which the worker is lost unless it calls; `None` once it is lost.
    pub(crate) deadline: Option<Ticks>,
    /// End of the worker's last lease on disk, in Unix milliseconds.
    pub(crate) leased_until_ms: u64,
    /// Time at which the worker is forgotten; `None` while it is connected.
    pub(crate) forget_at: Option<Ticks>,
    /// Part of [`Workers::live_threads`](super::Workers::live_threads).
    pub(crate) live_threads: u64,
    pub(crate) tasks_done: u64,
    pub(crate) declined: Vec<Declined>,
    /// Threads that failed their self-test.
    pub(crate) failed_threads: u32,
    /// Number of tasks in progress at the worker's last call.
    pub(crate) crews: u32,
    /// Self-tests that threads of this process passed.
    pub(crate) self_tests_passed: u64,
    /// Whether more suspect results follow: the call that reported them was full.
    pub(crate) has_more_suspect_results: bool,
    /// Whether the last reply to the worker said that all runs are finished.
    pub(crate) notified_finished: bool,
    /// Speed of the whole machine by the coordinator's clock, however long it says that its tasks took.
    pub(crate) speed: Speed,
    /// Start of the time that the next counts took: the last counts, or the first lease after the worker held none.
    pub(crate) busy_since: Ticks,
    /// Cost of the tasks whose counts this call submits.
    pub(crate) delivered: u64,
}

/// Measured speed; older measurements weigh less.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    cost: f64,
    seconds: f64,
}

impl Speed {
    pub(crate) fn measure(&mut self, cost: u64, took_ms: Ticks) {
        self.cost = self.cost * SPEED_DECAY + cost as f64;
        self.seconds = self.seconds * SPEED_DECAY + took_ms.max(1) as f64 / 1e3;
    }

    /// Returns the cost per second, once a task has finished.
    pub(crate) fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.cost / self.seconds)
    }
}

/// Result of registering a worker's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionUpdate {
    /// The session continues, or is the first.
    Known,
    /// The worker was restarted.
    Restarted,
    /// A later session of this worker has called.
    Superseded,
}

impl Worker {
    /// Registers the session of a call.
    /// `silent`: the current session has not called for so long that an earlier one may replace it.
    pub(crate) fn register_session(&mut self, info: &WorkerInfo, silent: bool) -> SessionUpdate {
        if self.past_sessions.contains(&info.session) {
            if !silent {
                return SessionUpdate::Superseded;
            }
            self.past_sessions.retain(|session| *session != info.session);
        }
        let update = match self.session {
            Some(session) if session != info.session => {
                self.past_sessions.push_back(session);
                if self.past_sessions.len() > SESSION_HISTORY {
                    self.past_sessions.pop_front();
                }
                // Another process has other threads.
                self.failed_threads = 0;
                // A restart ends the drain.
                self.drain_requested = false;
                SessionUpdate::Restarted
            }
            Some(_) | None => SessionUpdate::Known,
        };
        self.session = Some(info.session);
        if self.info != *info {
            let known = (self.info.kernel, &self.info.device, &self.info.version);
            if known != (info.kernel, &info.device, &info.version) {
                self.speed = Speed::default();
            }
            self.info = info.clone();
        }
        update
    }

    /// Returns the runs of which the worker holds tasks.
    pub(crate) fn runs(&self) -> impl Iterator<Item = RunIx> + '_ {
        let mut next = self.leases.first();
        std::iter::from_fn(move || {
            let &(run, _) = next?;
            next = self.leases.range((run + 1, 0)..).next();
            Some(run)
        })
    }

    /// Returns whether the worker's counts came faster than any known machine could make them.
    pub(crate) fn is_implausible(&self) -> bool {
        // A GPU is as fast as many threads.
        let threads = match self.info.device.as_str() {
            "" => self.info.threads.clamp(1, MAX_MACHINE_THREADS),
            _ => MAX_MACHINE_THREADS,
        };
        let most = MAX_SPEEDUP * REFERENCE_SPEED * f64::from(threads);
        self.speed.per_second().is_some_and(|speed| speed > most)
    }

    /// Measures the speed from the counts of one call.
    pub(crate) fn measure_delivered(&mut self, now: Ticks) {
        if self.delivered > 0 {
            // The times are rounded down.
            let took_ms = now.saturating_sub(self.busy_since) + 1;
            self.speed.measure(std::mem::take(&mut self.delivered), took_ms);
            self.busy_since = now;
        }
    }

    /// Returns whether the worker has left with a package and its promised return has not passed.
    pub(crate) fn is_away(&self) -> bool {
        self.has_stopped && !self.leases.is_empty()
    }

    /// Returns the worker's number of threads; 0 while it is paused.
    pub(crate) fn threads_at_work(&self) -> u64 {
        if self.paused.is_empty() { u64::from(self.info.threads) } else { 0 }
    }

    pub(crate) fn declines(&self, run: RunIx, now: Ticks) -> bool {
        let declined = self.declined.iter().find(|declined| declined.run == run);
        declined.is_some_and(|declined| now < declined.until)
    }

    /// Notes a decline of tasks of `run`; from the [`MAX_DECLINES`]-th on, it holds for `pause`.
    pub(crate) fn decline(&mut self, run: RunIx, now: Ticks, pause: Ticks) {
        let known = self.declined.iter().position(|declined| declined.run == run);
        let at = known.unwrap_or_else(|| {
            if self.declined.len() == MAX_DECLINED_RUNS {
                self.declined.remove(0);
            }
            self.declined.push(Declined { run, times: 0, until: now });
            self.declined.len() - 1
        });
        let declined = &mut self.declined[at];
        declined.times += 1;
        if declined.times >= MAX_DECLINES {
            declined.until = now + pause;
        }
    }
}

/// The coordinator's own referee.
#[derive(Debug, Default)]
pub(crate) struct Referee {
    pub(crate) threads: u32,
    pub(crate) memory_bytes: u64,
    /// Runs of which the referee could not count a task for lack of memory.
    pub(crate) given_up: BTreeSet<RunIx>,
    pub(crate) speed: Speed,
}

/// Status of the coordinator's own referee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefereeStatus {
    /// Number of threads; 0 if there is no referee.
    pub threads: u32,
    /// Whether the referee has stopped after a wrong count.
    pub broken: bool,
    /// Number of tasks in progress.
    pub counting: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_sessions_are_superseded() {
        let of = |session| WorkerInfo { session: SessionId(session), ..WorkerInfo::default() };
        let mut worker = Worker::default();
        for session in 1..=5 {
            worker.register_session(&of(session), false);
        }
        for earlier in 1..=4 {
            assert_eq!(worker.register_session(&of(earlier), false), SessionUpdate::Superseded);
        }
        assert_eq!(worker.register_session(&of(5), false), SessionUpdate::Known);
        assert_eq!(worker.register_session(&of(6), false), SessionUpdate::Restarted);
        assert_eq!(worker.past_sessions, [2, 3, 4, 5].map(SessionId));
        // The current session is silent: an earlier one may continue, and the others stay superseded.
        assert_eq!(worker.register_session(&of(3), true), SessionUpdate::Restarted);
        assert_eq!(worker.past_sessions, [2, 4, 5, 6].map(SessionId));
    }

    #[test]
    fn a_speed_is_measured_by_the_clock_and_reset_by_a_new_version() {
        let mut info = WorkerInfo { threads: 4, ..WorkerInfo::default() };
        let mut worker = Worker { info: info.clone(), ..Worker::default() };
        let per_second = |worker: &Worker| worker.speed.per_second().map(f64::round);
        worker.measure_delivered(500);
        assert_eq!(per_second(&worker), None);
        // Two calls, with the counts of 2 s and of 1 s, at the same speed.
        for (delivered, now) in [(2_001, 2_000), (1_001, 3_000)] {
            worker.delivered = delivered;
            worker.measure_delivered(now);
            assert_eq!(per_second(&worker), Some(1_000.0));
        }
        info.version = "2".to_owned();
        worker.register_session(&info, false);
        assert_eq!(per_second(&worker), None);
    }

    #[test]
    fn a_run_that_was_declined_often_enough_is_declined_for_a_while() {
        let mut worker = Worker::default();
        for (run, now) in [(7, 1), (7, 2), (8, 3)] {
            worker.decline(run, now, 100);
            assert!(!worker.declines(run, now));
        }
        worker.decline(7, 4, 100);
        assert!(worker.declines(7, 4) && worker.declines(7, 103));
        assert!(!worker.declines(7, 104) && !worker.declines(8, 4));
        for run in 100..100 + MAX_DECLINED_RUNS {
            worker.decline(run, 5, 100);
        }
        assert_eq!(worker.declined.len(), MAX_DECLINED_RUNS);
        assert!(!worker.declines(7, 6), "the oldest is forgotten");
    }
}
