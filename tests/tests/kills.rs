//! `kill -9` of real processes, again and again over one run: the total is exact, and every count
//! that was acknowledged is in the journal once.
//!
//! QUEENS_KILLS says how many kills of the coordinator, and as many of workers: five in the usual
//! suite, ten in CI, 200 by `just kills`.

use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    time::Instant,
};

use proto::v1::{Acknowledgement, Status, Verdict};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng, seq::SliceRandom as _};
use serde_json::Value;
use tests::{
    cluster::{Cluster, result},
    process::Process,
    recorder::Recorder,
};

/// What is counted: long enough for its kills, however fast the machine is.
struct Board {
    run: [&'static str; 8],
    solutions: &'static str,
    tasks: u64,
}

impl Board {
    fn for_kills(kills: usize) -> Self {
        // The rest of a run is counted by a fast worker at its end.
        let (n, cost, solutions, tasks) = match kills {
            0..=20 => ("18", "2000", "666090624", 5_000),
            _ => ("19", "4500", "4968057848", 20_000),
        };
        let prefixes = ["--method", "rows", "--prefix", "first-rows"];
        let [method, rows, prefix, first_rows] = prefixes;
        Self {
            run: [
                "--n",
                n,
                method,
                rows,
                prefix,
                first_rows,
                "--task-cost",
                cost,
            ],
            solutions,
            tasks,
        }
    }
}

/// Workers that are killed: two behind the recorder, one at the coordinator itself.
const VICTIMS: [&str; 3] = ["first", "second", "third"];

struct Scene {
    cluster: Cluster,
    recorder: Recorder,
    coordinator: Option<Process>,
    workers: Vec<Option<Process>>,
    /// Whole lines of the journal when something was killed last.
    journal: String,
    done: u64,
}

impl Scene {
    fn worker(&self, victim: usize) -> Process {
        let url = match victim {
            2 => self.cluster.url(),
            _ => self.recorder.url.clone(),
        };
        self.cluster.worker_at(&url, VICTIMS[victim], &[])
    }

    /// Every record on the disk; what was there at the last kill is there still, as it was.
    fn check_journal(&mut self) {
        let journal = journal(&self.cluster);
        assert!(journal.starts_with(&self.journal), "lines are gone");
        self.journal = journal;
    }

    async fn kill_coordinator(&mut self) {
        let done = self.done;
        let status = self.cluster.status(|status| status.tasks_done > done).await;
        kill(self.coordinator.take().expect("it runs"));
        self.check_journal();
        self.coordinator = Some(self.cluster.coordinator());
        let after = self.cluster.status(|_| true).await;
        assert!(after.tasks_done >= status.tasks_done, "{after:#?}");
        assert_eq!(after.run.unwrap().run, status.run.unwrap().run);
        self.done = after.tasks_done;
    }

    /// Kills a worker that holds tasks.
    async fn kill_worker(&mut self, victim: usize) {
        let name = VICTIMS[victim];
        let counts = |status: &Status| {
            let mut workers = status.workers.iter();
            workers.any(|worker| worker.name == name && worker.leases > 0)
        };
        self.cluster.status(counts).await;
        kill(self.workers[victim].take().expect("it runs"));
        self.check_journal();
        self.workers[victim] = Some(self.worker(victim));
    }
}

/// Kills a process that must not have come to its end.
fn kill(process: Process) {
    let end = process.kill();
    assert_eq!(end.code, None, "it ended before it was killed: {end:#?}");
    assert!(!end.stderr.contains("panicked"), "{end:#?}");
}

/// The whole lines of a run's journal.
fn journal(cluster: &Cluster) -> String {
    let mut files = cluster.data_files(".jsonl");
    files.retain(|file| file.to_string_lossy().contains("/journal."));
    // Sealed segments come first: their numbers sort before the letters of the last one.
    let read = |file| fs::read_to_string(file).expect("a journal is text");
    let mut text: String = files.iter().map(read).collect();
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    text
}

/// Every task has one accepted count, and what was acknowledged is there once.
fn check_records(journal: &str, acknowledged: &[Acknowledgement], tasks: u64) {
    let mut accepted = BTreeMap::<u64, Vec<u64>>::new();
    for line in journal.lines() {
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        assert_ne!(line["kind"], "quarantined", "{line}");
        if line["kind"] == "accepted" {
            let number = |field: &str| line[field].as_u64().expect("a number");
            accepted
                .entry(number("task"))
                .or_default()
                .push(number("epoch"));
        }
    }
    assert_eq!(accepted.len() as u64, tasks, "every task has a record");
    for (task, epochs) in &accepted {
        assert_eq!(epochs.len(), 1, "task {task} was accepted once");
    }
    let mut verdicts = HashMap::<Verdict, u64>::new();
    for acknowledgement in acknowledged {
        let task = acknowledgement.task.as_ref().expect("of a task").task;
        *verdicts.entry(acknowledgement.verdict()).or_default() += 1;
        match acknowledgement.verdict() {
            Verdict::Accepted => assert_eq!(accepted[&task], [acknowledgement.epoch]),
            Verdict::Duplicate => assert!(accepted.contains_key(&task), "{acknowledgement:?}"),
            other => panic!("{other:?} of an honest count: {acknowledgement:?}"),
        }
    }
    assert!(verdicts[&Verdict::Accepted] > 0, "some were seen");
    println!(
        "acknowledgements seen: {verdicts:?}; journal lines: {}",
        journal.lines().count()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_processes_are_killed_again_and_again() {
    let kills = env::var("QUEENS_KILLS").map_or(5, |kills| kills.parse().expect("a number"));
    let board = Board::for_kills(kills);
    let began = Instant::now();
    let cluster = Cluster::new(&board.run);
    let recorder = Recorder::before(&cluster.url()).await;
    let coordinator = Some(cluster.coordinator());
    let mut scene = Scene {
        cluster,
        recorder,
        coordinator,
        workers: Vec::new(),
        journal: String::new(),
        done: 0,
    };
    scene.workers = (0..VICTIMS.len())
        .map(|victim| Some(scene.worker(victim)))
        .collect();

    // In an order that stays the same: true is the coordinator.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut order: Vec<_> = [true, false].repeat(kills);
    order.shuffle(&mut rng);
    for (number, coordinator) in order.into_iter().enumerate() {
        match coordinator {
            true => scene.kill_coordinator().await,
            false => scene.kill_worker(rng.random_range(0..VICTIMS.len())).await,
        }
        if number % 50 == 49 {
            let (kills, seconds) = (number + 1, began.elapsed().as_secs());
            println!("{kills} kills, {} tasks done, {seconds} s", scene.done);
        }
    }

    // To the end in peace, and quickly.
    let quick = scene.cluster.quick_worker(&scene.recorder.url, "quick");
    let done = |status: &Status| status.tasks_done * 100 / status.tasks_total;
    let mut percent = 0;
    while percent < 99 {
        percent = done(&scene.cluster.status(|status| done(status) > percent).await);
    }
    let coordinator = scene.coordinator.take().expect("it runs");
    let result = result(&coordinator.end());
    drop(quick);
    assert_eq!(result["solutions"], board.solutions);
    assert_eq!(result["known"], "matches");
    let tasks = result["tasks"].as_u64().expect("a number");
    assert!(tasks >= board.tasks, "{tasks} tasks");
    let verified = scene.cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    scene.check_journal();
    check_records(&scene.journal, &scene.recorder.acknowledged(), tasks);
    println!(
        "{kills} kills of the coordinator and {kills} of workers over {tasks} tasks in {} s: exact",
        began.elapsed().as_secs()
    );
    println!("{}", verified.stdout);
}
