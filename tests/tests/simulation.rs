//! Hundreds of faulty days of a cluster, each from a seed.
//!
//! `QUEENS_SIM_SEED=17` replays one seed and tells what happened; `QUEENS_SIM_SEEDS=5000` runs more.

use tests::sim::{Outcome, Scenario, run};

/// Seeds of a normal test run.
const SEEDS: u64 = 250;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

#[test]
fn every_seed_ends_in_the_exact_total() {
    if let Some(seed) = number("QUEENS_SIM_SEED") {
        let scenario = Scenario::new(seed);
        eprintln!("{scenario:#?}");
        eprintln!("{:#?}", run(scenario));
        return;
    }
    let seeds = number("QUEENS_SIM_SEEDS").unwrap_or(SEEDS);
    let outcomes: Vec<_> = (0..seeds).map(|seed| run(Scenario::new(seed))).collect();
    // Days on which nothing happens would prove nothing.
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(sum(|outcome| outcome.starts) > 3 * seeds, "few crashes");
    let (caught, missed) = (sum(|outcome| outcome.caught), sum(|outcome| outcome.missed));
    eprintln!("{caught} liars caught, {missed} wrong counts of others missed");
    assert!(10 * caught > seeds, "few lies are caught: {caught}");
    assert!(sum(|outcome| outcome.confirmed) > seeds, "few rechecks");
    let wasted = sum(|outcome| outcome.counted - outcome.tasks);
    assert!(wasted > seeds, "little was counted twice");
}

#[test]
fn a_seed_always_tells_the_same_story() {
    let outcomes: Vec<Outcome> = (0..2).map(|_| run(Scenario::new(3))).collect();
    assert_eq!(outcomes[0], outcomes[1], "seed 3");
}
