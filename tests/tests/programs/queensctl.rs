//! `queensctl` beside a coordinator, and without one.

use std::{fs, io::Write as _, net::TcpListener, process::Command, thread};

use serde_json::Value;
use tests::{
    binaries::binaries,
    cluster::{Cluster, result},
    process::{End, Process},
};

use super::{check_refused, keys, queensctl};

#[test]
fn queensctl_shows_and_steers() {
    let cluster = Cluster::new(&["--n", "18", "--task-cost", "100000"]);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    worker.stderr_line("only");

    let end = cluster.queensctl(&["status", "--json"]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    let status: Value = serde_json::from_str(&end.stdout).unwrap();
    for name in [
        "run",
        "n",
        "method",
        "state",
        "tasks",
        "solutions_so_far",
        "estimate",
        "eta_seconds",
        "solutions_per_second",
        "workers",
        "rechecks",
    ] {
        assert!(keys(&status).contains(&name), "{name} in {status}");
    }
    assert_eq!(
        keys(&status["tasks"]),
        ["total", "done", "leased", "pending", "parked"]
    );
    assert_eq!(
        (&status["n"], &status["state"]),
        (&18.into(), &"running".into())
    );
    assert!(status["solutions_so_far"].is_string(), "{status}");
    let run = status["run"].as_str().unwrap();

    let expect = |arguments: &[&str], parts: &[&str]| {
        let end = cluster.queensctl(arguments);
        assert_eq!(end.code, Some(0), "{end:#?}");
        for part in parts {
            assert!(end.stdout.contains(part), "'{part}' in {end:#?}");
        }
    };
    expect(&["status"], &[run, "N = 18", "tasks:", "speed:"]);
    expect(&["runs"], &["RUN", run, "running"]);
    expect(&["workers"], &["NAME"]);
    expect(&["pause", run], &[run, "paused"]);
    expect(&["resume", run], &[run, "running"]);
    expect(&["retry", run], &[run, "running"]);
    expect(
        &["submit", "--n", "8", "--priority", "-2"],
        &["N = 8", "priority -2"],
    );
    expect(&["export", run], &[]);
    check_refused(
        &cluster.queensctl(&["pause", "00000000deadbeef"]),
        1,
        &["00000000deadbeef"],
    );
    expect(&["cancel", run], &[run, "cancelled"]);
    // Who waits for a run that is given up waits in vain.
    let end = coordinator.end();
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains("was cancelled"), "{end:#?}");
    check_refused(&coordinator_again(&cluster), 1, &["cancelled", "--again"]);
}

fn coordinator_again(cluster: &Cluster) -> End {
    Process::run("the coordinator", &mut cluster.coordinator_command())
}

/// A server that is no coordinator: it answers every connection with these bytes and keeps it open.
fn stranger(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            connection.write_all(answer).unwrap();
            open.push(connection);
        }
    });
    format!("http://{address}")
}

#[test]
fn queensctl_waits_for_nobody_for_ever() {
    let ask = |url: &str, command: &[&str]| {
        queensctl(&[&["--coordinator", url, "--timeout", "1s"], command].concat())
    };
    let silent = stranger(b"");
    let ask_nobody = |command: &[&str]| {
        let arguments = [&["--coordinator", &silent, "--timeout", "1s"], command].concat();
        let mut command = Command::new(&binaries().queensctl);
        Process::start("queensctl", command.args(arguments))
    };
    let asking = [
        &["runs"][..],
        &["workers"],
        &["status"],
        &["status", "--watch"],
        &["submit", "--n", "8"],
        &["pause", "last"],
        &["wait", "last"],
        &["export", "0123456789abcdef"],
    ]
    .map(ask_nobody);
    for process in asking {
        let parts = [silent.as_str(), "does not answer within 1s", "--timeout"];
        check_refused(&process.end(), 1, &parts);
    }
    let http = stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let parts = [http.as_str(), "not as a coordinator does", "port 7171"];
    check_refused(&ask(&http, &["runs"]), 1, &parts);
    let nowhere = ask("http://nowhere.invalid:7171", &["runs", "--insecure"]);
    check_refused(&nowhere, 1, &["no host 'nowhere.invalid'"]);
}

#[test]
fn wait_ends_with_the_run_and_its_outcome() {
    let cluster = Cluster::new(&["--n", "14", "--prefix", "border", "--task-cost", "20000"]);
    // Without --exit-when-done it would serve on, and waiting would end all the same.
    let coordinator = cluster.coordinator();
    let mut command = Command::new(&binaries().queensctl);
    let wait = command.args(["--coordinator", &cluster.url(), "wait", "last", "--json"]);
    let waiting = Process::start("queensctl", wait);
    waiting.stderr_line("waiting for run");
    let worker = cluster.worker("only");
    let end = waiting.end();
    assert_eq!(end.code, Some(0), "{end:#?}");
    let status: Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!(status["result"]["solutions"], "365596");
    drop(worker);
    assert_eq!(result(&coordinator.end())["solutions"], "365596");
}

#[test]
fn submitting_a_board_twice_is_said_and_a_key_repeats() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _coordinator = cluster.coordinator();
    let submit = |arguments: &[&str]| cluster.queensctl(&[&["submit"], arguments].concat());
    check_refused(
        &submit(&["--n", "16"]),
        1,
        &["N = 16", "method frames", "running", "--again"],
    );
    let again = submit(&["--n", "16", "--again"]);
    assert_eq!(again.code, Some(0), "{again:#?}");
    let first = submit(&["--n", "9", "--key", "nightly"]);
    assert_eq!(first.code, Some(0), "{first:#?}");
    let repeated = submit(&["--n", "9", "--key", "nightly"]);
    assert_eq!((repeated.code, repeated.stdout), (Some(0), first.stdout));
    check_refused(
        &submit(&["--n", "10", "--key", "nightly"]),
        1,
        &["'nightly'"],
    );
    check_refused(&submit(&["--n", "10", "--key", "a b"]), 2, &["a b"]);
    assert_eq!(cluster.queensctl(&["runs"]).stdout.lines().count(), 1 + 3);
}

#[test]
fn waiting_for_a_cancelled_run_fails() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _coordinator = cluster.coordinator();
    let mut command = Command::new(&binaries().queensctl);
    let wait = command.args(["--coordinator", &cluster.url(), "wait", "last"]);
    let waiting = Process::start("queensctl", wait);
    waiting.stderr_line("waiting for run");
    assert_eq!(cluster.queensctl(&["cancel", "last"]).code, Some(0));
    check_refused(&waiting.end(), 1, &["was cancelled"]);
}

#[test]
fn interrupting_queensctl_is_told_by_its_exit_code() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _coordinator = cluster.coordinator();
    let mut command = Command::new(&binaries().queensctl);
    let wait = command.args(["--coordinator", &cluster.url(), "wait", "last"]);
    let waiting = Process::start("queensctl", wait);
    waiting.stderr_line("waiting for run");
    waiting.signal("INT");
    let end = waiting.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(130), ""), "{end:#?}");
}

#[test]
fn queensctl_without_a_coordinator_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let end = queensctl(&["--coordinator", &url, "status"]);
    check_refused(&end, 1, &["no coordinator answers", &url]);
    for (bad, parts) in [
        ("nonsense", ["nonsense", "http://HOST:PORT"]),
        ("ftp://127.0.0.1:1", ["ftp://", "http://HOST:PORT"]),
        ("http://", ["http://", "http://HOST:PORT"]),
        ("https://127.0.0.1:1", ["https://", "TLS"]),
        ("http://192.0.2.1:7171", ["another machine", "--insecure"]),
    ] {
        check_refused(&queensctl(&["--coordinator", bad, "runs"]), 2, &parts);
        // The same mistake ends the worker in the same way.
        let mut worker = Command::new(&binaries().worker);
        let end = Process::run("the worker", worker.args(["--coordinator", bad]));
        check_refused(&end, 2, &parts);
    }
    check_refused(&queensctl(&["pause", "xyz"]), 2, &["xyz", "hexadecimal"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // Whoever verifies wants to read something that is there.
    fs::write(dir.path().join("thesis.txt"), "text").unwrap();
    let none = dir.path().join("none");
    for (path, parts) in [
        (path, [path, "no data directory", "the coordinator names"]),
        (
            none.to_str().unwrap(),
            ["none", "cannot read", "check the path"],
        ),
    ] {
        let refused = queensctl(&["verify", path]);
        check_refused(&refused, 1, &parts);
        assert!(!refused.stderr.contains("start again"), "{refused:#?}");
        assert!(!refused.stderr.contains("new directory"), "{refused:#?}");
    }
}
