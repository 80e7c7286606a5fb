//! Workers that pause, that are told to stop, and pods that are shut down: nothing is lost by it, and
//! nothing counts against anybody.

use std::{fs, path::Path};

use proto::v1::{Status, Worker};
use tests::{
    cluster::{Cluster, by_rows, result},
    process::{End, PATIENCE, Process},
};

/// A board in tasks of some milliseconds: how it is counted, and all of its solutions.
struct Board {
    arguments: [&'static str; 8],
    solutions: &'static str,
}

const fn board(n: &'static str, solutions: &'static str) -> Board {
    Board {
        arguments: by_rows(n, "10000"),
        solutions,
    }
}

/// Less than a second of one core with the portable kernel.
const SHORT: Board = board("16", "14772512");

/// A minute: it outlasts several looks at a battery.
const LONG: Board = board("18", "666090624");

fn named<'a>(status: &'a Status, name: &str) -> Option<&'a Worker> {
    status.workers.iter().find(|worker| worker.name == name)
}

fn has_counted(status: &Status, name: &str) -> bool {
    named(status, name).is_some_and(|worker| worker.tasks_done > 0)
}

/// The total is the known one, and no task was ever set aside.
fn check(board: &Board, cluster: &Cluster, coordinator: Process) {
    let end = coordinator.end_within(10 * PATIENCE);
    assert!(!end.stderr.contains("parked"), "{end:#?}");
    assert_eq!(result(&end)["solutions"], board.solutions);
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
}

fn check_ended_well(end: &End) {
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stderr.contains("stopped: "), "{end:#?}");
}

/// A laptop of which the cable is out, or in.
fn plug(home: &Path, online: bool) {
    let words = [
        ("AC/type", "Mains"),
        ("AC/online", if online { "1" } else { "0" }),
        ("BAT0/type", "Battery"),
        (
            "BAT0/status",
            if online { "Charging" } else { "Discharging" },
        ),
    ];
    for (file, word) in words {
        let file = home.join(file);
        fs::create_dir_all(file.parent().expect("it has one")).unwrap();
        fs::write(file, word).unwrap();
    }
}

#[tokio::test]
async fn a_laptop_counts_while_its_cable_is_in() {
    let power = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(&LONG.arguments);
    let coordinator = cluster.coordinator();
    plug(power.path(), true);
    let directory = power.path().to_str().unwrap();
    let home = [
        "--pause-on-battery",
        "--power-supplies",
        directory,
        "--between",
        "00:00-12:00,12:00-24:00",
        "--idle-timeout",
        "1s",
    ];
    let laptop = cluster.worker_with("laptop", &home);
    cluster.status(|status| has_counted(status, "laptop")).await;
    plug(power.path(), false);
    let paused = cluster
        .status(|status| named(status, "laptop").is_some_and(|laptop| laptop.state == "paused"))
        .await;
    let shown = named(&paused, "laptop").unwrap();
    assert_eq!(shown.paused, "on battery");
    let listed = cluster.queensctl(&["workers"]);
    assert!(
        listed.stdout.contains("laptop pauses: on battery"),
        "{listed:#?}"
    );
    // What it was on is done or given back, and it takes nothing more.
    let idle = cluster
        .status(|status| named(status, "laptop").is_some_and(|laptop| laptop.leases == 0))
        .await;
    assert!(idle.tasks_done < idle.tasks_total, "it paused midway");
    let done = named(&idle, "laptop").unwrap().tasks_done;
    plug(power.path(), true);
    let again = |status: &Status| {
        named(status, "laptop")
            .is_some_and(|laptop| laptop.tasks_done > done && laptop.paused.is_empty())
    };
    cluster.status(again).await;
    // What is left takes one with a fast kernel much less.
    let _desk = cluster.quick_worker(&cluster.url(), "desk");
    check(&LONG, &cluster, coordinator);
    check_ended_well(&laptop.end());
}

/// A span of hours that has passed, or is still to come: not now, and not soon.
fn other_hours() -> String {
    use std::time::{SystemTime, UNIX_EPOCH};
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    // By UTC, in which the worker is started; six hours from now.
    let hour = (now / 3600 + 6) % 24;
    format!("{hour:02}:00-{hour:02}:59")
}

#[tokio::test]
async fn outside_of_its_hours_a_worker_waits_and_one_command_stops_it() {
    let cluster = Cluster::new(&SHORT.arguments);
    let coordinator = cluster.coordinator();
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path().to_str().unwrap();
    let mut command =
        cluster.worker_command("night", &["--spool", spool, "--between", &other_hours()]);
    let night = Process::start("night", command.env("TZ", "UTC"));
    let paused = cluster
        .status(|status| named(status, "night").is_some_and(|night| night.state == "paused"))
        .await;
    let why = &named(&paused, "night").unwrap().paused;
    assert!(why.starts_with("outside of its hours until "), "{why}");
    let stopped = cluster.worker_stop(spool);
    assert_eq!(stopped.code, Some(0), "{stopped:#?}");
    assert!(
        stopped.stdout.contains("stopped: the worker with spool"),
        "{stopped:#?}"
    );
    let end = night.end();
    check_ended_well(&end);
    assert!(end.stderr.contains("0 tasks counted"), "{end:#?}");
    let nobody = cluster.worker_stop(spool);
    assert_eq!(nobody.code, Some(1), "{nobody:#?}");
    assert!(
        nobody.stderr.contains("no worker runs with a spool in"),
        "{nobody:#?}"
    );
    let _day = cluster.worker("day");
    check(&SHORT, &cluster, coordinator);
}

#[tokio::test]
async fn an_operator_has_a_worker_stop_and_it_counts_again_when_started_again() {
    let cluster = Cluster::new(&SHORT.arguments);
    let coordinator = cluster.coordinator();
    let first = cluster.worker("first");
    cluster.status(|status| has_counted(status, "first")).await;
    let told = cluster.queensctl(&["workers", "drain", "first"]);
    assert_eq!(told.code, Some(0), "{told:#?}");
    assert!(told.stdout.starts_with("first ("), "{told:#?}");
    let end = first.end();
    check_ended_well(&end);
    assert!(
        end.stderr.contains("an operator has this worker stop"),
        "{end:#?}"
    );
    for (name, complaint) in [("first", "is not there"), ("second", "no worker 'second'")] {
        let refused = cluster.queensctl(&["workers", "drain", name]);
        assert_eq!(refused.code, Some(1), "{refused:#?}");
        assert!(refused.stderr.contains(complaint), "{refused:#?}");
    }
    let midway = cluster.status(|_| true).await;
    assert!(midway.tasks_done < midway.tasks_total, "it was told midway");
    let again = cluster.worker_with("first", &["--idle-timeout", "1s"]);
    check(&SHORT, &cluster, coordinator);
    check_ended_well(&again.end());
}

#[tokio::test]
async fn a_pod_is_gone_within_its_grace_period() {
    let grace = grace_period();
    // Tasks that take far longer than there is time: they are given back, not waited for.
    let cluster = Cluster::new(&["--n", "20", "--method", "rows", "--task-cost", "600000000"]);
    let coordinator = cluster.coordinator();
    let pod = cluster.worker("pod");
    let begun = |status: &Status| named(status, "pod").is_some_and(|pod| pod.crews > 0);
    cluster.status(begun).await;
    // As the kubelet has it: SIGTERM to the first process, and SIGKILL to what is there after the grace.
    let watch = tokio::time::timeout(
        grace,
        tokio::task::spawn_blocking(move || {
            pod.signal("TERM");
            pod.end()
        }),
    );
    let end = watch.await.expect("gone before it is killed").unwrap();
    check_ended_well(&end);
    let after = cluster.status(|status| status.tasks_leased == 0).await;
    assert_eq!((after.tasks_parked, after.tasks_done), (0, 0));
    // So is the coordinator, which has nothing to finish.
    let watch = tokio::time::timeout(
        grace,
        tokio::task::spawn_blocking(move || {
            coordinator.signal("TERM");
            coordinator.end()
        }),
    );
    let end = watch.await.expect("gone before it is killed").unwrap();
    assert_eq!(end.code, Some(130), "its state is saved: {end:#?}");
}

/// What the manifest gives a worker's pod.
fn grace_period() -> std::time::Duration {
    let manifest = include_str!("../../deploy/kubernetes/base/worker.yaml");
    let named = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("terminationGracePeriodSeconds:"));
    let seconds = named
        .expect("a grace period")
        .trim()
        .parse()
        .expect("seconds");
    std::time::Duration::from_secs(seconds)
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_worker_takes_what_nobody_else_wants() {
    let cluster = Cluster::new(&SHORT.arguments);
    let worker = cluster.worker_with("idle", &["--idle-priority"]);
    worker.stderr_line("queens worker");
    let threads = fs::read_dir(format!("/proc/{}/task", worker.id())).unwrap();
    for thread in threads {
        // A thread may end while it is looked at.
        let Ok(told) = fs::read_to_string(thread.unwrap().path().join("stat")) else {
            continue;
        };
        // After the name, which may hold anything: fields 3 and on. SCHED_IDLE is 5.
        let (_, fields) = told.rsplit_once(')').expect("a name");
        let fields: Vec<_> = fields.split_whitespace().collect();
        assert_eq!((fields[19 - 3], fields[41 - 3]), ("19", "5"), "{told}");
    }
}
