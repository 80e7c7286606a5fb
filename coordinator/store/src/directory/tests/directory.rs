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
    fs::write(&marker, ours.replace(r#""format":1"#, r#""format":2"#)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let found = matches!(error, StoreError::FormatVersion { found: 2, ours: 1, .. });
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
    fs::write(&path, &text).unwrap();
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
