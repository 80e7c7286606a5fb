//! Coordinators that lose their disk for good, and go on from the archive that followed it.
//!
//! With feature `archive`. QUEENS_DISK_LOSSES says how many disks: two in the usual suite, 50 by
//! `just disk-losses`. With feature `postgres` too, a run moves from a disk to a database.
#![cfg(feature = "archive")]

use std::{
    collections::BTreeMap,
    env, fs,
    net::TcpListener,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use tests::{
    binaries::binaries,
    cluster::result,
    process::{End, PATIENCE, Process},
    recorder::Recorder,
};

/// What docs/operations.md says is lost with a disk at most, while the archive can be written.
const WINDOW: Duration = Duration::from_secs(10);

/// Between two looks at what another process has done.
const LOOK: Duration = Duration::from_millis(20);

/// The board takes longer than [`PATIENCE`], beside other work.
const A_RUN: Duration = Duration::from_secs(30 * PATIENCE.as_secs());

/// A board of many tasks: its number, how they are cut, all of its solutions.
const BOARD: (&str, &str, &str) = ("18", "2000", "666090624");

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    free.local_addr().expect("a bound port").port()
}

/// A coordinator of the board at a port, which ends when that is counted.
fn coordinator(port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--n", BOARD.0, "--method", "rows", "--prefix", "first-rows"])
        .args(["--task-cost", BOARD.1, "--exit-when-done", "--json"])
        .args(["--no-http", "--lease-ms", "1500", "--sync-ms", "200"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(more);
    command
}

fn archived(port: u16, data: &Path, archive: &Path) -> Process {
    let mut command = coordinator(port, &[]);
    command.arg("--data-dir").arg(data);
    command.arg("--archive").arg(archive);
    let process = Process::start("the coordinator", &mut command);
    process.stderr_line("listening on");
    process
}

/// A worker whose tasks take so long that a disk can be lost in between.
fn slow_worker(spool: &Path, way: [&str; 2]) -> Process {
    let mut command = Command::new(&binaries().worker);
    command
        .args(["--memory", "1GiB", "--name", "slow", "--threads", "1"])
        .args(["--kernel", "scalar", "--spool"])
        .arg(spool)
        .args(way);
    Process::start("slow", &mut command)
}

fn restore(archive: &Path, data: &Path) -> End {
    let mut command = Command::new(&binaries().queensctl);
    let end = Process::run("queensctl", command.arg("restore").arg(archive).arg(data));
    assert_eq!(end.code, Some(0), "{end:#?}");
    end
}

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(LOOK);
    }
}

/// The epoch of each accepted task in the journals of a data directory.
fn accepted(data: &Path) -> BTreeMap<u64, u64> {
    let mut accepted = BTreeMap::new();
    for run in fs::read_dir(data.join("runs")).unwrap() {
        for file in fs::read_dir(run.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if !path.to_string_lossy().ends_with(".jsonl") {
                continue;
            }
            for line in fs::read_to_string(&path).unwrap().lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                if line["kind"] == "accepted" {
                    let [task, epoch] = ["task", "epoch"].map(|key| line[key].as_u64().unwrap());
                    assert_eq!(accepted.insert(task, epoch), None, "task {task} twice");
                }
            }
        }
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_disk_costs_no_more_than_the_window() {
    let losses = env::var("QUEENS_DISK_LOSSES");
    let losses = losses.map_or(2, |number| number.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let [data, archive] = ["data", "archive"].map(|name| dir.path().join(name));
    let port = free_port();
    let recorder = Recorder::before(&format!("http://127.0.0.1:{port}")).await;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut oldest, mut acknowledged, mut gone) = (Duration::ZERO, 0, 0);
    for _ in 0..losses {
        // Of a run each: the board is counted sooner than that many disks are lost.
        let _ = (fs::remove_dir_all(&data), fs::remove_dir_all(&archive));
        let serving = archived(port, &data, &archive);
        let spool = tempfile::tempdir().unwrap();
        let worker = slow_worker(spool.path(), ["--coordinator", &recorder.url]);
        let before = recorder.recorded().len();
        until("nothing is acknowledged", || {
            recorder.recorded().len() > before
        });
        // A pass and a half from here or two and a half, or between.
        let life = Duration::from_millis(rng.random_range(7_500..12_500));
        tokio::time::sleep(life).await;
        serving.kill();
        let lost = Instant::now();
        drop(worker);
        let told = recorder.recorded().split_off(before);
        fs::remove_dir_all(&data).unwrap();
        restore(&archive, &data);
        let kept = accepted(&data);
        for (when, acknowledgement) in &told {
            let task = acknowledgement.task.as_ref().expect("of a task").task;
            if kept.get(&task) != Some(&acknowledgement.epoch) {
                oldest = oldest.max(lost.duration_since(*when));
                gone += 1;
            }
        }
        assert!(oldest <= WINDOW, "what was kept {oldest:?} before is lost");
        assert!(!kept.is_empty() && told.len() >= kept.len(), "{told:?}");
        acknowledged += told.len();
    }
    // The last one is counted to its end from there.
    let serving = archived(port, &data, &archive);
    let mut command = Command::new(&binaries().worker);
    let quick = Process::start(
        "quick",
        command
            .args([
                "--name",
                "quick",
                "--threads",
                "2",
                "--memory",
                "1GiB",
                "--spool",
            ])
            .arg(dir.path().join("quick"))
            .args(["--coordinator", &recorder.url]),
    );
    let end = tokio::task::block_in_place(|| serving.end_within(A_RUN));
    drop(quick);
    assert_eq!(result(&end)["solutions"], BOARD.2, "{end:#?}");
    println!(
        "{losses} disks lost: of {acknowledged} acknowledged results {gone} were not in the archive, the \
         oldest {:.1} s old (the window is {} s); the last run went on to its end, exact",
        oldest.as_secs_f64(),
        WINDOW.as_secs()
    );
}

#[cfg(feature = "postgres")]
#[test]
fn a_run_moves_from_a_disk_to_a_database_and_comes_back_from_the_archive() {
    use tests::postgres::Postgres;

    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let address = at("store");
    fs::write(&address, &url).unwrap();
    let database = format!("@{}", address.display());
    let ports = [free_port(), free_port()];
    let peers = ports.map(|port| format!("127.0.0.1:{port}"));
    let queensctl = |arguments: &[&str]| {
        let end = Process::run(
            "queensctl",
            Command::new(&binaries().queensctl).args(arguments),
        );
        assert_eq!(end.code, Some(0), "{end:#?}");
        println!("$ queensctl {}\n{}", arguments[0], end.stdout);
    };
    let lines = || server.ask("queens", "SELECT count(*) FROM queens.lines");
    let grows = |from: String| until("nothing is kept", || lines() != from);

    let string_of = |process: &Process| {
        let line = process.stderr_line("queens1-");
        let join = line.split("QUEENS_JOIN=").nth(1).expect("a join string");
        join.split(' ').next().expect("a join string").to_owned()
    };

    // On a disk, which an archive follows.
    let data = at("data");
    let mut command = coordinator(ports[0], &["--require-token"]);
    command.arg("--data-dir").arg(&data);
    command.arg("--archive").arg(at("archive"));
    let on_disk = Process::start("the coordinator", &mut command);
    let slow = slow_worker(&at("slow"), ["--join", &string_of(&on_disk)]);
    until("too little is kept", || accepted(&data).len() > 200);
    on_disk.signal("INT");
    let end = on_disk.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
    let on_disk = accepted(&data);
    drop(slow);

    // In a database, with another coordinator that stands by.
    queensctl(&["copy", data.to_str().unwrap(), &database]);
    queensctl(&["verify", &database]);
    let in_database = |which: usize| {
        let more = ["--require-token", "--peer", &peers[1 - which]];
        let mut command = coordinator(ports[which], &more);
        Process::start("the coordinator", command.env("QUEENS_STORE", &url))
    };
    let leader = in_database(0);
    // Its string names both places.
    let join = string_of(&leader);
    let slow = slow_worker(&at("slow"), ["--join", &join]);
    let standby = in_database(1);
    standby.stderr_line("standing by");
    grows(lines());
    leader.kill();
    standby.stderr_line("listening on");
    grows(lines());
    let mut command = Command::new(&binaries().worker);
    command.args(["--name", "quick", "--threads", "2", "--memory", "1GiB"]);
    command.args(["--join", &join, "--spool"]).arg(at("quick"));
    let quick = Process::start("quick", &mut command);
    let end = standby.end_within(A_RUN);
    drop((slow, quick));
    assert_eq!(result(&end)["solutions"], BOARD.2, "{end:#?}");
    queensctl(&["verify", &database]);

    // Elsewhere from the archive, as far as the disk came: all of it, since it ended in order.
    let elsewhere = at("elsewhere");
    println!(
        "$ queensctl restore\n{}",
        restore(&at("archive"), &elsewhere).stdout
    );
    assert_eq!(accepted(&elsewhere), on_disk);
    let mut command = coordinator(free_port(), &["--local", "--threads", "2"]);
    command.arg("--data-dir").arg(&elsewhere);
    let end = Process::start("the coordinator", &mut command).end_within(A_RUN);
    assert_eq!(result(&end)["solutions"], BOARD.2, "{end:#?}");
    queensctl(&["verify", elsewhere.to_str().unwrap()]);
}
