//! Packages: tasks in a file, counted without a coordinator by processes that are killed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use proto::v1::WorkerState;
use tests::{
    cluster::{Cluster, SLOW, by_rows, journal, named},
    process::{End, Process, queensctl, wait_until, worker},
};

/// A run of some seconds of one core, in tasks of some milliseconds.
const RUN: [&str; 8] = by_rows("16", "10000");
const TOTAL: &str = "14772512";

/// Returns a command that makes two calls. A short lease could end between them, and the package with it.
fn checkout(cluster: &Cluster, more: &[&str]) -> Command {
    let mut command = worker(&["checkout"]);
    command.arg("-o").arg(cluster.path("lab.package")).args(cluster.connection()).args(more);
    command
}

fn count(cluster: &Cluster, more: &[&str]) -> Command {
    let mut command = worker(&["run"]);
    command.arg(cluster.path("lab.package")).args(SLOW).args(more);
    command
}

fn submit(cluster: &Cluster, files: &[&Path], more: &[&str]) -> End {
    let mut command = worker(&["submit"]);
    Process::run(command.args(files).args(more).args(cluster.connection()))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn finished(path: &Path) -> usize {
    text(path).matches("{\"finished\":").count()
}

/// Starts to count a part, kills the process midway, and counts the rest of the part.
fn count_killed(cluster: &Cluster, part: &str, results: &Path) {
    let progress = cluster.path("progress");
    let more = ["--part", part, "--progress", progress.to_str().unwrap()];
    // It is killed before it ends.
    let killed = Process::start(count(cluster, &more)).slowed();
    wait_until("some tasks are counted", || finished(results) >= 3);
    killed.kill().killed();
    let before = finished(results);
    // A crash may leave a part of a line.
    let torn = text(results) + &text(results)[..50];
    fs::write(results, torn).unwrap();
    Process::run(count(cluster, &more)).ok().prints(&[" tasks counted"]);
    assert!(before < finished(results));
    assert_eq!(text(&progress).trim(), "1.000000");
}

#[tokio::test]
async fn a_package_in_parts_that_are_killed_and_submitted_twice_is_exact() {
    // After half a minute the referee would count what only the package keeps from the run's end.
    let cluster = Cluster::new(&[&RUN[..], &["--referee", "off"]].concat());
    let coordinator = cluster.patient_coordinator();
    Process::run(checkout(&cluster, &[])).ok().prints(&["promised return", "worker run"]);
    let away = |status: &proto::v1::Status| {
        named(status, "lab").is_some_and(|lab| lab.state() == WorkerState::Away)
    };
    let tasks = usize::try_from(cluster.status(away).await.tasks_total).unwrap();
    cluster.queensctl(&["workers"]).ok().prints(&["away until 2", " tasks"]);
    cluster.queensctl(&["status"]).ok().prints(&["in packages, and no worker is connected"]);
    let parts = ["1/3", "2/3", "3/3"];
    let results = parts.map(|part| {
        let name = format!("lab.{}.results", part.replace('/', "-of-"));
        let path = cluster.path(&name);
        count_killed(&cluster, part, &path);
        path
    });
    assert_eq!(results.iter().map(|path| finished(path)).sum::<usize>(), tasks);

    // Another coordinator, a missing secret and a damaged line: nothing is lost.
    let other = Cluster::new(&["--n", "8"]);
    let other_coordinator = other.serving();
    let refused = submit(&other, &[&results[0]], &[]).code(1);
    assert!(refused.error().contains("results for another coordinator"), "{refused:#?}");
    drop(other_coordinator);
    let (secret, moved) = (cluster.path("lab.package.secret"), cluster.path("moved"));
    fs::rename(&secret, &moved).unwrap();
    let refused = submit(&cluster, &[&results[0]], &[]).code(1);
    assert!(refused.error().contains("lab.package.secret"), "{refused:#?}");
    fs::rename(&moved, &secret).unwrap();
    let create = ["token", "create", "--json", "--role", "worker", "--name", "other"];
    let token = cluster.queensctl(&create).json();
    let mut by_other = worker(&["submit", "--join", token["join"].as_str().unwrap()]);
    let refused = Process::run(by_other.arg(&results[0])).code(1);
    assert!(refused.error().contains("did not issue this identity to this token"), "{refused:#?}");
    let damaged = cluster.path("damaged.results");
    let digit = text(&results[1]).replacen("\"count\":\"", "\"count\":\"1", 1);
    fs::write(&damaged, digit).unwrap();
    let first = submit(&cluster, &[&damaged], &["--keep"]).ok();
    first
        .logs(&["damaged.results: line ", " is damaged and was skipped"])
        .prints(&["other tasks kept"]);
    cluster.status(away).await;

    let [one, two, three] = results.each_ref().map(PathBuf::as_path);
    submit(&cluster, &[three, one], &["--keep"]).ok().prints(&["1 other task kept"]);
    let last = submit(&cluster, &[two, three, one], &[]).ok();
    last.prints(&["1 result accepted", &format!("{} known", tasks - 1)]);
    // Rechecks need a worker.
    let _worker = cluster.fast_worker(&cluster.connection());
    cluster.check_exact(coordinator, TOTAL);
    let accepted = journal(&cluster.data_dir()).into_iter();
    let accepted = accepted.filter(|line| line["kind"] == "accepted");
    let accepted: Vec<_> = accepted.map(|line| line["task"].as_u64().unwrap()).collect();
    assert_eq!(accepted.len(), tasks);
    assert_eq!(accepted.into_iter().collect::<BTreeSet<_>>().len(), tasks);
}

#[tokio::test]
async fn a_run_ends_without_a_package_that_returns_too_late() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.start(&[]);
    Process::run(checkout(&cluster, &["--tasks", "9", "--expires", "1s"])).ok();
    let results = cluster.path("lab.results");
    let first = Process::start(count(&cluster, &["--late"]));
    wait_until("the results are locked", || finished(&results) > 0);
    first.end().ok().prints(&["9 of 9 tasks counted"]);
    wait_until("the promised return passes", || {
        Process::run(count(&cluster, &[])).stderr.contains("its promised return was")
    });
    Process::run(count(&cluster, &["--late"])).ok().prints(&["9 of 9 tasks counted"]);
    let package = Process::run(checkout(&cluster, &["--tasks", "9"]));
    package.refused(1, &["the file exists"]);
    for file in ["lab.package", "lab.package.secret"] {
        fs::rename(cluster.path(file), cluster.path(&format!("old-{file}"))).unwrap();
    }
    Process::run(checkout(&cluster, &["--tasks", "100"])).ok();
    let _worker = cluster.fast_worker(&cluster.connection());
    cluster.status(|status| status.result.is_some()).await;
    cluster.queensctl(&["wait", "last"]).ok();
    // The counts of the first package are rechecks by now.
    let old = cluster.path("old-lab.package");
    let late = ["--package", old.to_str().unwrap()];
    submit(&cluster, &[&results], &late).ok().prints(&["9 known"]);
    coordinator.terminate();
    Process::run(queensctl(&["verify"]).arg(cluster.data_dir())).ok().prints(&[TOTAL]);
}

#[tokio::test]
async fn a_token_limits_its_packages_and_a_revoked_one_is_not_held_again() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.start(&[]);
    let token = ["token", "create", "--json", "--role", "worker", "--name", "club"];
    let token = cluster.queensctl(&[&token[..], &["--packages", "1d,5"]].concat()).json();
    cluster.queensctl(&["token", "list"]).ok().prints(&["worker, packages of 1 d 0 h and 5 tasks"]);
    let join = token["join"].as_str().unwrap();
    let checkout = |more: &[&str]| {
        let mut command = worker(&["checkout", "last", "--join", join]);
        Process::run(command.arg("-o").arg(cluster.path("lab.package")).args(more))
    };
    checkout(&[]).refused(1, &["packages of this token return within 1 d 0 h"]);
    let five = checkout(&["--expires", "1d"]).ok();
    five.prints(&["5 tasks of run"]).logs(&["packages of this token hold at most 5 tasks"]);
    let (results, part) = (cluster.path("lab.1-of-5.results"), ["--part", "1/5"]);
    Process::run(count(&cluster, &part)).ok().prints(&["1 of 1 task counted"]);

    cluster.queensctl(&["workers", "drain", "lab"]).ok();
    let submit = || {
        let mut command = worker(&["submit", "--keep", "--join", join]);
        let end = Process::run(command.arg(&results)).ok();
        end.prints(&["4 other tasks done or given to others"])
    };
    submit().prints(&["1 result accepted"]);
    coordinator.kill().killed();
    let _coordinator = cluster.start(&[]);
    submit().prints(&["1 known"]);
    let status = cluster.status(|_| true).await;
    assert_eq!((status.worker_totals.unwrap().away, status.tasks_done), (0, 1));
}
