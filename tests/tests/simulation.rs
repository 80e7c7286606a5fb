//! Simulated runs with faults and attacks from a seed, with default options.
//! `QUEENS_SIM_SEED=17` replays one seed of a test and prints its outcome; `QUEENS_SIM_SEEDS=5000` runs more;
//! CI runs 40, `just simulate` 2,500. Attacks run only a tenth of them, from seed QUEENS_SIM_FROM on;
//! `QUEENS_SIM_ATTACK=Late` runs only that one.

use scheduler::ledger::Recheck;
use tests::sim::{ATTACKS, DISTURBANCES, Fault, Scenario, SimOutcome, Tally, run};

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Runs a `part`-th of QUEENS_SIM_SEEDS seeds, or the default number.
fn runs(default: u64, part: u64, scenario: fn(u64) -> Scenario) -> Vec<SimOutcome> {
    let seeds = number("QUEENS_SIM_SEEDS").map_or(default, |seeds| seeds / part);
    (0..seeds).map(|seed| run(scenario(seed))).collect()
}

/// Replays the seed in QUEENS_SIM_SEED, if set; returns whether it is.
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

fn sum(outcomes: &[SimOutcome], of: fn(&SimOutcome) -> u64) -> u64 {
    outcomes.iter().map(of).sum()
}

#[test]
fn every_seed_ends_exact_except_for_lies_that_were_not_rechecked() {
    if is_replay(Scenario::new) {
        return;
    }
    let outcomes = runs(40, 1, Scenario::new);
    let seeds = outcomes.len() as u64;
    let mut faults = Tally::default();
    outcomes.iter().for_each(|outcome| faults += outcome.faults);
    let of = |of| sum(&outcomes, of);
    let (messages, groups, shared) = (of(|o| o.messages), of(|o| o.groups), of(|o| o.shared));
    let (barred, wrong) = (of(|o| o.barred), of(|o| o.wrong));
    eprintln!(
        "{seeds} seeds: {messages} messages, answered in {groups} groups, {shared} of them with others; \
         {} counts, {} coordinators\n{faults}\n\
         0 counts lost, 0 counted double\n\
         {barred} workers barred; {wrong} wrong counts that were not rechecked",
        of(|o| o.counted),
        of(|o| o.starts),
    );
    // Runs without faults would test nothing.
    assert!(of(|o| o.starts) > 3 * seeds, "few crashes");
    assert!(faults.of_workers() > 400 * seeds, "few faults");
    for fault in [Fault::Package, Fault::PackageReturned, Fault::PackageRevoked, Fault::OlderCopy] {
        assert!(faults.of(fault) > 0, "no {fault:?}");
    }
    // Seed 0 has a hundred workers or more, whose messages share groups.
    assert!(shared > 100, "nothing was grouped");
    assert!(10 * barred > seeds, "few liars are barred: {barred}");
    assert!(of(|o| o.confirmed) > seeds, "few rechecks");
    assert!(of(|o| o.counted) > of(|o| o.tasks) + seeds, "little was counted twice");
}

#[test]
fn a_seed_always_has_the_same_outcome() {
    for seed in [3, 7] {
        let outcomes: Vec<SimOutcome> = (0..2).map(|_| run(Scenario::new(seed))).collect();
        assert_eq!(outcomes[0], outcomes[1], "seed {seed}");
    }
}

/// Outcomes of the runs of one attack.
#[derive(Default)]
struct Row {
    exact: u64,
    within: u64,
    disputed: u64,
    outside: u64,
    exceeded: u64,
    recounts: u64,
}

#[test]
fn attacked_runs_end_exact_or_within_the_printed_bound() {
    attacked(Recheck::Auto);
}

#[test]
fn attacked_runs_whose_counts_are_all_rechecked_end_exact_or_within_the_printed_bound() {
    attacked(Recheck::All);
}

/// [`run`] checks that honest machines are not barred and disputes are settled.
fn attacked(recheck: Recheck) {
    let seeds = number("QUEENS_SIM_SEEDS").map_or(2, |seeds| seeds / 10);
    let from = number("QUEENS_SIM_FROM").unwrap_or(0);
    eprintln!("attack            recheck  exact  within  disputed  outside  exceeded  recounts");
    let only = std::env::var("QUEENS_SIM_ATTACK").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let attacks: Vec<_> = ATTACKS.into_iter().filter(|attack| wanted(attack.name)).collect();
    assert!(!attacks.is_empty(), "no attack is named {only:?}");
    for attack in attacks {
        let mut row = Row::default();
        let (name, is_by_one_token) = (attack.name, attack.is_by_one_token);
        for seed in from..from + seeds {
            let outcome = run(Scenario::attack(attack, recheck, seed));
            row.recounts += outcome.recounts;
            row.exceeded += u64::from(outcome.exceeded);
            if is_by_one_token {
                let confirmed = outcome.wrong_confirmed;
                assert_eq!(confirmed, 0, "{name}, {recheck}, seed {seed}: agreed with a lie");
            }
            // Runs wait for another token only as long as their tasks took; some counts stay unconfirmed.
            let is_exact = outcome.wrong == 0 && outcome.disputed == 0;
            assert!(
                is_exact || !is_by_one_token || recheck != Recheck::All || outcome.unconfirmed > 0,
                "{name}, {recheck}, seed {seed}: wrong, and all is confirmed"
            );
            *match outcome.bound {
                _ if outcome.disputed > 0 => &mut row.disputed,
                _ if outcome.wrong == 0 => &mut row.exact,
                Some(bound) if outcome.wrong <= bound => &mut row.within,
                // A run that has a referee must not end without a bound.
                Some(_) | None => &mut row.outside,
            } += 1;
        }
        let Row { exact, within, disputed, outside, exceeded, recounts } = row;
        eprintln!(
            "{:<17} {:<7} {exact:>6} {within:>7} {disputed:>9} {outside:>8} {exceeded:>9} {:>9}",
            name,
            recheck.to_string(),
            recounts / seeds.max(1),
        );
        // A 95 % bound fails in at most a twentieth of the runs, plus two standard deviations in few runs.
        let chance = 2.0 * (0.05 * 0.95 * seeds as f64).sqrt();
        let most = 0.05 * seeds as f64 + if seeds < 1_000 { chance } else { 0.0 };
        assert!(outside as f64 <= most, "{name}, {recheck}: {outside} of {seeds} outside");
        // Whenever it was read.
        assert!(exceeded as f64 <= most, "{name}, {recheck}: {exceeded} of {seeds} exceeded");
        let faulty = name == "FaultyReferee";
        assert!(disputed == 0 || faulty, "{name}, {recheck}: {disputed} disputed");
        // Only a hundred machines of one token are too many for the others to check in that time.
        if is_by_one_token && recheck == Recheck::All && name != "Hundred" {
            assert_eq!(exact, seeds, "{name}: honest machines have another token");
        }
    }
}

/// The run ends at most a fifth and a minute later than without them.
#[test]
fn neither_strangers_nor_weak_machines_delay_the_end() {
    let seeds = number("QUEENS_SIM_SEEDS").map_or(1, |seeds| seeds / 10);
    let from = number("QUEENS_SIM_FROM").unwrap_or(0);
    for seed in from..from + seeds {
        let without = run(Scenario::disturbed(None, seed));
        assert!(without.exact, "seed {seed}");
        for disturbance in DISTURBANCES {
            let (name, scenario) = (disturbance.name, Scenario::disturbed(Some(disturbance), seed));
            let with = run(scenario);
            let [before, after] = [without.time_ms, with.time_ms];
            eprintln!(
                "seed {seed}: {after:>7} ms with {name}, without them {before} ms {:?}",
                with.shares
            );
            assert!(with.exact && with.barred == 0, "seed {seed}: {name}");
            assert!(after <= before + before / 5 + 60_000, "seed {seed}: {name}");
        }
    }
}

/// [`run`] checks that no thread starts a task of lower priority later than a sync interval after a run of higher
/// priority has tasks, and that a run that does not move says why.
#[test]
fn runs_of_three_priorities_are_exact_and_counted_by_priority() {
    if is_replay(Scenario::priorities) {
        return;
    }
    let outcomes = runs(6, 10, Scenario::priorities).into_iter().enumerate();
    // Seeds with a run that waited without a reason, or behind rechecks of a run of lower priority.
    let found = [39, 66, 89].map(|seed| (seed, run(Scenario::priorities(seed as u64))));
    for (seed, outcome) in outcomes.chain(found) {
        let tasks = 3 * Scenario::priorities(seed as u64).truth.plan.tasks();
        assert!(outcome.exact && outcome.tasks == tasks, "seed {seed}: {outcome:#?}");
    }
}

/// The tolerance follows from the tasks: workers start within two minutes, the slowest may have the longest
/// task at the end, and the number of tasks varies with their lengths (three standard deviations of a sum).
#[test]
fn machines_get_work_by_their_speed_and_only_tasks_that_fit_their_memory() {
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
        let [fast, typical @ .., small] = &outcome.shares[..] else {
            panic!("seed {seed}: no machines");
        };
        assert_eq!(small.granted, 0, "seed {seed}: it has too little memory");
        // Calls take time too, and a run waits for random recounts at its end.
        let recounts = (outcome.time_ms / 100).max(longest);
        let idle = 120_000 + longest + 30_000 + recounts;
        for share in typical.iter().chain([fast]) {
            assert!(
                share.busy_ms + idle >= outcome.time_ms,
                "seed {seed}: {} of {} ms busy",
                share.busy_ms,
                outcome.time_ms
            );
        }
        let counted: u64 = typical.iter().map(|share| share.counted).sum();
        let ratio = fast.counted as f64 / (counted as f64 / typical.len() as f64);
        let chance = 3.0 * spread * (1.0 / fast.counted as f64 + 1.0 / counted as f64).sqrt();
        let tolerance = idle as f64 / outcome.time_ms as f64 + chance;
        eprintln!("seed {seed}: {ratio:.2} times the tasks at 4 times the speed, ± {tolerance:.2}");
        assert!((ratio / 4.0 - 1.0).abs() < tolerance, "seed {seed}: {ratio}");
    }
}
