//! Real processes that crash, start late, stop, pause and run out of resources.
//! The total is exact, no attempt fails, nothing hangs, and the programs report the reason.

use std::{
    collections::VecDeque,
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use kit::count;
use proto::v1::{self, RunRequest, Status, SubmitRequest, WorkerState};
use tests::{
    cluster::{Cluster, SmallDisk, by_rows, files, journal, listening, named},
    load::memory_bytes,
    process::{End, Process, coordinator, in_shell, queensctl, wait_until, within, worker},
    service::HandWorker,
};
use tokio_stream::StreamExt as _;

/// A run of some seconds of one core, in tasks of some milliseconds.
const RUN: [&str; 8] = by_rows("16", "10000");
const TOTAL: &str = "14772512";

/// A run of some minutes of a slowed worker, in tasks of a third of a second.
const LONG: [&str; 8] = by_rows("17", "2000");
const LONG_TOTAL: &str = "95815104";

const IDLE: [&str; 2] = ["--idle-timeout", "1s"];

/// Returns whether more than a twentieth of the tasks is done.
fn under_way(status: &Status) -> bool {
    status.tasks_done * 20 > status.tasks_total
}

fn check(cluster: &Cluster, coordinator: Process) {
    let result = cluster.check_exact(coordinator, TOTAL);
    assert_eq!(result["fundamental"], "1846955");
}

/// Checks that a worker exited because nothing was left to do.
fn check_idle_end(worker: Process) {
    worker.end().ok().logs(&["all runs finished"]);
}

#[tokio::test]
async fn a_worker_outlasts_a_coordinator_that_is_away_and_ends_with_the_run() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker_with("only", &IDLE).slowed();
    cluster.status(under_way).await;
    coordinator.kill().killed();
    let worker = worker.at_full_speed();
    // The coordinator is usually away for longer than the idle timeout.
    worker.stderr_line("retry 5");
    check(&cluster, cluster.patient_coordinator());
    check_idle_end(worker);
}

#[tokio::test]
async fn workers_may_start_before_their_coordinator_and_end_with_its_run() {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let cluster = Cluster::new(&LONG);
    // The first start makes the join string that the workers find.
    cluster.coordinator().terminate().code(130);
    let workers = NAMES.map(|name| cluster.worker_with(name, &IDLE).slowed());
    for worker in &workers {
        worker.stderr_line("cannot be reached");
    }
    let coordinator = cluster.patient_coordinator();
    // A worker that calls after the end of the run, or has counted nothing by then, would wait for another run.
    let has_counted = |status: &Status, name: &str| {
        named(status, name).is_some_and(|worker| worker.tasks_done > 0)
    };
    cluster.status(|status| NAMES.into_iter().all(|name| has_counted(status, name))).await;
    let workers = workers.map(Process::at_full_speed);
    let _fast = cluster.fast_worker(&cluster.connection());
    let result = cluster.check_exact(coordinator, LONG_TOTAL);
    assert_eq!(result["fundamental"], "11977939");
    workers.into_iter().for_each(check_idle_end);
}

#[tokio::test]
async fn a_complete_run_prints_its_result_again_and_a_changed_digit_is_found() {
    let cluster = Cluster::new(&["--n", "12", "--task-cost", "100"]);
    let coordinator = cluster.coordinator();
    let worker = cluster.worker("only");
    let first = cluster.check_exact(coordinator, "14200");
    drop(worker);
    assert_eq!(cluster.coordinator().end().json(), first);

    let journal = &files(&cluster.data_dir(), "journal.jsonl")[0];
    let text = fs::read_to_string(journal).unwrap();
    let place = text.find("\"count\":").expect("records have counts");
    let place = place + text[place..].find(|c: char| c.is_ascii_digit()).expect("digits");
    let other = if &text[place..=place] == "9" { "8" } else { "9" };
    fs::write(journal, format!("{}{other}{}", &text[..place], &text[place + 1..])).unwrap();
    cluster.verify().code(3).logs(&["journal.jsonl, line 1:"]);
}

/// A repeated SIGTERM does not interrupt a drain; Ctrl-C does.
/// Batch systems repeat it, to the shell, to the processes and at the end of a grace period.
#[tokio::test]
async fn a_worker_that_gets_sigterm_again_continues_to_drain() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.patient_coordinator();
    let workers = ["patient", "hurried"].map(|name| cluster.worker(name).slowed());
    cluster.status(under_way).await;
    // Without answers no drain ends before the signals have come.
    coordinator.signal("STOP");
    let workers = workers.map(Process::at_full_speed);
    for worker in &workers {
        worker.signal("TERM");
        worker.stderr_line("draining: ");
    }
    let [patient, hurried] = workers;
    // Signals shortly after a TERM count as the same one, so both workers get more until one is interrupted.
    wait_until("Ctrl-C interrupts", || {
        patient.signal("TERM");
        hurried.signal("INT");
        hurried.has_ended()
    });
    patient.signal("TERM");
    hurried.end().code(130);
    coordinator.signal("CONT");
    patient.end().ok();
    let last = cluster.worker_with("last", &IDLE);
    check(&cluster, coordinator);
    check_idle_end(last);
}

#[test]
fn self_tests_need_little_memory_beyond_the_limit() {
    let cluster = Cluster::new(&["--n", "8"]);
    let _coordinator = cluster.serving();
    let mut command = worker(&["--threads", "8", "--memory", "64MiB", "--spool"]);
    command.arg(cluster.path("spool")).args(cluster.connection());
    // Not through `Process`, which removes RUST_LOG.
    command.env("RUST_LOG", "debug").stderr(Stdio::piped());
    let mut worker = command.spawn().unwrap();
    let lines = BufReader::new(worker.stderr.take().unwrap()).lines();
    let passed = lines.map(Result::unwrap).filter(|line| line.contains("passed its self-test"));
    assert_eq!(passed.take(8).count(), 8);
    let peak = memory_bytes(worker.id(), "VmHWM:");
    worker.kill().unwrap();
    worker.wait().unwrap();
    if !Path::new("/proc/self/status").exists() {
        return kit::not_tested("memory of a worker's self-tests: there is no /proc here");
    }
    let peak = peak.expect("the worker ran until it was killed");
    // The memory limit, one self-test at a time, and the program itself.
    assert!(peak < (64 + 48 + 48) << 20, "{} MiB", peak >> 20);
}

/// Writes the files of a laptop on mains power or on battery.
fn plug(dir: &Path, online: bool) {
    for (file, word) in [
        ("AC/type", "Mains"),
        ("AC/online", if online { "1" } else { "0" }),
        ("BAT0/type", "Battery"),
        ("BAT0/status", if online { "Charging" } else { "Discharging" }),
    ] {
        let file = dir.join(file);
        fs::create_dir_all(file.parent().expect("a parent")).unwrap();
        fs::write(file, word).unwrap();
    }
}

#[tokio::test]
async fn a_laptop_pauses_on_battery() {
    let cluster = Cluster::new(&LONG);
    let coordinator = cluster.patient_coordinator();
    let power = cluster.path("power");
    plug(&power, true);
    let directory = power.to_str().unwrap();
    let pause = ["--pause-on-battery", "--power-supplies", directory];
    let always = ["--between", "00:00-12:00,12:00-24:00", "--idle-timeout", "1s"];
    let laptop = cluster.worker_with("laptop", &[&pause[..], &always].concat()).slowed();
    cluster.worker_status("laptop", |laptop| laptop.tasks_done > 0).await;
    plug(&power, false);
    let paused =
        cluster.worker_status("laptop", |laptop| laptop.state() == WorkerState::Paused).await;
    assert_eq!(named(&paused, "laptop").unwrap().paused, "on battery");
    cluster.queensctl(&["workers"]).ok().prints(&["laptop is paused: on battery"]);
    // The laptop's tasks are finished or released, and it takes no others.
    let idle = cluster.worker_status("laptop", |laptop| laptop.leases == 0).await;
    assert!(idle.tasks_done < idle.tasks_total, "the worker paused midway");
    let done = named(&idle, "laptop").unwrap().tasks_done;
    plug(&power, true);
    let counts = |laptop: &v1::Worker| laptop.tasks_done > done && laptop.paused.is_empty();
    cluster.worker_status("laptop", counts).await;
    // The rest is counted quickly.
    let laptop = laptop.at_full_speed();
    let _fast = cluster.fast_worker(&cluster.connection());
    cluster.check_exact(coordinator, LONG_TOTAL);
    laptop.end().ok().logs(&["stopped: "]);
}

/// Returns hours in UTC that do not include the current one or the next few.
fn other_hours() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let hour = (now / 3600 + 6) % 24;
    format!("{hour:02}:00-{hour:02}:59")
}

#[tokio::test]
async fn outside_its_hours_a_worker_waits_and_one_command_stops_it() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let mut command =
        cluster.worker_command(&cluster.connection(), "night", &["--between", &other_hours()]);
    let night = Process::start(command.args(["--threads", "1"]).env("TZ", "UTC"));
    let paused = cluster.worker_status("night", |night| night.state() == WorkerState::Paused).await;
    let why = &named(&paused, "night").unwrap().paused;
    assert!(why.starts_with("outside the --between hours until "), "{why}");
    let stop = || Process::run(worker(&["stop", "--spool"]).arg(cluster.path("night")));
    stop().ok().prints(&["stopped: the worker with spool"]);
    night.end().ok().logs(&["stopped: ", "0 tasks completed"]);
    stop().code(1).logs(&["no worker runs with a spool in"]);
    let _day = cluster.worker("day");
    cluster.check_exact(coordinator, TOTAL);
}

#[tokio::test]
async fn an_operator_drains_a_worker_and_it_counts_again_when_restarted() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.patient_coordinator();
    let first = cluster.worker("first").slowed();
    cluster.worker_status("first", |first| first.tasks_done > 0).await;
    let drained = cluster.queensctl(&["workers", "drain", "first"]).ok();
    assert!(drained.stdout.starts_with("Draining first ("), "{drained:#?}");
    first.end().ok().logs(&["stopped: ", "drained by an operator"]);
    for (name, complaint) in [("first", "is not connected"), ("second", "no worker 'second'")] {
        cluster.queensctl(&["workers", "drain", name]).refused(1, &[complaint]);
    }
    let midway = cluster.status(|_| true).await;
    assert!(midway.tasks_done < midway.tasks_total, "the worker was drained midway");
    let again = cluster.worker_with("first", &["--idle-timeout", "1s"]);
    cluster.check_exact(coordinator, TOTAL);
    again.end().ok().logs(&["stopped: "]);
}

#[tokio::test]
async fn half_of_a_fleet_is_replaced_repeatedly() {
    const FLEET: usize = 4;
    let cluster = Cluster::new(&LONG);
    let coordinator = cluster.coordinator();
    let mut numbers = 0..;
    let start = |number: usize| {
        let name = format!("worker-{number}");
        let process = cluster.worker(&name).slowed();
        (name, process)
    };
    let mut fleet: VecDeque<_> = numbers.by_ref().take(FLEET).map(start).collect();
    for round in 1..=4 {
        // After each twentieth of the tasks, once all workers have counted.
        let due = |status: &Status| {
            let has_counted = |name| named(status, name).is_some_and(|w| w.tasks_done > 0);
            status.tasks_done * 20 >= status.tasks_total * round
                && fleet.iter().all(|(name, _)| has_counted(name))
        };
        let status = cluster.status(due).await;
        assert!(status.tasks_done < status.tasks_total, "half the fleet leaves before the end");
        let leaving: Vec<_> = fleet.drain(..FLEET / 2).collect();
        leaving.iter().for_each(|(_, worker)| worker.signal("TERM"));
        fleet.extend(numbers.by_ref().take(FLEET / 2).map(start));
        leaving.into_iter().for_each(|(_, worker)| drop(worker.end().ok()));
        let after = cluster.status(|_| true).await;
        assert_eq!((after.tasks_parked, after.rechecks.unwrap_or_default().conflicts), (0, 0));
    }
    let _fast = cluster.fast_worker(&cluster.connection());
    cluster.check_exact(coordinator, LONG_TOTAL);
}

#[tokio::test]
async fn a_terminated_pod_releases_tasks_that_outlast_its_grace_period() {
    let manifest = include_str!("../../deploy/kubernetes/base/worker.yaml");
    let help = Process::run(worker(&["--help"])).ok().stdout;
    let number = |text: &str, before: &str, after: &str| -> u64 {
        let (_, text) = text.split_once(before).expect(before);
        text.split_once(after).expect(after).0.trim().parse().expect("seconds")
    };
    let grace = number(manifest, "terminationGracePeriodSeconds:", "\n");
    let (_, drain) = help.split_once("--drain-limit ").expect("the option");
    let drain = number(drain, "[default: ", "s]");
    assert!(
        drain < grace,
        "the kubelet kills a worker that may drain for {drain} s after {grace} s"
    );
    // Tasks that take far longer are released.
    let cluster = Cluster::new(&["--n", "20", "--method", "rows", "--task-cost", "600000000"]);
    let coordinator = cluster.coordinator();
    let pod = cluster.worker("pod");
    cluster.worker_status("pod", |pod| pod.crews > 0).await;
    pod.terminate().ok().logs(&["stopped: "]);
    let after = cluster.status(|status| status.tasks_leased == 0).await;
    assert_eq!((after.tasks_parked, after.tasks_done), (0, 0));
    coordinator.terminate().code(130);
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_worker_counts_at_idle_priority() {
    let cluster = Cluster::new(&RUN);
    let _coordinator = cluster.coordinator();
    let worker = cluster.worker_with("idle", &["--idle-priority"]);
    worker.stderr_line("queens worker");
    let threads = fs::read_dir(format!("/proc/{}/task", worker.id())).unwrap();
    for thread in threads {
        // A thread may have ended.
        let Ok(stat) = fs::read_to_string(thread.unwrap().path().join("stat")) else {
            continue;
        };
        // The fields from the third on follow the name, which may contain anything. SCHED_IDLE is 5.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let fields: Vec<_> = fields.split_whitespace().collect();
        assert_eq!((fields[19 - 3], fields[41 - 3]), ("19", "5"), "{stat}");
    }
}

/// Counts with the command of a coordinator that works locally.
fn local(dir: &Path, arguments: &[&str]) -> End {
    let fixed = ["--threads", "1", "--memory", "256MiB", "--json", "--listen", "127.0.0.1:0"];
    let mut command = coordinator(&[arguments, &fixed].concat());
    Process::run(command.arg("--data-dir").arg(dir))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Checks one run and three, each time new and then complete.
/// QUEENS_ENDS sets the number of repetitions; `just ends` does 250 while two cores are busy.
#[test]
fn a_local_coordinator_ends_after_its_runs() {
    let times = env::var("QUEENS_ENDS").map_or(3, |times| times.parse().expect("a number"));
    for boards in [&["8"] as &[&str], &["8", "9", "10"]] {
        let cluster = Cluster::new(&[]);
        let serving = cluster.serving();
        for n in boards {
            cluster.queensctl(&["submit", "--n", n]).ok();
        }
        serving.terminate().code(130);
        for time in 0..times {
            let data = cluster.path(&format!("data-{time}"));
            let copied = Command::new("cp").arg("-r").arg(cluster.data_dir()).arg(&data).status();
            assert!(copied.expect("cp runs").success());
            for _ in ["new", "complete"] {
                let end = local(&data, &["--local"]).ok();
                assert_eq!(end.stdout.lines().count(), boards.len(), "{end:#?}");
            }
            fs::remove_dir_all(&data).unwrap();
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_the_same_command_succeeds_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // Sizes from too small for the first file to large enough for most of the run.
    for kibibytes in [16, 24, 40, 64, 128, 512, 600, 1024, 1100] {
        let place = dir.path().join(format!("of-{kibibytes}"));
        let Some(small) = SmallDisk::mount(&place, kibibytes) else {
            return;
        };
        let data = place.join("data");
        let run = ["--n", "12", "--method", "rows", "--task-cost", "10", "--local"];
        for _ in 0..4 {
            let end = local(&data, &run);
            if end.code == Some(0) {
                break;
            }
            end.refused(1, &[text(&place), "No space left", "free space"]);
        }
        let entries = fs::read_dir(&data).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let backups = names.filter(|name| name.to_string_lossy().starts_with("db.bad")).count();
        assert!(backups <= 1, "{backups} databases were set aside");
        small.grow();
        assert_eq!(local(&data, &run).json()["solutions"], "14200", "{kibibytes} KiB");
    }
}

/// sled needs space even to be read; the journal does not.
#[test]
fn a_result_is_read_from_a_disk_that_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = SmallDisk::mount(&dir.path().join("small"), 8192) else {
        return;
    };
    let data = small.path().join("data");
    let run = ["--n", "10", "--task-cost", "10", "--local"];
    assert_eq!(local(&data, &run).json()["solutions"], "724");
    small.fill();
    let end = local(&data, &run);
    if end.code == Some(0) {
        assert_eq!(end.json()["solutions"], "724");
    } else {
        end.refused(1, &["No space left", "queensctl verify"]);
    }
    let queensctl = |arguments: &[&str]| Process::run(queensctl(arguments));
    queensctl(&["verify", text(&data)]).ok().prints(&["solutions  724 ("]);
    // A certificate is written where there is room, or not at all.
    let certify = |out: &Path| queensctl(&["certify", text(&data), "--out", text(out)]);
    certify(&dir.path().join("ten.json")).ok();
    let out = small.path().join("ten.json");
    certify(&out).refused(1, &["cannot write", "No space left"]);
    assert!(!out.exists(), "half a certificate");
}

/// The terminal may be closed, or the output's disk full: other runs are served.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_coordinator_that_cannot_print_its_results_continues() -> anyhow::Result<()> {
    let cluster = Cluster::new(&["--n", "8", "--no-http"]);
    let script = "exec \"$0\" \"$@\" > /dev/full";
    let coordinator = listening(in_shell(script, &cluster.command(&[])));
    HandWorker::in_dir(&cluster.data_dir(), 7).await?.count_all().await?;
    coordinator.stderr_line("cannot write the result to standard output");
    coordinator.stderr_line("Still serving");
    cluster.queensctl(&["wait", "last"]).ok().prints(&["92"]);
    coordinator.terminate().code(130);
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_the_address_space_is_named_before_memory_runs_out() {
    let dir = tempfile::tempdir().unwrap();
    for kibibytes in [200_000, 800_000] {
        let mut command = coordinator(&["--local", "--n", "8"]);
        command.arg("--data-dir").arg(dir.path());
        let command = in_shell(&format!("ulimit -v {kibibytes}; exec \"$0\" \"$@\""), &command);
        Process::run(command).refused(2, &["(ulimit -v)", "2.0 GiB is needed"]);
    }
}

/// With a limit of 64 open files, the clients that connected first are served.
#[tokio::test]
async fn requests_at_the_limit_of_open_files_are_served() -> anyhow::Result<()> {
    let cluster = Cluster::new(&["--n", "8", "--task-cost", "10", "--exit-when-done", "--json"]);
    let script = "ulimit -n 64; exec \"$0\" \"$@\"";
    let coordinator = listening(in_shell(script, &cluster.command(&[])));
    let mut worker = HandWorker::in_dir(&cluster.data_dir(), 7).await?;
    let mut runs = v1::runs_client::RunsClient::new(cluster.connect().await?);
    let first = worker.call(Vec::new(), 1.0).await?.grants;
    worker.call(first.iter().map(count).collect(), 0.0).await?;

    // More connections than are served: those beyond are refused, and the others keep their places.
    let mut crowd = Vec::new();
    let joined = async || {
        let mut client = v1::runs_client::RunsClient::new(cluster.connect().await?);
        client.list(v1::ListRequest {}).await?;
        anyhow::Ok(client)
    };
    while let Ok(client) = joined().await {
        crowd.push(client);
    }
    coordinator.stderr_line("refused a connection from");
    let run = runs.list(v1::ListRequest {}).await?.into_inner().runs[0].run;
    let request = RunRequest { run };
    for _ in 0..3 {
        let records = runs.export(request).await?.into_inner().collect::<Result<Vec<_>, _>>();
        let records = within("the stream ends", records).await?;
        assert_eq!(records.len(), first.len());
        runs.pause(request).await?;
        runs.resume(request).await?;
        let spec = v1::PlanSpec { n: 6, layout: v1::Layout::FirstRows.into(), task_cost: 0 };
        let submit = SubmitRequest { spec: Some(spec), ..SubmitRequest::default() };
        let request = RunRequest { run: runs.submit(submit).await?.into_inner().run };
        runs.cancel(request).await?;
        runs.delete(request).await?;
    }
    worker.count_all().await?;
    drop((worker, runs, crowd));
    assert_eq!(coordinator.end().json()["solutions"], "92");
    Ok(())
}

/// A coordinator prints a wrong total, withdraws it and prints the right one.
#[tokio::test]
async fn a_corrected_total_is_printed() -> anyhow::Result<()> {
    // Without rechecks and a referee nothing contradicts the liar before the run is complete.
    let cluster = Cluster::new(&["--n", "8", "--task-cost", "10", "--recheck", "0", "--json"]);
    let coordinator = cluster.start(&["--referee", "off"]);
    let mut liar = HandWorker::in_dir(&cluster.data_dir(), 7).await?;
    let mut lies = [8].into_iter();
    liar.count_wrong(|_| lies.next().unwrap_or(0)).await?;
    coordinator.stdout_line(r#""solutions":"100""#);
    coordinator.terminate();
    let coordinator = cluster.start(&[]);
    coordinator.stdout_line(r#""solutions":"100""#);
    // The referee contradicts the liar, and everything that only the liar counted is void.
    cluster.queensctl(&["recheck", "last", "all"]).ok();
    coordinator.stderr_line("result withdrawn");
    let mut honest = HandWorker::in_dir(&cluster.data_dir(), 9).await?;
    let counted = async {
        while honest.count_all().await? == 0 {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    within("an honest worker gets tasks", counted).await?;
    coordinator.stdout_line(r#""solutions":"92""#);
    let end = coordinator.terminate();
    assert_eq!(end.stdout.lines().count(), 2, "{end:#?}");
    Ok(())
}

/// A local worker keeps the leases of a killed one, as both have one identity.
#[test]
fn a_local_worker_is_the_same_after_every_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut workers = Vec::new();
    for n in ["8", "9"] {
        let data = dir.path().join(n);
        local(&data, &["--n", n, "--local"]).ok();
        let lines = journal(&data).into_iter();
        workers.extend(lines.map(|line| line["worker"].as_str().unwrap().to_owned()));
    }
    workers.dedup();
    assert_eq!(workers.len(), 1, "{workers:?}");
}

#[test]
fn a_finished_run_is_deleted_completely() {
    let cluster = Cluster::new(&["--n", "18"]);
    let coordinator = cluster.coordinator();
    let manifest = &files(&cluster.data_dir(), "manifest.json")[0];
    let run = manifest.parent().and_then(Path::file_name).unwrap().to_string_lossy();
    let delete = |run: &str| cluster.queensctl(&["delete", run, "--yes"]);
    delete(&run).refused(1, &[&run, "cancel it first"]);
    let submit = || cluster.queensctl(&["submit", "--n", "8"]).ok().stdout;
    let submitted = submit();
    let other = submitted.split([' ', ':']).nth(1).unwrap();
    cluster.queensctl(&["cancel", other, "--yes"]).ok();
    delete(other).ok().prints(&[other]);
    assert!(!cluster.queensctl(&["runs"]).stdout.contains(other));
    delete(other).refused(1, &[other, "not found"]);
    assert_eq!(files(&cluster.data_dir(), "manifest.json").len(), 1);
    drop(coordinator.kill());
    let again = cluster.coordinator();
    assert_eq!(cluster.queensctl(&["runs"]).stdout.lines().count(), 2);
    // The stream continues after the events that it has shown, though the coordinator restarts.
    let follow = ["events", "--follow", "--json"];
    let follower = Process::start(cluster.queensctl_command(&follow));
    follower.stdout_line("leads, term 2");
    drop(again.terminate());
    let again = cluster.coordinator();
    follower.stdout_line("leads, term 3");
    submit();
    follower.stdout_line(" submitted");
    cluster.queensctl(&["cancel", "last", "--yes"]).ok();
    drop(again.kill());
    let _third = cluster.coordinator();
    cluster.queensctl(&["events"]).ok().prints(&[
        "N = 18, method frames, ",
        " submitted\n",
        "leads, term 1",
        "leads, term 2",
        other,
    ]);
    let all = cluster.queensctl(&["runs", "--all", "--json"]);
    all.prints(&[r#""cancelled_by":"operator""#]);
    assert_eq!(cluster.queensctl(&["events", "last", "--json"]).stdout.lines().count(), 2);
}

#[test]
fn a_directory_is_verified_while_its_coordinator_counts() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let workers = ["first", "second"].map(|name| cluster.worker(name).slowed());
    let verified = || cluster.verify().ok().prints(&["a coordinator writes at the same time"]);
    let reads_counts = || !verified().stdout.contains("  tasks      0 of ");
    wait_until("the journal has counts", reads_counts);
    for _ in 0..10 {
        assert!(reads_counts(), "counts have gone");
    }
    let _workers = workers.map(Process::at_full_speed);
    cluster.check_exact(coordinator, TOTAL);
}
