//! What the programs print and how they exit, for good input and for bad.

use std::{fs, io::Write as _, net::TcpListener, process::Command, thread};

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

#[test]
fn bad_arguments_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    for n in ["0", "33", "-1", "abc", "", "8.0", "300"] {
        let n_given = format!("N is {n},");
        let parts = [n_given.as_str(), "1 to 32"];
        check_refused(&coordinator(&["--n", n], &dir), 2, &parts);
        check_refused(&queensctl(&["submit", "--n", n]), 2, &parts);
    }
    let cases: [(&[&str], &[&str]); 13] = [
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
            &["--n", "8", "--local", "--memory", "1KiB"],
            &["N = 8 needs at least --memory"],
        ),
        (
            &[
                "--n",
                "28",
                "--local",
                "--threads",
                "2",
                "--memory",
                "400MiB",
            ],
            &["N = 28 needs at least --memory"],
        ),
        (
            &["--n", "8", "--local", "--memory", "100TiB"],
            &["'100TiB' is more than this process may use"],
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
            &["--insecure", "--require-token"],
            &["--insecure", "--require-token"],
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
    // No run at all, and none asked for.
    let wait = ["--exit-when-done", "--listen", "127.0.0.1:0"];
    check_refused(&with_dir("nothing", &wait), 1, &["nothing", "--n"]);
}

#[test]
fn one_data_directory_holds_any_number_of_runs() {
    let dir = tempfile::tempdir().unwrap();
    let count = |arguments: &[&str]| {
        let local = ["--local", "--json", "--listen", "127.0.0.1:0"];
        result(&coordinator(&[arguments, &local].concat(), &dir))
    };
    let name = |result: &Value| result["run"].as_str().unwrap().to_owned();
    let eight = count(&["--n", "8"]);
    let nine = count(&["--n", "9"]);
    let by_frames = count(&["--n", "8", "--method", "frames"]);
    let smaller_tasks = count(&["--n", "8", "--task-cost", "3"]);
    for (result, solutions) in [
        (&eight, "92"),
        (&nine, "352"),
        (&by_frames, "92"),
        (&smaller_tasks, "92"),
    ] {
        assert_eq!(result["solutions"], solutions);
    }
    // The same command line means the same run.
    assert_eq!(name(&nine), name(&count(&["--n", "9"])));
    let frames = ["--n", "8", "--method", "frames"];
    assert_eq!(name(&by_frames), name(&count(&frames)));
    let again = count(&["--n", "9", "--again"]);
    assert_eq!(again["solutions"], "352");
    let mut names: Vec<_> = [&eight, &nine, &by_frames, &smaller_tasks, &again]
        .into_iter()
        .map(name)
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5, "each is a run of its own");
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
    let partial: Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!(partial["complete"], false, "{end:#?}");
    assert_eq!(partial["solutions"], Value::Null, "no result: {end:#?}");
    assert!(partial["solutions_so_far"].is_string(), "{end:#?}");
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
fn the_programs_document_themselves_for_shells_and_man() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man1");
    let programs = binaries();
    for (program, word, pages) in [
        (&programs.coordinator, "--data-dir", &["coordinator.1"][..]),
        (&programs.worker, "--spool", &["worker.1", "worker-count.1"]),
        (
            &programs.queensctl,
            "submit",
            &["queensctl.1", "queensctl-submit.1"],
        ),
    ] {
        let run = |arguments: &[&str]| {
            let mut command = Command::new(program);
            Process::run("the program", command.args(arguments))
        };
        let end = run(&["--completions", "bash"]);
        assert_eq!(end.code, Some(0), "{end:#?}");
        assert!(end.stdout.contains(word), "{end:#?}");
        let script = dir.path().join("completions");
        fs::write(&script, &end.stdout).unwrap();
        let read = Command::new("bash").arg("-n").arg(&script).status();
        assert!(read.expect("bash runs").success(), "{}", end.stdout);
        check_refused(&run(&["--completions", "tcsh"]), 2, &["bash", "zsh"]);

        let end = run(&["--man-pages", man.to_str().unwrap()]);
        assert_eq!((end.code, end.stdout.as_str()), (Some(0), ""), "{end:#?}");
        for page in pages {
            let page = fs::read_to_string(man.join(page)).unwrap();
            assert!(page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"));
        }
    }
}

#[test]
fn what_is_typed_goes_before_the_environment() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _coordinator = cluster.coordinator();
    let mut command = Command::new(&binaries().queensctl);
    command
        .args(["--coordinator", &cluster.url(), "runs"])
        .env("QUEENS_JOIN", "queens1-of-another-coordinator")
        .env("QUEENS_COORDINATOR", "http://127.0.0.1:1");
    let end = Process::run("queensctl", &mut command);
    assert_eq!(end.code, Some(0), "{end:#?}");
    // What is wrong in the environment is said to be there.
    let mut command = Command::new(&binaries().queensctl);
    command.arg("runs").env("QUEENS_TIMEOUT", "soon");
    let end = Process::run("queensctl", &mut command);
    check_refused(&end, 2, &["'soon'", "--timeout"]);
    assert!(end.stderr.contains("environment variable QUEENS_TIMEOUT"));
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
