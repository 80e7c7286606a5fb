//! Times of the calls to the coordinator, and the amount of work to request.
//!
//! The requested work keeps all slots busy; more would starve other workers.

use std::{
    num::NonZeroU16,
    time::{Duration, Instant},
};

use super::leases::Backlog;

/// Maximum number of waiting tasks; every call carries the whole inventory.
const MAX_WAITING: usize = 4096;

/// The target before any task was counted, in seconds.
const FIRST_TARGET: f64 = 5.0;

/// Factor by which each task reduces the weight of earlier ones in the speed.
const SPEED_DECAY: f64 = 0.97;

/// The measured speed and the target of the backlog.
#[derive(Debug)]
pub(super) struct Demand {
    threads: u32,
    /// Size of the crew of the last task.
    crew: u16,
    /// Decaying sums over finished tasks.
    cost: f64,
    seconds: f64,
    tasks: f64,
    /// Target of the waiting work, in seconds of all threads.
    target: f64,
}

impl Demand {
    pub(super) fn new(threads: u32) -> Self {
        Self { threads, crew: 1, cost: 0.0, seconds: 0.0, tasks: 0.0, target: FIRST_TARGET }
    }

    /// Notes a finished task; `duration` is the time of all its threads together.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(super) fn note(&mut self, cost: u64, duration: Duration, threads: NonZeroU16) {
        self.crew = threads.get();
        self.cost = self.cost * SPEED_DECAY + cost as f64;
        self.seconds = self.seconds * SPEED_DECAY + duration.as_secs_f64();
        self.tasks = self.tasks * SPEED_DECAY + 1.0;
    }

    /// Sets the target to several times the period of calls.
    pub(super) fn set_period(&mut self, period: Duration) {
        if self.tasks > 0.0 {
            self.target = (4.0 * period.as_secs_f64()).clamp(2.0, 300.0);
        }
    }

    /// Returns the cost per second and thread; before any task, the reference core's.
    pub(super) fn speed(&self) -> f64 {
        if self.seconds > 1e-3 && self.cost > 0.0 { self.cost / self.seconds } else { 1e6 }
    }

    /// Returns the speed of all threads in reference cores; 0 if not measured yet.
    pub(super) fn cores(&self) -> f64 {
        if self.tasks > 0.0 { self.speed() * f64::from(self.threads) / 1e6 } else { 0.0 }
    }

    pub(super) fn set_threads(&mut self, threads: u32) {
        self.threads = threads.max(1);
    }

    /// Returns the number of tasks that are counted in parallel.
    fn slots(&self) -> usize {
        self.threads.div_ceil(self.crew.into()) as usize
    }

    /// Returns the time of all threads for `cost`.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(super) fn seconds_for(&self, cost: u64) -> f64 {
        cost as f64 / (self.speed() * f64::from(self.threads))
    }

    /// Returns whether slots may soon be idle.
    pub(super) fn is_low(&self, backlog: Backlog) -> bool {
        let is_short =
            backlog.tasks < MAX_WAITING / 2 && self.seconds_for(backlog.cost) < self.target / 4.0;
        self.wanted(backlog) > 0.0 && (backlog.tasks < self.slots() || is_short)
    }

    /// Returns the work to request beyond `backlog`, in seconds of all threads.
    #[allow(clippy::cast_precision_loss)] // Estimates.
    pub(super) fn wanted(&self, backlog: Backlog) -> f64 {
        let room = MAX_WAITING.saturating_sub(backlog.tasks);
        if room == 0 {
            return 0.0;
        }
        let mut wanted = self.target - self.seconds_for(backlog.cost);
        if self.tasks > 0.0 {
            let per_task = self.cost / self.tasks / (self.speed() * f64::from(self.threads));
            // Every slot needs its next task, however long tasks are.
            let missing = self.slots().saturating_sub(backlog.tasks);
            wanted = wanted.max(missing as f64 * per_task).min(room as f64 * per_task);
        }
        wanted.clamp(0.0, common::messages::limits::SECONDS_WANTED)
    }
}

/// Minimum interval of calls.
const MIN_INTERVAL: Duration = Duration::from_millis(25);

/// Minimum interval of calls of a worker with much work.
const RELAXED_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum delay after a failed call.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// The period until the first reply.
const FIRST_PERIOD: Duration = Duration::from_secs(15);

/// The times of the last and the next call.
#[derive(Debug)]
pub(super) struct Pace {
    last: Instant,
    /// Time at which the coordinator expects the next call.
    expected: Instant,
    pub(super) period: Duration,
    /// Whether the last call requested work in vain: an early call would be useless.
    starved: bool,
    /// Whether the last call submitted results in vain: the next one would, too.
    refused: bool,
    /// Number of consecutive failed calls.
    pub(super) failures: u32,
    /// Time of the next call after a failed one.
    pub(super) retry: Option<Instant>,
}

/// The reasons for an early call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncDemand {
    /// Whether there are results to submit or leases to release.
    pub(super) news: bool,
    /// Whether the threads may soon be idle.
    pub(super) low: bool,
    /// Duration of the waiting work.
    pub(super) backlog_time: Duration,
}

impl Pace {
    /// Creates a pace whose first call is due now.
    pub(super) fn new(now: Instant) -> Self {
        let (period, starved, refused) = (FIRST_PERIOD, false, false);
        Self { last: now, expected: now, period, starved, refused, failures: 0, retry: None }
    }

    /// Returns when the next call is due.
    pub(super) fn due(&self, demand: SyncDemand) -> Instant {
        if let Some(retry) = self.retry {
            return retry;
        }
        let (news, low) = (demand.news && !self.refused, demand.low && !self.starved);
        if !news && !low {
            return self.expected;
        }
        // A worker with enough work batches results, for longer if the period is long; a worker that
        // runs out of work calls soon.
        let relaxed = (self.period / 15).clamp(RELAXED_INTERVAL, Duration::from_secs(10));
        let wait = (demand.backlog_time / 4).clamp(MIN_INTERVAL, relaxed);
        self.expected.min(self.last + wait)
    }

    /// Notes the start of a call.
    pub(super) fn started(&mut self, now: Instant) {
        self.last = now;
        self.retry = None;
    }

    /// Notes a reply; the coordinator expects the next call after `next`.
    ///
    /// `starved` if it granted no requested work; `refused` if it acknowledged no submitted result.
    pub(super) fn answered(&mut self, now: Instant, next: Duration, starved: bool, refused: bool) {
        self.period = next.max(MIN_INTERVAL);
        self.expected = now + self.period;
        self.starved = starved;
        self.refused = refused;
        self.failures = 0;
    }

    /// Notes a failed call and returns the delay of the next one.
    ///
    /// The delay is the part `jitter`, 0 to 1, of a backoff that doubles from 1 s to 15 s, so that the
    /// workers of a fleet do not all call at once.
    pub(super) fn failed(&mut self, now: Instant, jitter: f64) -> Duration {
        let backoff = Duration::from_secs(1 << self.failures.min(4)).min(MAX_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        let wait = backoff.mul_f64(jitter.clamp(0.0, 1.0));
        self.retry = Some(now + wait);
        wait
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
        Backlog { tasks, cost: 1_000 * tasks as u64 }
    }

    #[test]
    fn four_periods_of_work_are_requested_within_the_bounds_on_tasks() {
        assert_eq!(Demand::new(2).wanted(Backlog::default()), FIRST_TARGET);
        // 100 ms per task on two threads: 1200 tasks take a minute.
        let demand = measured(2, Duration::from_millis(100));
        assert!((demand.wanted(backlog(0)) - 60.0).abs() < 1e-6);
        assert!((demand.wanted(backlog(600)) - 30.0).abs() < 1e-6);
        assert_eq!(demand.wanted(backlog(1300)), 0.0);
        assert!(demand.is_low(backlog(299)) && !demand.is_low(backlog(301)));
        // Long tasks are prefetched one per thread.
        let demand = measured(8, Duration::from_secs(1000));
        assert!(demand.is_low(backlog(7)) && !demand.is_low(backlog(8)));
        // Three tasks of 1000 s on eight threads.
        assert!((demand.wanted(backlog(5)) - 375.0).abs() < 1e-6);
        assert_eq!(demand.wanted(backlog(8)), 0.0);
        // Tiny tasks fill a bounded queue.
        let demand = measured(4, Duration::from_micros(100));
        let wanted = demand.wanted(backlog(0));
        let tasks = wanted * 4.0 / 100e-6;
        assert!((tasks - MAX_WAITING as f64).abs() < 1.0, "{tasks}");
        assert_eq!(demand.wanted(backlog(MAX_WAITING)), 0.0);
        assert!(!demand.is_low(backlog(MAX_WAITING / 2)));
    }

    #[test]
    fn the_threads_of_a_crew_share_one_task() {
        let mut demand = measured(8, Duration::from_secs(1000));
        demand.note(1_000, Duration::from_secs(1000), NonZeroU16::new(3).unwrap());
        // Three slots, the last one of two threads.
        assert!(demand.is_low(backlog(2)) && !demand.is_low(backlog(3)));
        assert!((demand.wanted(backlog(1)) - 250.0).abs() < 1e-6);
        demand.set_threads(3);
        assert!(demand.is_low(backlog(0)) && !demand.is_low(backlog(1)));
        demand.set_threads(0);
        assert!((demand.seconds_for(1_000) - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn later_tasks_weigh_more_in_the_speed() {
        let mut demand = Demand::new(3);
        assert_eq!((demand.speed(), demand.cores()), (1e6, 0.0), "as the reference core");
        let (mut cost, mut seconds) = (0.0, 0.0);
        // Tasks without time or cost do not change the speed.
        for (task, ms, is_measured) in
            [(0, 1, false), (1_000, 0, false), (2_000, 1_000, true), (2_000, 2_000, true)]
        {
            demand.note(task, Duration::from_millis(ms), NonZeroU16::MIN);
            cost = cost * SPEED_DECAY + task as f64;
            seconds = seconds * SPEED_DECAY + ms as f64 / 1e3;
            let speed = if is_measured { cost / seconds } else { 1e6 };
            assert!((demand.speed() - speed).abs() < 1e-6, "{task} in {ms} ms");
            assert!((demand.cores() - 3.0 * speed / 1e6).abs() < 1e-9);
        }
        let mut demand = Demand::new(1);
        demand.note(2_000, Duration::from_secs(1), NonZeroU16::MIN);
        assert_eq!(demand.speed(), 2_000.0);
        demand.set_period(PERIOD);
        assert!(demand.is_low(backlog(29)) && !demand.is_low(backlog(30)), "a quarter of 60 s");
    }

    #[test]
    fn the_request_follows_the_period_within_bounds() {
        let wanted = |period| {
            let mut demand = measured(1, Duration::from_millis(100));
            demand.set_period(period);
            demand.wanted(Backlog::default())
        };
        assert!((wanted(Duration::from_millis(25)) - 2.0).abs() < 1e-6);
        assert!((wanted(Duration::from_secs(30)) - 120.0).abs() < 1e-6);
        assert!((wanted(Duration::from_secs(600)) - 300.0).abs() < 1e-6);
        let long = measured(1, Duration::from_secs(1_000_000));
        assert_eq!(long.wanted(backlog(0)), common::messages::limits::SECONDS_WANTED);
        let mut unmeasured = Demand::new(1);
        unmeasured.set_period(Duration::from_secs(600));
        assert!((unmeasured.wanted(Backlog::default()) - FIRST_TARGET).abs() < 1e-6);
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn served(period: u64, starved: bool, now: Instant) -> Pace {
        let mut pace = Pace::new(now);
        pace.started(now);
        pace.answered(now, ms(period), starved, false);
        pace
    }

    #[test]
    fn a_call_is_early_with_results_or_without_work() {
        let now = Instant::now();
        let calm = SyncDemand { news: false, low: false, backlog_time: Duration::ZERO };
        assert_eq!(Pace::new(now).due(calm), now);
        for (period, starved, news, low, lasts, wait) in [
            (15_000, false, false, false, 100_000, 15_000),
            // Results are batched, for longer if the period is long.
            (15_000, false, true, false, 100_000, 1_000),
            (1_000, false, true, false, 100_000, 250),
            (600_000, false, true, false, 100_000, 10_000),
            // An empty queue is urgent, unless the last call got no work.
            (15_000, false, false, true, 0, 25),
            (15_000, false, false, true, 2_000, 500),
            (15_000, true, false, true, 0, 15_000),
            (15_000, true, true, true, 0, 25),
            // There is a minimum interval, whatever the reply.
            (0, false, false, false, 100_000, 25),
            (0, true, true, true, 100_000, 25),
        ] {
            let demand = SyncDemand { news, low, backlog_time: ms(lasts) };
            let pace = served(period, starved, now);
            assert_eq!(pace.due(demand), now + ms(wait), "{period} {starved} {demand:?}");
        }
    }

    #[test]
    fn refused_results_do_not_make_a_call_early() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.started(now);
        for (starved, refused, low, wait) in [
            (true, true, true, 15_000),
            (false, true, false, 15_000),
            // Work may still be missing.
            (false, true, true, 25),
            (true, false, true, 25),
        ] {
            pace.answered(now, PERIOD, starved, refused);
            let demand = SyncDemand { news: true, low, backlog_time: Duration::ZERO };
            assert_eq!(pace.due(demand), now + ms(wait), "{starved} {refused} {low}");
        }
    }
}
