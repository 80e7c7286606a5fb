//! One worker: its leases, its speed, and what it gives back.

use std::collections::{BTreeMap, VecDeque};

use common::{
    kernel::KernelName,
    run::{SessionId, WorkerId},
    sync::WorkerInfo,
};

use super::{
    clock::Ticks,
    index::{LeaseIx, RunIx},
};

/// Sessions of a worker that are remembered as over.
const PAST_SESSIONS: usize = 4;

/// Runs of which a worker's refusals are remembered.
const DECLINED_RUNS: usize = 16;

/// How much an older task weighs against the next in a worker's measured speed.
const SPEED_MEMORY: f64 = 0.8;

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The count of a task that has none.
    Count,
    /// A second count of a task that is done.
    Recheck,
    /// One more count of a task whose counts contradict each other.
    Decide,
}

/// A task leased to one worker.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) epoch: u64,
    pub(super) purpose: Purpose,
    pub(super) turned: bool,
    /// The worker has named it: it knows that it holds the task.
    pub(super) seen: bool,
    /// Grants in which it was sent before it was seen.
    pub(super) grants: u8,
    /// A thread has begun it.
    pub(super) started: bool,
    /// The worker's count was refused: the attempt has failed.
    pub(super) spoilt: bool,
    pub(super) cost_done: u64,
    pub(super) granted: Ticks,
    /// The round of the worker's syncs that last named it.
    pub(super) round: u64,
}

/// A run that a worker gives back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declined {
    pub(super) run: RunIx,
    pub(super) times: u32,
    pub(super) until: Ticks,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) info: WorkerInfo,
    /// `None`: known from its leases on disk only.
    pub(super) session: Option<SessionId>,
    past_sessions: VecDeque<SessionId>,
    pub(super) draining: bool,
    /// An operator wants this process to stop.
    pub(super) told_to_drain: bool,
    /// Why it counts nothing for the time being; empty while it does.
    pub(super) paused: String,
    /// It has drained and holds nothing more.
    pub(super) left: bool,
    /// When it was told to call again.
    pub(super) due: Ticks,
    pub(super) leases: BTreeMap<LeaseIx, Lease>,
    pub(super) round: u64,
    pub(super) seen: Ticks,
    /// When it is lost unless it calls; `None` when it is.
    pub(super) deadline: Option<Ticks>,
    /// When the last of its leases that were found on disk ended, in Unix milliseconds.
    pub(super) leased_until_ms: u64,
    /// When it is forgotten; `None` while it is live.
    pub(super) forget_at: Option<Ticks>,
    /// Its threads, as counted among those of all live workers.
    pub(super) live_threads: u64,
    pub(super) tasks_done: u64,
    pub(super) declined: Vec<Declined>,
    /// Its counting threads that failed their canaries.
    pub(super) failed_threads: u32,
    /// Tasks under way in its last call.
    pub(super) crews: u32,
    /// How often a thread of this process has passed them.
    pub(super) proofs: u64,
    /// The call that told of a failure was full: what comes with the next one is as old.
    pub(super) has_unproven_left: bool,
    /// Its last reply said that every run is over.
    pub(super) knows_the_end: bool,
    speed: Speed,
}

/// Cost done in an amount of time, older tasks weighing less.
#[derive(Debug, Default)]
struct Speed {
    cost: f64,
    core_seconds: f64,
}

/// What became of a worker's introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The session goes on, or is the first known.
    Known,
    /// The worker was started anew.
    Restarted,
    /// A later session of this worker has called before.
    Superseded,
}

impl Worker {
    pub(super) fn new(info: WorkerInfo) -> Self {
        Self {
            info,
            session: None,
            past_sessions: VecDeque::new(),
            draining: false,
            told_to_drain: false,
            paused: String::new(),
            left: false,
            due: 0,
            leases: BTreeMap::new(),
            round: 0,
            seen: 0,
            deadline: None,
            leased_until_ms: 0,
            forget_at: None,
            live_threads: 0,
            tasks_done: 0,
            declined: Vec::new(),
            failed_threads: 0,
            crews: 0,
            proofs: 0,
            has_unproven_left: false,
            knows_the_end: false,
            speed: Speed::default(),
        }
    }

    /// Takes the worker's word about itself. `silent`: the present session has not called for so
    /// long that one thought to be over may take its place.
    pub(super) fn greet(&mut self, info: &WorkerInfo, silent: bool) -> Greeting {
        if self.past_sessions.contains(&info.session) {
            if !silent {
                return Greeting::Superseded;
            }
            self.past_sessions
                .retain(|session| *session != info.session);
        }
        let greeting = match self.session {
            Some(session) if session != info.session => {
                self.past_sessions.push_back(session);
                if self.past_sessions.len() > PAST_SESSIONS {
                    self.past_sessions.pop_front();
                }
                // Another process, with threads of its own.
                self.failed_threads = 0;
                // Whoever starts it again wants it to count.
                self.told_to_drain = false;
                Greeting::Restarted
            }
            Some(_) | None => Greeting::Known,
        };
        self.session = Some(info.session);
        if self.info != *info {
            if (self.info.kernel, &self.info.version) != (info.kernel, &info.version) {
                self.speed = Speed::default();
            }
            self.info = info.clone();
        }
        greeting
    }

    /// Its threads; those that pause do no part of the work.
    pub(super) fn threads_at_work(&self) -> u64 {
        match self.paused.is_empty() {
            true => u64::from(self.info.threads),
            false => 0,
        }
    }

    /// Learns from a finished task.
    pub(super) fn measure(&mut self, cost: u64, duration_us: u64) {
        let Speed {
            cost: sum,
            core_seconds,
        } = &mut self.speed;
        *sum = *sum * SPEED_MEMORY + cost as f64;
        *core_seconds = *core_seconds * SPEED_MEMORY + duration_us.max(1) as f64 / 1e6;
    }

    /// Cost a second of all threads together, once a task was finished.
    pub(super) fn cost_per_second(&self) -> Option<f64> {
        let Speed { cost, core_seconds } = self.speed;
        (core_seconds > 0.0).then(|| cost / core_seconds * f64::from(self.info.threads.max(1)))
    }

    pub(super) fn declines(&self, run: RunIx, now: Ticks) -> bool {
        let declined = self.declined.iter().find(|declined| declined.run == run);
        declined.is_some_and(|declined| now < declined.until)
    }

    /// Notes that leases of `run` came back unworked; after `most` times in a row, for `pause`.
    pub(super) fn decline(&mut self, run: RunIx, now: Ticks, (most, pause): (u32, u64)) {
        let known = self
            .declined
            .iter_mut()
            .find(|declined| declined.run == run);
        if let Some(declined) = known {
            declined.times += 1;
            if declined.times >= most {
                declined.until = now + pause;
            }
            return;
        }
        if self.declined.len() == DECLINED_RUNS {
            self.declined.remove(0);
        }
        self.declined.push(Declined {
            run,
            times: 1,
            until: if most <= 1 { now + pause } else { now },
        });
    }
}

/// What is known of a worker that only leases on disk speak of.
pub(super) fn unknown_worker(id: WorkerId) -> WorkerInfo {
    WorkerInfo {
        id,
        session: SessionId(0),
        name: String::new(),
        version: String::new(),
        kernel: KernelName::Scalar,
        threads: 1,
        memory_bytes_per_thread: 0,
        machine: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sessions_are_known_to_be_over() {
        let of = |session| WorkerInfo {
            session: SessionId(session),
            ..unknown_worker(WorkerId(1))
        };
        let mut worker = Worker::new(of(1));
        for session in 1..=5 {
            worker.greet(&of(session), false);
        }
        for over in 1..=4 {
            assert_eq!(worker.greet(&of(over), false), Greeting::Superseded);
        }
        assert_eq!(worker.greet(&of(5), false), Greeting::Known);
        assert_eq!(worker.greet(&of(6), false), Greeting::Restarted);
        assert_eq!(worker.past_sessions, [2, 3, 4, 5].map(SessionId));
        // The present one is silent: an earlier one goes on, and the others are over as before.
        assert_eq!(worker.greet(&of(3), true), Greeting::Restarted);
        assert_eq!(worker.past_sessions, [2, 4, 5, 6].map(SessionId));
    }

    #[test]
    fn a_speed_is_that_of_all_threads_and_of_one_program() {
        let mut info = WorkerInfo {
            threads: 4,
            ..unknown_worker(WorkerId(1))
        };
        let mut worker = Worker::new(info.clone());
        assert_eq!(worker.cost_per_second(), None);
        worker.measure(1_000, 2_000_000);
        assert_eq!(worker.cost_per_second(), Some(2_000.0));
        info.threads = 2;
        worker.greet(&info, false);
        assert_eq!(worker.cost_per_second(), Some(1_000.0));
        info.version = "2".to_owned();
        worker.greet(&info, false);
        assert_eq!(worker.cost_per_second(), None);
    }

    #[test]
    fn a_run_that_was_declined_often_enough_is_declined_for_a_while() {
        let mut worker = Worker::new(unknown_worker(WorkerId(1)));
        for (run, now) in [(7, 1), (7, 2), (8, 3)] {
            worker.decline(run, now, (3, 100));
            assert!(!worker.declines(run, now));
        }
        worker.decline(7, 4, (3, 100));
        assert!(worker.declines(7, 4) && worker.declines(7, 103));
        assert!(!worker.declines(7, 104) && !worker.declines(8, 4));
        for run in 100..100 + DECLINED_RUNS {
            worker.decline(run, 5, (3, 100));
        }
        assert_eq!(worker.declined.len(), DECLINED_RUNS);
        assert!(!worker.declines(7, 6), "the oldest is forgotten");
    }
}
