//! How much work to ask for: enough that no thread ever waits, little enough to share.

use std::{num::NonZeroU16, time::Duration};

use crate::pool::Backlog;

/// The most jobs that wait for a thread: the whole inventory travels in every call.
const MOST_WAITING: usize = 4096;

/// What is asked for before any task has shown how fast this machine is, in seconds.
const FIRST_TARGET: f64 = 5.0;

/// By how much older tasks weigh less in the measured speed, for each later one.
const FADE: f64 = 0.97;

/// Speeds as measured, and what they mean for the backlog.
#[derive(Debug)]
pub(crate) struct Demand {
    threads: u32,
    /// How many of them counted the last task together.
    crew: u16,
    /// Faded sums over finished tasks.
    cost: f64,
    seconds: f64,
    tasks: f64,
    /// How much work should wait, in seconds of all threads.
    target: f64,
}

impl Demand {
    pub(crate) fn new(threads: u32) -> Self {
        Self {
            threads,
            crew: 1,
            cost: 0.0,
            seconds: 0.0,
            tasks: 0.0,
            target: FIRST_TARGET,
        }
    }

    /// So many threads finished a task, which they had for `duration`, added up.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(crate) fn note(&mut self, cost: u64, duration: Duration, threads: NonZeroU16) {
        self.crew = threads.get();
        self.cost = self.cost * FADE + cost as f64;
        self.seconds = self.seconds * FADE + duration.as_secs_f64();
        self.tasks = self.tasks * FADE + 1.0;
    }

    /// The coordinator wants to hear from this worker about once in `period`: between two calls
    /// several periods of work should be there.
    pub(crate) fn set_period(&mut self, period: Duration) {
        if self.tasks > 0.0 {
            self.target = (4.0 * period.as_secs_f64()).clamp(2.0, 300.0);
        }
    }

    /// Cost counted in a second of one thread. The reference core's until something was measured.
    pub(crate) fn speed(&self) -> f64 {
        if self.seconds > 1e-3 && self.cost > 0.0 {
            self.cost / self.seconds
        } else {
            1e6
        }
    }

    /// How many tasks are counted at a time.
    fn crews(&self) -> usize {
        self.threads.div_ceil(self.crew.into()) as usize
    }

    /// How long all threads need for `cost`.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(crate) fn seconds_for(&self, cost: u64) -> f64 {
        cost as f64 / (self.speed() * f64::from(self.threads))
    }

    /// Whether the threads could soon be without work.
    pub(crate) fn is_low(&self, backlog: Backlog) -> bool {
        backlog.jobs < self.crews()
            || backlog.jobs < MOST_WAITING / 2 && self.seconds_for(backlog.cost) < self.target / 4.0
    }

    /// How much to ask for beyond `backlog`, in seconds of all threads; 0 when there is enough.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(crate) fn wanted(&self, backlog: Backlog) -> f64 {
        let room = MOST_WAITING.saturating_sub(backlog.jobs);
        if room == 0 {
            return 0.0;
        }
        let mut wanted = self.target - self.seconds_for(backlog.cost);
        if self.tasks > 0.0 {
            let per_task = self.cost / self.tasks / (self.speed() * f64::from(self.threads));
            // Every crew's next task should be here, however long tasks are.
            let missing = self.crews().saturating_sub(backlog.jobs);
            wanted = wanted
                .max(missing as f64 * per_task)
                .min(room as f64 * per_task);
        }
        wanted.clamp(0.0, proto::limits::SECONDS_WANTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    fn measured(threads: u32, task: Duration) -> Demand {
        let mut demand = Demand::new(threads);
        for _ in 0..100 {
            demand.note(1_000, task, NonZeroU16::MIN);
        }
        demand.set_period(PERIOD);
        demand
    }

    fn backlog(jobs: usize) -> Backlog {
        Backlog {
            jobs,
            cost: 1_000 * jobs as u64,
        }
    }

    #[test]
    fn four_periods_of_work_are_asked_for_once_the_speed_is_known() {
        assert_eq!(Demand::new(2).wanted(Backlog::default()), FIRST_TARGET);
        // 100 ms a task, two threads: 1200 tasks are a minute.
        let demand = measured(2, Duration::from_millis(100));
        assert!((demand.wanted(backlog(0)) - 60.0).abs() < 1e-6);
        assert!((demand.wanted(backlog(600)) - 30.0).abs() < 1e-6);
        assert_eq!(demand.wanted(backlog(1300)), 0.0);
        assert!(demand.is_low(backlog(299)) && !demand.is_low(backlog(301)));
    }

    #[test]
    fn long_tasks_are_prefetched_one_a_thread() {
        let demand = measured(8, Duration::from_secs(1000));
        assert!(demand.is_low(backlog(7)) && !demand.is_low(backlog(8)));
        // Three tasks of 1000 s on eight threads.
        assert!((demand.wanted(backlog(5)) - 375.0).abs() < 1e-6);
        assert_eq!(demand.wanted(backlog(8)), 0.0);
    }

    #[test]
    fn tiny_tasks_fill_a_bounded_queue() {
        let demand = measured(4, Duration::from_micros(100));
        let wanted = demand.wanted(backlog(0));
        let tasks = wanted * 4.0 / 100e-6;
        assert!((tasks - MOST_WAITING as f64).abs() < 1.0, "{tasks}");
        assert_eq!(demand.wanted(backlog(MOST_WAITING)), 0.0);
        assert!(!demand.is_low(backlog(MOST_WAITING / 2)));
    }
}
