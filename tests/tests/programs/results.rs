//! What a run that is over prints, and whom it tells.

use std::{fs, process::Command};

use serde_json::Value;
use tests::{binaries::binaries, cluster::result};

use super::{coordinator, keys};

/// A program is told of the end of a run before the coordinator ends, and the log is JSON, one object a
/// line, that names calls.
#[test]
fn the_end_of_a_run_is_told_to_a_program_and_calls_are_logged_with_their_names() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let (program, out) = (dir.path().join("told"), dir.path().join("events"));
    let script = format!(
        "#!/bin/sh\necho \"$QUEENS_EVENT $QUEENS_EVENT_N\" >> {0}; cat >> {0}\n",
        out.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--n", "12", "--local", "--json", "--listen", "127.0.0.1:0"])
        .args(["--log-format", "json", "--on-event"])
        .arg(&program)
        .env("RUST_LOG", "debug")
        .current_dir(dir.path());
    // Not by the usual way, which leaves RUST_LOG out.
    let end = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8(end.stdout).unwrap(),
        String::from_utf8(end.stderr).unwrap(),
    );
    assert!(end.status.success(), "{stderr}");
    let told = fs::read_to_string(&out).unwrap();
    let (head, line) = told.split_once('\n').unwrap();
    assert_eq!(head, "completion 12");
    let event: Value = serde_json::from_str(line).unwrap();
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(event["result"], result);
    assert_eq!(
        (&event["kind"], &event["run"]),
        (&Value::from("complete"), &result["run"])
    );
    // Worker and coordinator are one process here: each call is there from both sides.
    let logged: Vec<Value> = stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let answered = |line: &&Value| line["message"] == "answered";
    let mut calls: Vec<_> = logged
        .iter()
        .filter(answered)
        .map(|line| line["span"]["id"].as_str().unwrap().to_owned())
        .collect();
    let all = calls.len();
    calls.sort();
    calls.dedup();
    assert!(
        all > 0 && all == 2 * calls.len(),
        "{all} lines of {} calls",
        calls.len()
    );
}

#[test]
fn a_program_for_events_that_fails_is_told_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let none = [
        "--n",
        "8",
        "--local",
        "--on-event",
        "/does/not/exist",
        "--listen",
        "127.0.0.1:0",
    ];
    let end = coordinator(&none, &dir);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains("N = 8: 92 solutions"), "{end:#?}");
    assert!(
        end.stderr
            .contains("--on-event: /does/not/exist failed at completion"),
        "{end:#?}"
    );
}

#[test]
fn the_first_command_of_the_readme() {
    let dir = tempfile::tempdir().unwrap();
    let end = coordinator(&["--n", "16", "--local", "--listen", "127.0.0.1:0"], &dir);
    assert_eq!(end.code, Some(0), "{end:#?}");
    for line in end.stdout.lines() {
        assert!(line.chars().count() <= 80, "a terminal breaks: {line}");
    }
    // The result; what it proves follows, by name.
    let (result, checks) = end.stdout.split_once("check: ").expect("checks");
    let result = result.split_whitespace().collect::<Vec<_>>().join(" ");
    let checks: Vec<_> = checks.split("check: ").map(str::trim_start).collect();
    for part in [
        "second_counts",
        "bound",
        "disagreements passed",
        "journal passed",
        "symmetry passed",
        "published passed",
        "canaries passed: 1 worker counted, and told of",
    ] {
        let named = checks.iter().any(|check| check.contains(part));
        assert!(named, "'{part}' in {checks:#?}");
    }
    for part in [
        "N = 16: 14,772,512 solutions",
        "1,846,955 unique",
        "1,846,189 asymmetric, 734 half-turn and 32 quarter-turn classes",
        "matches the known count",
    ] {
        assert!(result.contains(part), "'{part}' in: {result}");
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
            "checks",
            "tasks",
            "seconds",
        ];
        assert_eq!(keys(&result), names);
        assert_eq!(keys(&result["checks"][0]), ["name", "outcome", "reason"]);
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
