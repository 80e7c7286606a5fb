//! What every store must do; run against the model and against the disk.

use std::{ops::ControlFlow, path::Path};

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, RunId, WorkerId},
};

use super::{
    Change, Confirmed, DiskStore, JournalCursor, JournalEntry, MemoryStore, Principal, Recheck,
    Record, Refusal, RunManifest, RunState, Store, StoreError, SymmetricCounts, TaskRow, TaskState,
    Trust, TrustRecord, Vote, segments::SEGMENT_BYTES,
};

/// A store that can be closed and opened again.
pub(super) trait Bench {
    type Store: Store;

    fn store(&mut self) -> &mut Self::Store;

    fn reopen(&mut self);
}

/// A disk store in a directory of its own.
pub(super) struct OnDisk {
    store: Option<DiskStore>,
    dir: tempfile::TempDir,
    segment_bytes: u64,
}

impl OnDisk {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            store: Some(DiskStore::open(dir.path()).unwrap()),
            dir,
            segment_bytes: SEGMENT_BYTES,
        }
    }

    /// One whose journals have a segment for every line or two.
    pub(super) fn in_segments() -> Self {
        Self {
            segment_bytes: 700,
            ..Self::new()
        }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn close(&mut self) {
        self.store = None;
    }
}

impl Bench for OnDisk {
    type Store = DiskStore;

    fn store(&mut self) -> &mut DiskStore {
        let store = self.store.as_mut().unwrap();
        store.set_segment_bytes(self.segment_bytes);
        store
    }

    fn reopen(&mut self) {
        self.close();
        self.store = Some(DiskStore::open(self.dir.path()).unwrap());
    }
}

impl Bench for MemoryStore {
    type Store = Self;

    fn store(&mut self) -> &mut Self {
        self
    }

    fn reopen(&mut self) {}
}

pub(super) fn spec() -> PlanSpec {
    PlanSpec {
        board: Board::new(10).unwrap(),
        layout: Layout::FirstRows,
        task_cost: 1,
    }
}

pub(super) fn manifest(run: u64) -> RunManifest {
    let spec = spec();
    RunManifest {
        run: RunId(run),
        spec,
        plan: Plan::new(spec).unwrap().hash(),
        plan_version: spec.version(),
        priority: 3,
        created_unix_ms: 1_700_000_000_000 + run,
        key: None,
    }
}

pub(super) fn record(run: u64, task: u64, epoch: u64, count: u64) -> Record {
    Record {
        run: RunId(run),
        task: TaskId(task),
        epoch: Epoch(epoch),
        count,
        worker: WorkerId(u128::from(epoch)),
        principal: Principal::kept(&format!("of {epoch}")),
        version: "1.2.3".to_owned(),
        kernel: KernelName::Scalar,
        orientation: Orientation::Upright,
        duration_us: 1234,
        accepted_unix_ms: 1_700_000_000_500,
        elapsed_ms: 400 + task,
    }
}

pub(super) fn rows(store: &impl Store, run: u64) -> Vec<TaskRow> {
    let mut rows = Vec::new();
    store.scan(RunId(run), &mut |row| rows.push(row)).unwrap();
    rows.sort_by_key(|row| row.task);
    rows
}

pub(super) fn lines(store: &impl Store, run: u64) -> Vec<(u64, JournalEntry, String)> {
    let mut lines = Vec::new();
    store
        .journal(
            RunId(run),
            JournalCursor::default(),
            &mut |seq, entry, text| {
                lines.push((seq, entry.clone(), text.to_owned()));
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    lines
}

pub(super) fn suite<B: Bench>(mut new: impl FnMut() -> B) {
    a_run_is_created_once(new());
    results_and_leases_are_kept(new());
    a_broken_group_changes_nothing(new());
    contradictions_are_quarantined_and_resolved(new());
    the_journal_is_read_in_pages(new());
    another_plan_is_refused(new());
    a_run_is_deleted(new());
    what_is_thought_of_workers_is_kept(new());
    what_is_to_be_counted_twice_is_kept(new());
    symmetric_solutions_stay_with_the_run(new());
}

fn a_run_is_created_once(mut bench: impl Bench) {
    let store = bench.store();
    store.create(&manifest(2)).unwrap();
    store.create(&manifest(1)).unwrap();
    assert!(matches!(
        store.create(&manifest(2)),
        Err(StoreError::RunExists(RunId(2)))
    ));
    store
        .apply(&[Change::State {
            run: RunId(1),
            state: RunState::Paused,
        }])
        .unwrap();
    for _ in 0..2 {
        let runs = bench.store().runs().unwrap();
        let found: Vec<_> = runs
            .into_iter()
            .map(|run| (run.manifest, run.state))
            .collect();
        let expected = [
            (manifest(1), RunState::Paused),
            (manifest(2), RunState::Running),
        ];
        assert_eq!(found, expected);
        bench.reopen();
    }
    let missing = RunId(9);
    let store = bench.store();
    let state = Change::State {
        run: missing,
        state: RunState::Paused,
    };
    let errors = [
        store.apply(&[state]),
        store.scan(missing, &mut |_| ()),
        store
            .journal(missing, JournalCursor::default(), &mut |_, _, _| {
                ControlFlow::Continue(())
            })
            .map(|_| ()),
    ];
    for error in errors {
        assert!(matches!(error, Err(StoreError::NoSuchRun(run)) if run == missing));
    }
}

fn leased(task: u64, epoch: u64) -> Change {
    Change::Leased {
        run: RunId(1),
        task: TaskId(task),
        worker: WorkerId(u128::from(epoch)),
        epoch: Epoch(epoch),
        until_unix_ms: 5000 + epoch,
    }
}

fn expired(task: u64, epoch: u64) -> Change {
    Change::Expired {
        run: RunId(1),
        task: TaskId(task),
        epoch: Epoch(epoch),
        worker: WorkerId(u128::from(epoch)),
    }
}

fn results_and_leases_are_kept(mut bench: impl Bench) {
    let (run, task) = (RunId(1), TaskId);
    bench.store().create(&manifest(1)).unwrap();
    let changes = [
        leased(0, 1),
        leased(1, 1),
        leased(2, 1),
        leased(2, 2),
        expired(2, 1),
        leased(3, 7),
        expired(3, 7),
        Change::Parked { run, task: task(3) },
        leased(4, 7),
        expired(4, 7),
        Change::Parked { run, task: task(4) },
        Change::Unparked { run, task: task(4) },
        Change::Accepted(record(1, 0, 1, 40)),
        leased(5, 1),
        Change::Released {
            run,
            task: task(5),
            epoch: Epoch(1),
        },
        leased(0, 9),
    ];
    bench.store().apply(&changes).unwrap();
    let worker = |id| WorkerId(id);
    let row = |task, epoch, state, failed: &[u128]| TaskRow {
        task: TaskId(task),
        epoch: Epoch(epoch),
        state,
        failed: failed.iter().map(|id| worker(*id)).collect(),
    };
    let lease = |epoch: u64| TaskState::Leased {
        worker: worker(u128::from(epoch)),
        until_unix_ms: 5000 + epoch,
    };
    let done = TaskState::Done {
        vote: Vote::from(&record(1, 0, 1, 40)),
        confirmed: Confirmed::No,
    };
    let expected = vec![
        row(0, 9, done, &[]),
        row(1, 1, lease(1), &[]),
        row(2, 2, lease(2), &[1]),
        row(3, 7, TaskState::Parked, &[7]),
        row(4, 7, TaskState::Pending, &[]),
        row(5, 1, TaskState::Pending, &[]),
    ];
    assert_eq!(rows(bench.store(), 1), expected);
    bench.reopen();
    assert_eq!(rows(bench.store(), 1), expected);
}

fn a_broken_group_changes_nothing(mut bench: impl Bench) {
    bench.store().create(&manifest(1)).unwrap();
    let first = Change::Accepted(record(1, 0, 1, 40));
    bench.store().apply(std::slice::from_ref(&first)).unwrap();
    let tasks = Plan::new(spec()).unwrap().tasks();
    let breaks = [
        Change::Accepted(record(1, tasks, 1, 4)),
        Change::Accepted(record(1, 7, 1, u64::MAX)),
        first.clone(),
        Change::Confirmed(record(1, 0, 2, 41)),
        Change::Confirmed(record(1, 7, 2, 41)),
        Change::Quarantined {
            second: record(1, 0, 2, 40),
        },
        Change::Quarantined {
            second: record(1, 7, 2, 40),
        },
        leased(tasks, 1),
    ];
    for broken in breaks {
        let good = Change::Accepted(record(1, 1, 1, 8));
        let group = [good, leased(2, 1), broken];
        let error = bench.store().apply(&group).unwrap_err();
        assert!(matches!(error, StoreError::Refused(_)), "{error}");
        assert_eq!(lines(bench.store(), 1).len(), 1);
        assert_eq!(rows(bench.store(), 1).len(), 1);
    }
    let twice = bench.store().apply(&[first]).unwrap_err();
    let StoreError::Refused(Refusal::AcceptedTwice { count: 40, .. }) = twice else {
        panic!("{twice}");
    };
}

fn contradictions_are_quarantined_and_resolved(mut bench: impl Bench) {
    bench.store().create(&manifest(1)).unwrap();
    let third = Record {
        kernel: KernelName::Avx2,
        orientation: Orientation::Turned,
        ..record(1, 0, 4, 40)
    };
    let changes = [
        Change::Accepted(record(1, 0, 1, 40)),
        Change::Confirmed(record(1, 0, 2, 40)),
    ];
    bench.store().apply(&changes).unwrap();
    bench.reopen();
    let confirmed = TaskState::Done {
        vote: Vote::from(&record(1, 0, 1, 40)),
        confirmed: Confirmed::OtherMachine,
    };
    assert_eq!(rows(bench.store(), 1).remove(0).state, confirmed);
    let second = record(1, 0, 3, 44);
    let contradiction = Change::Quarantined { second };
    bench.store().apply(&[contradiction]).unwrap();
    let state = rows(bench.store(), 1).remove(0).state;
    let votes = [record(1, 0, 1, 40), record(1, 0, 3, 44)];
    let votes = votes.iter().map(Vote::from).collect();
    let contradicted = TaskState::Quarantined {
        votes,
        confirmed: Confirmed::OtherMachine,
    };
    assert_eq!(state, contradicted);
    bench.reopen();
    assert_eq!(rows(bench.store(), 1).remove(0).state, contradicted);
    let accepted = Change::Accepted(third.clone());
    bench.store().apply(&[accepted]).unwrap();
    bench.reopen();
    let state = rows(bench.store(), 1).remove(0).state;
    let decided = TaskState::Done {
        vote: Vote::from(&third),
        confirmed: Confirmed::OtherMachine,
    };
    assert_eq!(state, decided);
    let entries: Vec<_> = lines(bench.store(), 1)
        .into_iter()
        .map(|(seq, entry, _)| (seq, entry))
        .collect();
    let expected = vec![
        (1, JournalEntry::Accepted(record(1, 0, 1, 40))),
        (2, JournalEntry::Confirmed(record(1, 0, 2, 40))),
        (3, JournalEntry::Quarantined(record(1, 0, 3, 44))),
        (4, JournalEntry::Accepted(third)),
    ];
    assert_eq!(entries, expected);
}

fn the_journal_is_read_in_pages(mut bench: impl Bench) {
    bench.store().create(&manifest(1)).unwrap();
    let accepted: Vec<_> = (0..10)
        .map(|task| Change::Accepted(record(1, task, 1, task)))
        .collect();
    for group in accepted.chunks(4) {
        bench.store().apply(group).unwrap();
    }
    let mut cursor = JournalCursor::default();
    let mut seen = Vec::new();
    loop {
        let before = seen.len();
        cursor = bench
            .store()
            .journal(RunId(1), cursor, &mut |seq, _, _| {
                seen.push(seq);
                if seen.len() == before + 3 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        if seen.len() == before {
            break;
        }
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
}

fn another_plan_is_refused(mut bench: impl Bench) {
    let mut other = manifest(1);
    other.plan_version += 1;
    let error = bench.store().create(&other).unwrap_err().to_string();
    assert!(error.contains(&other.plan.to_string()), "{error}");
    let mut other = manifest(1);
    other.spec.task_cost += 1;
    let ours = Plan::new(other.spec).unwrap().hash().to_string();
    let error = bench.store().create(&other).unwrap_err().to_string();
    let theirs = other.plan.to_string();
    assert!(error.contains(&theirs) && error.contains(&ours), "{error}");
    assert_eq!(bench.store().runs().unwrap(), []);
}

fn what_is_thought_of_workers_is_kept(mut bench: impl Bench) {
    let thought = |trust| TrustRecord {
        worker: WorkerId(5),
        principal: Principal::kept("lab"),
        name: "x".repeat(300),
        trust,
        faults: 3,
        reason: "three counts were wrong".to_owned(),
        since_unix_ms: 1_700_000_000_000,
    };
    bench.store().create(&manifest(1)).unwrap();
    let secret = bench.store().secret();
    let changes = [
        Change::Trust(thought(Trust::Doubted)),
        Change::Trust(thought(Trust::Barred)),
    ];
    bench.store().apply(&changes).unwrap();
    bench.reopen();
    bench
        .store()
        .apply(&[Change::Trust(thought(Trust::Trusted))])
        .unwrap();
    bench.reopen();
    let kept = bench.store().trust().unwrap();
    let order: Vec<_> = kept.iter().map(|record| record.trust).collect();
    assert_eq!(order, [Trust::Doubted, Trust::Barred, Trust::Trusted]);
    assert!(kept[0].name.len() == 256 && kept[0].principal.as_str() == "lab");
    assert_eq!(bench.store().secret(), secret);
}

fn what_is_to_be_counted_twice_is_kept(mut bench: impl Bench) {
    bench.store().create(&manifest(1)).unwrap();
    assert_eq!(bench.store().runs().unwrap()[0].recheck, None);
    for recheck in [Recheck::Millionths(20_000), Recheck::All] {
        let change = Change::Recheck {
            run: RunId(1),
            recheck,
        };
        let accepted = Change::Accepted(record(1, 0, 1, 4));
        let group = match recheck {
            Recheck::All => vec![change],
            _ => vec![accepted, change],
        };
        bench.store().apply(&group).unwrap();
        bench.reopen();
        let run = bench.store().runs().unwrap().remove(0);
        assert_eq!((run.recheck, run.elapsed_ms), (Some(recheck), 400));
    }
}

fn a_run_is_deleted(mut bench: impl Bench) {
    for run in [1, 2] {
        bench.store().create(&manifest(run)).unwrap();
        bench
            .store()
            .apply(&[Change::Accepted(record(run, 0, 1, 40))])
            .unwrap();
    }
    bench.store().delete(RunId(1)).unwrap();
    for _ in 0..2 {
        let left: Vec<_> = bench.store().runs().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].manifest, manifest(2));
        assert_eq!(rows(bench.store(), 2).len(), 1);
        assert_eq!(lines(bench.store(), 2).len(), 1);
        let gone = bench.store().scan(RunId(1), &mut |_| {}).unwrap_err();
        assert!(matches!(gone, StoreError::NoSuchRun(RunId(1))), "{gone}");
        bench.reopen();
    }
    // Nothing of it is left for a run of the same name.
    bench.store().create(&manifest(1)).unwrap();
    assert_eq!(rows(bench.store(), 1), []);
    assert_eq!(lines(bench.store(), 1), []);
    let missing = bench.store().delete(RunId(7)).unwrap_err();
    assert!(missing.kept_nothing(), "{missing}");
}

fn symmetric_solutions_stay_with_the_run(mut bench: impl Bench) {
    bench.store().create(&manifest(1)).unwrap();
    assert_eq!(bench.store().symmetric(RunId(1)).unwrap(), None);
    let counts = SymmetricCounts {
        half_turn: 3000,
        quarter_turn: 64,
    };
    bench.store().keep_symmetric(RunId(1), counts).unwrap();
    bench.reopen();
    assert_eq!(bench.store().symmetric(RunId(1)).unwrap(), Some(counts));
}

#[test]
fn the_disk_conforms() {
    suite(OnDisk::new);
}

#[test]
fn the_disk_conforms_in_segments() {
    suite(OnDisk::in_segments);
}

#[test]
fn the_model_conforms() {
    suite(MemoryStore::new);
}
