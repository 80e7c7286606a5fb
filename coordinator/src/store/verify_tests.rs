//! What the offline check accepts, and what it must find.

use std::{fs, path::PathBuf};

use common::{
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{
    Change, Record, RunState, Store, VerifyError, VerifyReport,
    conformance::{Bench, OnDisk, manifest, record, spec},
    verify,
};

/// Counts every task of the test plan.
fn counted() -> Vec<Record> {
    let plan = Plan::new(spec()).unwrap();
    let setup = Setup {
        kernel: Kernel::SCALAR,
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: 1 << 20,
        orientation: Orientation::Upright,
    };
    let mut counter = Counter::new(&plan, &setup).unwrap();
    plan.handing_out_order()
        .map(|TaskId(task)| {
            let units = plan.task_units(TaskId(task));
            record(1, task, 1, counter.count(units, &Unwatched).unwrap())
        })
        .collect()
}

fn closed(changes: &[Change]) -> OnDisk {
    let mut disk = OnDisk::new();
    disk.store().create(&manifest(1)).unwrap();
    disk.store().apply(changes).unwrap();
    disk.close();
    disk
}

fn complete() -> Vec<Change> {
    let mut changes: Vec<_> = counted().into_iter().map(Change::Accepted).collect();
    changes.push(Change::State {
        run: RunId(1),
        state: RunState::Complete,
    });
    changes
}

fn journal(disk: &OnDisk) -> PathBuf {
    let run = RunId(1).to_string();
    disk.dir().join("runs").join(run).join("journal.jsonl")
}

fn report(disk: &OnDisk) -> VerifyReport {
    verify(disk.dir()).unwrap()
}

/// The lines named in the flaws that are found.
fn flawed_lines(disk: &OnDisk) -> Vec<Option<u64>> {
    match verify(disk.dir()) {
        Err(VerifyError::Flawed(flaws)) => flaws.iter().map(|flaw| flaw.line).collect(),
        other => panic!("{other:?}"),
    }
}

fn complaint(disk: &OnDisk) -> String {
    verify(disk.dir()).unwrap_err().to_string()
}

#[test]
fn a_complete_run_is_vouched_for_and_left_as_it_is() {
    let disk = closed(&complete());
    let before = fs::read(journal(&disk)).unwrap();
    let report = report(&disk);
    let run = &report.runs[0];
    assert_eq!((run.solutions, run.tasks_done), (724, run.tasks_total));
    let checks = run.checks.unwrap();
    assert_eq!(checks.counts.unwrap().unique(), 92);
    assert!(checks.published && checks.enumerated);
    let text = report.to_string();
    assert!(text.contains("724, unique 92"), "{text}");
    assert_eq!(fs::read(journal(&disk)).unwrap(), before);
    assert!(
        !disk.dir().join("lock").exists() || fs::read(disk.dir().join("lock")).unwrap().is_empty()
    );
}

#[test]
fn a_run_under_way_is_reported() {
    let changes = [
        Change::Accepted(record(1, 0, 1, 40)),
        Change::Accepted(record(1, 1, 1, 8)),
        Change::Confirmed(record(1, 1, 2, 8)),
        Change::Quarantined {
            second: record(1, 0, 2, 42),
        },
        Change::Accepted(record(1, 2, 1, 6)),
        Change::Quarantined {
            second: record(1, 2, 2, 4),
        },
        Change::Accepted(record(1, 2, 3, 4)),
    ];
    let disk = closed(&changes);
    let run = report(&disk).runs.remove(0);
    assert_eq!((run.solutions, run.tasks_done, run.confirmed), (12, 2, 1));
    assert_eq!((run.quarantined, run.checks), (vec![TaskId(0)], None));
}

#[test]
fn a_changed_digit_is_named_with_file_and_line() {
    let disk = closed(&complete());
    let whole = fs::read_to_string(journal(&disk)).unwrap();
    let lines = whole.lines().count();
    for line in [0, 4, lines - 1] {
        let mut changed: Vec<_> = whole.lines().map(str::to_owned).collect();
        changed[line] = changed[line].replace(r#""count":""#, r#""count":"1"#);
        fs::write(journal(&disk), changed.join("\n") + "\n").unwrap();
        assert_eq!(flawed_lines(&disk), [Some(line as u64 + 1)]);
        let words = complaint(&disk);
        let place = format!("journal.jsonl, line {}: ", line + 1);
        assert!(words.contains(&place), "{words}");
    }
}

#[test]
fn an_altered_line_with_a_right_check_sum_is_found() {
    let disk = closed(&complete());
    let whole = fs::read_to_string(journal(&disk)).unwrap();
    let lines = whole.lines().count();
    for line in [0, 4, lines - 1] {
        let mut altered: Vec<_> = whole.lines().map(str::to_owned).collect();
        let body = altered[line].replace("1.2.3", "1.2.4");
        let body = &body[..body.rfind(r#","crc""#).unwrap()];
        altered[line] = format!(
            r#"{body},"crc":"{:08x}"}}"#,
            crc32fast::hash(body.as_bytes())
        );
        fs::write(journal(&disk), altered.join("\n") + "\n").unwrap();
        // The next line's link names it; after the last line the state file's does.
        let next = (line + 1 < lines).then_some(line as u64 + 2);
        assert_eq!(flawed_lines(&disk), [next]);
    }
}

#[test]
fn missing_and_doubled_lines_are_found() {
    let disk = closed(&complete());
    let whole = fs::read_to_string(journal(&disk)).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let mut missing = lines.clone();
    missing.remove(3);
    fs::write(journal(&disk), missing.join("\n") + "\n").unwrap();
    assert_eq!(flawed_lines(&disk)[0], Some(4));

    fs::write(journal(&disk), lines[..lines.len() - 1].join("\n") + "\n").unwrap();
    let words = complaint(&disk);
    assert!(words.contains("when the run became complete"), "{words}");

    let mut doubled = lines.clone();
    doubled.insert(3, lines[2]);
    fs::write(journal(&disk), doubled.join("\n") + "\n").unwrap();
    assert_eq!(flawed_lines(&disk)[0], Some(4));
}

#[test]
fn an_unfinished_last_line_is_only_mentioned() {
    let disk = closed(&[Change::Accepted(record(1, 0, 1, 40))]);
    let whole = fs::read_to_string(journal(&disk)).unwrap();
    fs::write(journal(&disk), format!("{whole}{}", &whole[..50])).unwrap();
    let run = report(&disk).runs.remove(0);
    assert_eq!((run.torn_bytes, run.lines), (50, 1));
}

#[test]
fn a_total_that_contradicts_the_checks_is_found() {
    for difference in [1, 8] {
        let mut changes = complete();
        let Change::Accepted(first) = &mut changes[0] else {
            panic!("the first change is a record");
        };
        first.count += difference;
        let words = complaint(&closed(&changes));
        let expected = if difference == 8 {
            "732 is not the published 724"
        } else {
            "Burnside"
        };
        assert!(words.contains(expected), "{words}");
    }
}

#[test]
fn a_run_said_to_be_complete_must_be() {
    let mut changes = complete();
    changes.remove(0);
    let words = complaint(&closed(&changes));
    assert!(words.contains("said to be complete"), "{words}");
}

#[test]
fn an_altered_manifest_is_found() {
    let disk = closed(&complete());
    let path = journal(&disk).with_file_name("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(r#""n":10"#, r#""n":11"#)).unwrap();
    let words = complaint(&disk);
    assert!(words.contains("manifest.json"), "{words}");
    // Even where its own check hash is right, the journal's first link is of another manifest.
    let mut other = manifest(1);
    other.priority += 1;
    fs::write(&path, super::manifest::encode(&other)).unwrap();
    assert_eq!(flawed_lines(&disk)[0], Some(1));
}

#[test]
fn a_directory_in_use_is_read_as_it_is() {
    let mut disk = closed(&complete()[..5]);
    disk.reopen();
    let path = journal(&disk);
    let whole = fs::read(&path).unwrap();
    // A line that is being written.
    fs::write(&path, [whole.as_slice(), &whole[..50]].concat()).unwrap();
    let report = report(&disk);
    let run = &report.runs[0];
    assert!(run.live);
    assert_eq!((run.lines, run.torn_bytes), (5, 50));
    assert!(report.to_string().contains("a coordinator has"), "{report}");
}

#[test]
fn directories_not_ours_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    let error = verify(empty.path()).unwrap_err();
    assert!(matches!(error, VerifyError::NotOurs(_)), "{error}");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
    let error = verify(&empty.path().join("nowhere")).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}
