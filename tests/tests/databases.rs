//! Coordinators whose runs are in PostgreSQL: they die, are stopped and replaced; the database dies,
//! fills up and cuts them off. Nothing is lost, and nothing is double.
//!
//! With feature `postgres`. QUEENS_TAKEOVERS says how many take-overs, QUEENS_DATABASE_KILLS how many
//! kills of the database: a few in the usual suite, 50 and 200 by `just databases`.
#![cfg(feature = "postgres")]

use std::{
    collections::BTreeMap,
    env, fs,
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use proto::v1::Verdict;
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use tests::{
    binaries::binaries,
    cluster::result,
    postgres::{PASSWORD, Postgres},
    process::{End, PATIENCE, Process},
    recorder::Recorder,
};

const SMALL: Board = Board {
    n: "18",
    cost: "2000",
    solutions: "666090624",
};
const LARGE: Board = Board {
    n: "19",
    cost: "4500",
    solutions: "4968057848",
};

/// A large board takes longer than [`PATIENCE`], beside other work.
const A_RUN: Duration = Duration::from_secs(30 * PATIENCE.as_secs());

#[derive(Clone, Copy)]
struct Board {
    n: &'static str,
    cost: &'static str,
    solutions: &'static str,
}

fn number(variable: &str, usual: usize) -> usize {
    env::var(variable).map_or(usual, |number| number.parse().expect("a number"))
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    free.local_addr().expect("a bound port").port()
}

/// A coordinator of a database, at a port; it ends when its run is done.
fn coordinator(url: &str, port: u16, board: Board, more: &[&str]) -> Process {
    let mut command = Command::new(&binaries().coordinator);
    command
        .env("QUEENS_STORE", url)
        .args(["--n", board.n, "--method", "rows", "--prefix", "first-rows"])
        .args([
            "--task-cost",
            board.cost,
            "--exit-when-done",
            "--json",
            "--no-http",
        ])
        .args(["--lease-ms", "1500", "--sync-ms", "200"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(more);
    Process::start("the coordinator", &mut command)
}

fn worker(spool: &tempfile::TempDir, name: &str, more: &[&str]) -> Process {
    let mut command = Command::new(&binaries().worker);
    command
        .args(["--memory", "1GiB", "--name", name, "--spool"])
        .arg(spool.path().join(name))
        .args(more);
    Process::start(name, &mut command)
}

const SLOW: [&str; 4] = ["--threads", "1", "--kernel", "scalar"];

/// The journal of the only run: its lines, and a hash of the first so many.
struct Journal<'a> {
    server: &'a Postgres,
    database: &'a str,
}

impl Journal<'_> {
    fn lines(&self) -> u64 {
        let query = "SELECT count(*) FROM queens.lines";
        self.server
            .ask(self.database, query)
            .parse()
            .expect("a number")
    }

    fn hash(&self, lines: u64) -> String {
        let query = format!(
            "SELECT md5(string_agg(line, '' ORDER BY seq)) FROM queens.lines WHERE seq <= {lines}"
        );
        self.server.ask(self.database, &query)
    }

    /// Returns once results were kept that were not there.
    fn grows(&self, from: u64) {
        let began = Instant::now();
        while self.lines() <= from {
            assert!(began.elapsed() < 2 * PATIENCE, "nothing is kept any more");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn verify(url: &str) -> End {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), url).unwrap();
    let mut command = Command::new(&binaries().queensctl);
    command
        .arg("verify")
        .arg(format!("@{}", file.path().display()));
    Process::run("queensctl", &mut command)
}

/// What a run came to: the total, by its coordinator and by the database alone.
fn check(end: &End, board: Board, url: &str) {
    let result = result(end);
    assert_eq!(result["solutions"], board.solutions);
    assert_eq!(result["known"], "matches");
    let verified = verify(url);
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    println!("{}", verified.stdout);
}

#[test]
fn a_coordinator_that_stands_by_takes_over_again_and_again() {
    let takeovers = number("QUEENS_TAKEOVERS", 2);
    let board = if takeovers > 5 { LARGE } else { SMALL };
    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let journal = Journal {
        server: &server,
        database: "queens",
    };
    let spool = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port()];
    let start = |which: usize| {
        let peer = format!("127.0.0.1:{}", ports[1 - which]);
        coordinator(
            &url,
            ports[which],
            board,
            &["--require-token", "--peer", &peer],
        )
    };
    let mut leads = 0;
    let mut leader = start(leads);
    let line = leader.stderr_line("queens1-");
    let join = line.split("QUEENS_JOIN=").nth(1).expect("a join string");
    let join = join.split(' ').next().expect("a join string").to_owned();
    let slow = worker(&spool, "slow", &[&["--join", &join][..], &SLOW].concat());
    let (mut slowest, mut stops, mut lines) = (Duration::ZERO, 0, 0);
    for number in 0..takeovers {
        let standby = start(1 - leads);
        standby.stderr_line("standing by");
        journal.grows(lines);
        let began = Instant::now();
        // Every third is not dead, only silent, and thinks that it leads when it goes on.
        let stopped = match number % 3 {
            2 => {
                leader.signal("STOP");
                Some(leader)
            }
            _ => {
                let end = leader.kill();
                assert_eq!(end.code, None, "it ended before it was killed: {end:#?}");
                None
            }
        };
        let kept = journal.lines();
        let hash = journal.hash(kept);
        standby.stderr_line("listening on");
        slowest = slowest.max(began.elapsed());
        if let Some(stopped) = stopped {
            journal.grows(kept);
            stopped.signal("CONT");
            let end = stopped.end();
            assert_eq!(end.code, Some(1), "{end:#?}");
            assert!(end.stderr.contains("was replaced"), "{end:#?}");
            stops += 1;
        }
        assert_eq!(journal.hash(kept), hash, "lines changed");
        lines = journal.lines();
        assert!(lines >= kept, "lines are gone");
        leader = standby;
        leads = 1 - leads;
    }
    let quick = worker(&spool, "quick", &["--join", &join, "--threads", "2"]);
    let end = leader.end_within(A_RUN);
    drop((slow, quick));
    check(&end, board, &url);
    let terms = server.ask("queens", "SELECT term FROM queens.leader");
    assert_eq!(terms, (takeovers + 1).to_string());
    println!(
        "{takeovers} take-overs, {stops} of them of a leader that was only stopped, the slowest after \
         {:.1} s; {} lines, exact",
        slowest.as_secs_f64(),
        journal.lines()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_again_and_again_loses_nothing() {
    let kills = number("QUEENS_DATABASE_KILLS", 4);
    let board = if kills > 10 { LARGE } else { SMALL };
    let Some(mut server) = Postgres::start(&[]) else {
        return;
    };
    let database = server.database("queens");
    // By password and TCP, as beyond a machine.
    let url = server.tcp_url("queens", server.port());
    let port = free_port();
    let spool = tempfile::tempdir().unwrap();
    let mut serving = coordinator(&url, port, board, &[]);
    serving.stderr_line("listening on");
    let recorder = Recorder::before(&format!("http://127.0.0.1:{port}")).await;
    let slow = worker(
        &spool,
        "slow",
        &[&["--coordinator", &recorder.url][..], &SLOW].concat(),
    );
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut cuts, mut restarts) = (0, 0);
    let mut before = (0, String::new());
    for number in 0..kills {
        let journal = Journal {
            server: &server,
            database: "queens",
        };
        journal.grows(before.0);
        assert_eq!(journal.hash(before.0), before.1, "lines changed");
        // A connection that is cut, as likely as not in the middle of a commit.
        for _ in 0..rng.random_range(0..3) {
            server.ask(
                "postgres",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'queens coordinator'",
            );
            cuts += 1;
        }
        let journal = Journal {
            server: &server,
            database: "queens",
        };
        let lines = journal.lines();
        before = (lines, journal.hash(lines));
        server.kill();
        // Every fourth time both die.
        if number % 4 == 3 {
            serving.kill();
            server.restart();
            serving = coordinator(&url, port, board, &[]);
            serving.stderr_line("listening on");
            restarts += 1;
        } else {
            server.restart();
        }
    }
    let quick = worker(
        &spool,
        "quick",
        &["--coordinator", &recorder.url, "--threads", "2"],
    );
    let end = tokio::task::block_in_place(|| serving.end_within(A_RUN));
    drop((slow, quick));
    assert!(!end.stderr.contains(PASSWORD), "{end:#?}");
    check(&end, board, &database);

    let query = "SELECT line::json->>'task', line::json->>'epoch' FROM queens.lines \
         WHERE line::json->>'kind' = 'accepted'";
    let mut accepted = BTreeMap::<u64, u64>::new();
    for row in server.ask("queens", query).lines() {
        let (task, epoch) = row.split_once('|').expect("two columns");
        let earlier = accepted.insert(task.parse().unwrap(), epoch.parse().unwrap());
        assert_eq!(earlier, None, "task {task} was accepted twice");
    }
    let acknowledged = recorder.acknowledged();
    for acknowledgement in &acknowledged {
        let task = acknowledgement.task.as_ref().expect("of a task").task;
        match acknowledgement.verdict() {
            Verdict::Accepted => assert_eq!(accepted[&task], acknowledgement.epoch),
            Verdict::Duplicate => assert!(accepted.contains_key(&task)),
            other => panic!("{other:?} of an honest count: {acknowledgement:?}"),
        }
    }
    println!(
        "{kills} kills of the database, {restarts} of them with its coordinator, {cuts} cuts of all \
         connections; {} acknowledgements, 0 lost; {} tasks, 0 double",
        acknowledged.len(),
        accepted.len()
    );
}

#[test]
fn a_database_whose_disk_is_full_is_waited_for() {
    let Some(server) = Postgres::start(&[]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(dir.path()) else {
        eprintln!("SKIPPED: no small file system can be mounted here");
        return;
    };
    server.own(dir.path());
    let place = dir.path().display();
    server.ask(
        "postgres",
        &format!("CREATE TABLESPACE small LOCATION '{place}'"),
    );
    server.ask("postgres", "CREATE DATABASE queens TABLESPACE small");
    let url = server.url("queens");
    let port = free_port();
    let serving = coordinator(&url, port, SMALL, &[]);
    serving.stderr_line("listening on");
    let spool = tempfile::tempdir().unwrap();
    let at = format!("http://127.0.0.1:{port}");
    let slow = worker(
        &spool,
        "slow",
        &[&["--coordinator", &at][..], &SLOW].concat(),
    );
    let journal = Journal {
        server: &server,
        database: "queens",
    };
    journal.grows(0);
    let ballast = small.fill();
    let said = serving.stderr_line("disk is full");
    assert!(said.contains("free space there"), "{said}");
    let lines = journal.lines();
    fs::remove_file(ballast).unwrap();
    serving.stderr_line("answers again");
    journal.grows(lines);
    let quick = worker(&spool, "quick", &["--coordinator", &at, "--threads", "2"]);
    let end = serving.end_within(A_RUN);
    drop((slow, quick));
    check(&end, SMALL, &url);
    server.ask("postgres", "DROP DATABASE queens");
    server.ask("postgres", "DROP TABLESPACE small");
}

/// A file system of 64 MB, gone with it.
struct Small<'a>(&'a std::path::Path);

impl<'a> Small<'a> {
    fn mount(path: &'a std::path::Path) -> Option<Self> {
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", "size=64m", "none"])
            .arg(path);
        let done = command.status().is_ok_and(|status| status.success());
        done.then_some(Self(path))
    }

    /// Takes all that is left.
    fn fill(&self) -> std::path::PathBuf {
        let path = self.0.join("ballast");
        let full = fs::write(&path, vec![0; 64 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        path
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // Busy for as long as the server is there.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn the_password_is_shown_nowhere() {
    let secret = format!("postgres://queens:{PASSWORD}@127.0.0.1:1/queens");
    let typed = Process::run(
        "the coordinator",
        Command::new(&binaries().coordinator).args(["--n", "8", "--store", &secret]),
    );
    let wrong = Process::run(
        "the coordinator",
        Command::new(&binaries().coordinator)
            .args(["--n", "8", "--no-http", "--listen", "127.0.0.1:0"])
            .env("QUEENS_STORE", secret.replace(":1/", ":x/")),
    );
    let help = Process::run(
        "the coordinator",
        Command::new(&binaries().coordinator)
            .arg("--help")
            .env("QUEENS_STORE", &secret),
    );
    assert_eq!(
        (typed.code, wrong.code, help.code),
        (Some(2), Some(1), Some(0))
    );
    assert!(
        typed.stderr.contains("can be read by everybody"),
        "{typed:#?}"
    );
    for end in [typed, wrong, help] {
        assert!(!format!("{end:?}").contains(PASSWORD), "{end:#?}");
    }
}
