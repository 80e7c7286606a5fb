//! The programs' command lines: output and exit codes for good and bad input.

mod certificates;
mod terminal;
mod worker;

#[cfg(unix)]
use std::os::unix::net::UnixDatagram;
use std::{
    collections::BTreeSet, fs, io::Write as _, net::TcpListener, path::Path, process::Command,
    thread,
};

use serde_json::Value;
use tests::{
    cluster::Cluster,
    process::{self, End, PATIENCE, Process, check_transcript},
};

/// Runs a coordinator on any port in a directory.
fn coordinator_in(dir: &Path, arguments: &[&str]) -> End {
    let listen = ["--listen", "127.0.0.1:0"];
    Process::run(process::coordinator(&[arguments, &listen].concat()).current_dir(dir))
}

fn queensctl(arguments: &[&str]) -> End {
    Process::run(process::queensctl(arguments))
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

#[test]
fn bad_input_is_refused_in_one_line_that_says_what_to_give() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = "[[machine]]\nname = \"a\"\ncount = \"two\"\n";
    fs::write(dir.path().join("fleet.toml"), fleet).unwrap();
    for folder in ["empty", "foreign", "new"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    fs::write(dir.path().join("foreign/thesis.txt"), "text").unwrap();
    let before = fs::read_dir(dir.path()).unwrap().count();
    let foreign = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
    let table = include_str!("refused.txt").replace("FOREIGN", foreign);
    let table = table.replace("RTL", "\u{202e}");
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let (typed, expected) = line.split_once(" => ").expect("a case");
        let mut words = typed.split(' ');
        let program = words.next().expect("a program");
        let mut command = process::command(program, &words.collect::<Vec<_>>());
        let mut parts = expected.split(" | ");
        let code = parts.next().and_then(|code| code.parse().ok()).expect("an exit code");
        let end = Process::run(command.current_dir(dir.path()));
        let end = end.refused(code, &parts.collect::<Vec<_>>());
        // Progress lines, which end in "…", may come first.
        let first = end.stderr.lines().find(|line| !line.ends_with('…'));
        let is_first = first.is_some_and(|line| line.starts_with("error: "));
        assert!(is_first || code == 1 && program != "worker", "{end:#?}");
        // Advice that is wrong for a directory that is only read.
        let wrong = ["start again", "new directory"].map(|advice| end.stderr.contains(advice));
        assert!(!typed.contains("verify") || wrong == [false; 2], "{end:#?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "nothing is written");
}

#[test]
fn programs_that_do_not_build_show_the_errors_of_the_compiler() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("src")).unwrap();
    fs::write(dir.path().join("Cargo.toml"), "[package]\nname = \"broken\"\n").unwrap();
    fs::write(dir.path().join("src/main.rs"), "fn main() -> u64 {}").unwrap();
    let failed = std::panic::catch_unwind(|| process::build(dir.path())).unwrap_err();
    let message = failed.downcast_ref::<String>().expect("a message");
    assert!(message.contains("the programs do not build"), "{message}");
    assert!(message.contains("error[E0308]: mismatched types"), "{message}");
}

#[test]
#[cfg(unix)]
fn systemd_hears_that_a_coordinator_has_started_and_still_answers() {
    let cluster = Cluster::new(&["--n", "16", "--no-http"]);
    let socket = UnixDatagram::bind(cluster.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = cluster.command(&[]);
    command.env("NOTIFY_SOCKET", cluster.path("notify")).env("WATCHDOG_USEC", "500000");
    let _coordinator = Process::start(command);
    let hears = |expected: &str| loop {
        let mut message = [0; 100];
        let length = socket.recv(&mut message).expect(expected);
        if message[..length].starts_with(expected.as_bytes()) {
            return;
        }
    };
    hears("READY=1\nSTATUS=serves runs");
    hears("WATCHDOG=1");
}

#[test]
fn a_taken_port_is_refused_and_nothing_is_written() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    for (arguments, advice) in [
        (&["--n", "8", "--no-http", "--listen", &address][..], "--listen"),
        (&["--n", "8", "--listen", "127.0.0.1:0", "--http", &address], "--no-http"),
    ] {
        let mut command = process::coordinator(arguments);
        let end = Process::run(command.current_dir(&dir)).refused(1, &[&address, "in use", advice]);
        let lines = end.stderr.lines().filter(|line| !line.contains(" INFO "));
        assert_eq!(lines.count(), 1, "{end:#?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_missing_dashboard_is_explained_to_operators() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = process::coordinator(&["--listen", "127.0.0.1:0", "--no-http"]);
    let coordinator = Process::start(command.current_dir(&dir));
    coordinator.stderr_line("listening on");
    let mut dashboard = process::queensctl(&["dashboard"]);
    Process::run(dashboard.current_dir(&dir)).refused(1, &["has no dashboard", "--no-http"]);
}

#[test]
fn arguments_override_the_environment() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _coordinator = cluster.coordinator();
    let runs = || cluster.queensctl_command(&["runs"]);
    let mut overridden = runs();
    overridden.env("QUEENS_JOIN", "queens1-of-another-coordinator");
    Process::run(overridden.env("QUEENS_COORDINATOR", "http://127.0.0.1:1")).ok();
    let misspelled = Process::run(runs().env("QUEENS_TIMEUOT", "1s"));
    misspelled.ok().logs(&["unknown variable QUEENS_TIMEUOT"]);
    // An error in the environment names the variable.
    // Compose and Helm pass variables without a value.
    let mut empty = process::worker(&["count", "--n", "6", "--json"]);
    for name in ["QUEENS_THREADS", "QUEENS_NAME", "QUEENS_METHOD", "QUEENS_SAMPLE", "RUST_LOG"] {
        empty.env(name, "");
    }
    assert_eq!(Process::run(&mut empty).json()["solutions"], "4");
    let end = Process::run(process::queensctl(&["runs"]).env("QUEENS_TIMEOUT", "soon"));
    let end = end.refused(2, &["'soon'", "--timeout"]);
    end.logs(&["environment variable QUEENS_TIMEOUT"]);
}

#[test]
fn commands_without_a_coordinator_print_what_their_transcript_shows() {
    for transcript in ["tests/cli/explore.md", "../docs/capacity.md"] {
        let transcript = Path::new(env!("CARGO_MANIFEST_DIR")).join(transcript);
        check_transcript(&transcript, tempfile::tempdir().unwrap().path());
    }
}

#[test]
fn fleets_are_forecast_and_machines_that_cannot_join_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = |ending: &str, text: &str| {
        let file = dir.path().join(format!("fleet.{ending}"));
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let toml = fleet(
        "toml",
        "[[machine]]\nname = \"rack\"\ncount = 40\ncores = 16\nmemory = \"8GiB\"\nspeed = 0.9\nwatts = 250\n\
         [[machine]]\nname = \"tiny\"\ncores = 8\nmemory = \"16MiB\"\nrate = 4\n",
    );
    let parts =
        ["rack", "tiny cannot join: N = 24 needs at least --memory", "100.0 %", "kWh", "disk"];
    queensctl(&["forecast", "--n", "24", "--fleet", &toml]).ok().prints(&parts);
    let as_json =
        |file: &str| queensctl(&["forecast", "--n", "24", "--fleet", file, "--json"]).json();
    let json = fleet(
        "json",
        r#"{"machine":[{"name":"rack","count":40,"cores":16,"memory":"8GiB","speed":0.9,"watts":250},
            {"name":"tiny","cores":8,"memory":"16MiB","rate":4}]}"#,
    );
    let planned = as_json(&json);
    assert_eq!(planned, as_json(&toml));
    assert_eq!(planned["machines"][0]["joins"], true);
    assert_eq!(planned["machines"][1]["joins"], false);
    let tiny =
        fleet("toml", "[[machine]]\nname = \"tiny\"\ncores = 8\nmemory = \"16MiB\"\nspeed = 1\n");
    queensctl(&["forecast", "--n", "24", "--fleet", &tiny]).code(1);
    let bad = fleet("toml", "[[machine]]\nnme = \"tiny\"\n");
    let end = queensctl(&["forecast", "--n", "24", "--fleet", &bad]).refused(2, &["nme"]);
    assert_eq!(end.stderr.lines().count(), 1, "{end:#?}");
}

#[test]
fn queensctl_shows_and_controls_runs() {
    // The run is long enough not to end before it is cancelled.
    let cluster = Cluster::new(&["--n", "21", "--task-cost", "100000"]);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    worker.stderr_line("only");

    let status = cluster.queensctl(&["status", "--json"]).json();
    let names = "run n method state tasks solutions_so_far estimate eta_seconds solutions_per_second \
                 workers rechecks alerts";
    for name in names.split(' ') {
        assert!(keys(&status).contains(&name), "{name} in {status}");
    }
    assert_eq!(
        keys(&status["tasks"]),
        ["total", "done", "leased", "counting", "pending", "parked"]
    );
    assert_eq!((&status["n"], &status["state"]), (&21.into(), &"running".into()));
    assert!(status["solutions_so_far"].is_string(), "{status}");
    let run = status["run"].as_str().unwrap();

    let queensctl = |arguments: &str| {
        let words: Vec<_> = arguments.split(' ').map(|word| word.replace("RUN", run)).collect();
        cluster.queensctl(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (arguments, parts) in [
        ("status", &[run, "N = 21", "Tasks", "Rate"][..]),
        ("runs", &["RUN", run, "running"]),
        ("workers", &["NAME"]),
        ("pause RUN", &[run, "paused"]),
        ("priority N=21 3", &[run, "paused, priority 3"]),
        ("runs", &["PRIORITY", "          3"]),
        ("resume RUN", &[run, "running"]),
        ("retry RUN", &[run, "running", "no task was parked"]),
        ("submit --n 8 --priority -2 --key nightly", &["N = 8", "priority -2"]),
        ("submit --n 8 --priority -2 --key nightly", &["N = 8", "priority -2"]),
        ("submit --n 21 --new-run", &["N = 21"]),
        ("export RUN", &[]),
    ] {
        queensctl(arguments).ok().prints(parts);
    }
    let submitted = queensctl("submit --n 19 --method rows").ok();
    let estimate = ["N = 19, method rows: ", " core-", " of disk; ", " connected"];
    submitted.logs(&estimate);
    for (arguments, code, parts) in [
        ("wait RUN --max-wait 1s", 124, &[run, "not finished", "--max-wait"][..]),
        ("pause 00000000deadbeef", 1, &["00000000deadbeef"]),
        ("submit --n 21", 1, &["N = 21", "method frames", "running", "--new-run"]),
        ("submit --n 10 --key nightly", 1, &["'nightly'"]),
        ("cancel RUN", 2, &[run, "N = 21", "--yes"]),
    ] {
        queensctl(arguments).refused(code, parts);
    }
    queensctl("cancel RUN --yes").ok().prints(&[run, "cancelled"]);
    coordinator.end().code(1).logs(&["was cancelled"]);
    let again = Process::run(cluster.command(&["--exit-when-done"]));
    again.refused(1, &["cancelled", "--new-run"]);
}

/// Starts a server that answers each connection with these bytes and keeps it open.
fn other_server(answer: &'static [u8]) -> String {
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
fn queensctl_does_not_wait_forever() {
    let ask = |url: &str, command: &str| {
        let words: Vec<_> = command.split(' ').collect();
        let at = ["--coordinator", url, "--timeout", "1s"];
        Process::start(process::queensctl(&[&at, &words[..]].concat()))
    };
    let silent = other_server(b"");
    let reading = ["runs", "workers", "status", "status --watch", "export 0123456789abcdef"];
    let writing = ["submit --n 8", "pause last", "wait last"];
    let commands = reading.iter().chain(&writing);
    let asking: Vec<_> = commands.map(|command| ask(&silent, command)).collect();
    for process in asking {
        process.end().refused(1, &[&silent, "does not answer within 1s", "--timeout"]);
    }
    let coordinator = Cluster::new(&["--http", "127.0.0.1:0"]).serving();
    let line = coordinator.stderr_line("dashboard at ");
    let http = format!("http://{}", line.split('/').nth(2).expect("an address"));
    // It answers, in whatever time.
    let pause = process::queensctl(&["--coordinator", &http, "pause", "last"]);
    Process::run(pause).refused(1, &[&http, "is an HTTP port", "gRPC port (7171 by default)"]);
}

/// Starts a coordinator, and `queensctl wait` for its run.
fn waiting(run: &[&str], more: &[&str]) -> (Cluster, Process, Process) {
    let cluster = Cluster::new(run);
    let coordinator = cluster.coordinator();
    let waiting = Process::start(cluster.queensctl_command(&[&["wait", "last"], more].concat()));
    waiting.stderr_line("waiting for run");
    (cluster, coordinator, waiting)
}

#[test]
fn wait_ends_with_the_run_and_its_outcome() {
    let run = ["--n", "14", "--layout", "border", "--task-cost", "20000"];
    let (cluster, coordinator, waiting) = waiting(&run, &["--json"]);
    let worker = cluster.worker("only");
    assert_eq!(waiting.end().json()["result"]["solutions"], "365596");
    drop(worker);
    cluster.check_exact(coordinator, "365596");
}

#[test]
fn a_wait_fails_with_a_cancelled_run_and_is_interrupted_by_a_signal() {
    let (cluster, _coordinator, waiting) = waiting(&["--n", "16"], &[]);
    let other = Process::start(cluster.queensctl_command(&["wait", "last"]));
    other.stderr_line("waiting for run");
    other.signal("INT");
    assert_eq!(other.end().code(130).stdout, "");
    cluster.queensctl(&["cancel", "last", "--yes"]).ok();
    waiting.end().refused(1, &["was cancelled"]);
}

/// Also checks that the logs are JSON, one object per line, with the ids of calls.
#[test]
fn a_program_is_notified_of_the_end_of_a_run_and_calls_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    let (program, out) = (dir.path().join("notify"), dir.path().join("events"));
    let script = format!(
        "#!/bin/sh\necho \"$QUEENS_EVENT $QUEENS_EVENT_N\" >> {0}; cat >> {0}\n",
        out.display()
    );
    // A child process writes the script: a process that another test starts would inherit our open file, and
    // Linux refuses to execute a file that is open for writing.
    let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let written = Command::new("sh").args(["-c", write]).arg(&program).arg(script).status();
    assert!(written.unwrap().success());
    // `Process` removes RUST_LOG from the environment of its child.
    let start = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("env");
        command
            .arg("RUST_LOG=debug")
            .arg(process::programs().join(program))
            .args(["--log-format", "json"])
            .args(arguments);
        Process::start(command.current_dir(&dir))
    };
    let serve = ["--n", "12", "--exit-when-done", "--json", "--listen", "127.0.0.1:0"];
    let serve = [&serve[..], &["--on-event", program.to_str().unwrap()]].concat();
    let coordinator = start("coordinator", &serve);
    coordinator.stderr_line("listening on");
    let worker = start("worker", &["--threads", "1", "--idle-timeout", "1s"]);
    let (end, worker) = (coordinator.end().ok(), worker.end().ok());
    let notified = fs::read_to_string(&out).unwrap();
    let (head, line) = notified.split_once('\n').unwrap();
    assert_eq!(head, "completion 12");
    let event: Value = serde_json::from_str(line).unwrap();
    let result: Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!(event["result"], result);
    assert_eq!((&event["kind"], &event["run"]), (&Value::from("complete"), &result["run"]));
    // Both sides have logged each answered call.
    let answered = |stderr: &str| {
        let lines = stderr.lines().filter(|line| line.starts_with('{'));
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let answered = lines.filter(|line| line["message"] == "answered");
        answered
            .map(|line| line["span"]["id"].as_str().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    let calls = answered(&worker.stderr);
    assert!(!calls.is_empty(), "{worker:#?}");
    assert_eq!(calls, answered(&end.stderr));
}

#[test]
fn a_failing_program_for_events_is_logged_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--n", "8", "--local", "--on-event", "false"];
    let end = coordinator_in(dir.path(), &arguments).ok().prints(&["N = 8: 92 solutions"]);
    end.logs(&["--on-event: false failed for completion"]);
}

#[test]
fn a_serving_coordinator_prints_each_result_once() {
    let cluster = Cluster::new(&[]);
    let first = cluster.serving();
    let _worker = cluster.worker("only");
    cluster.queensctl(&["submit", "--n", "8"]).ok();
    first.stdout_line("N = 8: 92 solutions");
    drop(first.kill());
    let second = cluster.serving();
    cluster.queensctl(&["submit", "--n", "9"]).ok();
    second.stdout_line("N = 9: 352 solutions");
    let printed = second.kill().stdout;
    assert!(!printed.contains("N = 8"), "{printed}");
}

#[test]
fn the_first_command_of_the_readme_prints_a_verified_result() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--n", "16", "--local"];
    let end = coordinator_in(dir.path(), &arguments).ok();
    let [counted, _] = end.stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("a result takes two lines: {end:#?}");
    };
    let expected =
        "N = 16: 14,772,512 solutions (1,846,955 fundamental), matches the published count";
    assert_eq!(counted, expected);
    end.prints(&["verified: ", " checks passed (", ", not rechecked: one machine · ", " counting"]);
    // As the README has it: without an address to listen on.
    let plain = |more: &[&str]| {
        let arguments = [&arguments[..], more].concat();
        Process::run(process::coordinator(&arguments).current_dir(dir.path())).ok()
    };
    let end = plain(&["--new-run"]);
    let lines = |stderr: &str| stderr.lines().map(str::to_owned).collect::<Vec<_>>();
    let [run, what, by] = &lines(&end.stderr)[..] else {
        panic!("the run and what counts it take three lines: {end:#?}");
    };
    assert!(run.starts_with("run ") && what.contains("N = 16, method "), "{end:#?}");
    assert!(by.contains("kernel ") && by.contains(" thread"), "{end:#?}");
    let again = plain(&[]);
    assert_eq!(again.stdout.lines().next(), Some(expected));
    let quiet = plain(&["--new-run", "--quiet"]);
    assert_eq!((quiet.stdout.lines().count(), &*quiet.stderr), (2, ""), "{quiet:#?}");
    again.logs(&["complete already; --new-run counts it again"]);
    // With --verbose the coordinator prints every check too, in at most 80 columns.
    let end = coordinator_in(dir.path(), &[&arguments[..], &["--verbose"]].concat()).ok();
    for line in end.stdout.lines().skip(2) {
        assert!(line.chars().count() <= 80, "more than 80 columns: {line}");
    }
    let words = end.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let (result, checks) = words.split_once("check: ").expect("checks");
    assert!(result.contains(expected), "{result}");
    let checks: Vec<_> = checks.split("check: ").collect();
    let names = ["referee", "rechecks", "disputes", "self-tests passed: 1 worker reported"];
    let passed = ["journal passed", "symmetry passed", "published passed"];
    for part in names.iter().chain(&passed) {
        let named = checks.iter().any(|check| check.contains(part));
        assert!(named, "'{part}' in {checks:#?}");
    }
    assert!(dir.path().join("queens-data").is_dir());
}

#[test]
fn a_local_run_prints_one_json_object() {
    for (n, method, solutions, fundamental) in [
        ("1", "rows", "1", "1"),
        ("2", "rows", "0", "0"),
        ("9", "frames", "352", "46"),
        ("10", "frames", "724", "92"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let arguments = ["--n", n, "--method", method, "--local", "--json"];
        let result = coordinator_in(dir.path(), &arguments).json();
        let names = "run n method solutions fundamental classes published verified checks tasks seconds waiting_seconds";
        assert_eq!(keys(&result).join(" "), names);
        assert_eq!(keys(&result["checks"][0]), ["name", "outcome", "reason"]);
        assert_eq!(keys(&result["classes"]), ["asymmetric", "half_turn", "quarter_turn"]);
        assert_eq!(result["n"].to_string(), n);
        assert_eq!(result["method"], method);
        assert_eq!(result["solutions"], solutions);
        assert_eq!(result["fundamental"], fundamental);
        assert_eq!(result["published"], "matches");
    }
}

#[test]
fn one_data_directory_holds_many_runs() {
    let dir = tempfile::tempdir().unwrap();
    let count = |arguments: &[&str], solutions: &str| {
        let arguments = [arguments, &["--local", "--json"]].concat();
        let result = coordinator_in(dir.path(), &arguments).json();
        assert_eq!(result["solutions"], solutions);
        result["run"].as_str().unwrap().to_owned()
    };
    let (nine, frames) = (["--n", "9"], ["--n", "8", "--method", "frames"]);
    let mut names = vec![
        count(&["--n", "8"], "92"),
        count(&nine, "352"),
        count(&frames, "92"),
        count(&["--n", "8", "--task-cost", "3"], "92"),
    ];
    // The same command line means the same run.
    assert_eq!(names[1], count(&nine, "352"));
    assert_eq!(names[2], count(&frames, "92"));
    names.push(count(&["--n", "9", "--new-run"], "352"));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5, "each is a separate run");
}

#[test]
fn a_second_coordinator_on_one_data_directory_is_refused() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _first = cluster.coordinator();
    let data = cluster.data_dir();
    let second = ["--n", "16", "--data-dir", data.to_str().unwrap()];
    coordinator_in(&cluster.path(""), &second).refused(1, &["in use by another process"]);
    // Reading is allowed.
    cluster.verify().ok().prints(&["a coordinator writes at the same time"]);
}

#[test]
fn an_interrupted_local_run_resumes() {
    let run = ["--n", "16", "--layout", "first-rows", "--task-cost", "10000"];
    let local = ["--local", "--threads", "1", "--kernel", "scalar", "--memory", "1GiB"];
    let cluster = Cluster::new(&[run.as_slice(), &local].concat());
    let first = cluster.coordinator();
    first.stderr_line("'local'");
    let end = first.interrupt().logs(&["the same command resumes"]);
    let partial: Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!((&partial["complete"], &partial["solutions"]), (&false.into(), &Value::Null));
    assert!(partial["solutions_so_far"].is_string(), "{end:#?}");
    cluster.check_exact(cluster.coordinator(), "14772512");
}

/// Starts runs with other arguments; the coordinator names the earlier runs.
#[test]
fn other_open_runs_are_named() {
    let cluster = Cluster::new(&[]);
    let by_frames = ["--n", "16"];
    cluster.start(&by_frames).interrupt();
    let by_rows = ["--n", "16", "--method", "rows"];
    let second = Process::start(cluster.command(&by_rows));
    let line = second.stderr_line("  also running: run ");
    assert!(line.ends_with(", N = 16, method frames"), "{line}");
    drop(second.kill());
    let third = Process::start(cluster.command(&[&by_rows[..], &["--new-run"]].concat()));
    third.stderr_line("  also running: 2 runs");
}
