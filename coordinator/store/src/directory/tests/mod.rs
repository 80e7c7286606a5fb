//! Properties of the disk alone: torn writes, damage, full disks, and one writer.

mod damage;
mod directory;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use common::{
    messages::run::RunId,
    plan::{Plan, TaskId},
};
use proptest::prelude::*;

use scheduler::ledger::{TaskState, tasks::index};

use crate::{
    Change, DiskStore, EntryKind, Fold, MemoryStore, OpenState, Recheck, RunState, Store,
    StoreError,
    conformance::{Bench, OnDisk, accepted, lines, manifest, open, record, resealed, spec, tasks},
    directory::files::{DataFiles, existing_backups},
    journal::{AppendFile, JournalEnd, manifest as format},
    journal_store::{
        recover::{self, FoundRun},
        rows::{Rows, TaskRow},
    },
};

fn found(disk: &OnDisk) -> FoundRun {
    let mut runs = recover::find_runs(&DataFiles::new(disk.dir())).unwrap();
    runs.remove(0)
}

fn survey(run: &FoundRun) -> Result<JournalEnd, StoreError> {
    let plan = scheduler::ledger::fold::plan_of(&run.manifest).unwrap();
    run.survey(&plan).map(|survey| survey.end)
}

fn done(store: &mut impl Store) -> Vec<u64> {
    let stored = store.take_tasks(RunId(1)).unwrap();
    stored.fold.done().map(|(task, _)| task.0).collect()
}

// Disks that are full, and disks that fail.

/// A disk that is full after some bytes of a group, or whose syncs and cuts fail.
#[derive(Debug)]
struct Failing {
    file: File,
    room: Option<usize>,
}

impl Failing {
    fn works(&self) -> io::Result<()> {
        let fails = || io::Error::other("input/output error");
        self.room.map(drop).ok_or_else(fails)
    }
}

impl AppendFile for Failing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(room) = self.room else { return self.file.write_all(bytes) };
        self.file.write_all(&bytes[..room.min(bytes.len())])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.works()?;
        self.file.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.works()?;
        self.file.set_len(bytes)
    }
}

/// Opens a directory with one record on a disk that fails.
fn failing(room: Option<usize>) -> OnDisk {
    let mut disk = OnDisk::closed(&[&[accepted(0)]]);
    disk.reopen();
    let file = OpenOptions::new().append(true).open(disk.journal()).unwrap();
    let journal = disk.store().medium.journals.get_mut(&RunId(1)).unwrap();
    journal.file = Box::new(Failing { file, room });
    disk
}

#[test]
fn a_full_disk_acknowledges_and_loses_nothing() {
    for room in [0, 100, 500, 10_000] {
        let mut disk = failing(Some(room));
        let error = disk.store().apply(&[accepted(1), accepted(2)]).unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        for _ in 0..2 {
            let error = disk.store().apply(&[accepted(3)]).unwrap_err();
            assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        }
        let error = disk.store().create(&manifest(2), Recheck::Auto).unwrap_err();
        assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        disk.reopen();
        assert_eq!(done(disk.store()), [0], "room for {room} bytes");
        assert_eq!(lines(disk.store(), 1).len(), 1);
    }
}

#[test]
fn a_failed_sync_acknowledges_nothing() {
    let mut disk = failing(None);
    disk.store().apply(&[accepted(1)]).unwrap_err();
    let error = disk.store().apply(&[accepted(1)]).unwrap_err();
    assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
    disk.reopen();
    assert_eq!(done(disk.store()), [0, 1]);
}

// Journals in segments.

/// Creates a closed directory with nine records in segments of a line or two.
fn segmented() -> OnDisk {
    let mut disk = OnDisk::in_segments();
    disk.store().create(&manifest(1), Recheck::Auto).unwrap();
    for task in 0..9 {
        disk.store().apply(&[accepted(task)]).unwrap();
    }
    disk.close();
    disk
}

fn segment(disk: &OnDisk, number: u64, extension: &str) -> PathBuf {
    disk.journal().with_extension(format!("{number:06}.{extension}"))
}

#[test]
fn segments_are_one_journal() {
    let mut disk = segmented();
    assert!(segment(&disk, 3, "jsonl").exists());
    let verified = crate::verify(disk.dir()).unwrap();
    assert_eq!(verified.runs[0].lines, 9);
    disk.reopen();
    assert_eq!(done(disk.store()), (0..9).collect::<Vec<_>>());
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(54));
    // Only the last segment can have a torn tail.
    disk.close();
    let path = disk.journal();
    let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
    torn.write_all(b"{\"seq\":10").unwrap();
    drop(torn);
    disk.reopen();
    disk.store().apply(&[accepted(9)]).unwrap();
    disk.reopen();
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(65));
    assert_eq!(existing_backups(&path, "torn").len(), 1);
}

#[test]
fn a_crash_while_a_segment_is_sealed_loses_nothing() {
    // Between the two renames there is no last segment.
    let mut disk = segmented();
    let last = (1..).find(|number| !segment(&disk, *number, "jsonl").exists()).unwrap();
    fs::rename(disk.journal(), segment(&disk, last, "jsonl")).unwrap();
    check_records(&mut disk, 9);
    // Before the first rename there is a seal of a segment that is still the last one.
    let mut disk = segmented();
    disk.reopen();
    disk.store().apply(&[accepted(9)]).unwrap();
    disk.close();
    assert_eq!(fs::read(disk.journal()).unwrap(), b"", "sealed after the last record");
    let last = (1..).take_while(|number| segment(&disk, *number, "jsonl").exists()).last().unwrap();
    fs::rename(segment(&disk, last, "jsonl"), disk.journal()).unwrap();
    check_records(&mut disk, 10);
}

/// Checks that a closed directory holds this number of records and accepts another.
fn check_records(disk: &mut OnDisk, records: u64) {
    let verified = crate::verify(disk.dir()).unwrap();
    assert_eq!(verified.runs[0].lines, records);
    disk.reopen();
    disk.store().apply(&[accepted(records)]).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), (0..=records).collect::<Vec<_>>());
}

#[test]
fn missing_and_altered_segments_are_found() {
    let damaged = |disk: &OnDisk| {
        let error = DiskStore::open(disk.dir()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(crate::verify(disk.dir()).is_err());
    };
    for number in [1, 2] {
        let disk = segmented();
        fs::remove_file(segment(&disk, number, "jsonl")).unwrap();
        damaged(&disk);
        let disk = segmented();
        let path = segment(&disk, number, "jsonl");
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 20;
        bytes[end] ^= 1;
        fs::write(&path, bytes).unwrap();
        damaged(&disk);
    }
    // The manifest is gone, and all records are in sealed segments.
    let disk = segmented();
    fs::write(disk.journal(), "").unwrap();
    fs::remove_file(disk.journal().with_file_name("manifest.json")).unwrap();
    damaged(&disk);
    // All segments from the second on are gone: only the seals reveal it.
    let disk = segmented();
    fs::write(disk.journal(), "").unwrap();
    for number in (2..).take_while(|number| segment(&disk, *number, "jsonl").exists()) {
        fs::remove_file(segment(&disk, number, "jsonl")).unwrap();
    }
    damaged(&disk);
    // An invalid seal is ignored.
    let mut disk = segmented();
    fs::write(segment(&disk, 2, "seal"), "{").unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()).len(), 9);
}

// Random histories, on disk and in memory.

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Change>),
    Reopen,
    LoseDatabase,
}

fn changes() -> impl Strategy<Value = Change> {
    let (run, task) = (RunId(1), 0..4u64);
    (task, 1..5u64, 0..3u64, 0..14u8).prop_map(move |(task, epoch, count, kind)| {
        let record = record(1, task, epoch, count);
        let task = record.task;
        let worker = record.worker;
        let epoch = record.epoch;
        match kind {
            0..3 => {
                let state = OpenState::Leased { worker, epoch, until_unix_ms: count };
                open(task.0, state, &[])
            }
            3 => open(task.0, OpenState::Pending, &[]),
            4 => open(task.0, OpenState::Pending, &[worker.0]),
            5 => open(task.0, OpenState::Parked, &[worker.0]),
            6 | 7 => EntryKind::Accepted.change(record),
            8 => EntryKind::Confirmed.change(record),
            9 => EntryKind::Disputed.change(record),
            10 => EntryKind::Recounted.change(record),
            11 => EntryKind::Settled.change(record),
            12 => EntryKind::Voided.change(record),
            _ => Change::State { run, state: RunState::Paused },
        }
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec(changes(), 1..4).prop_map(Step::Apply),
        1 => Just(Step::Reopen),
        1 => Just(Step::LoseDatabase),
    ]
}

fn everything(
    store: &mut impl Store,
) -> (Vec<crate::StoredRun>, Vec<(TaskId, String)>, Vec<String>) {
    let texts = lines(store, 1).into_iter().map(|(_, _, text)| text).collect();
    (store.runs().unwrap(), tasks(store, 1), texts)
}

/// Returns whether the scheduler could decide this change.
fn is_valid(ledger: &mut Fold, plan: &Plan, change: &Change) -> bool {
    match change {
        Change::Recorded(entry) => ledger.take(plan, entry, ledger.lines + 1).is_ok(),
        Change::Lease { task, .. } => ledger.tasks.state(index(*task)) == TaskState::Open,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn disk_and_memory_agree(
        steps in proptest::collection::vec(steps(), 1..24),
        in_segments in any::<bool>(),
    ) {
        let mut disk = if in_segments { OnDisk::in_segments() } else { OnDisk::new() };
        let mut model = MemoryStore::new();
        let plan = Plan::new(spec()).unwrap();
        let mut ledger = Fold::new(&manifest(1), &plan);
        disk.store().create(&manifest(1), Recheck::Auto).unwrap();
        model.create(&manifest(1), Recheck::Auto).unwrap();
        for step in steps {
            match step {
                Step::Apply(mut group) => {
                    group.retain(|change| is_valid(&mut ledger, &plan, change));
                    let [ours, theirs] = [disk.store().apply(&group), model.apply(&group)]
                        .map(|result| result.map_err(|error| error.to_string()));
                    prop_assert_eq!(ours, theirs);
                }
                Step::Reopen => {
                    disk.reopen();
                    model.begin_term();
                }
                Step::LoseDatabase => {
                    disk.close();
                    fs::remove_dir_all(disk.dir().join("db")).unwrap();
                    disk.reopen();
                    model.begin_term();
                    model.lose_rows();
                }
            }
            prop_assert_eq!(everything(disk.store()), everything(&mut model));
        }
    }
}
