//! Hundreds of faulty days of a cluster, each from a seed, at the configuration that is shipped.
//!
//! `QUEENS_SIM_SEED=17` replays one seed of a test and tells what happened; `QUEENS_SIM_SEEDS=5000`
//! runs more; CI runs 250.
//! `just simulate` runs what the documents tell of.

use coordinator::checks::most_wrong;
use tests::sim::{Outcome, Scenario, Tally, run};

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Runs one seed for each `part` that QUEENS_SIM_SEEDS names, or the `usual` number.
fn runs(usual: u64, part: u64, scenario: fn(u64) -> Scenario) -> Vec<Outcome> {
    let seeds = number("QUEENS_SIM_SEEDS").map_or(usual, |seeds| seeds / part);
    (0..seeds).map(|seed| run(scenario(seed))).collect()
}

/// Replays the one seed that was asked for, if one was.
fn is_replay(scenario: fn(u64) -> Scenario) -> bool {
    let Some(seed) = number("QUEENS_SIM_SEED") else {
        return false;
    };
    let scenario = scenario(seed);
    eprintln!("{scenario:#?}");
    let outcome = run(scenario);
    eprintln!("{outcome:#?}\n{}", outcome.faults);
    true
}

fn sum(outcomes: &[Outcome], of: fn(&Outcome) -> u64) -> u64 {
    outcomes.iter().map(of).sum()
}

#[test]
fn every_seed_ends_in_the_exact_total() {
    if is_replay(Scenario::new) {
        return;
    }
    let outcomes = runs(100, 1, Scenario::new);
    let seeds = outcomes.len() as u64;
    let mut faults = Tally::default();
    outcomes.iter().for_each(|outcome| faults += outcome.faults);
    let of = |of| sum(&outcomes, of);
    let (messages, groups, shared) = (of(|o| o.messages), of(|o| o.groups), of(|o| o.shared));
    let (caught, missed) = (of(|o| o.caught), of(|o| o.missed));
    eprintln!(
        "{seeds} seeds: {messages} messages, answered in {groups} groups, {shared} of them with others; \
         {} counts, {} coordinators\n{faults}\n\
         0 counts lost, 0 counted double\n\
         {caught} workers found wrong; {missed} wrong counts of others that nobody compared",
        of(|o| o.counted),
        of(|o| o.starts),
    );
    // Days on which nothing happens would prove nothing.
    assert!(of(|o| o.starts) > 3 * seeds, "few crashes");
    assert!(faults.of_workers() > 400 * seeds, "few faults");
    // Seed 0 is one of those with a hundred workers or more, who seldom come alone.
    assert!(shared > 100, "nothing was grouped");
    assert!(10 * caught > seeds, "few lies are caught: {caught}");
    assert!(of(|o| o.confirmed) > seeds, "few rechecks");
    assert!(
        of(|o| o.counted - o.tasks) > seeds,
        "little was counted twice"
    );
}

#[test]
fn a_seed_always_tells_the_same_story() {
    for seed in [3, 7] {
        let outcomes: Vec<Outcome> = (0..2).map(|_| run(Scenario::new(seed))).collect();
        assert_eq!(outcomes[0], outcomes[1], "seed {seed}");
    }
}

/// That wherever it was caught no wrong count of it is left, [`run`] asserts.
#[test]
fn a_liar_of_any_rate_that_is_caught_changes_no_total() {
    if is_replay(Scenario::one_liar) {
        return;
    }
    let outcomes = runs(50, 5, Scenario::one_liar);
    let caught = outcomes.iter().filter(|outcome| outcome.caught > 0);
    let caught: Vec<&Outcome> = caught.collect();
    eprintln!(
        "{} runs with one liar: caught in {}, the total exact in each of them; exact in {} of the others",
        outcomes.len(),
        caught.len(),
        outcomes.iter().filter(|o| o.caught == 0 && o.exact).count(),
    );
    assert!(caught.iter().all(|outcome| outcome.exact));
    assert!(5 * caught.len() > outcomes.len(), "few are caught");
}

/// Compared is what it is known of who was right: a contradiction waits for a third machine.
#[test]
fn a_worker_that_is_always_wrong_is_barred_within_twenty_comparisons() {
    if is_replay(Scenario::always_wrong) {
        return;
    }
    let outcomes = runs(25, 10, Scenario::always_wrong);
    for (seed, outcome) in outcomes.iter().enumerate() {
        assert_eq!((outcome.barred, outcome.exact), (1, true), "seed {seed}");
        assert!(outcome.compared <= 20, "seed {seed}: {}", outcome.compared);
    }
    let most = outcomes.iter().map(|outcome| outcome.compared).max();
    eprintln!(
        "{} runs with a worker that is always wrong: barred in each, after {} comparisons at most",
        outcomes.len(),
        most.unwrap_or_default(),
    );
}

/// One wrong count more than what random second counts may miss: that they find one has a chance of
/// 95 %, of which 93 % is 2.9 standard deviations away in a thousand runs.
#[test]
fn one_wrong_count_more_than_the_bound_is_found() {
    let tasks = Scenario::planted(0, 0).truth.plan.tasks();
    let wrong = most_wrong(tasks - tasks / 10, tasks / 10) + 1;
    let seeds = number("QUEENS_SIM_SEEDS").unwrap_or(250).min(1_000);
    let found = (0..seeds).filter(|seed| run(Scenario::planted(*seed, wrong)).conflicts > 0);
    let found = found.count() as u64;
    eprintln!(
        "{wrong} wrong counts among {tasks}, a tenth drawn: found in {found} of {seeds} runs"
    );
    // In fewer runs chance weighs more.
    let least = if seeds < 1_000 { 900 } else { 930 };
    assert!(1_000 * found >= least * seeds, "{found} of {seeds}");
}

/// What a fleet of mixed machines can differ by follows from the tasks: workers start within two minutes,
/// and the slowest has the longest task when the others are done. How many tasks that is varies as
/// their lengths do: three standard deviations of a sum.
#[test]
fn machines_get_work_in_proportion_to_their_speed_and_none_that_their_memory_does_not_hold() {
    if is_replay(Scenario::mixed) {
        return;
    }
    let times = Scenario::mixed(0).task_times();
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    let squares: f64 = times.iter().map(|ms| (*ms as f64 - mean).powi(2)).sum();
    let spread = (squares / times.len() as f64).sqrt() / mean;
    let longest = *times.iter().max().expect("there are tasks");
    for (seed, outcome) in runs(4, 25, Scenario::mixed).iter().enumerate() {
        assert!(outcome.exact, "seed {seed}");
        let [fast, usual @ .., small] = &outcome.shares[..] else {
            panic!("seed {seed}: no machines");
        };
        assert_eq!(small.granted, 0, "seed {seed}: its memory holds no task");
        // A call, and the wait for it, is not what a task is.
        let idle = 120_000 + longest + 30_000;
        for share in usual.iter().chain([fast]) {
            assert!(
                share.busy_ms + idle >= outcome.time_ms,
                "seed {seed}: {} of {} ms busy",
                share.busy_ms,
                outcome.time_ms
            );
        }
        let counted: u64 = usual.iter().map(|share| share.counted).sum();
        let ratio = fast.counted as f64 / (counted as f64 / usual.len() as f64);
        let chance = 3.0 * spread * (1.0 / fast.counted as f64 + 1.0 / counted as f64).sqrt();
        let tolerance = idle as f64 / outcome.time_ms as f64 + chance;
        eprintln!("seed {seed}: {ratio:.2} times the tasks at 4 times the speed, ± {tolerance:.2}");
        assert!(
            (ratio / 4.0 - 1.0).abs() < tolerance,
            "seed {seed}: {ratio}"
        );
    }
}
