//! Tasks' rows in sled: leases and attempts, which a restart restores, and the journal lines of counted tasks.
//! Rows that contradict the journals are rebuilt from the journals.
//!
//! One tree has all keys, so that a batch is atomic over them (numbers are big-endian):
//! `v` → version of the rows (1 byte); `s` run (8) → journal lines seen (8);
//! `r` run (8) task (8) → row, see [`encode`]. The bytes are frozen by a test.

use std::{
    cell::Cell,
    io,
    panic::{self, AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Once,
    thread,
    time::Duration,
};

use common::{
    messages::run::{Epoch, RunId, WorkerId},
    plan::TaskId,
};
use scheduler::ledger::{OpenState, OpenTask};

use crate::{StoreError, directory::files};

/// The version of the bytes below. Rows of another version are rebuilt.
const VERSION: u8 = 4;
const VERSION_KEY: &[u8] = b"v";
/// The size of sled's cache, enough for a million tasks: a coordinator that has counted them all and was restarted
/// has 330 MB of memory.
const CACHE_BYTES: u64 = 128 << 20;
const OPEN_ATTEMPTS: u32 = 500;
const OPEN_PAUSE: Duration = Duration::from_millis(10);
/// The text of sled's error for a locked database.
const LOCKED: &str = "could not acquire lock";

/// The database of rows. Used from one thread.
#[derive(Debug)]
pub(crate) struct Rows {
    path: PathBuf,
    /// `None` once it is closed.
    db: Option<sled::Db>,
}

/// Runs `work` on a database that may be damaged, and turns a panic into an error.
/// On some damaged files sled panics instead of returning an error. The panic is not printed.
fn guarded<T>(path: &Path, work: impl FnOnce() -> sled::Result<T>) -> Result<T, StoreError> {
    thread_local!(static GUARDED: Cell<bool> = const { Cell::new(false) });
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let default_hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                default_hook(panic);
            }
        }));
    });
    GUARDED.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    match done {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(error))) => Err(files::failed("use", path)(readable(error))),
        Ok(Err(error)) => Err(wrong(path, error)),
        Err(_) => Err(wrong(path, "sled cannot read it")),
    }
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> StoreError {
    StoreError::Database(format!("{}: {what}", path.display()))
}

/// Restores an error that sled formatted for debugging: `Os { code: 28, … }`.
fn readable(error: io::Error) -> io::Error {
    let text = error.to_string();
    let code = text.strip_prefix("Os { code: ").and_then(|rest| rest.split(',').next());
    match code.and_then(|code| code.parse().ok()) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error,
    }
}

impl Rows {
    /// Opens the database at `path`, or creates an empty one.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let db = guarded(path, || open_sled(path))?;
        let rows = Self { path: path.to_owned(), db: Some(db) };
        let version = rows.guarded(|db| match db.get(VERSION_KEY)? {
            None if db.is_empty() => {
                db.insert(VERSION_KEY, &[VERSION])?;
                Ok(Some([VERSION].as_slice().into()))
            }
            version => Ok(version),
        })?;
        match version {
            Some(version) if *version == [VERSION] => Ok(rows),
            version => {
                Err(wrong(path, format!("its rows have version {version:?}, not {VERSION}")))
            }
        }
    }

    fn guarded<T>(&self, work: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, StoreError> {
        guarded(&self.path, || work(self.db.as_ref().expect("open until it is dropped")))
    }

    /// Visits all rows of a run in order of their tasks.
    /// Returns the number of journal lines that they reflect.
    pub(crate) fn scan(
        &self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, TaskRow),
    ) -> Result<u64, StoreError> {
        let malformed = |what| wrong(&self.path, format!("run {run}: {what}"));
        let seen = self.guarded(|db| db.get(seen_key(run)))?;
        let seen = seen.map_or(Ok([0; 8]), |bytes| bytes.as_ref().try_into());
        let seen = seen.map_err(|_| malformed("the number of lines is malformed".to_owned()))?;
        let mut items = self.guarded(|db| Ok(db.scan_prefix(run_prefix(run))))?;
        while let Some((key, value)) = self.guarded(|_| items.next().transpose())? {
            let task = key.get(9..).and_then(|task| task.try_into().ok()).map(u64::from_be_bytes);
            let row = task.and_then(|task| Some((TaskId(task), decode(&value)?)));
            let (task, row) =
                row.ok_or_else(|| malformed(format!("the row of task {task:?} is malformed")))?;
            visit(task, row);
        }
        Ok(u64::from_be_bytes(seen))
    }

    /// Writes rows, and the number of journal lines that they reflect, atomically.
    pub(crate) fn put<'a>(
        &self,
        rows: impl IntoIterator<Item = (RunId, TaskId, &'a TaskRow)>,
        seen: impl IntoIterator<Item = (RunId, u64)>,
    ) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for (run, task, row) in rows {
            batch.insert(&row_key(run, task), encode(row));
        }
        for (run, lines) in seen {
            batch.insert(&seen_key(run), &lines.to_be_bytes());
        }
        self.guarded(|db| db.apply_batch(batch))
    }

    /// Removes all runs that are not `known`.
    pub(crate) fn retain(&self, known: impl Fn(RunId) -> bool) -> Result<(), StoreError> {
        let mut after = vec![b'r'];
        // Skips from run to run, without reading the rows of those that stay.
        while let Some((key, _)) =
            self.guarded(|db| db.range(after.as_slice()..).next().transpose())?
        {
            let Some(run) = key.get(1..9).filter(|_| key[0] == b'r') else {
                break;
            };
            let run = RunId(u64::from_be_bytes(run.try_into().expect("8 bytes")));
            if !known(run) {
                self.remove(run)?;
            }
            match run.0.checked_add(1) {
                Some(next) => after = run_prefix(RunId(next)).to_vec(),
                None => break,
            }
        }
        Ok(())
    }

    /// Removes a run, a batch of rows at a time, since a batch is held in memory.
    pub(crate) fn remove(&self, run: RunId) -> Result<(), StoreError> {
        const BATCH_ROWS: usize = 4096;
        self.guarded(|db| {
            db.remove(seen_key(run))?;
            loop {
                let mut batch = sled::Batch::default();
                let mut rows = 0;
                for item in db.scan_prefix(run_prefix(run)).take(BATCH_ROWS) {
                    batch.remove(item?.0);
                    rows += 1;
                }
                if rows == 0 {
                    return Ok(());
                }
                db.apply_batch(batch)?;
            }
        })
    }

    /// Flushes to the operating system's cache, which does not survive a power cut.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.guarded(|db| db.flush().map(drop))
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        close(&self.path, self.db.take());
    }
}

/// Closes a database, which writes to it once more.
fn close<T>(path: &Path, db: T) {
    let closed = guarded(path, || {
        drop(db);
        Ok(())
    });
    if let Err(error) = closed {
        tracing::warn!("{error}");
    }
}

/// Opens a database; waits while sled's threads in this process still close it.
fn open_sled(path: &Path) -> sled::Result<sled::Db> {
    let config = sled::Config::default()
        .path(path)
        .cache_capacity(CACHE_BYTES)
        // sled's background flusher stops for good on a write error, so the store flushes.
        .flush_every_ms(None);
    let mut attempts = 0;
    loop {
        match config.open() {
            Err(sled::Error::Io(error))
                if attempts < OPEN_ATTEMPTS && error.to_string().contains(LOCKED) =>
            {
                attempts += 1;
                thread::sleep(OPEN_PAUSE);
            }
            other => return other,
        }
    }
}

fn run_prefix(run: RunId) -> [u8; 9] {
    let mut key = [b'r'; 9];
    key[1..].copy_from_slice(&run.0.to_be_bytes());
    key
}

fn row_key(run: RunId, task: TaskId) -> [u8; 17] {
    let mut key = [0; 17];
    key[..9].copy_from_slice(&run_prefix(run));
    key[9..].copy_from_slice(&task.0.to_be_bytes());
    key
}

fn seen_key(run: RunId) -> [u8; 9] {
    let mut key = run_prefix(run);
    key[0] = b's';
    key
}

/// Stored data of a task beside the journal. No total is read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskRow {
    /// The task has no count, and was leased at least once.
    Open(OpenTask),
    /// The sequence number of the task's last journal line.
    Counted { sequence: u64 },
}

/// Encodes a row: kind (1), its data. Kinds: 0 pending; 1 leased: worker (16), epoch (8), until in ms (8); 2 counted:
/// sequence (8); 3 parked. Workers of failed attempts (16 each) go up to the end.
pub(crate) fn encode(row: &TaskRow) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(48);
    let open = match row {
        TaskRow::Counted { sequence } => {
            bytes.push(2);
            bytes.extend(sequence.to_be_bytes());
            return bytes;
        }
        TaskRow::Open(open) => open,
    };
    match open.state {
        OpenState::Pending => bytes.push(0),
        OpenState::Leased { worker, epoch, until_unix_ms } => {
            bytes.push(1);
            bytes.extend(worker.0.to_be_bytes());
            bytes.extend(epoch.0.to_be_bytes());
            bytes.extend(until_unix_ms.to_be_bytes());
        }
        OpenState::Parked => bytes.push(3),
    }
    for worker in &open.failed {
        bytes.extend(worker.0.to_be_bytes());
    }
    bytes
}

pub(crate) fn decode(mut bytes: &[u8]) -> Option<TaskRow> {
    let input = &mut bytes;
    let state = match take::<1>(input)? {
        [0] => OpenState::Pending,
        [1] => OpenState::Leased {
            worker: decode_worker(input)?,
            epoch: Epoch(u64::from_be_bytes(take(input)?)),
            until_unix_ms: u64::from_be_bytes(take(input)?),
        },
        [2] => {
            let sequence = u64::from_be_bytes(take(input)?);
            return input.is_empty().then_some(TaskRow::Counted { sequence });
        }
        [3] => OpenState::Parked,
        _ => return None,
    };
    let mut failed = Vec::new();
    while !input.is_empty() {
        failed.push(decode_worker(input)?);
    }
    Some(TaskRow::Open(OpenTask { state, failed }))
}

fn decode_worker(input: &mut &[u8]) -> Option<WorkerId> {
    Some(WorkerId(u128::from_be_bytes(take(input)?)))
}

pub(crate) fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_disk_is_named_readably() {
        let raw = "Os { code: 28, kind: StorageFull, message: \"No space left on device\" }";
        let error = io::Error::new(io::ErrorKind::StorageFull, raw);
        let error = guarded::<()>(Path::new("db"), || Err(sled::Error::Io(error))).unwrap_err();
        let StoreError::Io { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(28));
        assert!(!error.to_string().contains("StorageFull"), "{error}");
        assert_eq!(readable(io::Error::other(LOCKED)).to_string(), LOCKED);
    }

    #[test]
    fn a_panic_of_sled_while_it_is_closed_is_caught() {
        struct Damaged;
        impl Drop for Damaged {
            fn drop(&mut self) {
                panic!("sled cannot sync its file");
            }
        }
        close(Path::new("db"), Damaged);
    }

    fn rows() -> impl Strategy<Value = TaskRow> {
        let states = prop_oneof![
            Just(OpenState::Pending),
            Just(OpenState::Parked),
            (any::<u128>(), any::<u64>(), any::<u64>()).prop_map(
                |(worker, epoch, until_unix_ms)| {
                    OpenState::Leased {
                        worker: WorkerId(worker),
                        epoch: Epoch(epoch),
                        until_unix_ms,
                    }
                }
            ),
        ];
        let failed = proptest::collection::vec(any::<u128>().prop_map(WorkerId), 0..6);
        prop_oneof![
            any::<u64>().prop_map(|sequence| TaskRow::Counted { sequence }),
            (states, failed).prop_map(|(state, failed)| TaskRow::Open(OpenTask { state, failed })),
        ]
    }

    proptest! {
        #[test]
        fn rows_round_trip(row in rows()) {
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Some(row));
            prop_assert_eq!(decode(&[]), None);
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Some(row) = decode(&bytes) {
                prop_assert_eq!(encode(&row), bytes);
            }
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let worker = WorkerId(0xab);
        let leased = OpenState::Leased { worker, epoch: Epoch(2), until_unix_ms: 4 };
        let hex = "000000000000000000000000000000ab";
        let failed = "000000000000000000000000000000cd";
        for (state, bytes) in [
            (OpenState::Pending, "00".to_owned()),
            (leased, format!("01{hex}00000000000000020000000000000004")),
            (OpenState::Parked, "03".to_owned()),
        ] {
            let row = TaskRow::Open(OpenTask { state, failed: vec![WorkerId(0xcd)] });
            assert_eq!(common::messages::hex::encode(&encode(&row)), bytes + failed);
        }
        let counted = TaskRow::Counted { sequence: 3 };
        assert_eq!(common::messages::hex::encode(&encode(&counted)), "020000000000000003");
        assert_eq!(row_key(RunId(0x102), TaskId(3)), *b"r\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03");
        assert_eq!(seen_key(RunId(0x102)), *b"s\0\0\0\0\0\0\x01\x02");
    }
}
