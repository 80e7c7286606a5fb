//! Coordinators that lose their disk and continue from its archive.
//! QUEENS_DISK_LOSSES sets the number of lost disks: two by default, 50 by `just disk-losses`.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    time::{Duration, Instant},
};

use proto::v1::{Acknowledgement, Verdict};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use tests::{
    cluster::{Cluster, journal, listening},
    process::{End, Process, queensctl, wait_until},
    service::Recorder,
};

use super::{SMALL, accepted, lease, number};

/// Starts a coordinator that archives its directory.
fn archived(cluster: &Cluster) -> Process {
    listening(cluster.ending(&[]).arg("--archive").arg(cluster.path("archive")))
}

fn restore(archive: &Path, data: &Path) -> End {
    Process::run(queensctl(&["restore"]).arg(archive).arg(data)).ok()
}

/// Returns the size of the journals of an archive's runs.
fn archived_bytes(archive: &Path) -> u64 {
    let Ok(runs) = fs::read_dir(archive.join("runs")) else { return 0 };
    let runs = runs.map(|run| run.unwrap().path());
    let runs = runs.filter(|run| run.join("manifest.json").exists());
    let growing = runs.map(|run| fs::metadata(run.join("growing.000001.jsonl")));
    growing.map(|file| file.map_or(0, |file| file.len())).sum()
}

/// Returns a time before which all results are in the archive, according to the status.
async fn archived_before(cluster: &Cluster) -> Instant {
    let asked = Instant::now();
    // A status may be older than the request, but not if it differs from an earlier answer.
    let earlier = cluster.status(|_| true).await;
    let status = cluster.status(|status| status.tasks_done > earlier.tasks_done).await;
    let lag = status.coordinator.and_then(|coordinator| coordinator.archive_behind_ms);
    // The lag is rounded down.
    asked - Duration::from_millis(lag.expect("an archive") + 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_disk_costs_no_more_than_the_stated_lag() {
    let losses = number("QUEENS_DISK_LOSSES", 2);
    let cluster = Cluster::new(&SMALL.run);
    let (data, archive) = (cluster.data_dir(), cluster.path("archive"));
    let recorder = Recorder::start(&data).await;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut oldest, mut longest) = (Duration::ZERO, Duration::ZERO);
    let (mut acknowledged, mut gone) = (0, 0);
    for loss in 0..losses {
        // Each loss has a new run: a single one would be complete too early.
        let _ = (fs::remove_dir_all(&data), fs::remove_dir_all(&archive));
        let serving = archived(&cluster);
        let slow = cluster.worker_by(&recorder.connection(), &format!("slow-{loss}"), &[]).slowed();
        let before = recorder.recorded().len();
        wait_until("something is acknowledged", || recorder.recorded().len() > before);
        // Two passes of the archive with results, and a part of another one.
        wait_until("a run is archived with results", || archived_bytes(&archive) > 0);
        let first = archived_bytes(&archive);
        wait_until("more results are archived", || archived_bytes(&archive) > first);
        let more = recorder.recorded().len() + rng.random_range(0..500);
        wait_until("results are acknowledged", || recorder.recorded().len() > more);
        let archived = archived_before(&cluster).await;
        serving.kill();
        let lost = Instant::now();
        longest = longest.max(lost - archived);
        drop(slow);
        let received = recorder.recorded().split_off(before);
        fs::remove_dir_all(&data).unwrap();
        restore(&archive, &data);
        let kept = accepted(&journal(&data));
        let is_lost = |of: &Acknowledgement| {
            let (task, epoch) = lease(of);
            let accepted = kept.get(&task);
            match of.verdict() {
                Verdict::Accepted => accepted != Some(&epoch),
                // Another count of the task was accepted: its lease had expired, or this was a recheck.
                _ => accepted.is_none(),
            }
        };
        for (when, acknowledgement) in received.iter().filter(|(_, of)| is_lost(of)) {
            let early = archived.saturating_duration_since(*when);
            assert!(early.is_zero(), "lost {early:?} before the stated lag: {acknowledgement:?}");
            oldest = oldest.max(lost.saturating_duration_since(*when));
            gone += 1;
        }
        assert!(received.len() >= kept.len(), "{received:?}");
        acknowledged += received.len();
    }
    // The last run is counted to its end.
    let serving = archived(&cluster);
    let fast = cluster.fast_worker(&recorder.connection());
    let end = tokio::task::block_in_place(|| serving.end());
    drop(fast);
    assert_eq!(end.json()["solutions"], SMALL.solutions);
    println!(
        "{losses} disks lost: of {acknowledged} acknowledged results {gone} were not in the archive, the \
         oldest {:.1} s old, with a stated lag of up to {:.1} s; the last run is exact",
        oldest.as_secs_f64(),
        longest.as_secs_f64()
    );
}

#[test]
fn an_archive_that_does_not_fit_is_refused_before_the_data_exists() {
    let cluster = Cluster::new(&["--n", "8"]);
    let (data, archive) = (cluster.data_dir(), cluster.path("archive"));
    archived(&cluster).terminate();
    fs::rename(&data, cluster.path("moved")).unwrap();
    for (place, reason) in [
        (archive, "it is not the archive of"),
        (data.join("archive"), "overlaps with"),
        ("s3:///prefix".into(), "no bucket is named"),
    ] {
        let mut command = cluster.command(&[]);
        Process::run(command.arg("--archive").arg(place)).refused(1, &[reason]);
        assert!(!data.exists(), "{reason}");
    }
}

#[test]
fn a_coordinator_can_be_stopped_while_it_starts() {
    // The bucket is at a server that never answers.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let address = server.local_addr().unwrap();
    let cluster = Cluster::new(&["--n", "8"]);
    let mut command = cluster.command(&["--archive", "s3://bucket/prefix"]);
    command.env("AWS_ENDPOINT", format!("http://{address}")).env("AWS_ALLOW_HTTP", "true");
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] {
        command.env(name, "test");
    }
    let starting = Process::start(command.env("NO_PROXY", "127.0.0.1"));
    let mut connection = None;
    wait_until("the archive is read", || {
        connection = server.accept().ok();
        connection.is_some()
    });
    let end = starting.terminate().code(130).logs(&["interrupted during the start"]);
    assert_eq!(end.stdout, "");
    drop(connection);
}

#[test]
fn a_run_moves_from_a_disk_to_a_database_and_comes_back_from_the_archive() {
    use auth::Role;
    use kit::postgres::Postgres;
    use tests::service::find_join;

    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let cluster = Cluster::new(&SMALL.run);
    fs::write(cluster.path("store"), &url).unwrap();
    let database = format!("@{}", cluster.path("store").display());
    let queensctl = |arguments: &[&str]| {
        let end = Process::run(queensctl(arguments)).ok();
        println!("$ queensctl {}\n{}", arguments[0], end.stdout);
    };
    let lines = || server.ask("queens", "SELECT count(*) FROM queens.lines");
    let grows = |from: String| wait_until("results are stored", || lines() != from);

    // On a disk, with an archive.
    let [_, data] = &cluster.connection();
    let serving = archived(&cluster);
    let slow = cluster.worker("slow").slowed();
    let on_disk = || accepted(&journal(Path::new(data)));
    wait_until("200 results are stored", || on_disk().len() > 200);
    serving.interrupt();
    let on_disk = on_disk();
    drop(slow);

    // In a database, with a standby.
    queensctl(&["copy", data, &database]);
    queensctl(&["verify", &database]);
    let in_database = |cluster: &Cluster, peer: &Cluster| {
        let mut command = cluster.ending(&["--peer", &peer.address()]);
        Process::start(command.env("QUEENS_STORE", &url))
    };
    let first = Cluster::new(&SMALL.run);
    let second = first.standby();
    let leader = in_database(&first, &second);
    leader.stderr_line("listening on");
    // The join string contains both addresses.
    let join = find_join(&first.data_dir(), Role::Worker).unwrap().expose();
    let connection = ["--join".to_owned(), join];
    let slow = cluster.worker_by(&connection, "slow", &[]).slowed();
    let standby = in_database(&second, &first);
    standby.stderr_line("Standby: ");
    grows(lines());
    leader.kill();
    standby.stderr_line("listening on");
    grows(lines());
    let fast = cluster.fast_worker(&connection);
    let end = standby.end();
    drop((slow, fast));
    assert_eq!(end.json()["solutions"], SMALL.solutions);
    queensctl(&["verify", &database]);

    // Restored elsewhere: everything that was on the disk, since the coordinator was stopped cleanly.
    let elsewhere = Cluster::new(&SMALL.run);
    let restored = restore(&cluster.path("archive"), &elsewhere.data_dir());
    println!("$ queensctl restore\n{}", restored.stdout);
    assert_eq!(accepted(&journal(&elsewhere.data_dir())), on_disk);
    let local = elsewhere.ending(&["--local", "--threads", "2"]);
    let end = Process::start(local).end();
    assert_eq!(end.json()["solutions"], SMALL.solutions);
    elsewhere.verify().ok();
}
