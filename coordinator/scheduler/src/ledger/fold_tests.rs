//! Tests of the states of a task, and of the fold of a run.

use common::{
    limits::VERSION_BYTES,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, RunId, WorkerId},
};

use super::{
    test_records::{RUN, manifest, plan},
    *,
};

const TASK: TaskId = TaskId(0);

fn record(task: TaskId, worker: u64, count: u64) -> Record {
    test_records::record(task.0, worker, count)
}

/// Returns the task after these steps; a step with `!` is refused without effect.
/// `L1.2` leases it to worker 1 in epoch 2, `X1.2` lets that lease expire and `R2` releases it; `P` parks the
/// task and `U` unparks it. `A2=7` is the journal line of an accepted 7 of worker 2; `C` confirms, `D` disputes
/// and `V` voids; `N` and `S` are the referee's recount and its settlement.
fn after(steps: &str) -> TaskRow {
    let mut row = TaskRow::default();
    for (step, sequence) in steps.split_whitespace().zip(1..) {
        let (step, is_refused) = step.strip_prefix('!').map_or((step, false), |step| (step, true));
        let (name, numbers) = step.split_at(1);
        let numbers: Vec<u64> =
            numbers.split(['.', '=']).filter_map(|number| number.parse().ok()).collect();
        let at = |index: usize| numbers[index];
        let kind = match name {
            "A" => EntryKind::Accepted,
            "C" => EntryKind::Confirmed,
            "D" => EntryKind::Disputed,
            "V" => EntryKind::Voided,
            "N" => EntryKind::Recounted,
            "S" => EntryKind::Settled,
            _ => {
                let (run, task, worker) = (RUN, TASK, |number: u64| WorkerId(number.into()));
                row.change(&match name {
                    "L" => Change::Leased {
                        run,
                        task,
                        worker: worker(at(0)),
                        epoch: Epoch(at(1)),
                        until_unix_ms: 9,
                    },
                    "X" => {
                        Change::Expired { run, task, epoch: Epoch(at(1)), worker: worker(at(0)) }
                    }
                    "R" => Change::Released { run, task, epoch: Epoch(at(0)) },
                    "P" => Change::Parked { run, task },
                    "U" => Change::Unparked { run, task },
                    _ => panic!("{step}"),
                });
                continue;
            }
        };
        let mut record = record(TASK, at(0), at(1));
        if matches!(kind, EntryKind::Recounted | EntryKind::Settled) {
            record.principal = Principal::referee();
        }
        let before = row.clone();
        let applied = row.apply(&kind.of(record), sequence);
        assert_eq!(applied.is_err(), is_refused, "{step} of {steps}: {applied:?}");
        assert!(!is_refused || row == before, "{step} of {steps}");
    }
    row
}

fn described(row: &TaskRow) -> String {
    let state = match &row.state {
        TaskState::Leased { worker, .. } => format!("leased to {}", worker.0),
        TaskState::Done { first, confirmed, .. } => {
            format!("{} by {}, {:?}", first.count, first.worker.0, confirmed)
        }
        TaskState::Pending => "pending".to_owned(),
        TaskState::Parked => "parked".to_owned(),
        TaskState::Disputed { .. } => "disputed".to_owned(),
    };
    row.failed.iter().fold(state, |described, worker| format!("{described}, failed {}", worker.0))
}

#[test]
fn the_state_of_a_task_follows_from_its_leases_and_counts() {
    for (steps, end) in [
        // Only the end of the newest lease makes the task pending.
        ("L1.1 L2.2", "leased to 2"),
        ("L1.1 L2.2 R1", "leased to 2"),
        ("L1.1 L2.2 X1.1", "leased to 2, failed 1"),
        ("L1.1 L2.2 R2", "pending"),
        ("L1.1 L2.2 X2.2", "pending, failed 2"),
        // The lease of a recheck: its end does not change the count.
        ("A1=7 L2.5 R5", "7 by 1, None"),
        ("A1=7 L2.5 R5 L2.6 X2.6", "7 by 1, None"),
        // Failures are recorded once per worker and only for open tasks; a count clears them.
        ("X1.1 X2.2 X1.3", "pending, failed 1, failed 2"),
        ("L1.1 P X1.1", "parked, failed 1"),
        ("L1.1 P X1.1 A2=7", "7 by 2, None"),
        ("L1.1 P X1.1 A2=7 X3.3", "7 by 2, None"),
        // Unparking makes a task pending and forgets its failures.
        ("X1.0 P L2.4", "parked, failed 1"),
        ("X1.0 P L2.4 U", "pending"),
        ("L1.1 X1.0 P", "parked, failed 1"),
        ("L1.1 X1.0 P U", "pending"),
        // Only a parked task can be unparked: another one keeps its lease and its failures.
        ("X1.1 L2.2 U", "leased to 2, failed 1"),
        ("A1=7 P", "7 by 1, None"),
        ("A1=7 U", "7 by 1, None"),
        // Only an equal count confirms, and only a different one disputes.
        ("A1=7 !C2=8 !D2=7 C2=7", "7 by 1, SameToken"),
        // Only a first count is accepted, and only a referee decides a dispute.
        ("!S1=7 A1=7 !A2=7 D2=8 !A3=8 !A2=8 !A1=7", "disputed"),
        // A different count of the referee is not final at once.
        ("A1=7 !S2=8 N2=8 S2=8", "8 by 2, Referee"),
        // The counts that remain after others are voided stand if they agree.
        ("A1=7 C2=7 V1=7", "7 by 2, None"),
        ("A1=7 C2=7 V2=7", "7 by 1, None"),
        ("A1=7 V1=7", "pending"),
        ("A1=7 D2=8 D3=7", "disputed"),
        ("A1=7 D2=8 D3=7 V2=8", "7 by 1, SameToken"),
        // A worker without a count has nothing to void.
        ("A1=7 !V2=7", "7 by 1, None"),
    ] {
        assert_eq!(described(&after(steps)), end, "{steps}");
    }
    assert_eq!(after("A1=7 L2.5 R5 L2.6 X2.6").epoch, Epoch(6));
    assert_eq!(after("A1=7 C2=7").sequence, 2);
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
    let refused = after("A1=7").apply(&EntryKind::Confirmed.of(record(TASK, 2, 8)), 2);
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
    assert_eq!(fold.disputed(), [third]);
    let touched: Vec<_> = fold.rows().map(|(task, _)| task).collect();
    assert_eq!(touched, [first, second, third]);
    assert_eq!(fold.row(third).map(|row| row.sequence), Some(7));
    assert_eq!(fold.row(TaskId(3)), None);
    let resolved = Record { principal: Principal::referee(), ..record(third, 8, 1) };
    fold.take(&plan, &EntryKind::Settled.of(resolved), 8).unwrap();
    assert_eq!((fold.total(), fold.disputed()), (Ok(6), vec![]));
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
    assert_eq!(fold.rows().count(), 0);
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
        for change in [EntryKind::Accepted.change(record.clone()), EntryKind::Voided.change(record)]
        {
            let entry = change.journal_entry().unwrap();
            assert_eq!(entry.record.version, version[..kept]);
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
fn a_stored_row_agrees_with_the_journal_where_only_leases_differ() {
    let open = TaskRow::default();
    let counted = after("A1=7");
    for (stored, agrees_with_open, agrees_with_counted) in [
        (after("L1.1"), true, false),
        (TaskRow { sequence: 1, ..after("L1.1") }, false, false),
        (TaskRow { failed: vec![WorkerId(9)], epoch: Epoch(9), ..counted.clone() }, false, true),
        (TaskRow { sequence: 2, ..counted.clone() }, false, false),
    ] {
        assert_eq!(stored.agrees_with(&open), agrees_with_open, "{stored:?}");
        assert_eq!(stored.agrees_with(&counted), agrees_with_counted, "{stored:?}");
    }
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
    let wrong = [0, 1, 2].map(|task| fold.found_wrong.contains(&TaskId(task)));
    assert_eq!(wrong, [true, false, false]);
    assert_eq!((fold.disagreements, fold.voided), (2, 2));
    // Created at 1,000 ms; the last record names the time in which tasks were counted.
    assert_eq!((fold.elapsed.ms(), fold.elapsed.waiting_ms()), (900, 9_000 - 1_000 - 900));
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
