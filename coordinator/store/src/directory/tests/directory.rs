//! The owner, the format and the secret of a directory.

use super::*;

#[test]
fn a_directory_has_one_writer() {
    let mut disk = OnDisk::closed(&[]);
    disk.reopen();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let pid = format!("(process {})", std::process::id());
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&pid), "{error}");
    disk.close();
    disk.reopen();
}

#[test]
fn other_directories_are_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    let error = DiskStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::ForeignDirectory { .. }), "{error}");
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let file = dir.path().join("thesis.tex");
    let error = DiskStore::open(&file).unwrap_err();
    assert!(error.to_string().contains("path of a directory"), "{error}");

    // The leftovers of a crash during the first start are accepted.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "1\n").unwrap();
    fs::write(dir.path().join("format.tmp"), "{").unwrap();
    fs::create_dir(dir.path().join("runs")).unwrap();
    DiskStore::open(dir.path()).unwrap();
}

/// No user can create directories in `/sys`.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_directory_is_named_with_advice() {
    let dir = Path::new("/sys/queens-data");
    let error = DiskStore::open(dir).unwrap_err().to_string();
    assert!(error.contains("cannot create /sys/queens-data"), "{error}");
    assert!(error.contains("writable for this user"), "{error}");
}

#[test]
fn another_format_or_plan_is_refused_with_both() {
    let mut disk = OnDisk::closed(&[]);
    let marker = disk.dir().join("format.json");
    let ours = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, ours.replace(r#""format":3"#, r#""format":4"#)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let found = matches!(error, StoreError::FormatVersion { found: 4, ours: 3, .. });
    assert!(found, "{error}");
    fs::write(&marker, ours).unwrap();

    let mut other = manifest(1);
    other.plan_version += 1;
    other.spec.task_cost += 1;
    let path = disk.journal().with_file_name("manifest.json");
    fs::write(&path, format::encode(&other)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Plan(_)), "{error}");
    let plan = scheduler::ledger::fold::plan_of(&manifest(1)).unwrap().hash().to_string();
    assert!(error.to_string().contains(&plan), "{error}");

    fs::write(&path, format::encode(&manifest(2))).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    fs::write(&path, format::encode(&manifest(1))).unwrap();
    disk.reopen();
}

#[test]
fn a_run_without_a_manifest_was_never_created() {
    let mut disk = OnDisk::closed(&[]);
    let dir = disk.dir().join("runs").join(RunId(7).to_string());
    fs::create_dir(&dir).unwrap();
    File::create(dir.join("journal.jsonl")).unwrap();
    disk.reopen();
    assert_eq!(disk.store().runs().unwrap().len(), 1);
    disk.store().create(&manifest(7), Recheck::Auto).unwrap();
    disk.store().apply(&[EntryKind::Accepted.change(record(7, 0, 1, 1))]).unwrap();
    disk.close();
    // Records, or events alone, prove that the run was created.
    for (lost, left) in [("manifest.json", "journal.jsonl"), ("journal.jsonl", "events.jsonl")] {
        fs::remove_file(dir.join(lost)).unwrap();
        File::options().create(true).append(true).open(dir.join(left)).unwrap();
        let error = DiskStore::open(disk.dir()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

/// Copies a directory that this program wrote in an earlier format.
fn copy(format: &Path, to: &Path) {
    for from in files::entries(format).unwrap() {
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Format 1 has a complete run of N = 8, and 20 of 36 tasks of N = 10; format 2 has
/// 12 tasks of N = 24; format 3 has a run from before the rules of the three stores were merged.
#[test]
fn directories_of_earlier_formats_are_read_and_continued() {
    for (format, run, state, lines, (total, elapsed_ms), (trusted, term)) in [
        ("format-1", 0x6493eb41a8639ddb, RunState::Complete, 2, (92, 80), (0, 0)),
        ("format-1", 0x87f08c38ffde93ed, RunState::Running, 20, (332, 84), (0, 0)),
        ("format-2", 0x2188f0f67ab8096d, RunState::Running, 12, (537_458_759_122, 223_581), (3, 3)),
        ("format-3", 0x2d9dcf340740ff9e, RunState::Complete, 18, (352, 1_467), (1, 1)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format), dir.path());
        let run = RunId(run);
        let path = dir.path().join("runs").join(run.to_string()).join("journal.jsonl");
        let before = fs::read_to_string(&path).unwrap();
        for start in 0..3 {
            let verified = crate::verify(dir.path()).unwrap();
            let report = verified.runs.iter().find(|report| report.manifest.run == run).unwrap();
            let added = if state == RunState::Running { start } else { 0 };
            assert_eq!(report.lines, lines + added, "{format}");
            let mut store = DiskStore::open(dir.path()).unwrap();
            assert_eq!(store.term(), term + start + 1, "{format}");
            assert_eq!(store.trust().unwrap().len(), trusted, "{format}");
            let stored = store.runs().unwrap().into_iter().find(|it| it.manifest.run == run);
            let stored = stored.unwrap();
            assert_eq!(stored.state, state, "{format}");
            assert!(start > 0 || stored.elapsed_ms == elapsed_ms, "{format}: {stored:?}");
            let fold = store.refold(run).unwrap();
            assert_eq!(fold.total(), Ok(total), "{format}");
            if state == RunState::Running {
                // New lines have the new format, in the same chain.
                let open = |task: &u64| fold.rows().all(|(counted, _)| counted.0 != *task);
                let new = Record { run, ..record(1, (0..).find(open).unwrap(), 9, 0) };
                store.apply(&[EntryKind::Accepted.change(new)]).unwrap();
            }
        }
        assert!(fs::read_to_string(&path).unwrap().starts_with(&before), "{format}");
        let marker = fs::read_to_string(dir.path().join("format.json")).unwrap();
        assert!(marker.contains(r#""format":3"#), "{marker}");
    }
}

#[test]
#[cfg(unix)]
fn the_secret_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let disk = OnDisk::closed(&[]);
    let mode = fs::metadata(disk.dir().join("secret")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(disk.dir().join("secret")).unwrap();
    assert_eq!(secret.trim_end().len(), 72);
}

#[test]
fn a_secret_with_a_changed_digit_is_refused() {
    let mut disk = OnDisk::closed(&[]);
    let path = disk.dir().join("secret");
    let text = fs::read_to_string(&path).unwrap();
    for at in 0..72 {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        fs::write(&path, changed).unwrap();
        let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
        assert!(error.contains("its checksum is wrong"), "{error}");
    }
    // The format of earlier versions, without a checksum.
    fs::write(&path, &text[..64]).unwrap();
    disk.reopen();
}

#[test]
#[cfg(unix)]
fn a_planted_directory_is_refused_and_its_links_are_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let victim = home.path().join("victim");
    fs::write(&victim, "content").unwrap();
    for name in ["lock", "format.json", "secret", "signing-key", "runs/0000000000000001"] {
        let planted = home.path().join(name.replace('/', "-"));
        drop(DiskStore::open(&planted).unwrap());
        let path = planted.join(name);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let refused = [
            DiskStore::open(&planted).err().unwrap().to_string(),
            crate::signing_key(&planted).unwrap_err().to_string(),
        ];
        for refused in refused {
            assert!(refused.contains(&format!("{name} is a link")), "{refused}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "content");
    }
}
