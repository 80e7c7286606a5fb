//! What the programs print and how they exit, for good input and for bad.

use std::{fs, net::TcpListener, process::Command};

use serde_json::Value;
use tests::{
    binaries::binaries,
    cluster::{Cluster, result},
    process::{End, Process},
};

fn coordinator(arguments: &[&str], dir: &tempfile::TempDir) -> End {
    let mut command = Command::new(&binaries().coordinator);
    command.args(arguments).current_dir(dir.path());
    Process::run("the coordinator", &mut command)
}

fn queensctl(arguments: &[&str]) -> End {
    Process::run(
        "queensctl",
        Command::new(&binaries().queensctl).args(arguments),
    )
}

/// Ended with this code and one error line that holds all of `parts`, and printed no result.
fn check_refused(end: &End, code: i32, parts: &[&str]) {
    assert_eq!(end.code, Some(code), "{end:#?}");
    assert_eq!(end.stdout, "", "{end:#?}");
    let errors: Vec<_> = end
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    let [error] = errors.as_slice() else {
        panic!("one line says what is wrong: {end:#?}");
    };
    for part in parts {
        assert!(error.contains(part), "'{part}' in: {error}");
    }
    assert!(!end.stderr.contains("panicked"), "{end:#?}");
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

#[test]
fn the_first_command_of_the_readme() {
    let dir = tempfile::tempdir().unwrap();
    let end = coordinator(&["--n", "16", "--local", "--listen", "127.0.0.1:0"], &dir);
    assert_eq!(end.code, Some(0), "{end:#?}");
    let [line] = end.stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("one line on stdout: {end:#?}");
    };
    for part in [
        "N = 16: 14,772,512 solutions",
        "1,846,955 unique",
        "1,846,189 asymmetric, 734 half-turn and 32 quarter-turn classes",
        "matches the known count",
    ] {
        assert!(line.contains(part), "'{part}' in: {line}");
    }
    assert!(dir.path().join("queens-data").is_dir());
}

#[test]
fn a_local_run_prints_one_json_object() {
    for (n, method, solutions, unique) in [
        ("1", "rows", "1", "1"),
        ("2", "rows", "0", "0"),
        ("9", "frames", "352", "46"),
        ("10", "frames", "724", "92"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let arguments = [
            "--n",
            n,
            "--method",
            method,
            "--local",
            "--json",
            "--listen",
            "127.0.0.1:0",
        ];
        let result = result(&coordinator(&arguments, &dir));
        let names = [
            "run",
            "n",
            "method",
            "solutions",
            "unique",
            "classes",
            "known",
            "tasks",
            "seconds",
        ];
        assert_eq!(keys(&result), names);
        assert_eq!(
            keys(&result["classes"]),
            ["asymmetric", "half_turn", "quarter_turn"]
        );
        assert_eq!(result["n"].to_string(), n);
        assert_eq!(result["method"], method);
        assert_eq!(result["solutions"], solutions);
        assert_eq!(result["unique"], unique);
        assert_eq!(result["known"], "matches");
    }
}

#[test]
fn bad_arguments_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    for n in ["0", "33", "-1", "abc", "", "8.0", "300"] {
        let n_given = format!("N is {n},");
        let parts = [n_given.as_str(), "1 to 32"];
        check_refused(&coordinator(&["--n", n], &dir), 2, &parts);
        check_refused(&queensctl(&["submit", "--n", n]), 2, &parts);
    }
    let cases: [(&[&str], &[&str]); 10] = [
        (
            &["--n", "8", "--method", "magic"],
            &["magic", "auto, rows, frames"],
        ),
        (
            &["--n", "8", "--prefix", "zig"],
            &["zig", "first-rows, border"],
        ),
        (
            &["--n", "8", "--method", "frames", "--prefix", "border"],
            &["--prefix", "frames"],
        ),
        (
            &["--n", "8", "--task-cost", "0"],
            &["task cost", "at least 1"],
        ),
        (
            &["--n", "32", "--task-cost", "1"],
            &["4000000", "larger task cost"],
        ),
        (
            &["--n", "8", "--local", "--kernel", "magic"],
            &["magic", "avx512"],
        ),
        (
            &["--n", "8", "--local", "--threads", "0"],
            &["'0'", "threads"],
        ),
        (
            &["--n", "8", "--local", "--memory", "lots"],
            &["lots", "8GiB"],
        ),
        (
            &["--listen", "0.0.0.0:7171"],
            &["0.0.0.0:7171", "--insecure"],
        ),
        (&["--listen", "nowhere"], &["nowhere", "HOST:PORT"]),
    ];
    for (arguments, parts) in cases {
        check_refused(&coordinator(arguments, &dir), 2, parts);
    }
    let foreign = if cfg!(target_arch = "x86_64") {
        "neon"
    } else {
        "avx2"
    };
    let arguments = ["--n", "8", "--local", "--kernel", foreign];
    check_refused(
        &coordinator(&arguments, &dir),
        2,
        &["lacks kernel", foreign, "scalar"],
    );
    for useless in [
        ["--method", "rows"],
        ["--task-cost", "5"],
        ["--threads", "2"],
        ["--kernel", "scalar"],
    ] {
        assert_eq!(
            coordinator(&useless, &dir).code,
            Some(2),
            "{useless:?} without its use"
        );
    }
    // Nothing of all that left a trace.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_port_in_use_is_said_and_touches_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let end = coordinator(&["--n", "8", "--listen", &address], &dir);
    check_refused(&end, 1, &[&address, "in use", "--listen"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn data_directories_that_cannot_be_used_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let local = ["--n", "8", "--local", "--listen", "127.0.0.1:0"];
    let with_dir = |data: &str, arguments: &[&str]| {
        let arguments = [arguments, &["--data-dir", data]].concat();
        coordinator(&arguments, &dir)
    };
    // A file is no directory, and nothing can be made below one.
    fs::write(dir.path().join("file"), "text").unwrap();
    check_refused(&with_dir("file", &local), 1, &["file", "directory"]);
    check_refused(&with_dir("file/below", &local), 1, &["file/below"]);
    // Somebody else's files.
    fs::create_dir(dir.path().join("foreign")).unwrap();
    fs::write(dir.path().join("foreign/thesis.txt"), "text").unwrap();
    check_refused(&with_dir("foreign", &local), 1, &["foreign", "thesis.txt"]);
    // Another run.
    assert_eq!(with_dir("eight", &local).code, Some(0));
    let nine = ["--n", "9", "--local", "--listen", "127.0.0.1:0"];
    let parts = ["eight", "N = 8", "N = 9", "--data-dir"];
    check_refused(&with_dir("eight", &nine), 1, &parts);
    let other_cost = [local.as_slice(), &["--task-cost", "3"]].concat();
    check_refused(&with_dir("eight", &other_cost), 1, &["task cost 3"]);
    // No run at all, and none asked for.
    let wait = ["--exit-when-done", "--listen", "127.0.0.1:0"];
    check_refused(&with_dir("nothing", &wait), 1, &["nothing", "--n"]);
}

#[test]
fn a_second_coordinator_on_one_data_directory_is_refused() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _first = cluster.coordinator();
    let dir = tempfile::tempdir().unwrap();
    let data = cluster.data_dir();
    let data = data.to_str().unwrap();
    let arguments = ["--n", "16", "--listen", "127.0.0.1:0", "--data-dir", data];
    check_refused(
        &coordinator(&arguments, &dir),
        1,
        &["in use by another process"],
    );
    // Reading is another matter.
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    assert!(
        verified
            .stdout
            .contains("a coordinator has the directory open"),
        "{verified:#?}"
    );
}

#[test]
fn an_interrupted_local_run_resumes() {
    let run = [
        "--n",
        "16",
        "--prefix",
        "first-rows",
        "--task-cost",
        "10000",
    ];
    let local = [
        "--local",
        "--threads",
        "1",
        "--kernel",
        "scalar",
        "--memory",
        "1GiB",
    ];
    let cluster = Cluster::new(&[run.as_slice(), &local].concat());
    let first = cluster.coordinator();
    first.stderr_line("'local'");
    first.signal("INT");
    let end = first.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
    assert!(end.stderr.contains("the same command resumes"), "{end:#?}");
    assert_eq!(
        result(&cluster.coordinator().end())["solutions"],
        "14772512"
    );
}

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
    check_refused(
        &coordinator_again(&cluster),
        1,
        &["cancelled", "--data-dir"],
    );
}

fn coordinator_again(cluster: &Cluster) -> End {
    Process::run("the coordinator", &mut cluster.coordinator_command())
}

#[test]
fn queensctl_without_a_coordinator_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let end = queensctl(&["--coordinator", &url, "status"]);
    check_refused(&end, 1, &["no coordinator answers", &url]);
    for bad in ["nonsense", "ftp://127.0.0.1:1", "http://"] {
        check_refused(
            &queensctl(&["--coordinator", bad, "runs"]),
            1,
            &[bad, "http://HOST:7171"],
        );
    }
    check_refused(&queensctl(&["pause", "xyz"]), 2, &["xyz", "hexadecimal"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    check_refused(&queensctl(&["verify", path]), 1, &[path]);
    check_refused(
        &queensctl(&["verify", "/does/not/exist"]),
        1,
        &["/does/not/exist"],
    );
}
