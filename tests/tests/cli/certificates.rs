//! Certificates: anyone can audit them, and altered or forged ones fail.

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::{
    board::Board,
    messages::run::RunId,
    method::Layout,
    plan::{Plan, PlanSpec},
    text::is_visible,
};
use serde_json::Value;
use store::{DiskStore, Recheck, RunManifest, Store as _, certify::Certificate};
use tests::process::{self, End, PATIENCE, Process};

use super::{coordinator_in, queensctl};

/// A board that was counted once on one thread, and its certificate.
struct Fixture {
    _dir: tempfile::TempDir,
    data: String,
    file: PathBuf,
    log: String,
}

impl Fixture {
    fn new(n: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let count = ["--n", n, "--task-cost", "10", "--local", "--threads", "1"];
        let cheap = ["--memory", "256MiB", "--recheck", "0", "--data-dir", "data"];
        let log = coordinator_in(dir.path(), &[&count[..], &cheap].concat()).ok().stderr;
        let data = dir.path().join("data").to_str().unwrap().to_owned();
        let file = dir.path().join("certificate.json");
        let fixture = Self { _dir: dir, data, file, log };
        fixture.certify().ok();
        fixture
    }

    fn certify(&self) -> End {
        let out = self.file.to_str().unwrap();
        queensctl(&["certify", &self.data, "--run", "last", "--out", out])
    }
}

fn audit(file: &Path, more: &[&str]) -> End {
    let file = file.to_str().expect("a plain path");
    let common_arguments = ["audit", file, "--seed", "7", "--threads", "2"];
    let command = process::queensctl(&[&common_arguments, more].concat());
    // A task of N = 24 takes a minute of one core.
    Process::start(command).end_within(10 * PATIENCE)
}

fn check_failed(end: &End, part: &str) {
    assert_eq!(end.code, Some(3), "{end:#?}");
    // Lines are wrapped at spaces.
    let all = format!("{}\n{}", end.stdout, end.stderr);
    let words: Vec<_> = all.split_whitespace().collect();
    let all = words.join(" ");
    assert!(all.contains(part), "'{part}' in {end:#?}");
    assert!(!all.contains("panicked"), "{end:#?}");
}

#[test]
fn a_run_is_certified_and_audited() {
    let fixture = Fixture::new("10");
    let file = &fixture.file;
    fixture.certify().ok().prints(&["724 solutions"]);

    let text = fs::read_to_string(file).unwrap();
    let certificate: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(certificate["solutions"], "724");
    assert_eq!(certificate["fundamental"], "92");
    let key = certificate["public_key"].as_str().unwrap();
    assert!(fixture.log.contains(key), "the coordinator printed {key}: {}", fixture.log);
    let checks = certificate["checks"].as_array().unwrap();
    let outcome = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        check.expect("a check of this name")["outcome"].clone()
    };
    for name in ["journal", "sum", "symmetry", "published"] {
        assert_eq!(outcome(name), "passed", "{name}");
    }
    // Nothing confirms a single count, and nothing was recounted.
    assert_eq!(outcome("rechecks"), "not_applicable");
    assert_eq!(certificate["recounts"], Value::Null);
    assert_eq!(certificate["confirmed"]["none"], certificate["counts"]);

    let end = audit(file, &["--key", key]).ok();
    for name in ["signature", "merkle", "sum", "confirmed", "coverage", "recount"] {
        let line = end.stdout.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} in {end:#?}"));
        assert!(line.contains(" passed: "), "{line}");
    }
    assert!(end.stdout.contains("20 of "), "{end:#?}");
    // The statements of the certificate are shown as statements.
    for claim in ["rechecks not applicable: ", "journal passed: ", "published passed: "] {
        assert!(end.stdout.contains(&format!("claims     {claim}")), "{end:#?}");
    }
    assert!(end.stdout.lines().all(|line| line.chars().count() <= 80), "{end:#?}");
    // The same seed selects the same tasks.
    assert_eq!(audit(file, &["--key", key]).stdout, end.stdout);
    check_failed(&audit(file, &["--key", &"0".repeat(64)]), "FAILED: by key");
}

#[test]
fn altered_certificates_fail() {
    let fixture = Fixture::new("9");
    let file = fixture.file.clone();
    let counts = PathBuf::from(format!("{}.counts", file.display()));
    let (text, bytes) = (fs::read_to_string(&file).unwrap(), fs::read(&counts).unwrap());

    fs::write(&file, text.replace("\"352\"", "\"360\"")).unwrap();
    check_failed(&audit(&file, &[]), "it was changed after it was signed");
    fs::write(&file, "{}").unwrap();
    audit(&file, &[]).code(1).logs(&["not a certificate"]);
    fs::write(&file, &text).unwrap();
    let mut changed = bytes.clone();
    // The last count becomes another one.
    let last = changed.len() - 3;
    changed[last] ^= 1;
    fs::write(&counts, &changed).unwrap();
    check_failed(&audit(&file, &[]), "FAILED");
    fs::write(&counts, &bytes[..bytes.len() / 2]).unwrap();
    check_failed(&audit(&file, &[]), "not contain the counts of a certificate, or not all");
    fs::remove_file(&counts).unwrap();
    audit(&file, &[]).code(1).logs(&["certificate.json.counts"]);
}

/// Anyone can sign anything: contradictions are found without knowing the signer.
#[test]
fn a_forged_certificate_fails_with_any_signature() {
    let fixture = Fixture::new("9");
    let file = fixture.file.clone();
    let genuine = Certificate::read(&fs::read_to_string(&file).unwrap()).unwrap();
    let audit_forged = |change: &dyn Fn(&mut Certificate)| {
        let mut forged = genuine.clone();
        change(&mut forged);
        fs::write(&file, forged.sign(&[7; 32])).unwrap();
        audit(&file, &[])
    };
    let end = audit_forged(&|_| {}).ok();
    assert!(end.stdout.starts_with("signer     UNKNOWN"), "{end:#?}");
    // Untrusted text changes nothing on a terminal, and cannot start a new line.
    let end = audit_forged(&|forged| {
        forged.layout += "\u{1b}[2J";
        forged.checks[0].reason = "\nsignature  passed\u{202e}\u{9b}2K".to_owned();
    });
    assert!(end.stdout.contains("\\nsignature  passed\\u{202e}\\u{9b}2K"), "{end:#?}");
    let everything = end.stdout + &end.stderr;
    assert!(everything.chars().all(|c| c == '\n' || is_visible(c)), "{everything:?}");
    assert!(everything.contains("\\u{1b}[2J"), "{everything}");
    let zeros = "0".repeat(64);
    check_failed(&audit_forged(&|forged| forged.plan_hash = zeros.clone()), "plan FAILED");
    check_failed(&audit_forged(&|forged| forged.task_cost += 1), "plan FAILED");
    let end = audit_forged(&|forged| forged.solutions = "360".to_owned());
    check_failed(&end, "published FAILED");
    check_failed(&end, "sum FAILED");
    let end = audit_forged(&|forged| forged.fundamental = Some("47".to_owned()));
    check_failed(&end, "classes FAILED");
    // Counts that cannot be recounted here prove nothing.
    let end = audit_forged(&|forged| forged.plan_version += 1);
    assert_eq!(end.code, Some(3), "the tree is bound to the version: {end:#?}");
    fs::write(&file, genuine.sign(&[7; 32])).unwrap();
    audit(&file, &["--memory", "1KiB"]).code(1).prints(&["not checked"]);
}

#[test]
fn only_complete_runs_are_certified() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let plan = Plan::new(PlanSpec::new(Board::new(10).unwrap(), Layout::FirstRows)).unwrap();
    let manifest = RunManifest::new(RunId(1), &plan, 0, 1_700_000_000_000);
    DiskStore::open(&data).unwrap().create(&manifest, Recheck::Auto).unwrap();
    let out = dir.path().join("out.json");
    let (data, path) = (data.to_str().unwrap(), out.to_str().unwrap());
    let tasks = format!("0 of {} tasks", plan.tasks());
    queensctl(&["certify", data, "--run", "last", "--out", path]).code(1).logs(&[&tasks]);
    assert!(!out.exists());
}

/// Recounts a task of each certificate in the documentation.
#[test]
fn the_published_certificates_are_good() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/certificates");
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            seen += 1;
            audit(&path, &["--tasks", "1"]).ok().prints(&["recount    passed"]);
        }
    }
    assert!(seen > 0, "there are certificates");
}

/// A coordinator reads its recounts when it likes, so a bound for a fixed number of them is too low.
#[test]
fn a_bound_that_does_not_hold_at_any_time_fails() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/certificates");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("n24.json");
    fs::copy(published.join("n24.json.counts"), dir.path().join("n24.json.counts")).unwrap();
    let text = fs::read_to_string(published.join("n24.json")).unwrap();
    let mut forged = Certificate::read(&text).unwrap();
    let recounts = forged.recounts.as_mut().unwrap();
    assert_eq!((recounts.random, recounts.at_most_wrong), (228, 176));
    recounts.at_most_wrong = 63;
    fs::write(&file, forged.sign(&[7; 32])).unwrap();
    check_failed(&audit(&file, &["--tasks", "0"]), "confirmed FAILED: the bound does not follow");
}
