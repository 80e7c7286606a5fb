//! The program as people call it: bad input is one clear line and exit code 2, counts are exact.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Output, Stdio},
};

use common::{board::Board, kernel::Kernel, kernel::KernelName, known::known_counts};
use serde_json::Value;

fn worker(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command.args(arguments.split_whitespace());
    clean(command)
}

/// With what a user's shell may have left out.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUEENS_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &str) -> Output {
    worker(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// The one JSON object on standard output.
fn json(arguments: &str) -> Value {
    parsed(&run(arguments))
}

fn parsed(output: &Output) -> Value {
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    serde_json::from_str(stdout).unwrap()
}

#[test]
fn bad_input_is_named_and_ends_with_2() {
    let lacking = KernelName::ALL
        .into_iter()
        .find(|name| Kernel::new(*name).is_err())
        .unwrap();
    let lacked = format!("count --n 8 --kernel {lacking}");
    let lacks = format!("this CPU lacks kernel '{lacking}'");
    let url = "--coordinator http://127.0.0.1:1";
    for (arguments, says) in [
        (
            "count --n 0",
            "N is 0, which is not a whole number from 1 to 32",
        ),
        ("count --n 33", "N is 33, which is not"),
        ("count --n -1", "N is -1, which is not"),
        ("count --n=-1", "N is -1, which is not"),
        ("count --n abc", "N is abc, which is not"),
        ("count", "--n <N>"),
        (
            "count --n 8 --method magic",
            "unknown method 'magic', expected one of: auto, rows, frames",
        ),
        (
            "count --n 8 --kernel sse2",
            "unknown kernel 'sse2', expected one of: auto, scalar, avx2, avx512, neon",
        ),
        (&lacked, &lacks),
        (
            "count --n 8 --prefix frames",
            "unknown prefix 'frames', expected one of: first-rows, border",
        ),
        (
            "count --n 8 --method frames --prefix border",
            "--prefix divides the board for method rows",
        ),
        ("count --n 8 --threads 0", "'0' is no number of threads"),
        ("count --n 8 --memory lots", "'lots' is no amount of memory"),
        (
            "count --n 8 --memory 100TiB",
            "'100TiB' is more than this process may use",
        ),
        ("count --n 8 --memory 1KiB", "needs at least --memory "),
        (
            "count --n 18 --method frames --memory 1MiB",
            "N = 18 needs at least --memory ",
        ),
        (
            "count --n 28 --memory 500MiB --threads 2",
            "N = 28 needs at least --memory ",
        ),
        (
            "count --n 3 --method frames",
            "method frames has no plan for N = 3",
        ),
        (
            "count --n 8 --seed 3",
            "--seed has no effect without --sample",
        ),
        (
            &format!("{url} --memory 1KiB"),
            "any board needs at least --memory",
        ),
        (&format!("{url} --idle-timeout soon"), "'soon' is no span"),
        ("count --n 8 --sample 0", "above 0 and at most 1"),
        ("count --n 8 --sample -1", "above 0 and at most 1"),
        ("count --n 8 --sample 1.5", "above 0 and at most 1"),
        ("", "where is the coordinator? It prints the line to paste"),
        (
            "--coordinator nonsense",
            "'nonsense' is no coordinator's URL",
        ),
        (
            "--coordinator https://127.0.0.1:7171",
            "TLS takes a join string",
        ),
        ("--coordinator http://10.0.0.7:7171", "add --insecure"),
        (
            &format!("{url} --join queens-join-abc"),
            "cannot be used with",
        ),
        (
            &format!("{url} --drain-after soon"),
            "'soon' is no span of time",
        ),
        (
            &format!("{url} --drain-limit 0s"),
            "'0s' is no span of time",
        ),
        (&format!("{url} --kernel fast"), "unknown kernel 'fast'"),
    ] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        // A slow machine may have said what it was doing.
        let said = stderr.lines().find(|line| !line.ends_with(" …"));
        assert!(
            said.is_some_and(|line| line.starts_with("error: ")),
            "{arguments}: {stderr}"
        );
        assert!(stderr.contains(says), "{arguments}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn boards_are_counted_exactly() {
    for n in 1..=12u8 {
        let known = known_counts(Board::new(n).unwrap()).unwrap().all();
        for prefix in ["first-rows", "border"] {
            let report = json(&format!(
                "count --n {n} --method rows --prefix {prefix} --threads 2 --json"
            ));
            assert_eq!(report["solutions"], known.to_string(), "N = {n}, {prefix}");
            assert_eq!(report["units"], report["units_total"]);
        }
    }
}

#[test]
fn the_json_has_the_promised_members_in_their_types() {
    let report = json("count --n 10 --method rows --kernel scalar --threads 3 --json");
    let mut members: Vec<_> = report
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expected = [
        "n",
        "method",
        "kernel",
        "threads",
        "units",
        "units_total",
        "solutions",
        "complete",
        "estimate",
        "seconds",
        "solutions_per_second",
    ];
    expected.sort_unstable();
    members.sort_unstable();
    assert_eq!(members, expected);
    assert_eq!(report["n"], 10);
    assert_eq!(report["method"], "rows");
    assert_eq!(report["kernel"], "scalar");
    assert_eq!(report["threads"], 3);
    assert_eq!(report["solutions"], "724");
    assert_eq!(report["complete"], true);
    assert_eq!(report["estimate"], Value::Null);
    assert!(report["units_total"].is_u64());
    assert!(report["seconds"].is_f64() && report["solutions_per_second"].is_f64());
}

#[test]
fn a_sample_is_reproducible_and_its_interval_holds_the_truth() {
    let call = "count --n 13 --method rows --prefix first-rows --sample 0.3 --json --seed";
    let first = json(&format!("{call} 5"));
    assert_ne!(first["solutions"], json(&format!("{call} 6"))["solutions"]);
    let again = json(&format!("{call} 5"));
    for member in ["units", "solutions", "estimate"] {
        assert_eq!(first[member], again[member], "{member}");
    }
    assert!(
        first["units"].as_u64() < first["units_total"].as_u64(),
        "{first}"
    );
    let number = |name: &str| -> f64 { first["estimate"][name].as_str().unwrap().parse().unwrap() };
    assert_eq!(first["estimate"]["confidence"], 0.95);
    // Seed 5 is no lucky one by more than the confidence says; it is fixed, so this never flickers.
    assert!(
        number("low") <= 73_712.0 && 73_712.0 <= number("high"),
        "{first}"
    );
    assert!(number("low") <= number("solutions") && number("solutions") <= number("high"));
}

#[test]
fn kernels_are_listed_best_first() {
    let output = run("kernels");
    let listed: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    let available: Vec<_> = Kernel::available().iter().map(Kernel::to_string).collect();
    assert_eq!(listed, available);
}

#[test]
fn an_unreachable_coordinator_is_called_again_until_the_time_is_over() {
    let home = tempfile::tempdir().unwrap();
    // Port 1 of loopback: nobody listens there.
    let output = worker("--coordinator http://127.0.0.1:1 --threads 1 --drain-after 1s --spool")
        .arg(home.path().join("spool"))
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("queens worker"), "{stderr}");
    assert!(
        stderr.contains("cannot be reached") && stderr.contains("attempt 2"),
        "{stderr}"
    );
    assert!(home.path().join("spool/worker-id").exists());
}

#[test]
fn what_is_no_coordinator_is_told_from_one_that_is_away() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    std::thread::spawn(move || {
        // Kept open, as servers do.
        let mut streams = Vec::new();
        for stream in other.incoming() {
            // Whoever speaks HTTP/1 takes the first line for a bad request.
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            let mut stream = stream.unwrap();
            let _ = std::io::Write::write_all(&mut stream, answer);
            streams.push(stream);
        }
    });
    let home = tempfile::tempdir().unwrap();
    for (url, says) in [
        (
            format!("http://127.0.0.1:{port}"),
            "is it a coordinator? give the address",
        ),
        (
            "http://no-such-host.invalid:7171 --insecure".to_owned(),
            "there is no host of this name",
        ),
        (
            "http://127.0.0.1:1".to_owned(),
            "nothing listens there; is the coordinator running",
        ),
    ] {
        let output = worker(&format!(
            "--coordinator {url} --threads 1 --drain-after 1s --spool"
        ))
        .arg(home.path())
        .output()
        .unwrap();
        let stderr = text(&output.stderr);
        assert!(stderr.contains(says), "{stderr}");
    }
}

#[test]
fn a_spool_has_one_worker() {
    let home = tempfile::tempdir().unwrap();
    let call = format!(
        "--coordinator http://127.0.0.1:1 --threads 1 --spool {}",
        home.path().display()
    );
    let mut first = worker(&call).stderr(Stdio::piped()).spawn().unwrap();
    // Its first line comes when it has the spool.
    let mut lines = BufReader::new(first.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let second = run(&call);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.status.code(), Some(1), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("is in use by another worker"));
}

#[test]
fn a_directory_that_cannot_be_a_spool_is_refused() {
    let output = run("--coordinator http://127.0.0.1:1 --threads 1 --spool /dev/null/spool");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("error: spool directory /dev/null/spool: "),
        "{stderr}"
    );
    assert!(stderr.contains("with --spool"), "{stderr}");
}

/// A memory control group inside this process's own, with another one inside it.
#[cfg(target_os = "linux")]
struct NestedGroup {
    outer: std::path::PathBuf,
    inner: std::path::PathBuf,
}

#[cfg(target_os = "linux")]
impl NestedGroup {
    /// The outer group has this limit, the inner one none.
    fn with_limit(bytes: u64) -> std::io::Result<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        let line = |controllers| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                (parts.next()? == controllers).then(|| parts.next())?
            })
        };
        let (parent, limit) = match (line("memory"), line("")) {
            (Some(path), _) => (
                format!("/sys/fs/cgroup/memory{path}"),
                "memory.limit_in_bytes",
            ),
            (None, Some(path)) => (format!("/sys/fs/cgroup{path}"), "memory.max"),
            (None, None) => return Err(std::io::ErrorKind::NotFound.into()),
        };
        let name = format!("queens-test-{}", std::process::id());
        let outer = std::path::Path::new(&parent).join(name);
        let inner = outer.join("inner");
        std::fs::create_dir(&outer)?;
        let group = Self { outer, inner };
        if limit == "memory.max" {
            std::fs::write(group.outer.join("cgroup.subtree_control"), "+memory")?;
        }
        std::fs::write(group.outer.join(limit), bytes.to_string())?;
        std::fs::create_dir(&group.inner)?;
        Ok(group)
    }
}

#[cfg(target_os = "linux")]
impl Drop for NestedGroup {
    fn drop(&mut self) {
        for group in [&self.inner, &self.outer] {
            // The system frees a group a moment after its last process.
            while std::fs::remove_dir(group)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
            {
                std::thread::yield_now();
            }
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_limit_of_a_group_around_the_own_one_is_seen() {
    let group = match NestedGroup::with_limit(1 << 29) {
        Ok(group) => group,
        Err(error) => {
            eprintln!("NOT TESTED: this machine lets nobody make control groups here: {error}");
            return;
        }
    };
    let command = format!(
        "echo $$ > {} && exec {} count --n 8 --memory 600MiB",
        group.inner.join("cgroup.procs").display(),
        env!("CARGO_BIN_EXE_worker")
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("its control group has 512.0 MiB"),
        "{stderr}"
    );
}

fn send(signal: &str, to: &Child) {
    let pid = to.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn signals_stop_a_worker_in_good_order() {
    // Linux alone says whether somebody wants a worker to outlive its terminal. If these tests are to outlive
    // theirs, then so is every worker that they start.
    let outlives = cfg!(target_os = "linux") && has_signal(std::process::id(), "SigIgn", 1);
    if outlives {
        eprintln!("under nohup: whether a worker stops with its terminal is not tried");
    }
    let hangup = (cfg!(target_os = "linux") && !outlives).then_some(("-HUP", 0));
    for (signal, code) in [("-TERM", 0), ("-INT", 130)].into_iter().chain(hangup) {
        let home = tempfile::tempdir().unwrap();
        let mut worker = worker("--coordinator http://127.0.0.1:1 --threads 1 --spool")
            .arg(home.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(worker.stderr.take().unwrap());
        // Signals are watched before the first line is written.
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        send(signal, &worker);
        // `timeout` sends its signal twice.
        send(signal, &worker);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(
            worker.wait().unwrap().code(),
            Some(code),
            "{signal}: {rest}"
        );
        assert!(
            rest.contains("stopping") && rest.contains("stopped"),
            "{rest}"
        );
    }
}

/// Whether a set of the process's signals (`SigCgt`, `SigIgn`) has this one.
fn has_signal(process: u32, set: &str, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.unwrap().trim_start_matches(':').trim();
    u64::from_str_radix(mask, 16).unwrap() & 1 << (signal - 1) != 0
}

/// Whether the process has a handler of its own for SIGINT, signal 2.
fn catches_interrupts(process: &Child) -> bool {
    has_signal(process.id(), "SigCgt", 2)
}

/// Whoever wants to stop a worker is not always where it was started.
#[test]
fn a_worker_is_stopped_from_elsewhere_by_what_its_first_line_names() {
    let [here, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |place: &tempfile::TempDir, arguments: &str| {
        let mut command = worker(arguments);
        command
            .current_dir(place.path())
            .env_remove("XDG_STATE_HOME");
        command
    };
    let mut running = at(
        &here,
        "--coordinator http://127.0.0.1:1 --threads 1 --name here --drain-after 1m",
    );
    let mut running = running.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(running.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let (_, spool) = line.trim_end().rsplit_once("spool ").unwrap();
    let usual = |place: &tempfile::TempDir| place.path().canonicalize().unwrap();
    assert_eq!(
        std::path::Path::new(spool),
        usual(&here).join("queens-spool/here"),
        "{line}"
    );
    let nobody = at(&elsewhere, "stop").output().unwrap();
    let says = text(&nobody.stderr);
    assert_eq!(nobody.status.code(), Some(1), "{says}");
    let looked_in = usual(&elsewhere).join("queens-spool");
    for part in [looked_in.to_str().unwrap(), "its first line names"] {
        assert!(says.contains(part), "'{part}' in: {says}");
    }
    let stopped = at(&elsewhere, &format!("stop --spool {spool}")).output();
    let stopped = stopped.unwrap();
    assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    assert_eq!(running.wait().unwrap().code(), Some(0));
}

/// `nohup` has a program go on when its terminal is closed.
#[test]
#[cfg(target_os = "linux")]
fn a_worker_that_is_to_outlive_its_terminal_does() {
    const SIGHUP: u32 = 1;
    let home = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_worker");
    let script = "trap '' HUP; exec \"$0\" \"$@\"";
    let mut ignoring = Command::new("sh");
    ignoring
        .args(["-c", script, program, "--coordinator", "http://127.0.0.1:1"])
        .args(["--threads", "1", "--spool"])
        .arg(home.path());
    let mut worker = clean(ignoring).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(worker.stderr.take().unwrap());
    // Signals are watched before the first line is written.
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(catches_interrupts(&worker), "{line}");
    assert!(!has_signal(worker.id(), "SigCgt", SIGHUP), "{line}");
    assert!(has_signal(worker.id(), "SigIgn", SIGHUP), "{line}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_count_tells_what_was_done() {
    // Hours of work.
    let process = worker("count --n 24 --method rows --threads 1 --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !catches_interrupts(&process) {
        std::thread::yield_now();
    }
    send("-INT", &process);
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted: "));
    let report: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert!(report["units"].as_u64() < report["units_total"].as_u64());
    assert_eq!(report["complete"], false);
    assert_eq!(report["estimate"], Value::Null);
}

#[test]
fn every_flag_has_a_variable_and_the_command_line_goes_first() {
    let output = clean(worker("count --json"))
        .envs([
            ("QUEENS_N", "8"),
            ("QUEENS_METHOD", "rows"),
            ("QUEENS_THREADS", "2"),
            ("QUEENS_KERNEL", "scalar"),
            ("QUEENS_MEMORY", "0.5GiB"),
            ("QUEENS_COORDINATOR", "http://127.0.0.1:1"),
        ])
        .output()
        .unwrap();
    let report = parsed(&output);
    assert_eq!((&report["n"], &report["threads"]), (&8.into(), &2.into()));
    let output = clean(worker("count --n 9 --method rows"))
        .envs([("QUEENS_N", "8"), ("QUEENS_JSON", "yes")])
        .output()
        .unwrap();
    let report = parsed(&output);
    assert_eq!(report["n"], 9);
    let output = clean(worker(""))
        .env("QUEENS_COORDINATOR", "nonsense")
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("'nonsense' is no coordinator's URL"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn help_tells_of_the_environment_and_the_exit_codes() {
    let help = run("--help");
    let help = text(&help.stdout);
    for part in ["RUST_LOG", "NO_COLOR", "QUEENS_", "130 interrupted"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_or_closed_output_is_no_panic() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for call in ["kernels", "count --n 8 --method rows", "count --n 8 --json"] {
        let output = worker(call).stdout(full()).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{call}: {stderr}");
        assert!(
            stderr.contains("error: cannot write to standard output: "),
            "{stderr}"
        );
        let deaf = worker(call).stderr(full()).output().unwrap();
        assert_eq!(deaf.status.code(), Some(0), "{call}");
        assert!(!deaf.stdout.is_empty());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = worker(call).stdout(writer).output().unwrap();
        let stderr = text(&closed.stderr);
        assert_eq!(closed.status.code(), Some(0), "{call}: {stderr}");
    }
    let home = tempfile::tempdir().unwrap();
    let serve = "--coordinator http://127.0.0.1:1 --threads 1 --drain-after 1s --spool";
    let deaf = worker(serve)
        .arg(home.path())
        .stderr(full())
        .output()
        .unwrap();
    assert_eq!(deaf.status.code(), Some(0));
}

#[test]
fn a_poor_sample_says_what_would_help() {
    let output = run("count --n 20 --method frames --sample 1e-6");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("this estimate says little") && stderr.contains("--sample "),
        "{stderr}"
    );
}

#[test]
fn an_estimate_says_what_a_run_takes() {
    let given =
        "estimate --n 16 --threads 2 --memory 1GiB --budget 60s --cores 10 --watts 50 --json";
    let of_16 = json(given);
    let at = |value: &Value, path: &str| value.pointer(path).unwrap().as_f64().unwrap();
    for interval in ["core_seconds", "seconds_on_cores", "energy_kwh", "speed"] {
        let end = |end| at(&of_16, &format!("/{interval}/{end}"));
        assert!(0.0 < end("low") && end("low") <= end("expected"), "{of_16}");
        assert!(end("expected") <= end("high"), "{of_16}");
    }
    let core_seconds = at(&of_16, "/core_seconds/expected");
    let twice = 1.0 + at(&of_16, "/second_counts");
    let near = |left: f64, right: f64| (left / right - 1.0).abs() < 1e-9;
    assert!(near(
        at(&of_16, "/seconds_on_cores/expected") * 10.0,
        core_seconds * twice
    ));
    let kwh = core_seconds * twice / 2.0 / 3600.0 * 0.05;
    assert!(near(at(&of_16, "/energy_kwh/expected"), kwh));
    assert_eq!(of_16["tasks"].as_u64().map(|tasks| tasks > 0), Some(true));
    assert!(at(&of_16, "/memory_least_bytes") <= at(&of_16, "/memory_whole_bytes"));
    assert!(at(&of_16, "/model/tasks") >= 2.0);
    // More queens, more of everything.
    let of_18 = json("estimate --n 18 --threads 2 --memory 1GiB --budget 60s --json");
    for figure in ["/core_seconds/expected", "/tasks", "/disk_bytes"] {
        assert!(at(&of_18, figure) > at(&of_16, figure), "{figure}");
    }
    assert!(of_18["watts"].is_null() && of_18["energy_kwh"].is_null());
    let lines = run("estimate --n 14 --threads 2 --memory 1GiB --watts 50");
    let lines = text(&lines.stdout);
    for part in ["core time", "2 such cores", "disk", "kWh", "model"] {
        assert!(lines.contains(part), "'{part}' in\n{lines}");
    }
}

#[test]
fn results_fit_a_terminal_of_the_usual_width() {
    for arguments in [
        "count --n 17 --threads 2",
        "count --n 22 --threads 2 --sample 0.00001",
        "estimate --n 16 --threads 2 --memory 1GiB --budget 5s --watts 250",
    ] {
        let output = run(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines: Vec<_> = text(&output.stdout).lines().collect();
        assert!(lines.len() > 2, "{arguments}: {lines:#?}");
        for line in lines {
            assert!(line.chars().count() <= 80, "{arguments}: {line}");
        }
    }
}

#[test]
fn estimates_of_nothing_are_refused_with_what_to_give() {
    for (arguments, says) in [
        ("estimate", "--n"),
        ("estimate --n 0", "whole number from 1 to 32"),
        ("estimate --n 16 --cores 0", "--cores"),
        ("estimate --n 16 --watts -3", "watts are a number above 0"),
        ("estimate --n 16 --budget 0s", "--budget"),
        (
            "estimate --n 28 --threads 2 --memory 10MiB",
            "N = 28 needs at least --memory",
        ),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(says), "{arguments}: {said}");
    }
}
