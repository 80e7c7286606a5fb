//! How much work to ask for: enough that no slot is ever empty, little enough to share.

use std::{num::NonZeroU16, time::Duration};

use super::leases::Backlog;

/// The most tasks that wait for a slot: the whole inventory travels in every call.
const MOST_WAITING: usize = 4096;

/// What is asked for before any task has shown how fast this machine is, in seconds.
const FIRST_TARGET: f64 = 5.0;

/// By how much older tasks weigh less in the measured speed, for each later one.
const FADE: f64 = 0.97;

/// Speeds as measured, and what they mean for the backlog.
#[derive(Debug)]
pub(super) struct Demand {
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
    pub(super) fn new(threads: u32) -> Self {
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
    pub(super) fn note(&mut self, cost: u64, duration: Duration, threads: NonZeroU16) {
        self.crew = threads.get();
        self.cost = self.cost * FADE + cost as f64;
        self.seconds = self.seconds * FADE + duration.as_secs_f64();
        self.tasks = self.tasks * FADE + 1.0;
    }

    /// The coordinator wants to hear from this worker about once in `period`: between two calls
    /// several periods of work should be there.
    pub(super) fn set_period(&mut self, period: Duration) {
        if self.tasks > 0.0 {
            self.target = (4.0 * period.as_secs_f64()).clamp(2.0, 300.0);
        }
    }

    /// Cost counted in a second of one thread. The reference core's until something was measured.
    pub(super) fn speed(&self) -> f64 {
        if self.seconds > 1e-3 && self.cost > 0.0 {
            self.cost / self.seconds
        } else {
            1e6
        }
    }

    /// The speed of all threads in cores of the reference machine; 0 until something was measured.
    pub(super) fn cores(&self) -> f64 {
        if self.tasks > 0.0 {
            self.speed() * f64::from(self.threads) / 1e6
        } else {
            0.0
        }
    }

    /// So many threads count from now on.
    pub(super) fn set_threads(&mut self, threads: u32) {
        self.threads = threads.max(1);
    }

    /// How many tasks are counted at a time.
    fn slots(&self) -> usize {
        self.threads.div_ceil(self.crew.into()) as usize
    }

    /// How long all threads need for `cost`.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(super) fn seconds_for(&self, cost: u64) -> f64 {
        cost as f64 / (self.speed() * f64::from(self.threads))
    }

    /// Whether slots could soon be empty.
    pub(super) fn is_low(&self, backlog: Backlog) -> bool {
        backlog.tasks < self.slots()
            || backlog.tasks < MOST_WAITING / 2
                && self.seconds_for(backlog.cost) < self.target / 4.0
    }

    /// How much to ask for beyond `backlog`, in seconds of all threads; 0 when there is enough.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(super) fn wanted(&self, backlog: Backlog) -> f64 {
        let room = MOST_WAITING.saturating_sub(backlog.tasks);
        if room == 0 {
            return 0.0;
        }
        let mut wanted = self.target - self.seconds_for(backlog.cost);
        if self.tasks > 0.0 {
            let per_task = self.cost / self.tasks / (self.speed() * f64::from(self.threads));
            // Every slot's next task should be here, however long tasks are.
            let missing = self.slots().saturating_sub(backlog.tasks);
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

    fn backlog(tasks: usize) -> Backlog {
        Backlog {
            tasks,
            cost: 1_000 * tasks as u64,
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
    fn a_crew_has_one_task_between_its_threads() {
        let mut demand = measured(8, Duration::from_secs(1000));
        demand.note(
            1_000,
            Duration::from_secs(1000),
            NonZeroU16::new(3).unwrap(),
        );
        // Three slots, the last one of two threads.
        assert!(demand.is_low(backlog(2)) && !demand.is_low(backlog(3)));
        assert!((demand.wanted(backlog(1)) - 250.0).abs() < 1e-6);
        demand.set_threads(3);
        assert!(demand.is_low(backlog(0)) && !demand.is_low(backlog(1)));
        demand.set_threads(0);
        assert!((demand.seconds_for(1_000) - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn later_tasks_say_more_of_the_speed_than_earlier_ones() {
        let mut demand = Demand::new(1);
        assert_eq!(demand.speed(), 1e6, "as the reference core");
        assert_eq!(demand.cores(), 0.0, "not measured");
        demand.note(1_000, Duration::ZERO, NonZeroU16::MIN);
        assert_eq!(demand.speed(), 1e6, "it took no time");
        demand.note(2_000, Duration::from_secs(1), NonZeroU16::MIN);
        assert!((demand.speed() - 2_970.0).abs() < 1e-6);
        assert!((demand.cores() - 2_970.0e-6).abs() < 1e-9);
        demand.note(2_000, Duration::from_secs(2), NonZeroU16::MIN);
        let (cost, seconds) = (2_970.0 * FADE + 2_000.0, FADE + 2.0);
        assert!((demand.speed() - cost / seconds).abs() < 1e-6);
    }

    #[test]
    fn what_took_a_millisecond_or_cost_nothing_says_nothing_of_the_speed() {
        for (cost, time) in [
            (2_000, Duration::from_millis(1)),
            (0, Duration::from_secs(1)),
        ] {
            let mut demand = Demand::new(1);
            demand.note(cost, time, NonZeroU16::MIN);
            assert_eq!(demand.speed(), 1e6, "{cost} in {time:?}");
        }
        let mut demand = Demand::new(3);
        demand.note(2_001, Duration::from_millis(2), NonZeroU16::MIN);
        assert!((demand.cores() - 3.0015).abs() < 1e-9);
    }

    #[test]
    fn a_quarter_of_the_stock_is_enough() {
        let mut demand = Demand::new(1);
        demand.note(1_000, Duration::from_secs(1), NonZeroU16::MIN);
        demand.set_period(PERIOD);
        assert!(demand.is_low(backlog(14)) && !demand.is_low(backlog(15)));
    }

    #[test]
    fn the_stock_follows_the_period_within_bounds() {
        let wanted = |period| {
            let mut demand = measured(1, Duration::from_millis(100));
            demand.set_period(period);
            demand.wanted(Backlog::default())
        };
        assert!((wanted(Duration::from_millis(25)) - 2.0).abs() < 1e-6);
        assert!((wanted(Duration::from_secs(30)) - 120.0).abs() < 1e-6);
        assert!((wanted(Duration::from_secs(600)) - 300.0).abs() < 1e-6);
        let mut unmeasured = Demand::new(1);
        unmeasured.set_period(Duration::from_secs(600));
        assert!((unmeasured.wanted(Backlog::default()) - FIRST_TARGET).abs() < 1e-6);
    }

    #[test]
    fn no_request_asks_for_more_than_a_message_may() {
        let demand = measured(1, Duration::from_secs(1_000_000));
        assert_eq!(demand.wanted(backlog(0)), proto::limits::SECONDS_WANTED);
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
