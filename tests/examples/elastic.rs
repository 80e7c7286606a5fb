//! What coming and going costs a fleet of real processes: how much of its time goes into counts that are
//! kept while nobody leaves, and while half of it is exchanged again and again. Times are those of the wall
//! and of the cores: on a machine that does other things too, the latter say more.
//!
//! `cargo run --release -p tests --example elastic -- [WORKERS] [MINUTES] [SECONDS] [N]`
//!
//! WORKERS processes of one thread (one for each core, if nothing else is said) count the board of N for MINUTES,
//! then as long again while after every SECONDS half of them, those that have been there longest, get
//! SIGTERM, and as many new ones start at that moment. Whoever leaves finishes what takes ten seconds.

use std::{
    collections::VecDeque,
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::{
    binaries::binaries,
    load::core_seconds,
    process::{PATIENCE, Process},
};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |place: usize, usual: usize| match arguments.get(place) {
        Some(given) => given
            .parse()
            .context("WORKERS, MINUTES, SECONDS and N are numbers"),
        None => Ok(usual),
    };
    let cores = thread::available_parallelism()?.get();
    let (workers, minutes) = (argument(0, cores)?, argument(1, 10)?);
    let (seconds, n) = (argument(2, 60)?, argument(3, 23)?);
    let span = Duration::from_secs(minutes as u64 * 60);
    let every = Duration::from_secs(seconds as u64);

    let mut cluster = Cluster::start(n, workers)?;
    cluster.until_it_counts();
    let steady = cluster.live(span, span)?;
    println!("{workers} workers, N = {n}, {minutes} minutes each");
    println!("nobody leaves          {}", steady.words());
    let moving = cluster.live(span, every)?;
    println!("half of it every {seconds:>3} s {}", moving.words());
    println!("                       {} left", moving.left);
    println!(
        "cost of coming and going: {:.2} % of the fleet's time, {:.2} % of the work of a core second, \
         {:.2} % of the work of a second",
        loss(steady.firsts(), moving.firsts()),
        loss(steady.a_core_second(), moving.a_core_second()),
        loss(steady.a_second(), moving.a_second()),
    );
    cluster.end()
}

/// By how many per cent the second is less than the first.
fn loss(first: f64, second: f64) -> f64 {
    100.0 * (1.0 - second / first)
}

/// A while in a fleet's life.
struct While {
    workers: usize,
    left: usize,
    seconds: f64,
    core_seconds: f64,
    kept: Kept,
    /// The part of the run's cost that was done.
    done: f64,
}

/// Seconds of one thread in counts that were kept.
#[derive(Clone, Copy, Default)]
struct Kept {
    firsts: f64,
    /// Those that were asked for to compare the first ones with.
    seconds: f64,
}

impl While {
    /// The part of the fleet's time that went into first counts.
    fn firsts(&self) -> f64 {
        self.kept.firsts / self.thread_seconds()
    }

    fn thread_seconds(&self) -> f64 {
        self.workers as f64 * self.seconds
    }

    fn a_core_second(&self) -> f64 {
        self.done / self.core_seconds
    }

    fn a_second(&self) -> f64 {
        self.done / self.seconds
    }

    fn words(&self) -> String {
        format!(
            "{:.2} % of its time in first counts, {:.2} % in second ones; {:.1} core seconds, {:.3} % \
             of the run",
            100.0 * self.firsts(),
            100.0 * self.kept.seconds / self.thread_seconds(),
            self.core_seconds,
            100.0 * self.done,
        )
    }
}

/// What is read at its beginning and at its end.
struct Reading {
    at: Instant,
    core_seconds: f64,
    kept: Kept,
    done: f64,
}

struct Cluster {
    dir: tempfile::TempDir,
    url: String,
    coordinator: Process,
    /// Those longest there first.
    fleet: VecDeque<Process>,
    begun: usize,
}

impl Cluster {
    fn start(n: usize, workers: usize) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(&binaries().coordinator);
        command
            .args([
                "--n",
                &n.to_string(),
                "--listen",
                "127.0.0.1:0",
                "--no-http",
            ])
            .arg("--data-dir")
            .arg(dir.path().join("data"));
        let coordinator = Process::start("the coordinator", &mut command);
        let line = coordinator.stderr_line("listening on ");
        let (_, address) = line.split_once("listening on ").context("it listens")?;
        let address = address.split_whitespace().next().context("somewhere")?;
        let mut cluster = Self {
            url: format!("http://{}", address.trim_end_matches([':', ',', ';'])),
            dir,
            coordinator,
            fleet: VecDeque::new(),
            begun: 0,
        };
        (0..workers).for_each(|_| cluster.newcomer());
        Ok(cluster)
    }

    fn newcomer(&mut self) {
        self.begun += 1;
        let name = format!("worker-{}", self.begun);
        let mut command = Command::new(&binaries().worker);
        command
            .args(["--coordinator", &self.url, "--name", &name])
            .args(["--threads", "1", "--memory", "1GiB", "--idle-timeout", "0"])
            .arg("--spool")
            .arg(self.dir.path().join(&name));
        self.fleet.push_back(Process::start(&name, &mut command));
    }

    /// Every worker has a task: what comes before is not what is measured.
    fn until_it_counts(&self) {
        for worker in &self.fleet {
            worker.stderr_line("by method");
        }
    }

    /// Some time, after each `every` of which, but the last, half of the fleet is exchanged.
    fn live(&mut self, span: Duration, every: Duration) -> anyhow::Result<While> {
        let before = self.reading()?;
        let workers = self.fleet.len();
        let mut leaving = Vec::new();
        let mut next = every;
        while next < span {
            thread::sleep((before.at + next).saturating_duration_since(Instant::now()));
            next += every;
            for _ in 0..workers / 2 {
                let oldest = self.fleet.pop_front().context("there is a fleet")?;
                oldest.signal("TERM");
                leaving.push(oldest);
                self.newcomer();
            }
        }
        thread::sleep((before.at + span).saturating_duration_since(Instant::now()));
        let left = leaving.len();
        for worker in leaving {
            let end = worker.end_within(PATIENCE);
            ensure!(end.code == Some(0), "a worker that was to leave: {end:#?}");
        }
        let after = self.reading()?;
        Ok(While {
            workers,
            left,
            seconds: (after.at - before.at).as_secs_f64(),
            core_seconds: after.core_seconds - before.core_seconds,
            kept: Kept {
                firsts: after.kept.firsts - before.kept.firsts,
                seconds: after.kept.seconds - before.kept.seconds,
            },
            done: after.done - before.done,
        })
    }

    fn reading(&self) -> anyhow::Result<Reading> {
        let (_, of_those_who_left) = core_seconds(process::id()).context("no /proc")?;
        let mut cores = of_those_who_left;
        for worker in &self.fleet {
            cores += core_seconds(worker.id()).context("a worker is gone")?.0;
        }
        let status = self.status()?;
        Ok(Reading {
            at: Instant::now(),
            core_seconds: cores,
            kept: kept(&self.dir.path().join("data"))?,
            done: status["fraction_done"].as_f64().context("fraction_done")?,
        })
    }

    fn status(&self) -> anyhow::Result<Value> {
        let output = Command::new(&binaries().queensctl)
            .args(["--coordinator", &self.url, "status", "--json"])
            .output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Nothing was lost: no attempt failed so often that a task was set aside, nothing contradicts, and
    /// what is on the disk is whole.
    fn end(self) -> anyhow::Result<()> {
        let status = self.status()?;
        let nothing = |pointer: &str| {
            let value = status.pointer(pointer).and_then(Value::as_u64);
            value.with_context(|| format!("{pointer} of the status"))
        };
        let (parked, conflicts) = (nothing("/tasks/parked")?, nothing("/rechecks/conflicts")?);
        drop(self.fleet);
        self.coordinator.signal("TERM");
        self.coordinator.end();
        let mut verify = Command::new(&binaries().queensctl);
        verify.arg("verify").arg(self.dir.path().join("data"));
        let verified = Process::run("queensctl verify", &mut verify);
        println!(
            "{parked} tasks set aside, {conflicts} contradictions; verify: {}",
            verified.stdout
        );
        ensure!(
            (parked, conflicts, verified.code) == (0, 0, Some(0)),
            "something was lost: {verified:#?}"
        );
        Ok(())
    }
}

/// What all counts took together that are in the journal.
fn kept(data: &Path) -> anyhow::Result<Kept> {
    let mut kept = Kept::default();
    for path in journals(data)? {
        for line in fs::read_to_string(path)?.lines() {
            // The last one may be half written.
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let seconds = line["duration_us"].as_f64().unwrap_or(0.0) / 1e6;
            match line["kind"].as_str() {
                Some("accepted") => kept.firsts += seconds,
                Some("confirmed") => kept.seconds += seconds,
                _ => {}
            }
        }
    }
    Ok(kept)
}

fn journals(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(journals(&path)?);
        } else if path.extension().is_some_and(|end| end == "jsonl") {
            found.push(path);
        }
    }
    Ok(found)
}
