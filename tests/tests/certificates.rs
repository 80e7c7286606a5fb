//! Certificates: what is certified anybody can check, and nothing else passes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tests::{
    binaries::binaries,
    process::{End, Process},
};

fn queensctl(arguments: &[&str]) -> End {
    Process::run(
        "queensctl",
        Command::new(&binaries().queensctl).args(arguments),
    )
}

/// A whole run of a board, counted on one thread and nothing twice; what it said on stderr.
fn counted(data: &Path, n: &str) -> String {
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--n", n, "--task-cost", "10", "--local", "--threads", "1"])
        .args(["--memory", "256MiB", "--recheck", "0"])
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data);
    let end = Process::run("the coordinator", &mut command);
    assert_eq!(end.code, Some(0), "{end:#?}");
    end.stderr
}

fn audit(file: &Path, more: &[&str]) -> End {
    let file = file.to_str().expect("a plain path");
    let usual = ["audit", file, "--seed", "7", "--threads", "2"];
    queensctl(&[&usual, more].concat())
}

fn check_failed(end: &End, part: &str) {
    assert_eq!(end.code, Some(3), "{end:#?}");
    // Lines are broken at spaces.
    let all = format!("{}\n{}", end.stdout, end.stderr);
    let words: Vec<_> = all.split_whitespace().collect();
    let all = words.join(" ");
    assert!(all.contains(part), "'{part}' in {end:#?}");
    assert!(!all.contains("panicked"), "{end:#?}");
}

#[test]
fn a_run_is_certified_and_audited_by_anybody() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let said = counted(&data, "10");
    let file = dir.path().join("ten.json");
    let (data, out) = (data.to_str().unwrap(), file.to_str().unwrap());
    let end = queensctl(&["certify", data, "--run", "last", "--out", out]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.contains("724 solutions"), "{end:#?}");

    let text = fs::read_to_string(&file).unwrap();
    let certificate: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(certificate["solutions"], "724");
    assert_eq!(certificate["unique"], "92");
    let key = certificate["public_key"].as_str().unwrap();
    assert!(said.contains(key), "the coordinator printed {key}: {said}");
    let checks = certificate["checks"].as_array().unwrap();
    let outcome = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        check.expect("a check of this name")["outcome"].clone()
    };
    for name in ["journal", "sum", "symmetry", "published"] {
        assert_eq!(outcome(name), "passed", "{name}");
    }
    // What was counted once is confirmed by nothing.
    assert_eq!(outcome("second_counts"), "not_possible");

    let end = audit(&file, &["--key", key]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    for name in ["signature", "tree", "sum", "cover", "recount"] {
        let line = end.stdout.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} in {end:#?}"));
        assert!(line.contains(" passed: "), "{line}");
    }
    assert!(end.stdout.contains("20 of "), "{end:#?}");
    // What the certificate says of its result is shown, for what it is.
    for stated in [
        "second_counts not possible: ",
        "journal passed: ",
        "published passed: ",
    ] {
        assert!(
            end.stdout.contains(&format!("stated     {stated}")),
            "{end:#?}"
        );
    }
    assert!(
        end.stdout.lines().all(|line| line.chars().count() <= 80),
        "{end:#?}"
    );
    // The same seed draws the same.
    assert_eq!(audit(&file, &["--key", key]).stdout, end.stdout);
    check_failed(&audit(&file, &["--key", &"0".repeat(64)]), "FAILED: by key");
}

#[test]
fn nothing_else_passes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    counted(&data, "9");
    let file = dir.path().join("nine.json");
    let (data, out) = (data.to_str().unwrap(), file.to_str().unwrap());
    let end = queensctl(&["certify", data, "--out", out]);
    assert_eq!(end.code, Some(0), "{end:#?}");
    let counts = PathBuf::from(format!("{out}.counts"));
    let (text, bytes) = (
        fs::read_to_string(&file).unwrap(),
        fs::read(&counts).unwrap(),
    );

    fs::write(&file, text.replace("\"352\"", "\"360\"")).unwrap();
    check_failed(&audit(&file, &[]), "not as it was signed");
    fs::write(&file, "{}").unwrap();
    check_failed(&audit(&file, &[]), "no certificate");
    fs::write(&file, &text).unwrap();
    let mut changed = bytes.clone();
    // The last count's way, its counter, its count: one more solution.
    let last = changed.len() - 3;
    changed[last] ^= 1;
    fs::write(&counts, &changed).unwrap();
    check_failed(&audit(&file, &[]), "FAILED");
    fs::write(&counts, &bytes[..bytes.len() / 2]).unwrap();
    check_failed(&audit(&file, &[]), "no counts of a certificate, or not all");
    fs::remove_file(&counts).unwrap();
    let end = audit(&file, &[]);
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains("nine.json.counts"), "{end:#?}");
}

#[test]
fn only_whole_runs_are_certified() {
    let dir = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../coordinator/testdata/format-1");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(&data)
        .arg(dir.path())
        .status();
    assert!(copied.unwrap().success());
    let data = dir.path().join("format-1");
    let out = dir.path().join("out.json");
    let certify = |run: &str| {
        let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
        queensctl(&["certify", data, "--run", run, "--out", out])
    };
    let end = certify("87f0");
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains("20 of 36 tasks"), "{end:#?}");
    assert!(!out.exists());
    // What an earlier program counted is certified too.
    assert_eq!(certify("6493").code, Some(0));
    assert_eq!(audit(&out, &[]).code, Some(0));
}

/// The certificates in the documentation are good, and some of their counts are made again.
#[test]
fn the_published_certificates_are_good() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/certificates");
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            seen += 1;
            let end = audit(&path, &["--tasks", "1"]);
            assert_eq!(end.code, Some(0), "{end:#?}");
            assert!(end.stdout.contains("recount    passed"), "{end:#?}");
        }
    }
    assert!(seen > 0, "there are certificates");
}
