//! The real programs behind certificates of an authority that somebody else runs.

use std::process::Command;

use tests::{
    binaries::binaries,
    pki::{Files, Pki},
    process::{End, Process},
};

const GOOD: std::ops::Range<i64> = -1..30;

struct House {
    coordinator: Process,
    pki: Pki,
    port: u16,
    dir: tempfile::TempDir,
}

fn coordinator(dir: &std::path::Path, pki: &Pki, server: &Files) -> Command {
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--listen", "127.0.0.1:0", "--require-token", "--n", "12"])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .arg("--tls-cert")
        .arg(&server.certificate)
        .arg("--tls-key")
        .arg(&server.key)
        .arg("--client-ca")
        .arg(pki.ca());
    command
}

impl House {
    fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new(&dir.path().join("pki"));
        let server = pki.server(&["localhost"]);
        let mut command = coordinator(dir.path(), &pki, &server);
        let coordinator = Process::start("the coordinator", command.args(arguments));
        let listening = coordinator.stderr_line("listening on 127.0.0.1:");
        let port = listening.split("127.0.0.1:").nth(1).unwrap();
        let port = port.split(':').next().unwrap().parse().unwrap();
        Self {
            coordinator,
            pki,
            port,
            dir,
        }
    }

    fn flags(&self, command: &mut Command, files: &Files) {
        command
            .arg("--coordinator")
            .arg(format!("https://localhost:{}", self.port))
            .arg("--tls-ca")
            .arg(self.pki.ca())
            .arg("--tls-cert")
            .arg(&files.certificate)
            .arg("--tls-key")
            .arg(&files.key);
    }

    fn queensctl(&self, files: &Files, arguments: &[&str]) -> End {
        let mut command = Command::new(&binaries().queensctl);
        command.args(arguments);
        self.flags(&mut command, files);
        Process::run("queensctl", &mut command)
    }

    fn caller(&self, role: &str) -> Files {
        let uri = format!("spiffe://lab.example/queens/{role}/somebody");
        self.pki.caller(role, &uri, GOOD)
    }
}

fn refused(end: &End, (code, part): (i32, &str)) {
    assert_eq!(end.code, Some(code), "{end:#?}");
    assert!(end.stderr.contains(part), "'{part}' in {end:#?}");
}

#[test]
fn a_certificate_lets_a_worker_in_and_the_run_ends() {
    let house = House::start(&["--exit-when-done", "--json"]);
    let mut worker = Command::new(&binaries().worker);
    house.flags(&mut worker, &house.caller("worker"));
    worker
        .args(["--threads", "1", "--spool"])
        .arg(house.dir.path().join("spool"));
    let worker = Process::start("the worker", &mut worker);
    let end = house.coordinator.end();
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains(r#""solutions":"14200""#), "{end:#?}");
    drop(worker);
}

#[test]
fn a_name_in_the_certificate_says_the_role() {
    let house = House::start(&[]);
    let operator = house.caller("operator");
    let viewer = house.caller("viewer");
    assert_eq!(house.queensctl(&viewer, &["runs"]).code, Some(0));
    let pause = house.queensctl(&viewer, &["pause", "last"]);
    refused(&pause, (1, "the certificate 'somebody' is a viewer's"));
    assert_eq!(house.queensctl(&operator, &["pause", "last"]).code, Some(0));
    let tokens = house.queensctl(&operator, &["token", "list"]);
    refused(&tokens, (1, "asks for certificates"));
    let uri = "spiffe://lab.example/chess/operator/somebody";
    let nameless = house.pki.caller("nameless", uri, GOOD);
    refused(
        &house.queensctl(&nameless, &["runs"]),
        (1, "no name in the certificate"),
    );
}

#[test]
fn who_has_no_certificate_or_a_bad_one_is_told() {
    let house = House::start(&[]);
    let mut plain = Command::new(&binaries().queensctl);
    let url = format!("http://127.0.0.1:{}", house.port);
    plain.args(["runs", "--coordinator", &url]);
    let plain = Process::run("queensctl", &mut plain);
    refused(&plain, (1, "asks for a certificate"));

    let good = house.caller("operator");
    let uri = "spiffe://lab.example/queens/operator/somebody";
    let old = house.pki.caller("old", uri, -30..-1);
    refused(&house.queensctl(&old, &["runs"]), (2, "renew it"));
    let mixed = Files {
        key: old.key.clone(),
        ..good.clone()
    };
    refused(
        &house.queensctl(&mixed, &["runs"]),
        (2, "is not the key of"),
    );
    let nowhere = Files {
        certificate: house.dir.path().join("nowhere.pem"),
        ..good.clone()
    };
    refused(&house.queensctl(&nowhere, &["runs"]), (2, "nowhere.pem"));
    let swapped = Files {
        certificate: good.key.clone(),
        key: good.key.clone(),
    };
    refused(
        &house.queensctl(&swapped, &["runs"]),
        (2, "holds no certificate"),
    );

    let others = Pki::new(&house.dir.path().join("others"));
    let foreign = others.caller("foreign", uri, GOOD);
    refused(
        &house.queensctl(&foreign, &["runs"]),
        (1, "refused the certificate of --tls-cert"),
    );
    let elsewhere = Pki::new(&house.dir.path().join("elsewhere"));
    let trusting = House {
        pki: elsewhere,
        ..house
    };
    refused(
        &trusting.queensctl(&good, &["runs"]),
        (1, "this coordinator is not the one"),
    );
}

#[test]
fn a_coordinator_with_bad_files_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::new(&dir.path().join("pki"));
    let server = pki.server(&["localhost"]);
    let old = pki.caller("old", "spiffe://x/y", -30..-1);
    for (files, part) in [
        (old.clone(), "renew it"),
        (
            Files {
                key: old.key,
                ..server.clone()
            },
            "is not the key of",
        ),
        (
            Files {
                key: dir.path().join("nowhere"),
                ..server
            },
            "nowhere",
        ),
    ] {
        let mut command = coordinator(dir.path(), &pki, &files);
        let end = Process::run("the coordinator", &mut command);
        refused(&end, (1, part));
    }
}
