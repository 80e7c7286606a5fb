//! Flaws that verification finds, and states that it accepts.

use std::fs;

use common::{
    board::Board,
    compute::kernel::Kernel,
    count::{Counter, CounterConfig, NoProgress},
    messages::run::RunId,
    plan::{Plan, TaskId},
};

use crate::{
    Change, DiskStore, EntryKind, Principal, Recheck, Record, RunState, Store as _,
    SymmetricCounts, VerifyError, VerifyReport,
    conformance::{Bench, OnDisk, manifest, record, resealed, spec},
    verify,
};

use super::{Checks, Examined, Meter};

/// Counts every task of the test plan.
fn counted() -> Vec<Record> {
    let plan = Plan::new(spec()).unwrap();
    let setup = CounterConfig { kernel: Kernel::SCALAR, ..CounterConfig::best(1 << 20) };
    let mut counter = Counter::new(&plan, &setup).unwrap();
    plan.lease_order()
        .map(|TaskId(task)| {
            let units = plan.task_units(TaskId(task));
            record(1, task, 1, counter.count(units, &NoProgress).unwrap())
        })
        .collect()
}

fn complete() -> Vec<Change> {
    let mut changes: Vec<_> =
        counted().into_iter().map(|record| EntryKind::Accepted.change(record)).collect();
    changes.push(Change::State { run: RunId(1), state: RunState::Complete });
    changes
}

fn report(disk: &OnDisk) -> VerifyReport {
    verify(disk.dir()).unwrap()
}

/// Returns the lines that the flaws name.
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
fn a_complete_run_is_verified_and_unchanged() {
    let disk = OnDisk::closed(&[&complete()]);
    let before = fs::read(disk.journal()).unwrap();
    let report = report(&disk);
    let run = &report.runs[0];
    assert_eq!((run.solutions, run.tasks_done), (724, run.evidence.tasks));
    let checks = run.checks.unwrap();
    assert_eq!(checks.counts.unwrap().fundamental(), 92);
    assert!(checks.published && checks.enumerated);
    let text = report.to_string();
    assert!(text.contains("724 (92 fundamental)"), "{text}");
    assert_eq!(fs::read(disk.journal()).unwrap(), before);
    assert!(
        !disk.dir().join("lock").exists() || fs::read(disk.dir().join("lock")).unwrap().is_empty()
    );
}

/// An archive has no index and no lock, and names the newest lines after their future segment.
#[test]
fn an_archive_is_verified_and_not_served() {
    for mut disk in [OnDisk::new(), OnDisk::in_segments()] {
        disk.store().create(&manifest(1), Recheck::Auto).unwrap();
        for change in complete() {
            disk.store().apply(&[change]).unwrap();
        }
        disk.close();
        let whole = report(&disk).runs.remove(0);
        let sealed = crate::journal::segments::sealed(&disk.journal()).unwrap().len();
        let growing = format!("growing.{:06}.jsonl", sealed + 1);
        fs::rename(disk.journal(), disk.journal().with_file_name(growing)).unwrap();
        fs::remove_dir_all(disk.dir().join("db")).unwrap();
        let archived = report(&disk).runs.remove(0);
        assert_eq!((archived.lines, archived.solutions), (whole.lines, 724), "{sealed} sealed");
        let refused = DiskStore::open(disk.dir()).err().unwrap().to_string();
        assert!(refused.contains("it is an archive; restore it"), "{refused}");
        // Records of a run without a manifest are damage.
        fs::remove_file(disk.journal().with_file_name("manifest.json")).unwrap();
        assert!(complaint(&disk).contains("growing") && complaint(&disk).contains("has records"));
    }
}

/// A run stays complete while the referee counts a task whose recheck differed.
#[test]
fn a_complete_run_may_have_disputed_tasks_but_no_open_ones() {
    let mut changes = complete();
    let first = counted()[0].clone();
    let differs = record(1, first.task.0, 2, first.count + 1);
    changes.insert(changes.len() - 1, EntryKind::Disputed.change(differs));
    let run = report(&OnDisk::closed(&[&changes])).runs.remove(0);
    assert_eq!((run.evidence.disputed_number, run.checks), (1, None));
    changes.remove(1);
    let flaw = complaint(&OnDisk::closed(&[&changes]));
    assert!(flaw.contains("its state is complete with"), "{flaw}");
}

#[test]
fn a_running_run_is_reported() {
    let changes = [
        EntryKind::Accepted.change(record(1, 0, 1, 40)),
        EntryKind::Accepted.change(record(1, 1, 1, 8)),
        EntryKind::Confirmed.change(record(1, 1, 2, 8)),
        EntryKind::Disputed.change(record(1, 0, 2, 42)),
        EntryKind::Accepted.change(record(1, 2, 1, 6)),
        EntryKind::Disputed.change(record(1, 2, 2, 4)),
        EntryKind::Settled.change(Record { principal: Principal::referee(), ..record(1, 2, 3, 4) }),
    ];
    let disk = OnDisk::closed(&[&changes]);
    let run = report(&disk).runs.remove(0);
    assert_eq!((run.solutions, run.tasks_done, run.evidence.by_rechecks()), (12, 2, 1));
    assert_eq!((run.evidence.disputed, run.checks), (vec![TaskId(0)], None));
}

/// Replaces the lines of run 1's journal.
fn write_lines(disk: &OnDisk, lines: &[String]) {
    fs::write(disk.journal(), lines.join("\n") + "\n").unwrap();
}

#[test]
fn a_changed_digit_and_an_altered_line_are_found() {
    let disk = OnDisk::closed(&[&complete()]);
    let whole = fs::read_to_string(disk.journal()).unwrap();
    let whole: Vec<_> = whole.lines().map(str::to_owned).collect();
    for line in [0, 4, whole.len() - 1] {
        let number = line as u64 + 1;
        let mut changed = whole.clone();
        changed[line] = changed[line].replace(r#""count":""#, r#""count":"1"#);
        write_lines(&disk, &changed);
        assert_eq!(flawed_lines(&disk), [Some(number)]);
        let message = complaint(&disk);
        assert!(message.contains(&format!("journal.jsonl, line {number}: ")), "{message}");
        // With the right checksum, the link of the next line reveals the change; for the last line,
        // the state file's link does.
        changed[line] = resealed(&whole[line].replace("1.2.3", "1.2.4"));
        write_lines(&disk, &changed);
        assert_eq!(flawed_lines(&disk), [(line + 1 < whole.len()).then_some(number + 1)]);
    }
    let [mut missing, mut doubled] = [whole.clone(), whole.clone()];
    missing.remove(3);
    doubled.insert(3, whole[2].clone());
    for lines in [missing, doubled] {
        write_lines(&disk, &lines);
        assert_eq!(flawed_lines(&disk)[0], Some(4));
    }
    write_lines(&disk, &whole[..whole.len() - 1]);
    let message = complaint(&disk);
    assert!(message.contains("when the run became complete"), "{message}");
}

#[test]
fn lines_after_the_saved_state_may_reopen_a_run() {
    let state = |disk: &OnDisk| disk.journal().with_file_name("state.json");
    let saved = fs::read(state(&OnDisk::closed(&[&complete()]))).unwrap();
    let dispute = EntryKind::Disputed.change(record(1, 0, 2, 1_000));
    let disk = OnDisk::closed(&[&complete(), &[dispute]]);
    // A crash before the state was saved.
    fs::write(state(&disk), saved).unwrap();
    let run = report(&disk).runs.remove(0);
    assert_eq!(run.evidence.disputed, [TaskId(0)]);
}

#[test]
fn a_total_that_contradicts_the_checks_is_found() {
    // The error in the first task's count; `None` if it has no count.
    for (error, part) in [
        (Some(1), "Burnside"),
        (Some(8), "732 is not the published 724"),
        (None, "its state is complete"),
    ] {
        let mut changes = complete();
        match (error, &mut changes[0]) {
            (Some(error), Change::Recorded(first)) => first.record.count += error,
            _ => drop(changes.remove(0)),
        }
        let message = complaint(&OnDisk::closed(&[&changes]));
        assert!(message.contains(part), "{message}");
    }
    // Nothing is published for this board: the stored symmetric solutions decide.
    let stored = SymmetricCounts { half_turn: 16, quarter_turn: 0 };
    let checked = |total| Checks::of(Board::new(28).unwrap(), total, Some(stored));
    assert!(checked(17).unwrap_err().contains("Burnside"));
    assert_eq!(checked(24).unwrap().counts.unwrap().half_turn(), 16);
}

#[test]
fn an_altered_manifest_is_found() {
    let disk = OnDisk::closed(&[&complete()]);
    let path = disk.journal().with_file_name("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(r#""n":10"#, r#""n":11"#)).unwrap();
    let message = complaint(&disk);
    assert!(message.contains("manifest.json"), "{message}");
    // Even with the right check hash, the journal's first link names another manifest.
    let mut other = manifest(1);
    other.priority += 1;
    fs::write(&path, crate::journal::manifest::encode(&other)).unwrap();
    assert_eq!(flawed_lines(&disk)[0], Some(1));
}

#[test]
fn an_unfinished_last_line_is_accepted_also_in_a_directory_in_use() {
    for live in [false, true] {
        let mut disk = OnDisk::closed(&[&complete()[..5]]);
        if live {
            disk.reopen();
        }
        let path = disk.journal();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [whole.as_slice(), &whole[..50]].concat()).unwrap();
        let report = report(&disk);
        let run = &report.runs[0];
        assert_eq!((run.live, run.lines, run.torn_bytes), (live, 5, 50));
        let part =
            if live { "a coordinator writes" } else { "50 bytes of an unfinished last line" };
        assert!(report.to_string().contains(part), "{report}");
    }
}

#[test]
fn other_directories_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    let error = verify(empty.path()).unwrap_err();
    assert!(matches!(error, VerifyError::NotOurs(_)), "{error}");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
    let error = verify(&empty.path().join("nowhere")).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn progress_grows_over_all_journals_to_1() {
    let mut reported = Vec::new();
    let mut watch = |examined: Examined| reported.push((examined.lines, examined.part));
    // Two journals of 20 bytes per line, the second of which grows by 500 lines during the verification.
    let mut meter = Meter::new(20 * 4_000, &mut watch);
    for lines in [2_000, 2_500] {
        for line in 1..=lines {
            meter.line(20 * line);
        }
        meter.journal(20 * lines);
    }
    let parts =
        [(1_000, 0.25), (2_000, 0.5), (2_000, 0.5), (3_000, 0.75), (4_000, 1.0), (4_500, 1.0)];
    assert_eq!(reported, parts);
}
