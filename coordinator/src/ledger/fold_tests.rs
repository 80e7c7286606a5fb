//! What each change and each record makes of a task, and of a run's sums.

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, RunId, WorkerId},
};

use super::{
    fold::{KeptTask, MAX_VERSION_BYTES},
    *,
};

const RUN: RunId = RunId(3);
const TASK: TaskId = TaskId(0);

fn plan() -> Plan {
    let spec = PlanSpec {
        board: Board::new(8).unwrap(),
        layout: Layout::FirstRows,
        task_cost: 1,
    };
    Plan::new(spec).unwrap()
}

fn manifest(plan: &Plan) -> RunManifest {
    RunManifest {
        run: RUN,
        spec: *plan.spec(),
        plan: plan.hash(),
        plan_version: plan.spec().version(),
        priority: 0,
        created_unix_ms: 1_000,
        key: None,
    }
}

/// A count by a machine of the worker's own.
fn record(task: TaskId, worker: u64, count: u64) -> Record {
    Record {
        run: RUN,
        task,
        epoch: Epoch(worker),
        count,
        worker: WorkerId(u128::from(worker)),
        principal: Principal::new(worker, None),
        version: "1.0".to_owned(),
        kernel: KernelName::Scalar,
        orientation: Orientation::Upright,
        duration_us: 5,
        accepted_unix_ms: 2_000,
        elapsed_ms: 100 * worker,
    }
}

fn leased(worker: u128, epoch: u64) -> Change {
    Change::Leased {
        run: RUN,
        task: TASK,
        worker: WorkerId(worker),
        epoch: Epoch(epoch),
        until_unix_ms: 9,
    }
}

fn released(epoch: u64) -> Change {
    Change::Released {
        run: RUN,
        task: TASK,
        epoch: Epoch(epoch),
    }
}

fn expired(worker: u128, epoch: u64) -> Change {
    Change::Expired {
        run: RUN,
        task: TASK,
        epoch: Epoch(epoch),
        worker: WorkerId(worker),
    }
}

const PARKED: Change = Change::Parked {
    run: RUN,
    task: TASK,
};

const UNPARKED: Change = Change::Unparked {
    run: RUN,
    task: TASK,
};

/// A task after these changes.
fn after(changes: &[Change]) -> KeptTask {
    let mut row = KeptTask::new();
    for change in changes {
        row.change(change);
    }
    row
}

/// A task that worker 1 counted.
fn done() -> KeptTask {
    let mut row = KeptTask::new();
    let entry = JournalEntry::Accepted(record(TASK, 1, 7));
    row.settle(&entry, 1).unwrap();
    row
}

#[test]
fn the_end_of_the_newest_lease_alone_makes_a_task_pending() {
    let second = TaskState::Leased {
        worker: WorkerId(2),
        until_unix_ms: 9,
    };
    let replaced = [leased(1, 1), leased(2, 2)];
    assert_eq!(after(&replaced).state, second);
    for old in [released(1), expired(1, 1)] {
        let mut row = after(&replaced);
        row.change(&old);
        assert_eq!(row.state, second, "{old:?}");
    }
    for (newest, failed) in [(released(2), vec![]), (expired(2, 2), vec![WorkerId(2)])] {
        let mut row = after(&replaced);
        row.change(&newest);
        assert_eq!((row.state, row.failed), (TaskState::Pending, failed));
    }
    // The lease of a recheck: its end is nothing to the count.
    let mut row = done();
    let counted = row.state.clone();
    for change in [leased(2, 5), released(5), leased(2, 6), expired(2, 6)] {
        row.change(&change);
        assert_eq!(row.state, counted, "{change:?}");
    }
    assert_eq!((row.epoch, row.failed), (Epoch(6), vec![]));
}

#[test]
fn each_worker_fails_once_and_on_open_tasks_alone() {
    let failures = [expired(1, 1), expired(2, 2), expired(1, 3)];
    let row = after(&failures);
    assert_eq!(row.failed, [WorkerId(1), WorkerId(2)]);
    // An older copy of a task that is set aside by now may still fail.
    let mut row = after(&[leased(1, 1), PARKED, expired(1, 1)]);
    assert_eq!(
        (&row.state, &row.failed[..]),
        (&TaskState::Parked, &[WorkerId(1)][..])
    );
    let entry = JournalEntry::Accepted(record(TASK, 2, 7));
    row.settle(&entry, 1).unwrap();
    assert_eq!(row.failed, [], "a count settles what failed before it");
    row.change(&expired(3, 3));
    assert_eq!(row.failed, [], "nobody fails on a task that is counted");
}

#[test]
fn open_tasks_are_set_aside_and_freed_with_their_failures_forgiven() {
    for before in [&[][..], &[leased(1, 1)]] {
        let mut row = after(before);
        row.change(&expired(1, 0));
        row.change(&PARKED);
        assert_eq!(row.state, TaskState::Parked);
        row.change(&leased(2, 4));
        assert_eq!(
            row.state,
            TaskState::Parked,
            "it is freed before it goes out"
        );
        row.change(&UNPARKED);
        assert_eq!((row.state, row.failed), (TaskState::Pending, vec![]));
    }
    // What is not aside is not freed: neither its lease nor its failures go.
    let held = [expired(1, 1), leased(2, 2)];
    let mut row = after(&held);
    row.change(&UNPARKED);
    assert_eq!(row, after(&held));
    let mut row = done();
    row.change(&PARKED);
    row.change(&UNPARKED);
    assert_eq!(row, done());
}

#[test]
fn only_an_equal_count_confirms_and_only_another_contradicts() {
    let mut row = done();
    let refused = row.settle(&JournalEntry::Confirmed(record(TASK, 2, 8)), 2);
    assert_eq!(
        refused,
        Err(Refusal::NothingToConfirm {
            run: RUN,
            task: TASK,
            count: 8
        })
    );
    let refused = row.settle(&JournalEntry::Quarantined(record(TASK, 2, 7)), 2);
    assert_eq!(
        refused,
        Err(Refusal::NothingToContradict {
            run: RUN,
            task: TASK,
            count: 7
        })
    );
    assert_eq!(row, done(), "what is refused changes nothing");
    row.settle(&JournalEntry::Confirmed(record(TASK, 2, 7)), 2)
        .unwrap();
    let TaskState::Done { vote, confirmed } = &row.state else {
        panic!("{row:?}");
    };
    assert_eq!(
        (vote.worker, *confirmed, row.sequence),
        (WorkerId(1), Confirmed::OtherMachine, 2)
    );
}

#[test]
fn the_fold_counts_what_its_records_say() {
    let plan = plan();
    let mut fold = Fold::new(&manifest(&plan), &plan);
    let (first, second, third) = (TaskId(0), TaskId(1), TaskId(2));
    assert_eq!((fold.total(), fold.lines()), (Ok(0), 0));
    assert_eq!(fold.disagreements(), 0);
    let entries = [
        JournalEntry::Accepted(record(first, 1, 2)),
        JournalEntry::Confirmed(record(first, 2, 2)),
        JournalEntry::Confirmed(record(first, 3, 2)),
        JournalEntry::Accepted(record(second, 4, 3)),
        JournalEntry::Accepted(record(third, 5, 0)),
        JournalEntry::Quarantined(record(third, 6, 1)),
        JournalEntry::Quarantined(record(third, 7, 2)),
    ];
    for (entry, sequence) in entries.iter().zip(1..) {
        fold.take(&plan, entry, sequence).unwrap();
    }
    assert_eq!(fold.lines(), 7);
    assert_eq!(fold.total(), Ok(5));
    assert_eq!(fold.tasks_done(), 2);
    assert_eq!(fold.confirmed(), 2);
    assert_eq!(fold.disagreements(), 1, "the third count joins the quarrel");
    assert_eq!(fold.elapsed_ms(), 700);
    assert_eq!(fold.quarantined(), [third]);
    assert!(!fold.has_tokens());
    let touched: Vec<_> = fold.rows().map(|(task, _)| task).collect();
    assert_eq!(touched, [first, second, third]);
    assert_eq!(fold.row(third).map(|row| row.sequence), Some(7));
    assert_eq!(fold.row(TaskId(3)), None);
    let resolved = Record {
        principal: Principal::new(8, Some("lab")),
        ..record(third, 8, 1)
    };
    fold.take(&plan, &JournalEntry::Accepted(resolved), 8)
        .unwrap();
    assert_eq!((fold.total(), fold.quarantined()), (Ok(6), vec![]));
    assert!(fold.has_tokens());
}

#[test]
fn a_record_of_no_task_or_with_an_impossible_count_is_refused() {
    let plan = plan();
    let mut fold = Fold::new(&manifest(&plan), &plan);
    let tasks = plan.tasks();
    let none = JournalEntry::Accepted(record(TaskId(tasks), 1, 0));
    assert_eq!(
        fold.take(&plan, &none, 1),
        Err(Refusal::NoSuchTask {
            run: RUN,
            task: TaskId(tasks),
            tasks
        })
    );
    let limit = plan.task_limit(TASK);
    let too_many = JournalEntry::Accepted(record(TASK, 1, limit + 1));
    assert_eq!(
        fold.take(&plan, &too_many, 1),
        Err(Refusal::ImpossibleCount {
            run: RUN,
            task: TASK,
            count: limit + 1,
            limit
        })
    );
    assert_eq!(fold.rows().count(), 0);
    let most = JournalEntry::Accepted(record(TASK, 1, limit));
    fold.take(&plan, &most, 1).unwrap();
    assert_eq!(fold.total(), Ok(limit.into()));
}

#[test]
fn the_version_in_a_journal_line_is_cut_between_characters() {
    let long = |version: String| Record {
        version,
        ..record(TASK, 1, 7)
    };
    let ascii = "x".repeat(MAX_VERSION_BYTES);
    // Two bytes a character after one of one byte: the limit lies within a character.
    let wide = format!("v{}", "é".repeat(MAX_VERSION_BYTES));
    for (version, kept) in [
        (ascii.clone(), ascii.len()),
        (format!("{ascii}y"), ascii.len()),
        (wide, MAX_VERSION_BYTES - 1),
    ] {
        let record = long(version.clone());
        for change in [
            Change::Accepted(record.clone()),
            Change::Confirmed(record.clone()),
            Change::Quarantined { second: record },
        ] {
            let entry = change.journal_entry().unwrap();
            assert_eq!(entry.record().version, version[..kept]);
        }
    }
}

#[test]
fn runs_are_as_old_as_they_say_then_by_name() {
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
fn a_count_that_decides_is_confirmed_by_the_other_machines_that_made_it() {
    let decided = |deciding: Record| {
        let mut row = done();
        let other = JournalEntry::Quarantined(record(TASK, 2, 8));
        row.settle(&other, 2).unwrap();
        row.settle(&JournalEntry::Accepted(deciding), 3).unwrap();
        match row.state {
            TaskState::Done { vote, confirmed } => (vote.count, confirmed),
            other => panic!("{other:?}"),
        }
    };
    let third = |count| record(TASK, 3, count);
    assert_eq!(decided(third(8)), (8, Confirmed::OtherMachine));
    assert_eq!(decided(third(7)), (7, Confirmed::OtherMachine));
    assert_eq!(decided(third(9)), (9, Confirmed::No), "nobody else said it");
    let again = record(TASK, 2, 8);
    assert_eq!(decided(again), (8, Confirmed::No), "the same machine");
}
