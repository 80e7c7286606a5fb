//! Whose a directory is, what format it has, and who may read its secret.

use super::*;

#[test]
fn a_directory_has_one_writer() {
    let mut disk = closed(&[]);
    disk.reopen();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let pid = format!("(process {})", std::process::id());
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&pid), "{error}");
    disk.close();
    disk.reopen();
}

#[test]
fn directories_that_are_not_ours_are_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    let error = DiskStore::open(dir.path()).unwrap_err();
    assert!(
        matches!(error, StoreError::ForeignDirectory { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let file = dir.path().join("thesis.tex");
    let error = DiskStore::open(&file).unwrap_err();
    assert!(error.to_string().contains("path of a directory"), "{error}");

    // What a crash within the first open leaves is ours to take.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "1\n").unwrap();
    fs::write(dir.path().join("format.tmp"), "{").unwrap();
    fs::create_dir(dir.path().join("runs")).unwrap();
    DiskStore::open(dir.path()).unwrap();
}

/// Nobody can make directories there, whoever runs the test.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_is_named_with_what_to_do() {
    let dir = Path::new("/sys/queens-data");
    let error = DiskStore::open(dir).unwrap_err().to_string();
    assert!(error.contains("cannot create /sys/queens-data"), "{error}");
    assert!(error.contains("writable for this user"), "{error}");
}

#[test]
fn another_format_or_plan_is_refused_with_both() {
    let mut disk = closed(&[]);
    let marker = disk.dir().join("format.json");
    let ours = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, ours.replace(r#""format":2"#, r#""format":3"#)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let found = matches!(
        error,
        StoreError::FormatVersion {
            found: 3,
            ours: 2,
            ..
        }
    );
    assert!(found, "{error}");
    fs::write(&marker, ours).unwrap();

    let mut other = manifest(1);
    other.plan_version += 1;
    other.spec.task_cost += 1;
    let path = journal_path(&disk).with_file_name("manifest.json");
    fs::write(&path, format::encode(&other)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Plan(_)), "{error}");
    let plan = crate::store::plan_of(&manifest(1))
        .unwrap()
        .hash()
        .to_string();
    assert!(error.to_string().contains(&plan), "{error}");

    fs::write(&path, format::encode(&manifest(2))).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    fs::write(&path, format::encode(&manifest(1))).unwrap();
    disk.reopen();
}

#[test]
fn a_run_without_a_manifest_was_never_created() {
    let mut disk = closed(&[]);
    let dir = disk.dir().join("runs").join(RunId(7).to_string());
    fs::create_dir(&dir).unwrap();
    File::create(dir.join("journal.jsonl")).unwrap();
    disk.reopen();
    assert_eq!(disk.store().runs().unwrap().len(), 1);
    disk.store().create(&manifest(7)).unwrap();
    disk.store()
        .apply(&[Change::Accepted(record(7, 0, 1, 1))])
        .unwrap();
    disk.close();
    fs::remove_file(dir.join("manifest.json")).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

/// A copy of what this program wrote when its data directories had format 1: a complete run of
/// N = 8, and 20 of the 36 tasks of one of N = 10.
fn format_1() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/format-1");
    copy(&from, dir.path());
    dir
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_directory_of_format_1_is_read_and_gone_on_with() {
    let dir = format_1();
    let [eight, ten] = [RunId(0x6493eb41a8639ddb), RunId(0x87f08c38ffde93ed)];
    let verified = crate::store::verify(dir.path()).unwrap();
    assert_eq!(verified.runs.len(), 2);
    for _ in 0..2 {
        let mut store = DiskStore::open(dir.path()).unwrap();
        let runs = store.runs().unwrap();
        let of = |run| {
            runs.iter()
                .find(|stored| stored.manifest.run == run)
                .unwrap()
        };
        assert_eq!(of(eight).state, RunState::Complete);
        assert_eq!(of(ten).state, RunState::Running);
        assert!(of(ten).elapsed_ms > 0 && of(ten).elapsed_ms < 60_000);
        assert_eq!(store.refold(eight).unwrap().total(), Ok(92));
        let mut done = Vec::new();
        store
            .scan(ten, &mut |row| {
                if matches!(row.state, TaskState::Done { .. }) {
                    done.push(row.task);
                }
            })
            .unwrap();
        // What is added has the new format, in the same chain.
        let next = (0..36).find(|task| !done.contains(&TaskId(*task))).unwrap();
        let mut new = record(1, next, 9, 0);
        new.run = ten;
        store.apply(&[Change::Accepted(new)]).unwrap();
    }
    let verified = crate::store::verify(dir.path()).unwrap();
    let lines: Vec<_> = verified.runs.iter().map(|run| run.lines).collect();
    assert!(lines.contains(&22), "{lines:?}");
    let marker = fs::read_to_string(dir.path().join("format.json")).unwrap();
    assert!(marker.contains(r#""format":2"#), "{marker}");
}

#[test]
#[cfg(unix)]
fn the_secret_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let disk = closed(&[]);
    let mode = fs::metadata(disk.dir().join("secret"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(disk.dir().join("secret")).unwrap();
    assert_eq!(secret.trim_end().len(), 72);
}

#[test]
fn a_secret_with_a_changed_digit_is_no_secret() {
    let mut disk = closed(&[]);
    let path = disk.dir().join("secret");
    let text = fs::read_to_string(&path).unwrap();
    for at in 0..72 {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        fs::write(&path, changed).unwrap();
        let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
        assert!(error.contains("its check sum is wrong"), "{error}");
    }
    // As programs wrote it that knew no check sum.
    fs::write(&path, &text[..64]).unwrap();
    disk.reopen();
}
