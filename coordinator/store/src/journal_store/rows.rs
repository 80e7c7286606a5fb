//! Tasks' rows in sled, from which a restart restores leases and attempts.
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
    count::Orientation,
    kernel::KernelName,
    plan::TaskId,
    run::{Epoch, RunId, WorkerId},
};
use scheduler::ledger::{Confirmation, Principal, TaskCount, TaskRow, TaskState};

use crate::{StoreError, directory::files};

/// The version of the bytes below. Rows of another version are rebuilt.
const VERSION: u8 = 3;
const VERSION_KEY: &[u8] = b"v";
/// The size of sled's cache, enough for a million tasks (237 MB of memory in all).
/// It halves the time to read the rows again; half the cache would save little memory.
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

/// Encodes a row: epoch (8), sequence (8), state (1), state's data, failed workers.
/// States and their data: 0 pending; 1 leased: worker (16), until in ms (8); 2 done: index in
/// [`Confirmation::ALL`] (1), counts; 4 parked; 5 disputed: counts. Counts are their number (4), then for
/// each: count (8), worker (16), kernel (1), orientation (1), time of acceptance (8), length of the
/// principal (1), principal. Failed workers (16 each) go up to the end.
pub(crate) fn encode(row: &TaskRow) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(48);
    bytes.extend(row.epoch.0.to_be_bytes());
    bytes.extend(row.sequence.to_be_bytes());
    match &row.state {
        TaskState::Pending => bytes.push(0),
        TaskState::Leased { worker, until_unix_ms } => {
            bytes.push(1);
            bytes.extend(worker.0.to_be_bytes());
            bytes.extend(until_unix_ms.to_be_bytes());
        }
        TaskState::Done { confirmed, .. } => bytes.extend([2, *confirmed as u8]),
        TaskState::Disputed { .. } => bytes.push(5),
        TaskState::Parked => bytes.push(4),
    }
    let counts = row.state.counts();
    if !counts.is_empty() {
        bytes.extend(u32::try_from(counts.len()).expect("a task has few counts").to_be_bytes());
        counts.iter().for_each(|count| encode_count(&mut bytes, count));
    }
    for worker in &row.failed {
        bytes.extend(worker.0.to_be_bytes());
    }
    bytes
}

fn encode_count(bytes: &mut Vec<u8>, of: &TaskCount) {
    bytes.extend(of.count.to_be_bytes());
    bytes.extend(of.worker.0.to_be_bytes());
    bytes.extend([of.kernel.code(), of.orientation.code()]);
    bytes.extend(of.accepted_unix_ms.to_be_bytes());
    let principal = of.principal.as_str();
    bytes.push(u8::try_from(principal.len()).expect("principals are cut"));
    bytes.extend(principal.bytes());
}

pub(crate) fn decode(mut bytes: &[u8]) -> Option<TaskRow> {
    let input = &mut bytes;
    let epoch = Epoch(u64::from_be_bytes(take(input)?));
    let sequence = u64::from_be_bytes(take(input)?);
    let state = match take::<1>(input)? {
        [0] => TaskState::Pending,
        [1] => TaskState::Leased {
            worker: decode_worker(input)?,
            until_unix_ms: u64::from_be_bytes(take(input)?),
        },
        [2] => {
            let [at] = take(input)?;
            let confirmed = *Confirmation::ALL.get(usize::from(at))?;
            let mut counts = decode_counts(input)?.into_iter();
            let (first, second) = (counts.next()?, counts.next().map(Box::new));
            counts.next().is_none().then_some(TaskState::Done { first, second, confirmed })?
        }
        [4] => TaskState::Parked,
        [5] => {
            let counts = decode_counts(input)?;
            (!counts.is_empty()).then_some(TaskState::Disputed { counts })?
        }
        _ => return None,
    };
    let mut failed = Vec::new();
    while !input.is_empty() {
        failed.push(decode_worker(input)?);
    }
    Some(TaskRow { epoch, sequence, state, failed, ..TaskRow::default() })
}

fn decode_counts(input: &mut &[u8]) -> Option<Vec<TaskCount>> {
    let number = u32::from_be_bytes(take(input)?);
    (0..number).map(|_| decode_count(input)).collect()
}

fn decode_count(input: &mut &[u8]) -> Option<TaskCount> {
    Some(TaskCount {
        count: u64::from_be_bytes(take(input)?),
        worker: decode_worker(input)?,
        kernel: KernelName::from_code(take::<1>(input)?[0])?,
        orientation: *Orientation::ALL.get(usize::from(take::<1>(input)?[0]))?,
        accepted_unix_ms: u64::from_be_bytes(take(input)?),
        principal: decode_principal(input)?,
    })
}

fn decode_principal(input: &mut &[u8]) -> Option<Principal> {
    let text = take_text(input)?;
    let principal = Principal::from_stored(text);
    // Longer principals are never written.
    (principal.as_str().len() == text.len()).then_some(principal)
}

fn decode_worker(input: &mut &[u8]) -> Option<WorkerId> {
    Some(WorkerId(u128::from_be_bytes(take(input)?)))
}

/// Takes a text after its length in one byte.
pub(crate) fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    let [length] = take(input)?;
    let (text, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    std::str::from_utf8(text).ok()
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

    fn counts() -> impl Strategy<Value = TaskCount> {
        let how = (0..KernelName::ALL.len(), 0..2usize, "\\PC{0,60}");
        (any::<u64>(), any::<u128>(), how, any::<u64>()).prop_map(
            |(count, worker, (kernel, orientation, principal), accepted_unix_ms)| TaskCount {
                count,
                worker: WorkerId(worker),
                principal: Principal::from_stored(&principal),
                kernel: KernelName::ALL[kernel],
                orientation: Orientation::ALL[orientation],
                accepted_unix_ms,
            },
        )
    }

    fn states() -> impl Strategy<Value = TaskState> {
        prop_oneof![
            Just(TaskState::Pending),
            Just(TaskState::Parked),
            (counts(), proptest::option::of(counts()), 0..5usize).prop_map(
                |(first, second, confirmed)| TaskState::Done {
                    first,
                    second: second.map(Box::new),
                    confirmed: Confirmation::ALL[confirmed],
                }
            ),
            proptest::collection::vec(counts(), 1..4)
                .prop_map(|counts| TaskState::Disputed { counts }),
            (any::<u128>(), any::<u64>()).prop_map(|(worker, until_unix_ms)| TaskState::Leased {
                worker: WorkerId(worker),
                until_unix_ms,
            }),
        ]
    }

    proptest! {
        #[test]
        fn rows_round_trip(
            (epoch, sequence) in any::<(u64, u64)>(),
            state in states(),
            failed in proptest::collection::vec(any::<u128>().prop_map(WorkerId), 0..6),
        ) {
            let row = TaskRow { epoch: Epoch(epoch), sequence, state, failed, ..TaskRow::default() };
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Some(row));
            prop_assert_eq!(decode(&bytes[..16]), None);
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
        let counted = |count, kernel| TaskCount {
            count,
            worker: WorkerId(0xab),
            principal: Principal::from_stored("ma"),
            kernel,
            orientation: match kernel {
                KernelName::Scalar | KernelName::Avx512 | KernelName::OpenCl => {
                    Orientation::Upright
                }
                KernelName::Avx2 | KernelName::Neon | KernelName::Simd128 => Orientation::Rotated,
            },
            accepted_unix_ms: 6,
        };
        let done = |kernel, second: Option<KernelName>, confirmed| TaskState::Done {
            first: counted(5, kernel),
            second: second.map(|kernel| Box::new(counted(5, kernel))),
            confirmed,
        };
        let row = |state| TaskRow {
            epoch: Epoch(2),
            sequence: 3,
            state,
            failed: vec![WorkerId(0xcd)],
            ..TaskRow::default()
        };
        let head = "00000000000000020000000000000003";
        let worker = "000000000000000000000000000000ab";
        let failed = "000000000000000000000000000000cd";
        let how = "0000000000000006026d61";
        let (upright, rotated) = (format!("00{how}"), format!("01{how}"));
        let counts = vec![counted(1, KernelName::Avx512), counted(2, KernelName::Neon)];
        let leased = TaskState::Leased { worker: WorkerId(0xab), until_unix_ms: 4 };
        let cases = [
            (TaskState::Pending, "00".to_owned()),
            (leased, format!("01{worker}0000000000000004")),
            (
                done(KernelName::Scalar, None, Confirmation::None),
                format!("0200000000010000000000000005{worker}00{upright}"),
            ),
            (
                done(KernelName::Avx2, Some(KernelName::Scalar), Confirmation::Referee),
                format!(
                    "0204000000020000000000000005{worker}01{rotated}0000000000000005{worker}00{upright}"
                ),
            ),
            (
                TaskState::Disputed { counts },
                format!(
                    "05000000020000000000000001{worker}02{upright}0000000000000002{worker}03{rotated}"
                ),
            ),
            (TaskState::Parked, "04".to_owned()),
        ];
        for (state, body) in cases {
            let bytes = encode(&row(state));
            assert_eq!(common::hex::encode(&bytes), format!("{head}{body}{failed}"));
        }
        assert_eq!(row_key(RunId(0x102), TaskId(3)), *b"r\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03");
        assert_eq!(seen_key(RunId(0x102)), *b"s\0\0\0\0\0\0\x01\x02");
    }
}
