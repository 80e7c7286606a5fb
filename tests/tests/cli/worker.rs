//! The worker alone: counts, estimates, and calls to an unreachable coordinator.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
};

use common::compute::kernel::Kernel;
use serde_json::Value;
use tests::process::{End, Process, command, has_signal, in_shell, wait_until};

use super::{keys, other_server};

fn worker(arguments: &str) -> Command {
    command("worker", &arguments.split_whitespace().collect::<Vec<_>>())
}

fn run(arguments: &str) -> End {
    Process::run(worker(arguments))
}

/// Returns a worker with this spool; nothing listens at its coordinator's address.
fn serve(arguments: &str, spool: &Path) -> Command {
    let connection = "--coordinator http://127.0.0.1:1 --threads 1";
    let mut command = worker(&format!("{connection} {arguments} --spool"));
    command.arg(spool);
    command
}

/// Starts a worker; returns it with its first line, which follows the preparations.
fn start(command: &mut Command) -> (Process, String) {
    let process = Process::start(command);
    let line = process.stderr_line("queens worker");
    (process, line)
}

#[test]
fn a_board_is_required() {
    for command in ["count", "estimate"] {
        run(command).refused(2, &["required arguments"]).logs(&["--n <N>"]);
    }
}

#[test]
fn the_json_has_the_promised_members_in_their_types() {
    let report = run("count --n 10 --method rows --kernel scalar --threads 3 --json").json();
    let promised = "n method kernel threads units units_total solutions complete estimate seconds \
                    solutions_per_second";
    assert_eq!(keys(&report).join(" "), promised);
    assert_eq!(report["n"], 10);
    assert_eq!(report["method"], "rows");
    assert_eq!(report["kernel"], "scalar");
    assert_eq!(report["threads"], 3);
    assert_eq!(report["solutions"], "724");
    assert_eq!(report["complete"], true);
    assert_eq!(report["estimate"], Value::Null);
    assert!(report["units_total"].is_u64() && report["units"] == report["units_total"]);
    assert!(report["seconds"].is_f64() && report["solutions_per_second"].is_f64());
}

#[test]
fn a_sample_is_reproducible_and_its_interval_holds_the_truth() {
    let sample = |seed: u8| {
        let call = "count --n 13 --method rows --layout first-rows --sample 0.3 --json --seed";
        run(&format!("{call} {seed}")).json()
    };
    let first = sample(5);
    assert_ne!(first["solutions"], sample(6)["solutions"]);
    let again = sample(5);
    for member in ["units", "solutions", "estimate"] {
        assert_eq!(first[member], again[member], "{member}");
    }
    assert!(first["units"].as_u64() < first["units_total"].as_u64(), "{first}");
    let number = |name: &str| -> f64 { first["estimate"][name].as_str().unwrap().parse().unwrap() };
    assert_eq!(first["estimate"]["confidence"], 0.95);
    // The interval misses the truth for 5 % of the seeds; this one is fixed, so the test is deterministic.
    assert!(number("low") <= 73_712.0 && 73_712.0 <= number("high"), "{first}");
    assert!(number("low") <= number("solutions") && number("solutions") <= number("high"));
}

#[test]
fn kernels_are_listed_best_first() {
    let available: Vec<_> = Kernel::available().iter().map(Kernel::to_string).collect();
    assert_eq!(run("kernels").ok().stdout, available.join("\n"));
}

#[test]
fn an_unreachable_coordinator_is_called_until_the_worker_drains() {
    let home = tempfile::tempdir().unwrap();
    let spool = home.path().join("spool");
    let end = Process::run(serve("--drain-after 1s", &spool)).ok();
    end.logs(&["queens worker", "cannot be reached", "retry 2"]);
    assert!(spool.join("outbox.jsonl").exists());
}

#[test]
fn errors_distinguish_another_server_from_an_unreachable_coordinator() {
    // An HTTP/1 server takes the first line for a bad request.
    let other = other_server(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let home = tempfile::tempdir().unwrap();
    for (url, advice) in [
        (other.as_str(), "is it a coordinator? give the address"),
        ("http://no-such-host.invalid:7171 --insecure", "unknown host; check the name"),
        ("http://127.0.0.1:1", "nothing listens there; is the coordinator running"),
    ] {
        let connection = format!("--coordinator {url} --threads 1 --drain-after 1s --spool");
        Process::run(worker(&connection).arg(home.path())).ok().logs(&[advice]);
    }
}

#[test]
fn a_spool_has_one_worker() {
    let home = tempfile::tempdir().unwrap();
    let _first = start(&mut serve("", home.path()));
    Process::run(serve("", home.path())).refused(1, &["is in use by another worker"]);
}

#[test]
fn an_impossible_spool_directory_is_refused() {
    let spool = Path::new("/dev/null/spool");
    let says = ["error: spool directory /dev/null/spool: ", "with --spool"];
    Process::run(serve("", spool)).refused(1, &says);
}

/// Two nested memory control groups inside this process's own group.
#[cfg(target_os = "linux")]
struct NestedGroup {
    outer: PathBuf,
    inner: PathBuf,
}

#[cfg(target_os = "linux")]
impl NestedGroup {
    /// Creates both groups; only the outer one has a limit.
    fn with_limit(bytes: u64) -> io::Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let line = |controllers| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                (parts.next()? == controllers).then(|| parts.next())?
            })
        };
        let (parent, limit) = match (line("memory"), line("")) {
            (Some(path), _) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            (None, Some(path)) => (format!("/sys/fs/cgroup{path}"), "memory.max"),
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        let outer = Path::new(&parent).join(format!("queens-test-{}", process::id()));
        let inner = outer.join("inner");
        fs::create_dir(&outer)?;
        let group = Self { outer, inner };
        if limit == "memory.max" {
            fs::write(group.outer.join("cgroup.subtree_control"), "+memory")?;
        }
        fs::write(group.outer.join(limit), bytes.to_string())?;
        fs::create_dir(&group.inner)?;
        Ok(group)
    }
}

#[cfg(target_os = "linux")]
impl Drop for NestedGroup {
    fn drop(&mut self) {
        for group in [&self.inner, &self.outer] {
            // The system frees a group a moment after its last process.
            let is_busy = |error: io::Error| error.kind() == io::ErrorKind::ResourceBusy;
            wait_until("the group is free", || !fs::remove_dir(group).is_err_and(is_busy));
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_limit_of_an_outer_control_group_applies() {
    let group = match NestedGroup::with_limit(1 << 29) {
        Ok(group) => group,
        Err(error) => {
            return kit::not_tested(format_args!(
                "limits of control groups: cannot create any here: {error}"
            ));
        }
    };
    let program = worker("count --n 8 --memory 600MiB");
    let script =
        format!("echo $$ > {} && exec \"$0\" \"$@\"", group.inner.join("cgroup.procs").display());
    Process::run(in_shell(&script, &program)).refused(2, &["its control group has 512.0 MiB"]);
}

#[test]
fn signals_drain_a_worker() {
    // Only Linux shows whether a process ignores SIGHUP. Workers inherit that from these tests.
    let outlives = cfg!(target_os = "linux") && has_signal(process::id(), "SigIgn:", 1);
    if outlives {
        kit::not_tested("a worker that stops with its terminal: these tests ignore SIGHUP");
    }
    let hangup = (cfg!(target_os = "linux") && !outlives).then_some(("HUP", 0));
    for (signal, code) in [("TERM", 0), ("INT", 130)].into_iter().chain(hangup) {
        let home = tempfile::tempdir().unwrap();
        let (worker, _) = start(&mut serve("", home.path()));
        worker.signal(signal);
        // `timeout` sends its signal twice.
        worker.signal(signal);
        worker.end().code(code).logs(&["draining", "stopped"]);
    }
}

/// A session has an autogroup, which only the process that leads it lowers.
#[test]
#[cfg(target_os = "linux")]
fn at_idle_priority_a_worker_lowers_the_session_that_it_leads() {
    let autogroup = |process: u32| fs::read_to_string(format!("/proc/{process}/autogroup"));
    let Ok(inherited) = autogroup(process::id()) else {
        return kit::not_tested("the priority of a session: this kernel has no autogroups");
    };
    let home = tempfile::tempdir().unwrap();
    let member = serve("--idle-priority", home.path());
    let mut leader = Command::new("setsid");
    leader.arg(member.get_program()).args(member.get_args());
    for (mut command, leads) in [(member, false), (leader, true)] {
        let (worker, line) = start(&mut command);
        let found = autogroup(worker.id()).unwrap();
        assert_eq!(found.ends_with("nice 19\n"), leads, "{line}{found}");
        assert_eq!(found == inherited, !leads, "{found}");
    }
}

#[test]
fn a_worker_is_stopped_from_another_directory_by_the_spool_of_its_first_line() {
    let [here, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |place: &tempfile::TempDir, arguments: &str| {
        let mut command = worker(arguments);
        command.current_dir(place.path()).env_remove("XDG_STATE_HOME");
        command
    };
    let running = "--coordinator http://127.0.0.1:1 --threads 1 --name here --drain-after 1m";
    let (running, line) = start(&mut at(&here, running));
    let (_, spool) = line.trim_end().rsplit_once("spool ").unwrap();
    let canonical = |place: &tempfile::TempDir| place.path().canonicalize().unwrap();
    assert_eq!(Path::new(spool), canonical(&here).join("queens-spool/here"), "{line}");
    let searched = canonical(&elsewhere).join("queens-spool");
    let says = [searched.to_str().unwrap(), "the first line of its log shows"];
    Process::run(at(&elsewhere, "stop")).refused(1, &says);
    Process::run(at(&elsewhere, &format!("stop --spool {spool}"))).ok();
    running.end().ok();
}

/// `nohup` lets a program outlive its terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_worker_under_nohup_ignores_hangups() {
    const SIGHUP: u32 = 1;
    let home = tempfile::tempdir().unwrap();
    let program = serve("", home.path());
    let (worker, line) = start(&mut in_shell("trap '' HUP; exec \"$0\" \"$@\"", &program));
    assert!(has_signal(worker.id(), "SigCgt:", 2), "{line}");
    assert!(!has_signal(worker.id(), "SigCgt:", SIGHUP), "{line}");
    assert!(has_signal(worker.id(), "SigIgn:", SIGHUP), "{line}");
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_count_prints_what_was_counted() {
    // Hours of work.
    let counting = Process::start(worker("count --n 24 --method rows --threads 1 --json"));
    let end = counting.interrupt().logs(&["interrupted: "]);
    let report: Value = serde_json::from_str(&end.stdout).unwrap();
    assert!(report["units"].as_u64() < report["units_total"].as_u64());
    assert_eq!(report["complete"], false);
    assert_eq!(report["estimate"], Value::Null);
}

#[test]
fn every_flag_has_a_variable_and_the_command_line_takes_precedence() {
    let report = Process::run(worker("count --json").envs([
        ("QUEENS_N", "8"),
        ("QUEENS_METHOD", "rows"),
        ("QUEENS_THREADS", "2"),
        ("QUEENS_KERNEL", "scalar"),
        ("QUEENS_MEMORY", "0.5GiB"),
        ("QUEENS_COORDINATOR", "http://127.0.0.1:1"),
    ]));
    let report = report.json();
    assert_eq!((&report["n"], &report["threads"]), (&8.into(), &2.into()));
    let mut nine = worker("count --n 9 --method rows");
    let report = Process::run(nine.envs([("QUEENS_N", "8"), ("QUEENS_JSON", "yes")])).json();
    assert_eq!(report["n"], 9);
    let misled = Process::run(worker("").env("QUEENS_COORDINATOR", "nonsense"));
    misled.refused(2, &["invalid URL 'nonsense'"]);
}

#[test]
fn help_names_the_environment_and_the_exit_codes() {
    run("--help").ok().prints(&["RUST_LOG", "NO_COLOR", "QUEENS_", "130 interrupted"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_or_closed_output_causes_no_panic() {
    let home = tempfile::tempdir().unwrap();
    let (no_out, no_err) = ("exec \"$0\" \"$@\" > /dev/full", "exec \"$0\" \"$@\" 2> /dev/full");
    for call in ["kernels", "count --n 8 --method rows", "count --n 8 --json"] {
        let full = Process::run(in_shell(no_out, &worker(call)));
        full.code(1).logs(&["error: cannot write to standard output: "]);
        assert!(!Process::run(in_shell(no_err, &worker(call))).ok().stdout.is_empty());
        // Not through `Process`, which reads the output.
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let closed = worker(call).env("TMPDIR", "/dev/null").stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&closed.stderr);
        assert_eq!(closed.status.code(), Some(0), "{call}: {stderr}");
    }
    Process::run(in_shell(no_err, &serve("--drain-after 1s", home.path()))).ok();
}

#[test]
fn a_poor_sample_suggests_a_larger_one() {
    let end = run("count --n 20 --method frames --sample 1e-6").ok();
    end.logs(&["this estimate is imprecise", "--sample "]);
}

#[test]
fn an_estimate_has_time_memory_disk_and_energy() {
    let given =
        "estimate --n 16 --threads 2 --memory 1GiB --budget 60s --cores 10 --watts 50 --json";
    let of_16 = run(given).json();
    let at = |value: &Value, path: &str| value.pointer(path).unwrap().as_f64().unwrap();
    for interval in ["core_seconds", "seconds_on_cores", "energy_kwh", "speed"] {
        let end = |end| at(&of_16, &format!("/{interval}/{end}"));
        assert!(0.0 < end("low") && end("low") <= end("expected"), "{of_16}");
        assert!(end("expected") <= end("high"), "{of_16}");
    }
    let core_seconds = at(&of_16, "/core_seconds/expected");
    let factor = 1.0 + at(&of_16, "/recheck_fraction");
    let near = |left: f64, right: f64| (left / right - 1.0).abs() < 1e-9;
    assert!(near(at(&of_16, "/seconds_on_cores/expected") * 10.0, core_seconds * factor));
    let kwh = core_seconds * factor / 2.0 / 3600.0 * 0.05;
    assert!(near(at(&of_16, "/energy_kwh/expected"), kwh));
    assert_eq!(of_16["tasks"].as_u64().map(|tasks| tasks > 0), Some(true));
    assert!(at(&of_16, "/memory_least_bytes") <= at(&of_16, "/memory_whole_bytes"));
    assert!(at(&of_16, "/model/tasks") >= 2.0);
    // More queens need more of everything.
    let of_18 = run("estimate --n 18 --threads 2 --memory 1GiB --budget 60s --json").json();
    for figure in ["/core_seconds/expected", "/tasks", "/disk_bytes"] {
        assert!(at(&of_18, figure) > at(&of_16, figure), "{figure}");
    }
    assert!(of_18["watts"].is_null() && of_18["energy_kwh"].is_null());
    let end = run("estimate --n 14 --threads 2 --memory 1GiB --watts 50").ok();
    end.prints(&["core time", "2 such cores", "disk", "kWh", "model"]);
}

#[test]
fn results_fit_a_terminal_of_the_usual_width() {
    for arguments in [
        "count --n 17 --threads 2",
        "count --n 22 --threads 2 --sample 0.00001",
        "estimate --n 16 --threads 2 --memory 1GiB --budget 5s --watts 250",
    ] {
        let end = run(arguments).ok();
        assert!(end.stdout.lines().count() > 2, "{end:#?}");
        assert!(end.stdout.lines().all(|line| line.chars().count() <= 80), "{end:#?}");
    }
}

#[test]
fn workers_on_a_machine_get_different_names_and_all_can_count() {
    let dir = tempfile::tempdir().unwrap();
    let launch = |arguments: &str| {
        let coordinator = "--coordinator http://127.0.0.1:1 --drain-after 1m --threads 1";
        let mut command = worker(&format!("{coordinator} {arguments}"));
        start(command.env("XDG_STATE_HOME", dir.path()))
    };
    let (first, line) = launch("--idle-timeout 90s");
    let host = line.split('\'').nth(1).unwrap();
    first.stderr_line("exits after 1m30s without work");
    let others: Vec<_> = (2..=6)
        .map(|number| {
            let (process, line) = launch("");
            assert!(line.contains(&format!("'{host}-{number}'")), "{line}");
            process
        })
        .collect();
    // Workers that do not count take no memory from others.
    let report = run("count --n 12 --json").json();
    assert_eq!(report["solutions"], "14200");
    let (named, line) = launch("--name rack-7 --memory 64MiB");
    assert!(line.contains("'rack-7'") && line.contains("64.0 MiB each"), "{line}");
    drop((first, others, named));
    let (_last, line) = launch("");
    assert!(line.contains(&format!("'{host}'")), "{line}");
}
