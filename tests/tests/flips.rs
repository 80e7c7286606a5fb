//! Bits that flip and files that end too early, in everything that a coordinator and a worker keep:
//! what is read is what was written, or it is refused in one clear line.
//!
//! QUEENS_FLIPS and QUEENS_CUTS say how many; `just flips` does 500 and 200, some of them to sealed
//! segments of a journal. QUEENS_FLIP_SEED=N, with the same two, does the one damage of a number again.

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs,
    ops::Range,
    panic,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
    thread,
    time::Instant,
};

use common::sync::{FailedCanaries, Grant, HeldLease};
use proto::v1::Status;
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde_json::Value;
use tests::{
    binaries::binaries,
    cluster::{Cluster, by_rows},
    face::{self, HandWorker},
    process::{End, Process},
};

/// Counted in no time, so that every damage is followed by a count to the end.
const SMALL: [&str; 8] = by_rows("12", "10");
/// So many tasks that the journal has a sealed segment.
const MANY: [&str; 8] = by_rows("15", "1");
/// Long enough that processes are killed in the middle of it.
const LONG: [&str; 8] = by_rows("16", "10000");

fn solutions(run: &[&str; 8]) -> &'static str {
    match run[1] {
        "12" => "14200",
        "15" => "2279184",
        "16" => "14772512",
        other => panic!("no run of the tests has N = {other}"),
    }
}

/// Damages that are tried at the same time.
const AT_ONCE: usize = 4;

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// One bit of one byte.
    Flip,
    /// The file ends anywhere before its end.
    Cut,
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The total is exact.
    Recovered,
    /// One line said what, where and what to do.
    Refused,
}

/// A directory as it was before every damage.
struct Original {
    dir: PathBuf,
    /// Its files that hold something, with their lengths.
    files: Vec<(PathBuf, u64)>,
}

impl Original {
    fn of(dir: &Path) -> Self {
        let mut files = Vec::new();
        list(dir, dir, &mut files);
        files.sort();
        assert!(!files.is_empty(), "{}", dir.display());
        Self {
            dir: dir.to_owned(),
            files,
        }
    }

    /// A copy with one damage, drawn; returns what it was.
    fn damaged(&self, to: &Path, damage: Damage, rng: &mut ChaCha8Rng) -> (PathBuf, String) {
        copy(&self.dir, to);
        // Any file is as likely as any other: most bytes are sled's.
        let (file, length) = &self.files[rng.random_range(0..self.files.len())];
        let path = to.join(file);
        let mut bytes = fs::read(&path).expect("a copy can be read");
        let used = used(&bytes);
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

/// sled's file is mostly zeros behind what it uses: damage there is too easy.
fn used(bytes: &[u8]) -> Range<usize> {
    let end = bytes.iter().rposition(|&byte| byte != 0);
    0..end.map_or(bytes.len(), |end| end + 1)
}

fn list(top: &Path, dir: &Path, files: &mut Vec<(PathBuf, u64)>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let data = fs::metadata(&path).expect("it is there");
        let name = path.strip_prefix(top).expect("below it").to_owned();
        // Who holds a lock is nobody's data.
        if data.is_dir() {
            list(top, &path, files);
        } else if data.len() > 0 && !name.ends_with("lock") && !name.starts_with("doors") {
            files.push((name, data.len()));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
}

/// The command that counts to the end what a directory holds.
fn count(data: &Path, run: &[&str; 8]) -> End {
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(run)
        .args(["--local", "--threads", "1", "--memory", "256MiB", "--json"])
        .args(["--recheck", "0", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data);
    Process::run("the coordinator", &mut command)
}

fn check_calm(end: &End, about: &str) {
    assert!(!end.stderr.contains("panicked"), "{about}: {end:#?}");
    assert!(end.code.is_some(), "{about}: {end:#?}");
}

/// Exact, or refused in one line that names what and what to do.
fn judge(end: &End, run: &[&str; 8], about: &str) -> Outcome {
    check_calm(end, about);
    if end.code == Some(0) {
        let lines = end.stdout.lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{about}: {end:#?}"))
        });
        for result in lines {
            assert_eq!(result["solutions"], solutions(run), "{about}: {end:#?}");
            assert_eq!(result["known"], "matches", "{about}: {end:#?}");
        }
        return Outcome::Recovered;
    }
    assert_eq!(end.code, Some(1), "{about}: {end:#?}");
    assert_eq!(end.stdout, "", "{about}: {end:#?}");
    let lines = end.stderr.lines();
    let errors: Vec<_> = lines.filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{about}: {end:#?}");
    // Where, and after a semicolon what to do.
    assert!(errors[0].contains("/data"), "{about}: {end:#?}");
    assert!(errors[0].contains("; "), "{about}: {end:#?}");
    Outcome::Refused
}

/// `verify` reads only: it must agree that all is right, or find something.
fn verify(data: &Path, about: &str) -> bool {
    let mut command = Command::new(&binaries().queensctl);
    let end = Process::run("queensctl", command.arg("verify").arg(data));
    check_calm(&end, about);
    match end.code {
        Some(0) => assert!(!end.stdout.is_empty(), "{about}: {end:#?}"),
        Some(1 | 3) => assert!(end.stderr.starts_with("error: "), "{about}: {end:#?}"),
        _ => panic!("{about}: {end:#?}"),
    }
    end.code == Some(0)
}

fn held(grant: &Grant) -> HeldLease {
    HeldLease {
        task: grant.task,
        epoch: grant.epoch,
        cost_done: 0,
        started: false,
    }
}

/// A run of which about half is counted, by a worker that then failed its canaries, so that there is
/// something thought of workers too.
async fn unfinished(at: &Path) {
    let cluster = Cluster::new(&SMALL);
    let coordinator = cluster.coordinator();
    let mut worker = HandWorker::at(&cluster.url(), 7).await.unwrap();
    let total = cluster.status(|_| true).await.tasks_total;
    let mut granted = VecDeque::new();
    // One count a call: a run that came to its end would take the coordinator with it.
    for _ in 0..total / 2 {
        if granted.is_empty() {
            let wish = worker.request(Vec::new(), 0.001);
            granted.extend(worker.sync(wish).await.unwrap().grants);
        }
        let counted = vec![face::count(&granted.pop_front().expect("work is left"))];
        let mut request = worker.request(counted, 0.0);
        request.held = granted.iter().map(held).collect();
        request.failed_canaries.passed = 1;
        worker.sync(request).await.unwrap();
    }
    let mut failed = worker.request(Vec::new(), 0.0);
    failed.failed_canaries = FailedCanaries {
        threads: 1,
        unproven_ms: 60_000,
        passed: 1,
    };
    worker.sync(failed).await.unwrap();
    coordinator.kill();
    copy(&cluster.data_dir(), at);
    assert!(at.join("trust.jsonl").exists(), "nothing was thought");
}

/// A coordinator and a worker that were killed in the middle of a run, the coordinator first, so that
/// the worker's spool holds counts.
async fn away(data: &Path, spool: &Path) {
    let cluster = Cluster::new(&LONG);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    let under_way = |status: &Status| status.tasks_done * 20 > status.tasks_total;
    cluster.status(under_way).await;
    coordinator.kill();
    worker.stderr_line("attempt 3");
    worker.kill();
    copy(&cluster.data_dir(), data);
    copy(&cluster.data_dir().with_file_name("only"), spool);
    let kept = fs::read_to_string(spool.join("outbox.jsonl")).unwrap();
    assert!(kept.contains("finished"), "the spool holds counts");
}

/// A worker with a damaged spool, beside one that is well: whatever becomes of the first, the total is
/// exact.
fn hand_in(data: &Path, spool: &Path, about: &str) -> Outcome {
    let cluster = Cluster::new(&LONG);
    fs::remove_dir_all(cluster.data_dir()).ok();
    copy(data, &cluster.data_dir());
    copy(spool, &cluster.data_dir().with_file_name("only"));
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    // Either "spool DIR" of its first line, or the error about it.
    worker.stderr_line("spool ");
    let _well = cluster.quick_worker(&cluster.url(), "well");
    let end = coordinator.end();
    assert_eq!(
        judge(&end, &LONG, about),
        Outcome::Recovered,
        "{about}: {end:#?}"
    );
    assert!(verify(&cluster.data_dir(), about), "{about}");
    worker.signal("TERM");
    let end = worker.end();
    check_calm(&end, about);
    assert!(
        !end.stderr.contains("in conflict") || end.stderr.contains(" 0 in conflict"),
        "{about}: {end:#?}"
    );
    if end.code != Some(1) {
        return Outcome::Recovered;
    }
    let lines = end.stderr.lines();
    let errors: Vec<_> = lines.filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{about}: {end:#?}");
    assert!(errors[0].contains("spool"), "{about}: {end:#?}");
    Outcome::Refused
}

/// Where a damage is done.
struct Places {
    half: Original,
    whole: Original,
    /// Whether there are tries enough for a run of 40,000 tasks, which takes a while.
    many: bool,
    /// Made when it is drawn first.
    sealed: OnceLock<Original>,
    sealed_data: PathBuf,
    away: PathBuf,
    spool: Original,
}

impl Places {
    async fn make(at: &Path, many: bool) -> Self {
        let (half, whole) = (at.join("half/data"), at.join("whole/data"));
        let (away_data, spool) = (at.join("away/data"), at.join("spool"));
        for dir in [&half, &whole, &away_data] {
            fs::create_dir_all(dir.parent().expect("of the data")).unwrap();
        }
        unfinished(&half).await;
        copy(&half, &whole);
        assert_eq!(
            judge(&count(&whole, &SMALL), &SMALL, "before"),
            Outcome::Recovered
        );
        away(&away_data, &spool).await;
        Self {
            half: Original::of(&half),
            whole: Original::of(&whole),
            many,
            sealed: OnceLock::new(),
            sealed_data: at.join("sealed-data"),
            away: away_data,
            spool: Original::of(&spool),
        }
    }

    /// A finished run whose journal has a sealed segment.
    fn sealed(&self) -> &Original {
        self.sealed.get_or_init(|| {
            let end = count(&self.sealed_data, &MANY);
            assert_eq!(judge(&end, &MANY, "before"), Outcome::Recovered);
            let sealed = Original::of(&self.sealed_data);
            let seal = |(file, _): &(PathBuf, u64)| kind(file) == "journal.000001.seal";
            assert!(sealed.files.iter().any(seal), "a segment is sealed");
            sealed
        })
    }

    /// One damage, and what came of it: of what kind of file, and how.
    fn try_one(&self, number: u64, damage: Damage) -> (String, Outcome) {
        let mut rng = ChaCha8Rng::seed_from_u64(number);
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("data");
        let (name, original, run) = match rng.random_range(0..20) {
            0..3 => ("spool", &self.spool, &LONG),
            3..5 if self.many => ("sealed", self.sealed(), &MANY),
            3..12 => ("unfinished", &self.half, &SMALL),
            _ => ("finished", &self.whole, &SMALL),
        };
        let (file, what) = original.damaged(&data, damage, &mut rng);
        let about = format!("damage {number}: {name}, {}: {what}", file.display());
        let outcome = match name {
            "spool" => hand_in(&self.away, &data, &about),
            _ => {
                let sound = verify(&data, &about);
                let outcome = judge(&count(&data, run), run, &about);
                // What verify vouches for, the coordinator goes on with.
                assert!(
                    !sound || outcome == Outcome::Recovered || !journalled(&file),
                    "{about}"
                );
                if outcome == Outcome::Recovered {
                    assert!(verify(&data, &about), "{about}: after it went on");
                }
                outcome
            }
        };
        println!("{about}: {outcome:?}");
        (format!("{name} {}", kind(&file)), outcome)
    }
}

/// What `verify` reads.
fn journalled(file: &Path) -> bool {
    let name = file.to_string_lossy();
    name.contains("journal.") || name.ends_with("manifest.json") || name.ends_with("state.json")
}

/// The file's part in the directory.
fn kind(file: &Path) -> String {
    if file.starts_with("db") {
        return "sled".to_owned();
    }
    let name = file.file_name().expect("a file's path").to_string_lossy();
    name.into_owned()
}

fn number_of(variable: &str, usual: u64) -> u64 {
    env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_mended_or_told() {
    let (flips, cuts) = (number_of("QUEENS_FLIPS", 12), number_of("QUEENS_CUTS", 6));
    let numbers = match env::var("QUEENS_FLIP_SEED") {
        Ok(number) => number
            .parse()
            .map(|number| number..number + 1)
            .expect("a number"),
        Err(_) => 0..flips + cuts,
    };
    let began = Instant::now();
    let at = tempfile::tempdir().unwrap();
    let places = Places::make(at.path(), flips + cuts >= 100).await;
    println!("originals made after {} s", began.elapsed().as_secs());
    let tries = numbers.map(|number| match number < flips {
        true => (number, Damage::Flip),
        false => (number, Damage::Cut),
    });
    let outcomes = try_all(&places, tries);
    let wrong = outcomes.keys().filter(|(_, outcome)| outcome.is_none());
    let wrong: Vec<_> = wrong.map(|(what, _)| what).collect();
    for ((what, outcome), times) in &outcomes {
        match outcome {
            Some(outcome) => println!("{times:4} {what}: {outcome:?}"),
            None => println!("{times:4} {what}: WRONG"),
        }
    }
    println!(
        "{flips} flips, {cuts} cuts: {} s",
        began.elapsed().as_secs()
    );
    assert!(wrong.is_empty(), "{wrong:?}: see the panics above");
}

/// How often what came of a damage: nothing where it was neither of the two that may be.
type Tally = BTreeMap<(String, Option<Outcome>), u64>;

/// Some at a time, since most of their time is waiting for processes.
fn try_all(places: &Places, tries: impl Iterator<Item = (u64, Damage)> + Send) -> Tally {
    let (tries, tally) = (Mutex::new(tries), Mutex::new(Tally::new()));
    let next = || tries.lock().expect("no draw panics").next();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((number, damage)) = next() {
                    // One that fails is told, and the others are tried all the same.
                    let tried = panic::catch_unwind(|| places.try_one(number, damage));
                    let what = match tried {
                        Ok((what, outcome)) => (what, Some(outcome)),
                        Err(_) => (format!("damage {number}"), None),
                    };
                    *tally
                        .lock()
                        .expect("no count panics")
                        .entry(what)
                        .or_default() += 1;
                }
            });
        }
    });
    tally.into_inner().expect("no count panics")
}
