//! Tests of the states of a task, and of the fold of a run.

use common::{
    messages::{limits::VERSION_BYTES, run::RunId},
    plan::{Plan, PlanSpec, TaskId},
};

use super::{
    test_records::{RUN, manifest, plan},
    *,
};

const TASK: TaskId = TaskId(0);

fn record(task: TaskId, worker: u64, count: u64) -> Record {
    test_records::record(task.0, worker, count)
}

/// Returns a run's fold after these steps of its first task; a step with `!` is refused without effect.
/// `A2=7` is the journal line of an accepted 7 of worker 2; `C` confirms, `D` disputes and `V` voids; `N` and
/// `S` are the referee's recount and its settlement.
fn after(steps: &str) -> Fold {
    let plan = plan();
    let mut fold = Fold::new(&manifest(&plan), &plan);
    for (step, sequence) in steps.split_whitespace().zip(1..) {
        let (step, is_refused) = step.strip_prefix('!').map_or((step, false), |step| (step, true));
        let (name, numbers) = step.split_at(1);
        let (worker, count) = numbers.split_once('=').unwrap();
        let kind = match name {
            "A" => EntryKind::Accepted,
            "C" => EntryKind::Confirmed,
            "D" => EntryKind::Disputed,
            "V" => EntryKind::Voided,
            "N" => EntryKind::Recounted,
            "S" => EntryKind::Settled,
            _ => panic!("{step}"),
        };
        let mut record = record(TASK, worker.parse().unwrap(), count.parse().unwrap());
        if matches!(kind, EntryKind::Recounted | EntryKind::Settled) {
            record.principal = Principal::referee();
        }
        let before = described(&fold);
        let applied = fold.take(&plan, &kind.of(record), sequence);
        assert_eq!(applied.is_err(), is_refused, "{step} of {steps}: {applied:?}");
        assert!(!is_refused || described(&fold) == before, "{step} of {steps}");
    }
    fold
}

fn described(fold: &Fold) -> String {
    match fold.tasks.state(0) {
        TaskState::Done { first, confirmed, .. } => {
            format!("{} by {}, {confirmed:?}", first.count, fold.author(first.author).0.0)
        }
        TaskState::Open => "open".to_owned(),
        TaskState::Disputed { counts } => format!("disputed by {}", counts.len()),
    }
}

#[test]
fn the_state_of_a_task_follows_from_its_counts() {
    for (steps, end) in [
        // Only an equal count confirms, and only a different one disputes.
        ("A1=7 !C2=8 !D2=7 C2=7", "7 by 1, SameToken"),
        // Only a first count is accepted, and only a referee decides a dispute.
        ("!C1=7 !D1=7 !S1=7 A1=7 !A2=7 D2=8 !A3=8 !A2=8 !A1=7", "disputed by 2"),
        // A different count of the referee is not final at once.
        ("A1=7 !S2=8 N2=8 S2=8", "8 by 2, Referee"),
        // The counts that remain after others are voided stand if they agree.
        ("A1=7 C2=7 V1=7", "7 by 2, None"),
        ("A1=7 C2=7 V2=7", "7 by 1, None"),
        ("A1=7 V1=7", "open"),
        ("A1=7 D2=8 D3=7", "disputed by 3"),
        ("A1=7 D2=8 D3=7 V2=8", "7 by 1, SameToken"),
        // A worker without a count has nothing to void.
        ("A1=7 !V2=7", "7 by 1, None"),
    ] {
        assert_eq!(described(&after(steps)), end, "{steps}");
    }
}

#[test]
fn the_time_of_acceptance_is_that_of_the_first_count() {
    let entry = |kind: EntryKind, worker, accepted_unix_ms| {
        kind.of(Record { accepted_unix_ms, ..record(TASK, worker, 7) })
    };
    let first = entry(EntryKind::Accepted, 1, 3_500);
    let second = entry(EntryKind::Confirmed, 2, 9_000);
    let void = entry(EntryKind::Voided, 1, 9_500);
    let accepted_s = |fold: &Fold| fold.tasks.done(0).unwrap().accepted_s;
    assert_eq!(accepted_s(&test_records::fold(&[first.clone(), second.clone()])), 3);
    // Only the time of the standing count is kept.
    assert_eq!(accepted_s(&test_records::fold(&[first, second, void])), tasks::UNKNOWN_S);
}

#[test]
fn the_referees_count_is_final() {
    // The referee agrees with the first count, decides between two, or agrees with none.
    for (steps, end) in [
        ("A1=7 S9=7", "7 by 1, Referee"),
        ("A1=7 D2=8 S9=8", "8 by 2, Referee"),
        ("A1=7 N9=9 S9=9", "9 by 9, Referee"),
    ] {
        let first = &end[5..6];
        let refused = [7, 8, 9].map(|count| {
            ["A", "C", "D", "N", "S", "V"].map(|kind| format!("!{kind}{first}={count}")).join(" ")
        });
        assert_eq!(described(&after(&format!("{steps} {}", refused.join(" ")))), end);
    }
}

#[test]
fn a_refusal_names_the_count_that_stands() {
    let refused = after("A1=7").take(&plan(), &EntryKind::Confirmed.of(record(TASK, 2, 8)), 2);
    let kind = EntryKind::Confirmed;
    let refusal = Refusal::DoesNotFollow { run: RUN, task: TASK, kind, count: 8, stands: Some(7) };
    assert_eq!(refused, Err(refusal));
}

#[test]
fn the_fold_tallies_its_records() {
    let plan = plan();
    let mut fold = Fold::new(&manifest(&plan), &plan);
    let (first, second, third) = (TaskId(0), TaskId(1), TaskId(2));
    assert_eq!((fold.total(), fold.lines), (Ok(0), 0));
    assert_eq!(fold.disagreements, 0);
    let entries = [
        EntryKind::Accepted.of(record(first, 1, 2)),
        EntryKind::Confirmed.of(record(first, 2, 2)),
        EntryKind::Confirmed.of(record(first, 3, 2)),
        EntryKind::Accepted.of(record(second, 4, 3)),
        EntryKind::Accepted.of(record(third, 5, 0)),
        EntryKind::Disputed.of(record(third, 6, 1)),
        EntryKind::Disputed.of(record(third, 7, 2)),
    ];
    for (entry, sequence) in entries.iter().zip(1..) {
        fold.take(&plan, entry, sequence).unwrap();
    }
    assert_eq!(fold.lines, 7);
    assert_eq!(fold.total(), Ok(5));
    assert_eq!(fold.tasks_done(), 2);
    assert_eq!(fold.disagreements, 1, "the third count joins the dispute");
    assert_eq!(fold.elapsed.ms(), 700);
    assert_eq!(fold.tasks.disputed().keys().collect::<Vec<_>>(), [&2]);
    let done: Vec<_> = fold.done().map(|(task, _)| task).collect();
    assert_eq!(done, [first, second]);
    let resolved = Record { principal: Principal::referee(), ..record(third, 8, 1) };
    fold.take(&plan, &EntryKind::Settled.of(resolved), 8).unwrap();
    assert_eq!((fold.total(), fold.tasks_done()), (Ok(6), 3));
}

#[test]
fn a_record_of_no_task_or_with_an_impossible_count_is_refused() {
    let plan = plan();
    let mut fold = Fold::new(&manifest(&plan), &plan);
    let tasks = plan.tasks();
    let none = EntryKind::Accepted.of(record(TaskId(tasks), 1, 0));
    assert_eq!(
        fold.take(&plan, &none, 1),
        Err(Refusal::NoSuchTask { run: RUN, task: TaskId(tasks), tasks })
    );
    let limit = plan.task_limit(TASK);
    let too_many = EntryKind::Accepted.of(record(TASK, 1, limit + 1));
    assert_eq!(
        fold.take(&plan, &too_many, 1),
        Err(Refusal::ImpossibleCount { run: RUN, task: TASK, count: limit + 1, limit })
    );
    assert_eq!(fold.done().count(), 0);
    let most = EntryKind::Accepted.of(record(TASK, 1, limit));
    fold.take(&plan, &most, 1).unwrap();
    assert_eq!(fold.total(), Ok(limit.into()));
}

#[test]
fn the_version_in_a_journal_line_is_cut_between_characters() {
    let long = |version: String| Record { version, ..record(TASK, 1, 7) };
    let ascii = "x".repeat(VERSION_BYTES);
    // Two-byte characters after a one-byte character: the limit lies within a character.
    let wide = format!("v{}", "é".repeat(VERSION_BYTES));
    for (version, kept) in [
        (ascii.clone(), ascii.len()),
        (format!("{ascii}y"), ascii.len()),
        (wide, VERSION_BYTES - 1),
    ] {
        let record = long(version.clone());
        for kind in [EntryKind::Accepted, EntryKind::Voided] {
            assert_eq!(kind.of(record.clone()).bounded().record.version, version[..kept]);
        }
    }
}

#[test]
fn runs_are_ordered_by_creation_time_then_by_id() {
    let of = |run, created_unix_ms| RunManifest {
        run: RunId(run),
        created_unix_ms,
        ..manifest(&plan())
    };
    assert_eq!(of(3, 1_000).age(), (1_000, 3));
    assert!(of(9, 1_000).age() < of(3, 1_001).age());
    assert!(of(3, 1_000).age() < of(9, 1_000).age());
}

#[test]
fn clocks_that_are_set_do_not_change_how_long_a_run_took() {
    const DAY_MS: u64 = 86_400_000;
    let manifest = RunManifest { created_unix_ms: 100 * DAY_MS, ..manifest(&plan()) };
    let record = |accepted_unix_ms, elapsed_ms| Record {
        accepted_unix_ms,
        elapsed_ms,
        ..record(TASK, 1, 1)
    };
    let mut elapsed = Elapsed::of(&manifest);
    // A clock a year ahead, then one that was set back before the run began.
    for (accepted_unix_ms, elapsed_ms) in [(465 * DAY_MS, 1_000), (99 * DAY_MS, 2_500)] {
        elapsed.apply(&record(accepted_unix_ms, elapsed_ms));
    }
    assert_eq!(elapsed.ms(), 2_500);
}

#[test]
fn a_fold_tallies_wrong_and_void_counts_and_waiting_time() {
    use EntryKind::{Accepted, Disputed, Recounted, Voided};
    let referees = |task, count| Record {
        principal: Principal::referee(),
        accepted_unix_ms: 9_000,
        ..record(task, 9, count)
    };
    let fold = test_records::fold(&[
        Accepted.of(record(TASK, 1, 7)),
        Recounted.of(referees(TASK, 8)),
        // No count stands when the referee recounts this task.
        Accepted.of(record(TaskId(1), 1, 7)),
        Disputed.of(record(TaskId(1), 2, 8)),
        Recounted.of(referees(TaskId(1), 9)),
        Accepted.of(record(TaskId(2), 1, 7)),
        Voided.of(record(TaskId(2), 1, 7)),
        Accepted.of(record(TaskId(3), 1, 7)),
        Voided.of(record(TaskId(3), 1, 7)),
    ]);
    assert_eq!(fold.found_wrong.iter().collect::<Vec<_>>(), [&0]);
    assert_eq!(fold.replaced.iter().collect::<Vec<_>>(), [&2, &3]);
    assert_eq!((fold.disagreements, fold.voided), (2, 2));
    // Created at 1,000 ms; the last record names the time in which tasks were counted.
    assert_eq!((fold.elapsed.ms(), fold.elapsed.waiting_ms()), (900, 9_000 - 1_000 - 900));
}

#[test]
fn each_principal_contributes_its_counts_and_the_confirmations_in_which_it_agreed() {
    use EntryKind::{Accepted, Confirmed, Disputed, Settled};
    let referee = Record { principal: Principal::referee(), ..record(TaskId(1), 9, 5) };
    let fold = test_records::fold(&[
        Accepted.of(record(TASK, 1, 7)),
        Confirmed.of(record(TASK, 2, 7)),
        Accepted.of(record(TaskId(1), 1, 5)),
        Settled.of(referee),
        Accepted.of(record(TaskId(2), 3, 4)),
        // Nothing stands of a disputed task.
        Accepted.of(record(TaskId(3), 4, 1)),
        Disputed.of(record(TaskId(3), 3, 2)),
    ]);
    let all = fold.contributions().into_values();
    let mut all: Vec<_> =
        all.map(|own| (own.worker.0, own.tasks, own.solutions, own.confirmed)).collect();
    all.sort_unstable();
    // The second worker and the referee only rechecked.
    assert_eq!(all, [(1, 2, 12, 2), (2, 0, 0, 1), (3, 1, 4, 0), (9, 0, 0, 1)]);
}

#[test]
fn a_manifest_of_another_plan_is_refused() {
    let plan = plan();
    let ours = manifest(&plan);
    assert!(fold::plan_of(&ours).is_ok());
    let version = RunManifest { plan_version: ours.plan_version + 1, ..ours.clone() };
    assert!(matches!(fold::plan_of(&version), Err(PlanMismatch::Version { .. })));
    let spec = PlanSpec { task_cost: 2, ..*plan.spec() };
    let hash = RunManifest { plan: Plan::new(spec).unwrap().hash(), ..ours };
    assert!(matches!(fold::plan_of(&hash), Err(PlanMismatch::Hash { .. })));
}

#[test]
fn states_have_stable_names() {
    use RunState::{Cancelled, Complete, Contradicted, Disputed, Paused, Running};
    let states = [Running, Paused, Cancelled, Complete, Contradicted, Disputed];
    let names = ["running", "paused", "cancelled", "complete", "contradicted", "disputed"];
    assert_eq!(states.map(RunState::name), names);
}
