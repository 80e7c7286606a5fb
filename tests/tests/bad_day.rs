//! What may go wrong on the coordinator's machine: the disk is full, descriptors run out, processes
//! end and start again and again. Nothing hangs, nothing is lost, and the cause is said.

use std::{
    env, fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
};

use proto::v1::{self, RunRequest, SubmitRequest};
use tempfile::TempDir;
use tests::{
    binaries::binaries,
    cluster::{Cluster, by_rows, result},
    face::{HandWorker, count},
    process::{End, Process},
};

/// A coordinator in a scratch directory.
fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(arguments)
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir);
    command
}

/// Where a coordinator serves, as soon as it does.
fn url(coordinator: &Process) -> String {
    let line = coordinator.stderr_line("listening on");
    let (_, place) = line.split_once("listening on ").expect("looked for");
    let place = place.split(' ').next().expect("a word");
    format!("http://{}", place.trim_end_matches([':', ',']))
}

fn local(dir: &Path, arguments: &[&str]) -> End {
    let quick = ["--threads", "1", "--memory", "256MiB", "--json"];
    let arguments = [arguments, &quick].concat();
    Process::run("the coordinator", &mut command(dir, &arguments))
}

/// One line says what is wrong; it holds all of `parts`.
fn check_error(end: &End, parts: &[&str]) {
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(!end.stderr.contains("panicked"), "{end:#?}");
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
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
}

/// A directory with these runs, none of them counted.
fn fresh_runs(dir: &Path, boards: &[&str]) {
    let process = Process::start("the coordinator", &mut command(dir, &[]));
    let url = url(&process);
    for n in boards {
        let mut submit = Command::new(&binaries().queensctl);
        submit.args(["--coordinator", &url, "submit", "--n", n]);
        let end = Process::run("queensctl", &mut submit);
        assert_eq!(end.code, Some(0), "{end:#?}");
    }
    process.signal("TERM");
    let end = process.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
}

/// Ends again and again, with one run and with three, counted now and counted before. How often is
/// set by QUEENS_ENDS; `just ends` does a thousand beside two busy cores.
#[test]
fn every_end_of_a_run_is_an_end() {
    let times = env::var("QUEENS_ENDS").map_or(3, |times| times.parse().expect("a number"));
    for boards in [&["8"] as &[&str], &["8", "9", "10"]] {
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("fresh");
        fresh_runs(&fresh, boards);
        for time in 0..times {
            let data = dir.path().join(format!("data-{time}"));
            copy(&fresh, &data);
            for _ in ["fresh", "finished"] {
                let end = local(&data, &["--local"]);
                assert_eq!(end.code, Some(0), "{end:#?}");
                assert_eq!(end.stdout.lines().count(), boards.len(), "{end:#?}");
            }
            fs::remove_dir_all(&data).unwrap();
        }
    }
}

/// A file system of a size, in memory. Dropping it unmounts it.
struct Small(PathBuf);

impl Small {
    /// `None`, said loudly, where this user may not mount.
    fn mount(dir: &TempDir, name: &str, kibibytes: u32) -> Option<Self> {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kibibytes}k"), "tmpfs"]);
        let mounted = mount.arg(&path).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(path));
        }
        eprintln!(
            "NOT TESTED: this user may not mount a tmpfs, so that nothing here fills a disk; run \
             the test as root"
        );
        None
    }

    fn grow(&self) {
        let mut mount = Command::new("mount");
        let grown = mount.args(["-o", "remount,size=64m"]).arg(&self.0).status();
        assert!(grown.expect("mount runs").success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_said_and_the_same_command_ends_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // From too little for the first file to enough for most of the run.
    for kibibytes in [16, 24, 40, 64, 128, 512, 600, 1024, 1100] {
        let Some(small) = Small::mount(&dir, &format!("of-{kibibytes}"), kibibytes) else {
            return;
        };
        let data = small.0.join("data");
        let run = [
            "--n",
            "12",
            "--method",
            "rows",
            "--task-cost",
            "10",
            "--local",
        ];
        for _ in 0..4 {
            let end = local(&data, &run);
            if end.code == Some(0) {
                break;
            }
            let place = small.0.to_str().expect("a plain path");
            check_error(&end, &[place, "No space left", "free space"]);
        }
        let set_aside = fs::read_dir(&data)
            .map(|entries| {
                let names = entries.map(|entry| entry.unwrap().file_name());
                names
                    .filter(|name| name.to_string_lossy().starts_with("db.bad"))
                    .count()
            })
            .unwrap_or(0);
        assert!(set_aside <= 1, "{set_aside} databases were set aside");
        small.grow();
        let end = result(&local(&data, &run));
        assert_eq!(end["solutions"], "14200", "{kibibytes} KiB");
    }
}

/// The database of tasks wants room even to be read; the journal does not.
#[test]
fn a_result_is_read_from_a_disk_that_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(&dir, "small", 8192) else {
        return;
    };
    let data = small.0.join("data");
    let run = ["--n", "10", "--task-cost", "10", "--local"];
    assert_eq!(result(&local(&data, &run))["solutions"], "724");
    let filled = fs::write(small.0.join("filler"), vec![1; 16 << 20]);
    assert!(filled.is_err(), "the disk is full");
    let end = local(&data, &run);
    if end.code == Some(0) {
        assert_eq!(result(&end)["solutions"], "724");
    } else {
        check_error(&end, &["No space left", "queensctl verify"]);
    }
    let queensctl = |arguments: &[&str]| {
        let mut command = Command::new(&binaries().queensctl);
        Process::run("queensctl", command.args(arguments))
    };
    let place = data.to_str().expect("a plain path");
    let end = queensctl(&["verify", place]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains("solutions  724,"), "{end:#?}");
    // A certificate is written where there is room, or not at all.
    let out = dir.path().join("ten.json");
    let end = queensctl(&[
        "certify",
        place,
        "--out",
        out.to_str().expect("a plain path"),
    ]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    let out = small.0.join("ten.json");
    let end = queensctl(&[
        "certify",
        place,
        "--out",
        out.to_str().expect("a plain path"),
    ]);
    check_error(&end, &["cannot write", "No space left"]);
    assert!(!out.exists(), "half a certificate");
}

/// The terminal is gone, or the disk that the output goes to is full: other runs are served all the same.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_coordinator_whose_results_nobody_takes_serves_on() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let heard = command(dir.path(), &["--n", "8", "--no-http"]);
    let mut unheard = Command::new("sh");
    unheard
        .args(["-c", "exec \"$0\" \"$@\" > /dev/full"])
        .arg(heard.get_program())
        .args(heard.get_args());
    let coordinator = Process::start("the coordinator", &mut unheard);
    let url = url(&coordinator);
    HandWorker::at(&url, 7).await?.count_all().await?;
    coordinator.stderr_line("cannot write the result to standard output");
    coordinator.stderr_line("serving on");
    let mut wait = Command::new(&binaries().queensctl);
    wait.args(["--coordinator", &url, "wait", "last"]);
    let end = Process::run("queensctl", &mut wait);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains("92"), "{end:#?}");
    coordinator.signal("TERM");
    assert_eq!(coordinator.end().code, Some(130));
    Ok(())
}

/// A coordinator that may have 64 open files, and a client that came before everybody else.
#[tokio::test]
async fn requests_at_the_limit_of_open_files_are_followed() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let run = [
        "--n",
        "8",
        "--task-cost",
        "10",
        "--exit-when-done",
        "--json",
    ];
    let unlimited = command(dir.path(), &run);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(unlimited.get_program())
        .args(unlimited.get_args());
    let coordinator = Process::start("the coordinator", &mut limited);
    let url = url(&coordinator);
    let mut worker = HandWorker::at(&url, 7).await?;
    let mut runs = v1::runs_client::RunsClient::new(
        tonic::transport::Endpoint::from_shared(url.clone())?
            .connect()
            .await?,
    );
    let first = worker.sync(worker.request(Vec::new(), 1.0)).await?.grants;
    worker
        .sync(worker.request(first.iter().map(count).collect(), 0.0))
        .await?;

    // More than are served: those beyond are refused, and the others keep their places.
    let address = url.trim_start_matches("http://");
    let crowd: Vec<_> = (0..200)
        .filter_map(|_| TcpStream::connect(address).ok())
        .collect();
    coordinator.stderr_line("was refused");
    let run = runs.list(v1::ListRequest {}).await?.into_inner().runs[0].run;
    let request = RunRequest { run };
    for _ in 0..3 {
        let mut records = runs.export(request).await?.into_inner();
        let mut lines = 0;
        while records.message().await?.is_some() {
            lines += 1;
        }
        assert_eq!(lines, first.len());
        runs.pause(request).await?;
        runs.resume(request).await?;
        let spec = v1::PlanSpec {
            n: 6,
            layout: v1::Layout::FirstRows.into(),
            task_cost: 0,
        };
        let submitted = runs
            .submit(SubmitRequest {
                spec: Some(spec),
                ..SubmitRequest::default()
            })
            .await?
            .into_inner();
        let request = RunRequest { run: submitted.run };
        runs.cancel(request).await?;
        runs.delete(request).await?;
    }
    worker.count_all().await?;
    drop((worker, runs, crowd));
    assert_eq!(result(&coordinator.end())["solutions"], "92");
    Ok(())
}

/// A coordinator that serves on prints a total, takes it back, and prints the right one.
#[tokio::test]
async fn a_corrected_total_is_printed() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    // Without second counts of its own nobody contradicts the liar before the run is over.
    let run = ["--n", "8", "--task-cost", "10", "--recheck", "0", "--json"];
    let coordinator = Process::start("the coordinator", &mut command(dir.path(), &run));
    let url = url(&coordinator);
    let mut liar = HandWorker::at(&url, 7).await?;
    let mut grants = liar.sync(liar.request(Vec::new(), 1000.0)).await?.grants;
    let contested = count(&grants[0]);
    let mut lie = Some(contested.count + 8);
    while !grants.is_empty() {
        let mut partials: Vec<_> = grants.iter().map(count).collect();
        if let Some(lie) = lie.take() {
            partials[0].count = lie;
        }
        grants = liar.sync(liar.request(partials, 1000.0)).await?.grants;
    }
    coordinator.stdout_line(r#""solutions":"100""#);
    for id in [8, 9] {
        let mut honest = HandWorker::at(&url, id).await?;
        honest.sync(honest.request(vec![contested], 0.0)).await?;
    }
    coordinator.stderr_line("no longer holds");
    // Everything else that the liar alone had counted is in doubt.
    let mut honest = HandWorker::at(&url, 9).await?;
    assert!(honest.count_all().await? > 0);
    coordinator.stdout_line(r#""solutions":"92""#);
    coordinator.signal("TERM");
    let end = coordinator.end();
    assert_eq!(end.stdout.lines().count(), 2, "{end:#?}");
    Ok(())
}

/// The leases that a killed `--local` leaves are those of the next one, which takes them back at
/// once: both are the same worker.
#[test]
fn a_local_worker_is_the_same_after_every_start() {
    let dir = tempfile::tempdir().unwrap();
    for n in ["8", "9"] {
        let data = dir.path().join(n);
        assert_eq!(local(&data, &["--n", n, "--local"]).code, Some(0));
    }
    let mut workers = Vec::new();
    for n in ["8", "9"] {
        let runs = fs::read_dir(dir.path().join(n).join("runs")).unwrap();
        for run in runs {
            let journal = run.unwrap().path().join("journal.jsonl");
            for line in fs::read_to_string(journal).unwrap().lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                workers.push(line["worker"].as_str().unwrap().to_owned());
            }
        }
    }
    workers.dedup();
    assert_eq!(workers.len(), 1, "{workers:?}");
}

#[test]
fn a_run_that_is_over_is_deleted_with_everything_of_it() {
    let cluster = Cluster::new(&["--n", "18"]);
    let coordinator = cluster.coordinator();
    let run = cluster.data_files("manifest.json")[0]
        .parent()
        .and_then(Path::file_name)
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let end = cluster.queensctl(&["delete", &run]);
    check_error(&end, &[&run, "cancel it first"]);
    // Somebody waits for the run: without that the coordinator serves on.
    let end = cluster.queensctl(&["submit", "--n", "8"]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    let other = end.stdout.split([' ', ':']).nth(1).unwrap().to_owned();
    assert_eq!(cluster.queensctl(&["cancel", &other]).code, Some(0));
    let end = cluster.queensctl(&["delete", &other]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains(&other), "{end:#?}");
    assert!(!cluster.queensctl(&["runs"]).stdout.contains(&other));
    check_error(&cluster.queensctl(&["delete", &other]), &[&other, "no run"]);
    assert_eq!(cluster.data_files("manifest.json").len(), 1);
    drop(coordinator.kill());
    let _again = cluster.coordinator();
    assert_eq!(cluster.queensctl(&["runs"]).stdout.lines().count(), 2);
}

#[test]
fn a_directory_is_verified_while_its_coordinator_counts() {
    let run = by_rows("16", "10000");
    let cluster = Cluster::new(&run);
    let coordinator = cluster.coordinator();
    let _workers = ["first", "second"].map(|name| cluster.worker(name));
    for _ in 0..10 {
        let end = cluster.verify();
        assert_eq!(end.code, Some(0), "{end:#?}");
    }
    assert_eq!(result(&coordinator.end())["solutions"], "14772512");
}
