//! The real programs at the door: who gets in with what, and what the others are told.

use std::process::Command;

use tests::{
    binaries::binaries,
    process::{End, Process},
};

/// A coordinator that other machines reach, with its join strings.
struct House {
    coordinator: Process,
    port: u16,
    dir: tempfile::TempDir,
}

impl House {
    fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&binaries().coordinator);
        command
            .args(["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1"])
            .args(arguments)
            .arg("--data-dir")
            .arg(dir.path().join("data"));
        let coordinator = Process::start("the coordinator", &mut command);
        let listening = coordinator.stderr_line("listening on 0.0.0.0:");
        let port = listening
            .split("0.0.0.0:")
            .nth(1)
            .and_then(|rest| rest.split(':').next())
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("no port in {listening}"));
        Self {
            coordinator,
            port,
            dir,
        }
    }

    /// The string that the coordinator printed for `program`, as a user would copy it.
    fn printed(&self, program: &str) -> String {
        let line = self.coordinator.stderr_line(&format!(" {program}"));
        let line = line.trim();
        let rest = line.strip_prefix("QUEENS_JOIN=");
        let join = rest.and_then(|rest| rest.strip_suffix(&format!(" {program}")));
        join.unwrap_or_else(|| panic!("no join string in '{line}'"))
            .to_owned()
    }

    fn plain(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn queensctl(join: &str, arguments: &[&str]) -> End {
    let mut command = Command::new(&binaries().queensctl);
    command.env("QUEENS_JOIN", join).args(arguments);
    Process::run("queensctl", &mut command)
}

fn refused(end: &End, part: &str) {
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains(part), "'{part}' in {end:#?}");
    assert!(end.stderr.starts_with("error: "), "{end:#?}");
}

#[test]
fn one_line_lets_a_worker_in_and_the_run_ends() {
    let house = House::start(&["--n", "12", "--exit-when-done", "--json"]);
    let spool = house.dir.path().join("spool");
    let mut worker = Command::new(&binaries().worker);
    worker
        .env("QUEENS_JOIN", house.printed("worker"))
        .args(["--threads", "1", "--spool"])
        .arg(spool);
    let worker = Process::start("the worker", &mut worker);
    let end = house.coordinator.end();
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains(r#""solutions":"14200""#), "{end:#?}");
    drop(worker);
}

#[test]
fn a_token_opens_what_its_role_says_until_it_is_revoked() {
    let house = House::start(&["--n", "12"]);
    let operator = house.printed("queensctl status");
    let worker = house.printed("worker");
    let end = queensctl(&operator, &["runs"]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    refused(&queensctl(&worker, &["runs"]), "is a worker's");

    let create = [
        "token",
        "create",
        "--role",
        "viewer",
        "--name",
        "screen",
        "--expires",
        "90d",
    ];
    let made = queensctl(&operator, &create);
    assert_eq!(made.code, Some(0), "{made:#?}");
    let viewer = made.stdout.strip_prefix("QUEENS_JOIN=").unwrap();
    let viewer = viewer.split(' ').next().unwrap().to_owned();
    refused(&queensctl(&operator, &create), "'screen' already");

    assert_eq!(queensctl(&viewer, &["status"]).code, Some(0));
    refused(&queensctl(&viewer, &["pause", "last"]), "is a viewer's");
    refused(&queensctl(&viewer, &["token", "list"]), "is a viewer's");

    let listed = queensctl(&operator, &["token", "list"]);
    assert!(listed.stdout.contains("screen"), "{listed:#?}");
    let revoked = queensctl(&operator, &["token", "revoke", "screen"]);
    assert_eq!(revoked.code, Some(0), "{revoked:#?}");
    refused(&queensctl(&viewer, &["status"]), "was revoked");
    let again = queensctl(&operator, &["token", "revoke", "screen"]);
    refused(&again, "no live token 'screen'");
}

#[test]
fn another_coordinators_string_is_told_from_this_ones() {
    let here = House::start(&["--n", "12"]);
    let other = House::start(&["--n", "12"]);
    // The other's string, with this one's port: what is left of a coordinator made anew.
    let theirs: proto::door::JoinString = other.printed("queensctl status").parse().unwrap();
    let address = vec![format!("127.0.0.1:{}", here.port)];
    let moved = proto::door::JoinString::new(address, theirs.ca(), theirs.token().clone());
    let moved = moved.unwrap().expose();
    refused(
        &queensctl(&moved, &["runs"]),
        "not the one that the join string names",
    );
}

#[test]
fn this_machine_needs_nothing_unless_it_is_asked() {
    for (asked, code) in [(&[][..], 0), (&["--require-token"], 1)] {
        let house = House::start(&[&["--n", "12"], asked].concat());
        let mut command = Command::new(&binaries().queensctl);
        command.args(["--coordinator", &house.plain(), "runs"]);
        let end = Process::run("queensctl", &mut command);
        assert_eq!(end.code, Some(code), "{end:#?}");
        assert_eq!(
            end.stderr.contains("asks for a token"),
            code == 1,
            "{end:#?}"
        );
    }
}

/// The file that `--data-dir` leads to is what a user of the coordinator's account may read.
#[test]
fn queensctl_finds_its_string_on_the_coordinators_own_machine() {
    let house = House::start(&["--n", "12", "--require-token"]);
    house.printed("queensctl status");
    let mut command = Command::new(&binaries().queensctl);
    command
        .args(["runs", "--data-dir"])
        .arg(house.dir.path().join("data"));
    let end = Process::run("queensctl", &mut command);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains("running"), "{end:#?}");
}

#[test]
fn plain_text_is_said_loudly() {
    let house = House::start(&["--n", "12", "--insecure"]);
    let warned = house.coordinator.stderr_line("WARNING: --insecure");
    assert!(warned.contains("cancel runs"), "{warned}");
    house.coordinator.stderr_line("--insecure");
    // No such host, and no need of one: what is said is said before.
    let mut command = Command::new(&binaries().queensctl);
    command.args(["runs", "--insecure", "--coordinator"]);
    command.arg(format!("http://nowhere.invalid:{}", house.port));
    let end = Process::run("queensctl", &mut command);
    assert!(end.stderr.contains("warning: --insecure"), "{end:#?}");
}

/// The whole data directory goes to another place, and its address with it.
#[test]
fn a_coordinator_moves_and_its_workers_keep_working() {
    let house = House::start(&["--n", "15", "--task-cost", "50000", "--sync-ms", "200"]);
    let join = house.printed("queensctl status");
    let mut worker = Command::new(&binaries().worker);
    worker
        .env("QUEENS_JOIN", house.printed("worker"))
        .args(["--threads", "1", "--kernel", "scalar", "--spool"])
        .arg(house.dir.path().join("spool"));
    let worker = Process::start("the worker", &mut worker);
    // Until something is counted, so that there is something to lose.
    while !queensctl(&join, &["export", "last"])
        .stdout
        .contains("accepted")
    {}
    let House {
        coordinator,
        port,
        dir,
    } = house;
    coordinator.signal("TERM");
    let end = coordinator.end();
    assert!(end.stderr.contains("everything is saved"), "{end:#?}");
    let moved = dir.path().join("moved");
    std::fs::rename(dir.path().join("data"), &moved).unwrap();
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--n", "15", "--advertise", "127.0.0.1", "--exit-when-done"])
        .args(["--sync-ms", "200", "--json", "--data-dir"])
        .arg(&moved)
        .args(["--listen", &format!("0.0.0.0:{port}")]);
    let end = Process::run("the coordinator that moved", &mut command);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains(r#""solutions":"2279184""#), "{end:#?}");
    drop(worker);
}

#[test]
fn a_local_run_counts_behind_its_own_door() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(&binaries().coordinator);
    command
        .args([
            "--n",
            "10",
            "--local",
            "--require-token",
            "--listen",
            "127.0.0.1:0",
        ])
        .current_dir(dir.path());
    let end = Process::run("the coordinator", &mut command);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains("724 solutions"), "{end:#?}");
}

#[test]
fn a_damaged_join_string_is_refused_and_not_repeated() {
    let secret = "queens1-AAAAAAAAAAAAAAAAAAAA";
    for program in [&binaries().queensctl, &binaries().worker] {
        let mut command = Command::new(program);
        command.env("QUEENS_JOIN", secret);
        if program == &binaries().queensctl {
            command.arg("runs");
        }
        let end = Process::run("the program", &mut command);
        assert_eq!(end.code, Some(2), "{end:#?}");
        assert!(end.stderr.contains("cut short"), "{end:#?}");
        assert!(!end.stderr.contains("AAAA"), "{end:#?}");
    }
}
