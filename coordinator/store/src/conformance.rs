//! Tests that every store must pass, run on all media.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use common::{
    board::Board,
    compute::kernel::KernelName,
    count::Orientation,
    messages::run::{Epoch, RunId, WorkerId},
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

use scheduler::ledger::{
    TaskCount,
    tasks::{TaskIx, id},
};

use crate::{
    Change, DiskStore, EntryKind, JournalCursor, JournalEntry, LeaseEvent, MemoryStore, OpenState,
    OpenTask, Principal, Recheck, Record, RunManifest, RunState, Settings, Store, StoreError,
    StoredTasks, SymmetricCounts, Trust, TrustRecord, journal::segments::SEGMENT_BYTES,
};

/// A store that can be closed and opened again.
pub(crate) trait Bench {
    type Store: Store;

    fn store(&mut self) -> &mut Self::Store;

    fn reopen(&mut self);
}

/// A disk store in a temporary directory.
pub(crate) struct OnDisk {
    store: Option<DiskStore>,
    dir: tempfile::TempDir,
    segment_bytes: u64,
}

impl OnDisk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            store: Some(DiskStore::open(dir.path()).unwrap()),
            dir,
            segment_bytes: SEGMENT_BYTES,
        }
    }

    /// Creates a store that seals a segment after every line or two.
    pub(crate) fn in_segments() -> Self {
        Self { segment_bytes: 700, ..Self::new() }
    }

    /// Creates a closed directory with run 1, and writes its journal in these groups.
    pub(crate) fn closed(groups: &[&[Change]]) -> Self {
        let mut disk = Self::new();
        disk.store().create(&manifest(1), Recheck::Auto).unwrap();
        for group in groups {
            disk.store().apply(group).unwrap();
        }
        disk.close();
        disk
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of run 1's journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.dir().join("runs").join(RunId(1).to_string()).join("journal.jsonl")
    }

    pub(crate) fn close(&mut self) {
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

pub(crate) fn spec() -> PlanSpec {
    PlanSpec { board: Board::new(10).unwrap(), layout: Layout::FirstRows, task_cost: 1 }
}

pub(crate) fn manifest(run: u64) -> RunManifest {
    RunManifest::new(RunId(run), &Plan::new(spec()).unwrap(), 3, 1_700_000_000_000 + run)
}

pub(crate) fn record(run: u64, task: u64, epoch: u64, count: u64) -> Record {
    Record {
        run: RunId(run),
        task: TaskId(task),
        epoch: Epoch(epoch),
        count,
        worker: WorkerId(u128::from(epoch)),
        principal: Principal::from_stored(&format!("of {epoch}")),
        version: "1.2.3".to_owned(),
        kernel: KernelName::Scalar,
        orientation: Orientation::Upright,
        duration_us: 1234,
        accepted_unix_ms: 1_700_000_000_500,
        elapsed_ms: 400 + task,
    }
}

/// Returns the first count of a task of run 1: the task's number plus two.
pub(crate) fn accepted(task: u64) -> Change {
    EntryKind::Accepted.change(record(1, task, 1, task + 2))
}

pub(crate) fn trust(name: &str, trust: Trust) -> TrustRecord {
    TrustRecord {
        worker: WorkerId(5),
        principal: Principal::from_stored("lab"),
        name: name.to_owned(),
        trust,
        reason: "three counts were wrong".to_owned(),
        since_unix_ms: 1_700_000_000_000,
    }
}

/// Returns a journal line with the right checksum.
pub(crate) fn resealed(line: &str) -> String {
    String::from_utf8(common::messages::sealed::resealed(line.as_bytes())).unwrap()
}

/// Returns what a restart finds of each touched task: its counts, or its row.
pub(crate) fn tasks(store: &mut impl Store, run: u64) -> Vec<(TaskId, String)> {
    let StoredTasks { fold, open } = store.take_tasks(RunId(run)).unwrap();
    let open: BTreeMap<_, _> = open.into_iter().collect();
    let described = |task: TaskIx| {
        let counts = fold.tasks.state(task).counts().into_iter().map(|of| {
            let TaskCount { count, author, kernel, orientation } = of;
            let (worker, principal) = fold.author(author);
            format!("{count} by {} {principal} {kernel:?} {orientation:?}", worker.0)
        });
        let counts: Vec<_> = counts.collect();
        let done = fold.tasks.done(task).map(|done| (done.confirmed, done.accepted_s));
        match open.get(&id(task)) {
            Some(row) => Some((id(task), format!("{row:?}"))),
            None if counts.is_empty() => None,
            None => Some((id(task), format!("{} {done:?}", counts.join(", ")))),
        }
    };
    fold.tasks.all().filter_map(described).collect()
}

pub(crate) fn lines(store: &impl Store, run: u64) -> Vec<(u64, JournalEntry, String)> {
    let mut lines = Vec::new();
    store
        .journal(RunId(run), JournalCursor::default(), &mut |seq, entry, text| {
            lines.push((seq, entry.clone(), text.to_owned()));
            ControlFlow::Continue(())
        })
        .unwrap();
    lines
}

pub(crate) fn suite<B: Bench>(mut new: impl FnMut() -> B) {
    a_run_is_created_once(new());
    results_and_leases_are_kept(new());
    a_broken_group_changes_nothing(new());
    conflicts_are_disputed_and_settled(new());
    the_journal_is_read_in_pages(new());
    another_plan_is_refused(new());
    a_run_is_deleted(new());
    the_trust_log_is_kept(new());
    the_settings_are_durable(new());
    symmetric_solutions_stay_with_the_run(new());
}

fn a_run_is_created_once(mut bench: impl Bench) {
    let store = bench.store();
    store.create(&manifest(2), Recheck::Auto).unwrap();
    store.create(&manifest(1), Recheck::Auto).unwrap();
    assert!(matches!(
        store.create(&manifest(2), Recheck::Auto),
        Err(StoreError::RunExists(RunId(2)))
    ));
    store.apply(&[Change::State { run: RunId(1), state: RunState::Paused }]).unwrap();
    for _ in 0..2 {
        let runs = bench.store().runs().unwrap();
        let found: Vec<_> = runs.into_iter().map(|run| (run.manifest, run.state)).collect();
        let expected = [(manifest(1), RunState::Paused), (manifest(2), RunState::Running)];
        assert_eq!(found, expected);
        bench.reopen();
    }
    let missing = RunId(9);
    let store = bench.store();
    let state = Change::State { run: missing, state: RunState::Paused };
    let errors = [
        store.apply(&[state]),
        store.take_tasks(missing).map(|_| ()),
        store
            .journal(missing, JournalCursor::default(), &mut |_, _, _| ControlFlow::Continue(()))
            .map(|_| ()),
    ];
    for error in errors {
        assert!(matches!(error, Err(StoreError::NoSuchRun(run)) if run == missing));
    }
}

/// Returns what a change of the leases of a task of run 1 leaves.
pub(crate) fn open(task: u64, state: OpenState, failed: &[u128]) -> Change {
    let failed = failed.iter().map(|id| WorkerId(*id)).collect();
    let after = OpenTask { state, failed };
    Change::Lease { run: RunId(1), task: TaskId(task), event: LeaseEvent::Leased, after }
}

pub(crate) fn leased(task: u64, epoch: u64) -> Change {
    open(task, leased_to(epoch), &[])
}

fn leased_to(epoch: u64) -> OpenState {
    let worker = WorkerId(u128::from(epoch));
    OpenState::Leased { worker, epoch: Epoch(epoch), until_unix_ms: 5000 + epoch }
}

fn results_and_leases_are_kept(mut bench: impl Bench) {
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    let changes = [
        leased(0, 1),
        leased(1, 1),
        leased(2, 1),
        open(2, leased_to(2), &[1]),
        open(3, OpenState::Parked, &[7, 8]),
        EntryKind::Accepted.change(record(1, 0, 1, 40)),
        EntryKind::Accepted.change(record(1, 5, 2, 3)),
        EntryKind::Voided.change(record(1, 5, 2, 3)),
        open(5, OpenState::Pending, &[2]),
        EntryKind::Accepted.change(record(1, 6, 2, 3)),
        EntryKind::Voided.change(record(1, 6, 2, 3)),
        open(4, OpenState::Pending, &[]),
    ];
    bench.store().apply(&changes).unwrap();
    let row = |task, state, failed: &[u128]| {
        let failed = failed.iter().map(|id| WorkerId(*id)).collect();
        (TaskId(task), format!("{:?}", OpenTask { state, failed }))
    };
    let expected = vec![
        (TaskId(0), "40 by 1 of 1 Scalar Upright Some((None, 1700000000))".to_owned()),
        row(1, leased_to(1), &[]),
        row(2, leased_to(2), &[1]),
        row(3, OpenState::Parked, &[7, 8]),
        row(4, OpenState::Pending, &[]),
        row(5, OpenState::Pending, &[2]),
    ];
    assert_eq!(tasks(bench.store(), 1), expected);
    bench.reopen();
    assert_eq!(tasks(bench.store(), 1), expected);
    // A second call reads the tasks again.
    assert_eq!(tasks(bench.store(), 1), expected);
}

fn a_broken_group_changes_nothing(mut bench: impl Bench) {
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    let first = EntryKind::Accepted.change(record(1, 0, 1, 40));
    bench.store().apply(std::slice::from_ref(&first)).unwrap();
    let number = Plan::new(spec()).unwrap().tasks();
    let breaks = [
        EntryKind::Accepted.change(record(1, number, 1, 4)),
        EntryKind::Accepted.change(record(1, 7, 1, u64::MAX)),
        leased(number, 1),
    ];
    for broken in breaks {
        let good = EntryKind::Accepted.change(record(1, 1, 1, 8));
        let group = [good, leased(2, 1), broken];
        let error = bench.store().apply(&group).unwrap_err();
        assert!(matches!(error, StoreError::Refused(_)), "{error}");
        assert_eq!(lines(bench.store(), 1).len(), 1);
        assert_eq!(tasks(bench.store(), 1).len(), 1);
    }
}

fn conflicts_are_disputed_and_settled(mut bench: impl Bench) {
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    let [first, second, third] =
        [(1, 40), (2, 40), (3, 44)].map(|(epoch, count)| record(1, 0, epoch, count));
    let referee = Record {
        kernel: KernelName::Avx2,
        orientation: Orientation::Rotated,
        ..record(1, 0, 4, 40)
    };
    let entries = [
        EntryKind::Accepted.of(first),
        EntryKind::Confirmed.of(second),
        EntryKind::Disputed.of(third),
        EntryKind::Settled.of(referee),
    ];
    let both = "40 by 1 of 1 Scalar Upright, 40 by 2 of 2 Scalar Upright";
    for (journaled, expected) in [
        (&entries[..2], format!("{both} Some((SameToken, 1700000000))")),
        (&entries[2..3], format!("{both}, 44 by 3 of 3 Scalar Upright None")),
        (
            &entries[3..],
            "40 by 1 of 1 Scalar Upright, 40 by 4 of 4 Avx2 Rotated Some((Referee, 1700000000))"
                .to_owned(),
        ),
    ] {
        let changes: Vec<_> = journaled.iter().cloned().map(Change::Recorded).collect();
        bench.store().apply(&changes).unwrap();
        for _ in 0..2 {
            assert_eq!(tasks(bench.store(), 1), [(TaskId(0), expected.clone())]);
            bench.reopen();
        }
    }
    let kept = lines(bench.store(), 1).into_iter().map(|(seq, entry, _)| (seq, entry));
    assert_eq!(kept.collect::<Vec<_>>(), (1..).zip(entries).collect::<Vec<_>>());
}

fn the_journal_is_read_in_pages(mut bench: impl Bench) {
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    for group in (0..10).map(accepted).collect::<Vec<_>>().chunks(4) {
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
                match seen.len() == before + 3 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
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
    let error = bench.store().create(&other, Recheck::Auto).unwrap_err().to_string();
    assert!(error.contains(&other.plan.to_string()), "{error}");
    let mut other = manifest(1);
    other.spec.task_cost += 1;
    let ours = Plan::new(other.spec).unwrap().hash().to_string();
    let error = bench.store().create(&other, Recheck::Auto).unwrap_err().to_string();
    let theirs = other.plan.to_string();
    assert!(error.contains(&theirs) && error.contains(&ours), "{error}");
    assert_eq!(bench.store().runs().unwrap(), []);
}

fn the_trust_log_is_kept(mut bench: impl Bench) {
    let of = |kind| trust(&"x".repeat(300), kind);
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    let secret = bench.store().secret();
    let changes =
        [Trust::SelfTestPassed { passed: 2 }, Trust::Barred].map(|kind| Change::Trust(of(kind)));
    bench.store().apply(&changes).unwrap();
    bench.reopen();
    bench.store().apply(&[Change::Trust(of(Trust::Trusted))]).unwrap();
    bench.reopen();
    let kept = bench.store().trust().unwrap();
    let order: Vec<_> = kept.iter().map(|record| record.trust).collect();
    assert_eq!(order, [Trust::SelfTestPassed { passed: 2 }, Trust::Barred, Trust::Trusted]);
    assert!(kept[0].name.len() == 256 && kept[0].principal.as_str() == "lab");
    assert_eq!(bench.store().secret(), secret);
}

fn the_settings_are_durable(mut bench: impl Bench) {
    bench.store().create(&manifest(1), Recheck::Millionths(0)).unwrap();
    bench.reopen();
    let first = Settings { recheck: Recheck::Millionths(0), priority: manifest(1).priority };
    assert_eq!(bench.store().runs().unwrap()[0].settings, first);
    for (recheck, priority) in [(Recheck::Millionths(20_000), 9), (Recheck::All, -4)] {
        let settings = Settings { recheck, priority };
        let change = Change::Settings { run: RunId(1), settings };
        let accepted = EntryKind::Accepted.change(record(1, 0, 1, 4));
        let group = match recheck {
            Recheck::All => vec![change],
            _ => vec![accepted, change],
        };
        bench.store().apply(&group).unwrap();
        bench.reopen();
        assert_eq!(bench.store().runs().unwrap()[0].settings, settings);
    }
}

fn a_run_is_deleted(mut bench: impl Bench) {
    for run in [1, 2] {
        bench.store().create(&manifest(run), Recheck::Auto).unwrap();
        bench.store().apply(&[EntryKind::Accepted.change(record(run, 0, 1, 40))]).unwrap();
    }
    bench.store().delete(RunId(1)).unwrap();
    for _ in 0..2 {
        let remaining: Vec<_> = bench.store().runs().unwrap();
        assert_eq!(remaining.len(), 1);
        assert_eq!(remaining[0].manifest, manifest(2));
        assert_eq!(tasks(bench.store(), 2).len(), 1);
        assert_eq!(lines(bench.store(), 2).len(), 1);
        let gone = bench.store().take_tasks(RunId(1)).unwrap_err();
        assert!(matches!(gone, StoreError::NoSuchRun(RunId(1))), "{gone}");
        bench.reopen();
    }
    // A new run of the same name is empty.
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    assert_eq!(tasks(bench.store(), 1), []);
    assert_eq!(lines(bench.store(), 1), []);
    let missing = bench.store().delete(RunId(7)).unwrap_err();
    assert!(missing.changed_nothing(), "{missing}");
}

fn symmetric_solutions_stay_with_the_run(mut bench: impl Bench) {
    bench.store().create(&manifest(1), Recheck::Auto).unwrap();
    assert_eq!(bench.store().symmetric(RunId(1)).unwrap(), None);
    let counts = SymmetricCounts { half_turn: 3000, quarter_turn: 64 };
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
fn memory_conforms() {
    suite(MemoryStore::new);
}
