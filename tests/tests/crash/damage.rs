//! Flipped bits and truncated files: programs recover, or refuse in one clear line.
//! All files of a coordinator and a worker are tried, except keys and tokens.
//! QUEENS_FLIPS and QUEENS_CUTS set the numbers; `just flips` does 500 and 200, some of them to sealed
//! segments of a journal. QUEENS_FLIP_SEED=N, with the same two values, repeats damage number N.

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs,
    ops::Range,
    panic,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
    time::Instant,
};

use common::messages::sync::SelfTestReport;
use kit::{count, held};
use proto::v1::Status;
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde_json::Value;
use tests::{
    cluster::{Cluster, by_rows, files},
    process::{End, Process, coordinator, queensctl, wait_until},
    service::HandWorker,
};

use super::{CountedBoard, number};

/// A short run: every damaged copy of it is counted to the end.
const TINY: CountedBoard = CountedBoard { run: by_rows("12", "10"), solutions: "14200", tasks: 0 };
/// A run with enough tasks for a sealed segment of the journal.
const MANY: CountedBoard =
    CountedBoard { run: by_rows("15", "1"), solutions: "2279184", tasks: 40_000 };
/// A run that is long enough to kill processes in the middle of it.
const LONG: CountedBoard =
    CountedBoard { run: by_rows("16", "10000"), solutions: "14772512", tasks: 0 };

/// Number of damaged copies that are tried at the same time.
const AT_ONCE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// One bit of one byte.
    Flip,
    /// The file is truncated at a random place.
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// The total is exact.
    Recovered,
    /// One line named the damage, the place and the remedy.
    Refused,
}

/// A directory before the damage.
struct Original {
    dir: PathBuf,
    /// The files that are not empty.
    files: Vec<PathBuf>,
}

impl Original {
    fn of(dir: &Path) -> Self {
        let below = |path: &PathBuf| path.strip_prefix(dir).expect("below it").to_owned();
        let mut files: Vec<_> = files(dir, "").iter().map(below).collect();
        // A lock file holds no data, and `auth` only keys and tokens.
        files.retain(|name| !name.ends_with("lock") && !name.starts_with("auth"));
        files.retain(|name| fs::metadata(dir.join(name)).expect("a file").len() > 0);
        assert!(!files.is_empty(), "{}", dir.display());
        Self { dir: dir.to_owned(), files }
    }

    /// Makes a randomly damaged copy; returns the file and a description.
    fn damaged(&self, to: &Path, damage: Damage, rng: &mut ChaCha8Rng) -> (PathBuf, String) {
        copy(&self.dir, to);
        // Files are equally likely: most bytes are sled's.
        let file = &self.files[rng.random_range(0..self.files.len())];
        let path = to.join(file);
        let mut bytes = fs::read(&path).expect("a copy can be read");
        let (used, length) = (used(&bytes), bytes.len());
        let what = match damage {
            Damage::Flip => {
                let (at, bit) = (rng.random_range(used), rng.random_range(0..8));
                bytes[at] ^= 1 << bit;
                format!("bit {bit} of byte {at} of {length}")
            }
            Damage::Cut => {
                let at = rng.random_range(0..used.end);
                bytes.truncate(at);
                format!("cut to {at} of {length} bytes")
            }
        };
        fs::write(&path, bytes).expect("a copy can be written");
        (file.clone(), what)
    }
}

/// Returns the part before trailing zeros: most of sled's file is unused.
fn used(bytes: &[u8]) -> Range<usize> {
    let end = bytes.iter().rposition(|&byte| byte != 0);
    0..end.map_or(bytes.len(), |end| end + 1)
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
}

/// Runs the command that counts a directory's run to the end.
fn count_rest(data: &Path, board: &CountedBoard) -> End {
    let mut command = coordinator(&board.run);
    command
        .args(["--local", "--threads", "1", "--memory", "256MiB", "--json"])
        .args(["--recheck", "0", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data);
    Process::run(command)
}

fn check_no_crash(end: &End, about: &str) {
    assert!(!end.stderr.contains("panicked"), "{about}: {end:#?}");
    assert!(end.code.is_some(), "{about}: {end:#?}");
}

/// Checks that the total is exact, or that one line names the place and the remedy.
fn judge(end: &End, board: &CountedBoard, about: &str) -> Ending {
    check_no_crash(end, about);
    if end.code == Some(0) {
        assert!(!end.stdout.is_empty(), "{about}: {end:#?}");
        for line in end.stdout.lines() {
            let result = serde_json::from_str::<Value>(line);
            let result = result.unwrap_or_else(|_| panic!("{about}: {end:#?}"));
            assert_eq!(result["solutions"], board.solutions, "{about}: {end:#?}");
            assert_eq!(result["published"], "matches", "{about}: {end:#?}");
        }
        return Ending::Recovered;
    }
    assert_eq!((end.code, end.stdout.as_str()), (Some(1), ""), "{about}: {end:#?}");
    let error = end.error();
    // The place, and after a semicolon the remedy.
    assert!(error.contains("/data") && error.contains("; "), "{about}: {end:#?}");
    Ending::Refused
}

/// Checks that `queensctl verify` confirms the directory or reports an error.
fn verify(data: &Path, about: &str) -> bool {
    let end = Process::run(queensctl(&["verify"]).arg(data));
    check_no_crash(&end, about);
    match end.code {
        Some(0) => assert!(!end.stdout.is_empty(), "{about}: {end:#?}"),
        Some(1 | 3) => assert!(end.stderr.starts_with("error: "), "{about}: {end:#?}"),
        _ => panic!("{about}: {end:#?}"),
    }
    end.code == Some(0)
}

/// Makes a half-counted run whose worker then failed its self-test.
/// The run therefore has trust records.
async fn unfinished(at: &Path) {
    let cluster = Cluster::new(&TINY.run);
    let coordinator = cluster.coordinator();
    let mut worker = HandWorker::in_dir(&cluster.data_dir(), 7).await.unwrap();
    let total = cluster.status(|_| true).await.tasks_total;
    let mut granted = VecDeque::new();
    // One count per call: a call with all granted tasks could complete the run and end the coordinator.
    for _ in 0..total / 2 {
        if granted.is_empty() {
            granted.extend(worker.call(Vec::new(), 0.001).await.unwrap().grants);
        }
        let counted = vec![count(&granted.pop_front().expect("work is left"))];
        let mut request = worker.request(counted, 0.0);
        request.held = granted.iter().map(held).collect();
        request.self_test.tests_passed = 1;
        worker.sync(request).await.unwrap();
    }
    let mut failed = worker.request(Vec::new(), 0.0);
    failed.self_test =
        SelfTestReport { failed_threads: 1, suspect_window_ms: 60_000, tests_passed: 1 };
    worker.sync(failed).await.unwrap();
    coordinator.kill();
    copy(&cluster.data_dir(), at);
    assert!(at.join("trust.jsonl").exists(), "there is no trust record");
}

/// Kills a coordinator and then its worker during a run; the spool holds counts.
async fn interrupted(data: &Path, spool: &Path) {
    let cluster = Cluster::new(&LONG.run);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    let under_way = |status: &Status| status.tasks_done * 20 > status.tasks_total;
    cluster.status(under_way).await;
    coordinator.kill();
    worker.stderr_line("retry 3");
    let kept = cluster.path("only").join("outbox.jsonl");
    let holds_counts = || fs::read_to_string(&kept).is_ok_and(|kept| kept.contains("finished"));
    wait_until("the spool holds counts", holds_counts);
    worker.kill();
    copy(&cluster.data_dir(), data);
    copy(&cluster.path("only"), spool);
}

/// Continues a run with a damaged spool and a second worker; the total is exact.
fn submit_spool(data: &Path, spool: &Path, about: &str) -> Ending {
    let cluster = Cluster::new(&LONG.run);
    copy(data, &cluster.data_dir());
    copy(spool, &cluster.path("only"));
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    // Either its first line, or the error about the spool.
    worker.stderr_line("spool ");
    let _other = cluster.fast_worker(&cluster.connection());
    let end = coordinator.end();
    assert_eq!(judge(&end, &LONG, about), Ending::Recovered, "{about}: {end:#?}");
    assert!(verify(&cluster.data_dir(), about), "{about}");
    let end = worker.terminate();
    check_no_crash(&end, about);
    let no_conflicts = !end.stderr.contains("in conflict") || end.stderr.contains(" 0 in conflict");
    assert!(no_conflicts, "{about}: {end:#?}");
    if end.code != Some(1) {
        return Ending::Recovered;
    }
    assert!(end.error().contains("spool"), "{about}: {end:#?}");
    Ending::Refused
}

/// Makes a finished run whose journal has a sealed segment.
fn sealed(data: &Path) -> Original {
    assert_eq!(judge(&count_rest(data, &MANY), &MANY, "before"), Ending::Recovered);
    let sealed = Original::of(data);
    let seal = |file: &PathBuf| kind(file) == "journal.000001.seal";
    assert!(sealed.files.iter().any(seal), "a segment is sealed");
    sealed
}

struct Originals {
    unfinished: Original,
    finished: Original,
    /// A finished run with a sealed journal segment; only if many copies are tried.
    sealed: Option<Original>,
    interrupted: PathBuf,
    spool: Original,
}

impl Originals {
    async fn make(at: &Path, many: bool) -> Self {
        let [unfinished_data, finished, interrupted_data] =
            ["unfinished", "finished", "interrupted"].map(|name| at.join(name).join("data"));
        for dir in [&unfinished_data, &finished, &interrupted_data] {
            fs::create_dir_all(dir.parent().expect("a parent")).unwrap();
        }
        unfinished(&unfinished_data).await;
        copy(&unfinished_data, &finished);
        assert_eq!(judge(&count_rest(&finished, &TINY), &TINY, "before"), Ending::Recovered);
        let spool = at.join("spool");
        interrupted(&interrupted_data, &spool).await;
        Self {
            unfinished: Original::of(&unfinished_data),
            finished: Original::of(&finished),
            sealed: many.then(|| sealed(&at.join("sealed-data"))),
            interrupted: interrupted_data,
            spool: Original::of(&spool),
        }
    }

    /// Tries one damaged copy; returns the kind of file and the outcome.
    fn try_one(&self, number: u64, damage: Damage) -> (String, Ending) {
        let mut rng = ChaCha8Rng::seed_from_u64(number);
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("data");
        let (name, original, board) = match (rng.random_range(0..20), &self.sealed) {
            (0..3, _) => ("spool", &self.spool, &LONG),
            (3..5, Some(sealed)) => ("sealed", sealed, &MANY),
            (3..12, _) => ("unfinished", &self.unfinished, &TINY),
            _ => ("finished", &self.finished, &TINY),
        };
        let (file, what) = original.damaged(&data, damage, &mut rng);
        let about = format!("damage {number}: {name}, {}: {what}", file.display());
        let outcome = match name {
            "spool" => submit_spool(&self.interrupted, &data, &about),
            _ => {
                let sound = verify(&data, &about);
                let outcome = judge(&count_rest(&data, board), board, &about);
                // The coordinator continues with whatever `verify` confirms.
                assert!(!sound || outcome == Ending::Recovered || !is_verified(&file), "{about}");
                if outcome == Ending::Recovered {
                    assert!(verify(&data, &about), "{about}: after the count");
                }
                outcome
            }
        };
        println!("{about}: {outcome:?}");
        (format!("{name} {}", kind(&file)), outcome)
    }
}

/// Returns whether `queensctl verify` reads the file.
fn is_verified(file: &Path) -> bool {
    let name = file.to_string_lossy();
    name.contains("journal.") || name.ends_with("manifest.json") || name.ends_with("state.json")
}

/// Returns the kind of a file in the directory.
fn kind(file: &Path) -> String {
    if file.starts_with("db") {
        return "sled".to_owned();
    }
    file.file_name().expect("a file's path").to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_repaired_or_reported() {
    let (flips, cuts) = (number("QUEENS_FLIPS", 12) as u64, number("QUEENS_CUTS", 6) as u64);
    let numbers = match env::var("QUEENS_FLIP_SEED") {
        Ok(number) => number.parse().map(|number| number..number + 1).expect("a number"),
        Err(_) => 0..flips + cuts,
    };
    let began = Instant::now();
    let at = tempfile::tempdir().unwrap();
    let originals = Originals::make(at.path(), flips + cuts >= 100).await;
    println!("originals made after {} s", began.elapsed().as_secs());
    let tries = numbers.map(|number| match number < flips {
        true => (number, Damage::Flip),
        false => (number, Damage::Cut),
    });
    let outcomes = try_all(&originals, tries);
    for ((what, outcome), times) in &outcomes {
        match outcome {
            Some(outcome) => println!("{times:4} {what}: {outcome:?}"),
            None => println!("{times:4} {what}: WRONG"),
        }
    }
    println!("{flips} flips, {cuts} cuts: {} s", began.elapsed().as_secs());
    let wrong = outcomes.keys().filter(|(_, outcome)| outcome.is_none());
    let wrong: Vec<_> = wrong.map(|(what, _)| what).collect();
    assert!(wrong.is_empty(), "{wrong:?}: see the panics above");
}

/// The number of times that each outcome occurred; `None` if a check failed.
type Tally = BTreeMap<(String, Option<Ending>), u64>;

/// Tries several damaged copies at a time, since each mostly waits for processes.
fn try_all(originals: &Originals, tries: impl Iterator<Item = (u64, Damage)> + Send) -> Tally {
    let (tries, tally) = (Mutex::new(tries), Mutex::new(Tally::new()));
    let next = || tries.lock().expect("the iterator does not panic").next();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((number, damage)) = next() {
                    // A failed copy is reported, and the others are still tried.
                    let tried = panic::catch_unwind(|| originals.try_one(number, damage));
                    let what = match tried {
                        Ok((what, outcome)) => (what, Some(outcome)),
                        Err(_) => (format!("damage {number}"), None),
                    };
                    *tally.lock().expect("adding does not panic").entry(what).or_default() += 1;
                }
            });
        }
    });
    tally.into_inner().expect("adding does not panic")
}
