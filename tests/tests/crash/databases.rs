//! Coordinators with runs in PostgreSQL, which are killed, suspended and replaced,
//! and databases that are killed, fill up and cut connections.
//! QUEENS_TAKEOVERS sets the number of failovers, QUEENS_DATABASE_KILLS that of kills of the database: a
//! few by default, 50 and 200 by `just databases`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use auth::Role;
use kit::postgres::{PASSWORD, Postgres};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde_json::Value;
use tests::{
    cluster::{Cluster, SmallDisk},
    process::{End, Process, coordinator, queensctl, wait_until},
    service::{Recorder, find_join, http_client},
};

use super::{CountedBoard, LARGE, SMALL, accepted, check_acknowledged, number};

struct Journal<'a>(&'a Postgres);

impl Journal<'_> {
    fn ask(&self, query: &str) -> String {
        self.0.ask("queens", query)
    }

    fn lines(&self) -> u64 {
        self.ask("SELECT count(*) FROM queens.lines").parse().expect("a number")
    }

    /// Returns a hash of the first `lines` lines.
    fn hash(&self, lines: u64) -> String {
        self.ask(&format!(
            "SELECT md5(string_agg(line, '' ORDER BY seq)) FROM queens.lines WHERE seq <= {lines}"
        ))
    }

    /// Waits for more than `from` lines.
    fn grows(&self, from: u64) {
        wait_until("results are stored", || self.lines() > from);
    }
}

/// Starts a coordinator whose run is in a database.
fn in_database(url: &str, cluster: &Cluster, more: &[&str]) -> Process {
    Process::start(cluster.ending(more).env("QUEENS_STORE", url))
}

/// Checks the total that the coordinator printed, and verifies the database.
fn check(end: End, board: &CountedBoard, url: &str) {
    let result = end.json();
    assert_eq!(result["solutions"], board.solutions);
    assert_eq!(result["published"], "matches");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), url).unwrap();
    let place = format!("@{}", file.path().display());
    println!("{}", Process::run(queensctl(&["verify", &place])).ok().stdout);
}

#[test]
fn standbys_take_over_repeatedly() {
    let takeovers = number("QUEENS_TAKEOVERS", 3);
    let board = if takeovers > 5 { LARGE } else { SMALL };
    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let journal = Journal(&server);
    let cluster = Cluster::new(&board.run);
    let places = [&cluster, &cluster.standby()];
    let start =
        |which: usize| in_database(&url, places[which], &["--peer", &places[1 - which].address()]);
    let mut leads = 0;
    let mut leader = start(leads);
    leader.stderr_line("listening on");
    let join = find_join(&cluster.data_dir(), Role::Worker).unwrap().expose();
    let connection = ["--join".to_owned(), join];
    let slow = cluster.worker_by(&connection, "slow", &[]).slowed();
    let (mut slowest, mut stops, mut lines) = (Duration::ZERO, 0, 0);
    for number in 0..takeovers {
        let standby = start(1 - leads);
        standby.stderr_line("Standby: ");
        journal.grows(lines);
        let began = Instant::now();
        // Every third leader is only suspended, and believes that it still leads when it continues.
        let suspended = match number % 3 {
            2 => {
                leader.signal("STOP");
                Some(leader)
            }
            _ => {
                leader.kill().killed();
                None
            }
        };
        let kept = journal.lines();
        let hash = journal.hash(kept);
        standby.stderr_line("listening on");
        slowest = slowest.max(began.elapsed());
        if let Some(suspended) = suspended {
            journal.grows(kept);
            suspended.signal("CONT");
            suspended.end().code(1).logs(&["lost leadership"]);
            stops += 1;
        }
        assert_eq!(journal.hash(kept), hash, "lines changed");
        lines = journal.lines();
        assert!(lines >= kept, "lines are gone");
        leader = standby;
        leads = 1 - leads;
    }
    let fast = cluster.fast_worker(&connection);
    let end = leader.end();
    drop(fast);
    let log = slow.kill().stderr;
    assert!(!log.contains("rustls"), "an error for programmers: {log}");
    check(end, &board, &url);
    let term = journal.ask("SELECT term FROM queens.leader");
    assert_eq!(term, (takeovers + 1).to_string());
    println!(
        "{takeovers} failovers, {stops} of them from a suspended leader, the slowest after {:.1} s; {} \
         lines, exact",
        slowest.as_secs_f64(),
        journal.lines()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_repeatedly_loses_nothing() {
    let kills = number("QUEENS_DATABASE_KILLS", 4);
    let board = if kills > 10 { LARGE } else { SMALL };
    let Some(mut server) = Postgres::start(&[]) else {
        return;
    };
    let database = server.database("queens");
    // Over TCP with a password, as from another machine.
    let url = server.tcp_url("queens").replace(&format!(":{PASSWORD}"), "");
    let cluster = Cluster::new(&board.run);
    let passwords = cluster.path("passwords");
    fs::write(&passwords, format!("127.0.0.1:*:queens:queens:{PASSWORD}\n")).unwrap();
    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o600)).unwrap();
    let start = || {
        let mut command = cluster.ending(&[]);
        let serving =
            Process::start(command.env("QUEENS_STORE", &url).env("PGPASSFILE", &passwords));
        serving.stderr_line("listening on");
        serving
    };
    let mut serving = start();
    let recorder = Recorder::start(&cluster.data_dir()).await;
    let slow = cluster.worker_by(&recorder.connection(), "slow", &[]).slowed();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut cuts, mut restarts) = (0, 0);
    let mut before = (0, String::new());
    for number in 0..kills {
        let journal = Journal(&server);
        journal.grows(before.0);
        assert_eq!(journal.hash(before.0), before.1, "lines changed");
        // A cut connection may be in the middle of a commit.
        for _ in 0..rng.random_range(0..3) {
            server.ask(
                "postgres",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'queens coordinator'",
            );
            cuts += 1;
        }
        let lines = journal.lines();
        before = (lines, journal.hash(lines));
        server.kill();
        // Every fourth time both die.
        if number % 4 == 3 {
            serving.kill();
            server.restart();
            serving = start();
            restarts += 1;
        } else {
            server.restart();
        }
    }
    let fast = cluster.fast_worker(&recorder.connection());
    let end = tokio::task::block_in_place(|| serving.end());
    drop((slow, fast));
    assert!(!end.stderr.contains(PASSWORD), "{end:#?}");
    check(end, &board, &database);
    let lines = Journal(&server).ask("SELECT line FROM queens.lines ORDER BY seq");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let accepted = accepted(&lines.collect::<Vec<_>>());
    check_acknowledged(&recorder, &accepted);
    println!(
        "{kills} kills of the database, {restarts} of them with its coordinator, {cuts} cuts of all \
         connections; {} tasks, 0 double",
        accepted.len()
    );
}

/// Returns the reason in the status if it names an outage, which the coordinator reports from memory.
fn outage(cluster: &Cluster) -> String {
    let status = cluster.queensctl(&["status", "--json"]).json();
    let reason = status["reason"].as_str().filter(|reason| reason.contains("not answered since "));
    reason.unwrap_or_default().to_owned()
}

/// Returns the address of a coordinator's pages once it serves them.
fn dashboard(serving: &Process) -> String {
    let line = serving.stderr_line("dashboard at ");
    line.split("dashboard at ").nth(1).expect("a URL").trim().to_owned()
}

/// Returns a client of a coordinator's HTTP port, which keeps its connection open and shows a token.
fn client(http: String, token: Option<String>) -> impl Fn(&str) -> (u16, String) {
    let client = http_client();
    move |path| {
        let request = client.get(format!("{http}{path}"));
        let request = match &token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().expect("an answer");
        (answer.status().as_u16(), answer.text().expect("text"))
    }
}

#[test]
fn a_standby_answers_probes_and_names_the_leader_until_it_leads() {
    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let cluster = Cluster::new(&SMALL.run);
    let leader = in_database(&url, &cluster, &[]);
    leader.stderr_line("listening on");
    let standby = in_database(&url, &cluster.standby(), &["--http", "127.0.0.1:0"]);
    standby.stderr_line("Standby: ");
    let line = standby.stderr_line("probes and metrics on ");
    let get = client(line.replace("  probes and metrics on ", "http://"), None);
    assert_eq!([get("/healthz").0, get("/readyz").0], [200, 503]);
    let metrics = get("/metrics").1;
    assert!(metrics.contains("queens_leader_heartbeat_age_seconds "), "{metrics}");
    let (code, page) = get("/");
    let named = format!("(process {}), last heard ", leader.id());
    assert!(code == 503 && page.contains("standby of ") && page.contains(&named), "{page}");
    leader.kill().killed();
    standby.stderr_line("listening on");
    wait_until("the same port serves the leader", || get("/readyz").0 == 200);
    assert_eq!(get("/metrics").0, 401);
}

#[test]
fn probes_metrics_and_status_name_an_outage_while_it_lasts() {
    let Some(mut server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let cluster =
        Cluster::new(&[&SMALL.run[..], &["--http", "127.0.0.1:0", "--insecure"]].concat());
    let serving = in_database(&url, &cluster, &[]);
    let get = client(dashboard(&serving), None);
    let outage = || {
        let status: Value = serde_json::from_str(&get("/api/v1/status").1).expect("JSON");
        let metrics = get("/metrics").1;
        let seconds =
            metrics.lines().find_map(|line| line.strip_prefix("queens_store_outage_seconds "));
        let seconds: f64 = seconds.expect("the metric").parse().expect("a number");
        let reason = status["reason"].as_str().unwrap_or_default();
        (get("/readyz").0, get("/healthz").0, reason.contains("not answered since "), seconds > 0.0)
    };
    assert_eq!(outage(), (200, 200, false, false));
    // No worker: only the heartbeat uses the database.
    server.kill();
    wait_until("all name the outage", || outage() == (503, 200, true, true));
    server.restart();
    wait_until("none names the outage", || outage() == (200, 200, false, false));
    drop(serving);
}

#[test]
fn a_coordinator_waits_for_a_database_whose_disk_is_full() {
    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("small"), 64 << 10) else {
        return;
    };
    server.own(dir.path());
    let place = disk.path().display();
    server.ask("postgres", &format!("CREATE TABLESPACE small LOCATION '{place}'"));
    server.ask("postgres", "CREATE DATABASE queens TABLESPACE small");
    let (url, journal) = (server.url("queens"), Journal(&server));
    let cluster = Cluster::new(&[&SMALL.run[..], &["--http", "127.0.0.1:0"]].concat());
    let serving = in_database(&url, &cluster, &[]);
    let pages = dashboard(&serving);
    let operator = find_join(&cluster.data_dir(), Role::Operator).expect("a join string");
    let get = client(pages, Some(operator.token().expose()));
    let slow = cluster.worker("slow").slowed();
    journal.grows(0);
    disk.fill();
    wait_until("the status names the outage", || outage(&cluster).contains("disk is full"));
    // Nobody has read the events before.
    let (code, answer) = get("/api/v1/events");
    assert!(code == 503 && answer.contains("disk is full"), "{code}: {answer}");
    for reader in ["workers", "events"] {
        cluster.queensctl(&[reader]).refused(1, &["disk is full", "not answered since"]);
    }
    let warning = serving.stderr_line("disk is full");
    assert!(warning.contains("free space there"), "{warning}");
    let lines = journal.lines();
    disk.clear();
    serving.stderr_line("answers again");
    journal.grows(lines);
    let fast = cluster.fast_worker(&cluster.connection());
    let end = serving.end();
    drop((slow, fast));
    check(end, &SMALL, &url);
    server.ask("postgres", "DROP DATABASE queens");
    server.ask("postgres", "DROP TABLESPACE small");
}

#[test]
fn the_password_is_shown_nowhere() {
    let secret = format!("postgres://queens:{PASSWORD}@127.0.0.1:1/queens");
    let run = |arguments: &[&str], store: &str| {
        Process::run(coordinator(arguments).env("QUEENS_STORE", store))
    };
    let typed = Process::run(coordinator(&["--n", "8", "--store", &secret]));
    let wrong =
        run(&["--n", "8", "--no-http", "--listen", "127.0.0.1:0"], &secret.replace(":1/", ":x/"));
    let typed = typed.code(2).logs(&["is visible to all users"]);
    for end in [typed, wrong.code(1), run(&["--help"], &secret).ok()] {
        assert!(!format!("{end:?}").contains(PASSWORD), "{end:#?}");
    }
}
