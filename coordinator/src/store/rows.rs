//! Tasks' rows in sled: where a restart finds them quickly. Everything in here but leases and
//! attempts can be made again from the journals, and is when it does not agree with them.
//!
//! Keys, one tree, so that a batch is atomic over all of them (numbers big-endian):
//! `v` → version of the rows (1 byte); `s` run (8) → journal lines seen (8);
//! `r` run (8) task (8) → row, as [`encode`] writes it. The bytes are frozen by a test.

use std::{
    cell::Cell,
    collections::HashMap,
    io,
    panic::{self, AssertUnwindSafe, catch_unwind},
    path::Path,
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

use super::{StoreError, files};
use crate::ledger::{Confirmed, Principal, TaskState, Vote, fold::KeptTask};

/// The version of the bytes below; another one is rebuilt from the journals.
const VERSION: u8 = 2;
const VERSION_KEY: &[u8] = b"v";
/// The rows of a million tasks fit (measured: 237 MB in all), which halves the time of reading them
/// again; with half of it sled holds nearly as much.
const CACHE_BYTES: u64 = 128 << 20;
const OPEN_ATTEMPTS: u32 = 500;
/// What sled says then.
const LOCKED: &str = "could not acquire lock";
const OPEN_PAUSE: Duration = Duration::from_millis(10);

/// The database of rows. Used from one thread.
#[derive(Debug)]
pub(crate) struct Rows {
    db: sled::Db,
}

/// The database cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRows {
    /// It holds what this program never wrote, or not what the journals say: it can be made anew.
    #[error("{0}")]
    Wrong(String),
    /// The operating system refused: making it anew would not help.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<sled::Error> for BadRows {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => Self::System(error),
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl BadRows {
    /// As an error of the database in `dir`.
    pub(crate) fn at(self, dir: &Path) -> StoreError {
        match self {
            Self::Wrong(what) => StoreError::Database(format!("{}: {what}", dir.display())),
            Self::System(error) => files::failed("use", dir)(error),
        }
    }
}

/// Does something with a database that may be damaged: on some such files sled panics where it should
/// report them. What the panic would print is no news for users, who hear of the database.
pub(crate) fn guarded<T, E: From<BadRows>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    thread_local!(static GUARDED: Cell<bool> = const { Cell::new(false) });
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                usual(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    done.unwrap_or_else(|_| Err(BadRows::Wrong("sled cannot read it".to_owned()).into()))
}

impl Rows {
    /// Opens the database in `dir`, or makes an empty one.
    pub(crate) fn open(dir: &Path) -> Result<Self, BadRows> {
        guarded(|| Self::open_or_panic(dir))
    }

    fn open_or_panic(dir: &Path) -> Result<Self, BadRows> {
        let db = Self::open_sled(dir)?;
        match db.get(VERSION_KEY)? {
            Some(version) if *version == [VERSION] => {}
            Some(version) => {
                return Err(BadRows::Wrong(format!(
                    "its rows have version {version:?}, not {VERSION}"
                )));
            }
            None if db.is_empty() => {
                db.insert(VERSION_KEY, &[VERSION])?;
            }
            None => return Err(BadRows::Wrong("its rows have no version".to_owned())),
        }
        Ok(Self { db })
    }

    /// A database that this process has just closed stays locked until sled's own threads let go
    /// of it, so that is waited out for a while.
    fn open_sled(dir: &Path) -> Result<sled::Db, BadRows> {
        let config = sled::Config::default()
            .path(dir)
            .cache_capacity(CACHE_BYTES)
            // Its background flusher stops for good on a write error: we flush ourselves.
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
                other => return Ok(other?),
            }
        }
    }

    /// How many lines of the run's journal are in its rows.
    pub(crate) fn seen(&self, run: RunId) -> Result<u64, BadRows> {
        let Some(bytes) = self.db.get(seen_key(run))? else {
            return Ok(0);
        };
        let bytes = bytes.as_ref().try_into();
        bytes
            .map(u64::from_be_bytes)
            .map_err(|_| BadRows::Wrong(format!("the number of lines of run {run} is malformed")))
    }

    /// The row of a task.
    pub(crate) fn get(&self, run: RunId, task: TaskId) -> Result<Option<KeptTask>, BadRows> {
        let bytes = self.db.get(row_key(run, task))?;
        bytes
            .map(|bytes| decode(&bytes).ok_or_else(|| malformed(run, task)))
            .transpose()
    }

    /// Visits all rows of a run in order of their tasks.
    pub(crate) fn scan(
        &self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, KeptTask) -> Result<(), BadRows>,
    ) -> Result<(), BadRows> {
        for item in self.db.scan_prefix(run_prefix(run)) {
            let (key, value) = item?;
            let task = key.get(9..).and_then(|task| task.try_into().ok());
            let task = TaskId(u64::from_be_bytes(task.ok_or_else(|| {
                BadRows::Wrong(format!("run {run} has a key of {} bytes", key.len()))
            })?));
            let row = decode(&value).ok_or_else(|| malformed(run, task))?;
            visit(task, row)?;
        }
        Ok(())
    }

    /// Keeps rows and how many journal lines they have seen, all or nothing.
    pub(crate) fn put(
        &self,
        rows: &HashMap<(RunId, TaskId), KeptTask>,
        seen: impl IntoIterator<Item = (RunId, u64)>,
    ) -> Result<(), BadRows> {
        let mut batch = sled::Batch::default();
        for ((run, task), row) in rows {
            batch.insert(&row_key(*run, *task), encode(row));
        }
        for (run, lines) in seen {
            batch.insert(&seen_key(run), &lines.to_be_bytes());
        }
        Ok(self.db.apply_batch(batch)?)
    }

    /// Removes everything about runs that `known` does not name.
    pub(crate) fn retain(&self, known: impl Fn(RunId) -> bool) -> Result<(), BadRows> {
        let mut after = vec![b'r'];
        // The first row of a run, the first of the next one, and so on: rows of runs that stay are
        // not read.
        while let Some((key, _)) = self.db.range(after.as_slice()..).next().transpose()? {
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

    /// Removes everything about a run, some rows at a time: a batch is held in memory.
    pub(crate) fn remove(&self, run: RunId) -> Result<(), BadRows> {
        const AT_A_TIME: usize = 4096;
        self.db.remove(seen_key(run))?;
        loop {
            let mut batch = sled::Batch::default();
            let mut rows = 0;
            for item in self.db.scan_prefix(run_prefix(run)).take(AT_A_TIME) {
                batch.remove(item?.0);
                rows += 1;
            }
            if rows == 0 {
                return Ok(());
            }
            self.db.apply_batch(batch)?;
        }
    }

    /// Hands everything to the operating system (sled's flush is not durable against power cuts).
    pub(crate) fn flush(&self) -> Result<(), BadRows> {
        self.db.flush()?;
        Ok(())
    }
}

fn malformed(run: RunId, task: TaskId) -> BadRows {
    BadRows::Wrong(format!("the row of task {task} of run {run} is malformed"))
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

/// Epoch (8), sequence (8), standing (1: 0 pending, 1 leased, 2 done, 4 parked, 5 quarantined);
/// leased: worker (16), until in ms (8); done: a vote, confirmed (1: 0 no, 1 by the same machine, 2
/// by another, 3 with another token); quarantined: how the first vote was confirmed (1), number of
/// votes (4), votes; then the workers that failed (16 each) up to the end. Quarantined rows of earlier
/// programs have standing 3, and do not say what was confirmed: they are made anew. A vote: count (8), worker (16), kernel (1), 1 where it was turned
/// (1), when it was accepted (8), length of the principal (1), principal.
pub(super) fn encode(row: &KeptTask) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(48);
    bytes.extend(row.epoch.0.to_be_bytes());
    bytes.extend(row.sequence.to_be_bytes());
    match &row.state {
        TaskState::Pending => bytes.push(0),
        TaskState::Leased {
            worker,
            until_unix_ms,
        } => {
            bytes.push(1);
            bytes.extend(worker.0.to_be_bytes());
            bytes.extend(until_unix_ms.to_be_bytes());
        }
        TaskState::Done { vote, confirmed } => {
            bytes.push(2);
            encode_vote(&mut bytes, vote);
            bytes.push(confirmed_byte(*confirmed));
        }
        TaskState::Quarantined { votes, confirmed } => {
            bytes.push(5);
            bytes.push(confirmed_byte(*confirmed));
            let number = u32::try_from(votes.len()).expect("a task has few counts");
            bytes.extend(number.to_be_bytes());
            for vote in votes {
                encode_vote(&mut bytes, vote);
            }
        }
        TaskState::Parked => bytes.push(4),
    }
    for worker in &row.failed {
        bytes.extend(worker.0.to_be_bytes());
    }
    bytes
}

/// The place in [`Confirmed::ALL`].
fn confirmed_byte(confirmed: Confirmed) -> u8 {
    match confirmed {
        Confirmed::No => 0,
        Confirmed::SameMachine => 1,
        Confirmed::OtherMachine => 2,
        Confirmed::OtherToken => 3,
    }
}

fn encode_vote(bytes: &mut Vec<u8>, vote: &Vote) {
    bytes.extend(vote.count.to_be_bytes());
    bytes.extend(vote.worker.0.to_be_bytes());
    bytes.push(match vote.kernel {
        KernelName::Scalar => 0,
        KernelName::Avx2 => 1,
        KernelName::Avx512 => 2,
        KernelName::Neon => 3,
    });
    bytes.push(match vote.orientation {
        Orientation::Upright => 0,
        Orientation::Turned => 1,
    });
    bytes.extend(vote.accepted_unix_ms.to_be_bytes());
    let principal = vote.principal.as_str();
    bytes.push(u8::try_from(principal.len()).expect("principals are cut"));
    bytes.extend(principal.bytes());
}

pub(super) fn decode(mut bytes: &[u8]) -> Option<KeptTask> {
    let input = &mut bytes;
    let epoch = Epoch(u64::from_be_bytes(take(input)?));
    let sequence = u64::from_be_bytes(take(input)?);
    let state = match take::<1>(input)? {
        [0] => TaskState::Pending,
        [1] => TaskState::Leased {
            worker: decode_worker(input)?,
            until_unix_ms: u64::from_be_bytes(take(input)?),
        },
        [2] => TaskState::Done {
            vote: decode_vote(input)?,
            confirmed: decode_confirmed(input)?,
        },
        [4] => TaskState::Parked,
        [5] => {
            let confirmed = decode_confirmed(input)?;
            let number = u32::from_be_bytes(take(input)?);
            let votes = (0..number).map(|_| decode_vote(input));
            TaskState::Quarantined {
                votes: votes.collect::<Option<_>>()?,
                confirmed,
            }
        }
        _ => return None,
    };
    let mut failed = Vec::new();
    while !input.is_empty() {
        failed.push(decode_worker(input)?);
    }
    Some(KeptTask {
        epoch,
        sequence,
        state,
        failed,
    })
}

fn decode_confirmed(input: &mut &[u8]) -> Option<Confirmed> {
    let [at] = take(input)?;
    Confirmed::ALL.get(usize::from(at)).copied()
}

fn decode_vote(input: &mut &[u8]) -> Option<Vote> {
    Some(Vote {
        count: u64::from_be_bytes(take(input)?),
        worker: decode_worker(input)?,
        kernel: match take::<1>(input)? {
            [0] => KernelName::Scalar,
            [1] => KernelName::Avx2,
            [2] => KernelName::Avx512,
            [3] => KernelName::Neon,
            _ => return None,
        },
        orientation: match take::<1>(input)? {
            [0] => Orientation::Upright,
            [1] => Orientation::Turned,
            _ => return None,
        },
        accepted_unix_ms: u64::from_be_bytes(take(input)?),
        principal: decode_principal(input)?,
    })
}

fn decode_principal(input: &mut &[u8]) -> Option<Principal> {
    let [length] = take(input)?;
    let (text, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    let principal = Principal::kept(std::str::from_utf8(text).ok()?);
    // Longer than any that is kept: nothing that was written here.
    (principal.as_str().len() == text.len()).then_some(principal)
}

fn decode_worker(input: &mut &[u8]) -> Option<WorkerId> {
    Some(WorkerId(u128::from_be_bytes(take(input)?)))
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn votes() -> impl Strategy<Value = Vote> {
        let how = (0..4usize, any::<bool>(), "\\PC{0,60}");
        (any::<u64>(), any::<u128>(), how, any::<u64>()).prop_map(
            |(count, worker, (kernel, turned, principal), accepted_unix_ms)| Vote {
                count,
                worker: WorkerId(worker),
                principal: Principal::kept(&principal),
                kernel: KernelName::ALL[kernel],
                orientation: match turned {
                    true => Orientation::Turned,
                    false => Orientation::Upright,
                },
                accepted_unix_ms,
            },
        )
    }

    fn states() -> impl Strategy<Value = TaskState> {
        prop_oneof![
            Just(TaskState::Pending),
            Just(TaskState::Parked),
            (votes(), 0..4usize).prop_map(|(vote, confirmed)| TaskState::Done {
                vote,
                confirmed: Confirmed::ALL[confirmed],
            }),
            (proptest::collection::vec(votes(), 0..4), 0..4usize).prop_map(|(votes, confirmed)| {
                TaskState::Quarantined {
                    votes,
                    confirmed: Confirmed::ALL[confirmed],
                }
            }),
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
            let row = KeptTask { epoch: Epoch(epoch), sequence, state, failed };
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Some(row));
            prop_assert_eq!(decode(&bytes[..16]), None);
        }

        #[test]
        fn any_bytes_decode_or_not_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Some(row) = decode(&bytes) {
                prop_assert_eq!(encode(&row), bytes);
            }
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let vote = |count, kernel| Vote {
            count,
            worker: WorkerId(0xab),
            principal: Principal::kept("ma"),
            kernel,
            orientation: match kernel {
                KernelName::Scalar | KernelName::Avx512 => Orientation::Upright,
                KernelName::Avx2 | KernelName::Neon => Orientation::Turned,
            },
            accepted_unix_ms: 6,
        };
        let done = |kernel, confirmed| TaskState::Done {
            vote: vote(5, kernel),
            confirmed,
        };
        let row = |state| KeptTask {
            epoch: Epoch(2),
            sequence: 3,
            state,
            failed: vec![WorkerId(0xcd)],
        };
        let head = "00000000000000020000000000000003";
        let worker = "000000000000000000000000000000ab";
        let failed = "000000000000000000000000000000cd";
        let how = "0000000000000006026d61";
        let (upright, turned) = (format!("00{how}"), format!("01{how}"));
        let votes = vec![vote(1, KernelName::Avx512), vote(2, KernelName::Neon)];
        let leased = TaskState::Leased {
            worker: WorkerId(0xab),
            until_unix_ms: 4,
        };
        let cases = [
            (TaskState::Pending, "00".to_owned()),
            (leased, format!("01{worker}0000000000000004")),
            (
                done(KernelName::Scalar, Confirmed::No),
                format!("020000000000000005{worker}00{upright}00"),
            ),
            (
                done(KernelName::Avx2, Confirmed::OtherToken),
                format!("020000000000000005{worker}01{turned}03"),
            ),
            (
                TaskState::Quarantined {
                    votes,
                    confirmed: Confirmed::OtherMachine,
                },
                format!(
                    "0502000000020000000000000001{worker}02{upright}0000000000000002{worker}03{turned}"
                ),
            ),
            (TaskState::Parked, "04".to_owned()),
        ];
        for (state, body) in cases {
            let bytes = encode(&row(state));
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, format!("{head}{body}{failed}"));
        }
        assert_eq!(
            row_key(RunId(0x102), TaskId(3)),
            *b"r\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03"
        );
        assert_eq!(seen_key(RunId(0x102)), *b"s\0\0\0\0\0\0\x01\x02");
    }
}
