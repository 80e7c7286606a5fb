//! Real processes that die: whatever is killed, torn or lost, the total is exact.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use proto::v1::Status;
use tests::{
    binaries::binaries,
    cluster::{Cluster, by_rows, result},
    load::peak_bytes,
    process::Process,
};

/// A run of some seconds of one core, in tasks of some milliseconds.
const RUN: [&str; 8] = by_rows("16", "10000");

const SOLUTIONS: &str = "14772512";
const UNIQUE: &str = "1846955";

/// Well under way, and far from done.
fn under_way(status: &Status) -> bool {
    status.tasks_done * 20 > status.tasks_total
}

/// Kills a process that must not have come to its end.
fn kill_midway(process: Process) {
    let end = process.kill();
    assert_eq!(end.code, None, "it ended before it was killed: {end:#?}");
}

/// The coordinator's result is exact, and its data directory proves it.
fn check(cluster: &Cluster, coordinator: Process) {
    let result = result(&coordinator.end());
    assert_eq!(result["solutions"], SOLUTIONS);
    assert_eq!(result["unique"], UNIQUE);
    assert_eq!(result["known"], "matches");
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
}

/// It ended by itself, because nothing was left to do.
fn check_idle_end(worker: Process) {
    let end = worker.end();
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stderr.contains("every run is over"), "{end:#?}");
}

#[test]
fn workers_end_with_their_run() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let idle = ["--idle-timeout", "1s"];
    let workers = ["first", "second", "third"].map(|name| cluster.worker_with(name, &idle));
    check(&cluster, coordinator);
    workers.into_iter().for_each(check_idle_end);
}

#[tokio::test]
async fn a_worker_outlasts_a_coordinator_that_is_away_and_ends_with_the_run() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker_with("only", &["--idle-timeout", "1s"]);
    cluster.status(under_way).await;
    kill_midway(coordinator);
    // Away for longer than the timeout, most of the time.
    worker.stderr_line("attempt 5");
    let coordinator = cluster.coordinator();
    check(&cluster, coordinator);
    check_idle_end(worker);
}

#[tokio::test]
async fn a_worker_killed_in_the_middle_of_a_task() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let victim = cluster.worker("victim");
    let _others = [cluster.worker("second"), cluster.worker("third")];
    let holds_leases = |status: &Status| {
        let victim = status.workers.iter().find(|worker| worker.name == "victim");
        under_way(status) && victim.is_some_and(|victim| victim.leases > 0 && victim.tasks_done > 0)
    };
    cluster.status(holds_leases).await;
    kill_midway(victim);
    check(&cluster, coordinator);
}

#[tokio::test]
async fn a_coordinator_killed_in_the_middle_of_a_run() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let _workers = ["first", "second", "third"].map(|name| cluster.worker(name));
    let before = cluster.status(under_way).await;
    kill_midway(coordinator);
    let coordinator = cluster.coordinator();
    // What was acknowledged before is still there.
    let after = cluster.status(|_| true).await;
    assert!(after.tasks_done >= before.tasks_done, "{after:#?}");
    assert_eq!(after.run.unwrap().run, before.run.unwrap().run);
    check(&cluster, coordinator);
}

#[tokio::test]
async fn workers_that_start_before_their_coordinator() {
    let cluster = Cluster::new(&RUN);
    let workers = ["first", "second"].map(|name| cluster.worker(name));
    for worker in &workers {
        worker.stderr_line("cannot be reached");
    }
    check(&cluster, cluster.coordinator());
}

#[tokio::test]
async fn a_coordinator_away_for_longer_than_a_lease() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let workers = ["first", "second"].map(|name| cluster.worker(name));
    cluster.status(under_way).await;
    coordinator.signal("TERM");
    let end = coordinator.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
    assert!(end.stderr.contains("the same command resumes"), "{end:#?}");
    for worker in &workers {
        worker.stderr_line("cannot be reached");
    }
    // Every lease ends while nobody is there to renew it.
    tokio::time::sleep(std::time::Duration::from_millis(1600)).await;
    check(&cluster, cluster.coordinator());
}

#[tokio::test]
async fn a_journal_torn_in_its_last_line() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let _workers = ["first", "second"].map(|name| cluster.worker(name));
    cluster.status(under_way).await;
    kill_midway(coordinator);
    let journals = cluster.data_files("journal.jsonl");
    assert_eq!(journals.len(), 1, "{journals:?}");
    let journal = fs::read(&journals[0]).unwrap();
    let whole = journal.iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    let line = journal[..whole]
        .split(|&byte| byte == b'\n')
        .rev()
        .nth(1)
        .unwrap();
    // What a power cut leaves of a line that nobody was told of.
    let mut file = OpenOptions::new().write(true).open(&journals[0]).unwrap();
    file.set_len(whole as u64).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    file.write_all(&line[..line.len() / 2]).unwrap();
    drop(file);
    check(&cluster, cluster.coordinator());
}

#[tokio::test]
async fn a_database_that_is_gone() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let _workers = ["first", "second"].map(|name| cluster.worker(name));
    let before = cluster.status(under_way).await;
    kill_midway(coordinator);
    fs::remove_dir_all(cluster.data_dir().join("db")).unwrap();
    let coordinator = cluster.coordinator();
    let after = cluster.status(|_| true).await;
    assert!(after.tasks_done >= before.tasks_done, "{after:#?}");
    check(&cluster, coordinator);
}

#[tokio::test]
async fn a_completed_run_says_its_result_again_and_a_changed_digit_is_found() {
    let cluster = Cluster::new(&["--n", "12", "--task-cost", "100"]);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    let first = result(&coordinator.end());
    drop(worker);
    let again = result(&cluster.coordinator().end());
    assert_eq!(again, first);
    assert_eq!(first["solutions"], "14200");

    let journal = &cluster.data_files("journal.jsonl")[0];
    let text = fs::read_to_string(journal).unwrap();
    let place = text.find("\"count\":").expect("records have counts");
    let place = place
        + text[place..]
            .find(|c: char| c.is_ascii_digit())
            .expect("digits");
    let other = if &text[place..=place] == "9" {
        "8"
    } else {
        "9"
    };
    let changed = format!("{}{other}{}", &text[..place], &text[place + 1..]);
    fs::write(journal, changed).unwrap();
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(3), "{verified:#?}");
    assert!(
        verified.stderr.contains("journal.jsonl, line 1:"),
        "{verified:#?}"
    );
}

/// Batch systems repeat SIGTERM, to the shell, to the processes and at the end of a grace period: the
/// drain goes on, and Ctrl-C ends it.
#[tokio::test]
async fn a_worker_that_is_told_to_stop_again_drains_on() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let workers = ["patient", "hurried"].map(|name| cluster.worker_with(name, &[]));
    cluster.status(under_way).await;
    // Nobody answers, so that no drain is over before the signals have come.
    coordinator.signal("STOP");
    for worker in &workers {
        worker.signal("TERM");
        worker.stderr_line("stopping with");
        // Further apart than signals that are taken for one.
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(200));
            worker.signal("TERM");
        }
    }
    let [patient, hurried] = workers;
    // One that comes right after a TERM is taken for it, on a busy machine perhaps the second, too.
    for _ in 0..5 {
        hurried.signal("INT");
        thread::sleep(Duration::from_millis(400));
    }
    let end = hurried.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
    coordinator.signal("CONT");
    let end = patient.end();
    assert_eq!(end.code, Some(0), "{end:#?}");
    let last = cluster.worker_with("last", &["--idle-timeout", "1s"]);
    check(&cluster, coordinator);
    check_idle_end(last);
}

#[test]
fn threads_that_prove_themselves_take_little_beside_the_memory_that_is_given() {
    let cluster = Cluster::new(&["--n", "8"]);
    let _coordinator = cluster.serving();
    let mut command = Command::new(&binaries().worker);
    command
        .args(["--coordinator", &cluster.url(), "--threads", "8"])
        .args(["--memory", "64MiB", "--spool"])
        .arg(cluster.data_dir().with_file_name("spool"))
        .env("RUST_LOG", "debug")
        .stderr(Stdio::piped());
    // Not by the usual way, which leaves RUST_LOG out.
    let mut worker = command.spawn().unwrap();
    let lines = BufReader::new(worker.stderr.take().unwrap()).lines();
    let proven = lines
        .map(Result::unwrap)
        .filter(|line| line.contains("proved itself"));
    assert_eq!(proven.take(8).count(), 8);
    let peak = peak_bytes(worker.id());
    worker.kill().unwrap();
    worker.wait().unwrap();
    let Some(peak) = peak else {
        eprintln!("!! NOT TESTED: what a worker takes while it proves itself (no /proc here)");
        return;
    };
    // What it was given, one thread's proof at a time, and the program itself.
    assert!(peak < (64 + 48 + 48) << 20, "{} MiB", peak >> 20);
}
