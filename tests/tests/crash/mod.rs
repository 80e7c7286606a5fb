//! Coordinators, workers, databases and disks that fail repeatedly during one run.
//! The total is exact, and every acknowledged count is in the journal once.
//! Each module names the variables that set the number of faults; `just` has recipes for long runs.

mod archive;
mod damage;
mod databases;

use std::{collections::BTreeMap, env, fs, time::Instant};

use proto::v1::{Acknowledgement, Status, Verdict};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng, seq::SliceRandom as _};
use serde_json::Value;
use tests::{
    cluster::{Cluster, by_rows, files, journal},
    process::Process,
    service::Recorder,
};

/// A board whose run outlasts the kills in it.
struct CountedBoard {
    run: [&'static str; 8],
    solutions: &'static str,
    tasks: u64,
}

const SMALL: CountedBoard =
    CountedBoard { run: by_rows("17", "270"), solutions: "95815104", tasks: 5_000 };
const LARGE: CountedBoard =
    CountedBoard { run: by_rows("18", "500"), solutions: "666090624", tasks: 20_000 };

fn number(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

/// Returns the epoch of each accepted task, and checks that each was accepted once.
fn accepted(journal: &[Value]) -> BTreeMap<u64, u64> {
    let mut accepted = BTreeMap::new();
    for line in journal {
        assert_ne!(line["kind"], "disputed", "{line}");
        if line["kind"] == "accepted" {
            let [task, epoch] = ["task", "epoch"].map(|key| line[key].as_u64().expect("a number"));
            assert_eq!(accepted.insert(task, epoch), None, "task {task} was accepted twice");
        }
    }
    accepted
}

/// Returns the task and the epoch of an acknowledged lease.
fn lease(acknowledgement: &Acknowledgement) -> (u64, u64) {
    let lease = acknowledgement.lease.as_ref().expect("a lease");
    (lease.task.as_ref().expect("a task").task, lease.epoch)
}

/// Checks that the journal contains all acknowledged counts, which are honest.
fn check_acknowledged(recorder: &Recorder, accepted: &BTreeMap<u64, u64>) {
    let (mut first, acknowledged) = (0, recorder.recorded());
    for (_, acknowledgement) in &acknowledged {
        let (task, epoch) = lease(acknowledgement);
        match acknowledgement.verdict() {
            Verdict::Accepted => {
                assert_eq!(accepted[&task], epoch);
                first += 1;
            }
            Verdict::Duplicate => assert!(accepted.contains_key(&task), "{acknowledgement:?}"),
            other => panic!("{other:?} of an honest count: {acknowledgement:?}"),
        }
    }
    assert!(first > 0, "nothing was acknowledged");
    println!("{} acknowledgements, {first} of first counts: 0 lost", acknowledged.len());
}

/// `kill -9` of real processes whose run is in a directory.
///
/// QUEENS_KILLS sets the number of kills of the coordinator, and of workers: five by default, ten in CI, 200
/// by `just kills`.
mod directory {
    use super::*;

    /// Workers that are killed; the third one connects without the recorder.
    const VICTIMS: [&str; 3] = ["first", "second", "third"];

    struct Scene {
        cluster: Cluster,
        recorder: Recorder,
        coordinator: Option<Process>,
        workers: Vec<Option<Process>>,
        /// Whole lines of the journal at the last kill.
        journal: String,
        done: u64,
    }

    impl Scene {
        fn worker(&self, victim: usize) -> Process {
            let connection = match victim {
                2 => self.cluster.connection(),
                _ => self.recorder.connection(),
            };
            self.cluster.worker_by(&connection, VICTIMS[victim], &[]).slowed()
        }

        /// Checks that everything that was in the journal at the last kill still is.
        fn check_journal(&mut self) {
            let mut files = files(&self.cluster.data_dir(), ".jsonl");
            files.retain(|file| file.to_string_lossy().contains("/journal."));
            // Sealed segments come first: their numbers sort before the letters of the last one.
            let read = |file| fs::read_to_string(file).expect("a journal is text");
            let mut journal: String = files.iter().map(read).collect();
            journal.truncate(journal.rfind('\n').map_or(0, |end| end + 1));
            assert!(journal.starts_with(&self.journal), "lines are gone");
            self.journal = journal;
        }

        async fn kill_coordinator(&mut self) {
            let done = self.done;
            let status = self.cluster.status(|status| status.tasks_done > done).await;
            self.coordinator.take().expect("a coordinator").kill().killed();
            self.check_journal();
            self.coordinator = Some(self.cluster.coordinator());
            let after = self.cluster.status(|_| true).await;
            assert!(after.tasks_done >= status.tasks_done, "{after:#?}");
            assert_eq!(after.run.unwrap().run, status.run.unwrap().run);
            self.done = after.tasks_done;
        }

        /// Kills a worker that holds tasks.
        async fn kill_worker(&mut self, victim: usize) {
            self.cluster.worker_status(VICTIMS[victim], |worker| worker.leases > 0).await;
            self.workers[victim].take().expect("a worker").kill().killed();
            self.check_journal();
            self.workers[victim] = Some(self.worker(victim));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_whose_processes_are_killed_repeatedly_is_exact() {
        let kills = number("QUEENS_KILLS", 5);
        let board = if kills > 20 { LARGE } else { SMALL };
        let began = Instant::now();
        let cluster = Cluster::new(&board.run);
        let recorder = Recorder::start(&cluster.data_dir()).await;
        let coordinator = Some(cluster.coordinator());
        let (workers, journal_text) = (Vec::new(), String::new());
        let mut scene =
            Scene { cluster, recorder, coordinator, workers, journal: journal_text, done: 0 };
        scene.workers = (0..VICTIMS.len()).map(|victim| Some(scene.worker(victim))).collect();

        // The order is the same in every run; `true` is the coordinator.
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut order: Vec<_> = [true, false].repeat(kills);
        order.shuffle(&mut rng);
        for (number, coordinator) in (1..).zip(order) {
            match coordinator {
                true => scene.kill_coordinator().await,
                false => scene.kill_worker(rng.random_range(0..VICTIMS.len())).await,
            }
            if number % 50 == 0 {
                let seconds = began.elapsed().as_secs();
                println!("{number} kills, {} tasks done, {seconds} s", scene.done);
            }
        }

        // The rest is counted quickly and without kills.
        let fast = scene.cluster.fast_worker(&scene.recorder.connection());
        let done = |status: &Status| status.tasks_done * 100 / status.tasks_total;
        let mut percent = 0;
        while percent < 99 {
            percent = done(&scene.cluster.status(|status| done(status) > percent).await);
        }
        let coordinator = scene.coordinator.take().expect("a coordinator");
        let result = scene.cluster.check_exact(coordinator, board.solutions);
        drop(fast);
        scene.check_journal();
        let tasks = result["tasks"].as_u64().expect("a number");
        let accepted = accepted(&journal(&scene.cluster.data_dir()));
        assert!(accepted.len() as u64 == tasks && tasks >= board.tasks, "{tasks} tasks");
        check_acknowledged(&scene.recorder, &accepted);
        println!(
            "{kills} kills of the coordinator and {kills} of workers over {tasks} tasks in {} s: exact",
            began.elapsed().as_secs()
        );
    }
}
