//! Torn tails, changed bytes, and rows that disagree with the journal.

use super::*;

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let disk = OnDisk::closed(&[&[accepted(0)], &[accepted(1), accepted(2)]]);
    let path = disk.journal();
    let whole = fs::read(&path).unwrap();
    let ends: Vec<_> = whole
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    let run = found(&disk);
    for cut in ends[0]..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let end = survey(&run).unwrap();
        let lines = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(end.lines, lines as u64, "cut at byte {cut}");
        assert_eq!(end.bytes, ends[lines - 1] as u64, "cut at byte {cut}");
    }
}

#[test]
fn a_torn_tail_is_cut_and_kept() {
    for missing in [1, 2, 100, 250] {
        let mut disk = OnDisk::closed(&[&[accepted(0)], &[accepted(1)]]);
        let path = disk.journal();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - missing]).unwrap();
        disk.reopen();
        assert_eq!(done(disk.store()), [0]);
        let torn: Vec<_> =
            existing_backups(&path, "torn").iter().map(|path| fs::read(path).unwrap()).collect();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(torn, [whole[first..whole.len() - missing].to_vec()]);
        disk.store().apply(&[accepted(1), accepted(2)]).unwrap();
        disk.reopen();
        assert_eq!(done(disk.store()), [0, 1, 2]);
        assert_eq!(existing_backups(&path, "torn").len(), 1);
    }
}

#[test]
fn a_changed_byte_is_named_with_its_line() {
    let disk = OnDisk::closed(&[&[accepted(0), accepted(1), accepted(2)]]);
    let path = disk.journal();
    let whole = fs::read(&path).unwrap();
    let run = found(&disk);
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let line = whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        match survey(&run) {
            // No whole line follows, so this may be a torn write.
            Ok(end) => assert!(at >= last && end.lines == 2, "byte {at}: {end:?}"),
            Err(StoreError::Damaged { line: named, .. }) => {
                assert!(at < last && named == Some(line), "byte {at}: {named:?}");
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn an_altered_line_with_a_right_check_sum_breaks_the_chain() {
    let disk = OnDisk::closed(&[&[accepted(0), accepted(1), accepted(2)]]);
    let path = disk.journal();
    let text = fs::read_to_string(&path).unwrap();
    let mut altered: Vec<_> = text.lines().map(str::to_owned).collect();
    altered[1] = resealed(&altered[1].replace(r#""count":"3""#, r#""count":"4""#));
    fs::write(&path, altered.join("\n") + "\n").unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { line: Some(3), .. }), "{error}");
}

#[test]
fn damaged_settings_are_refused() {
    let disk = OnDisk::closed(&[&[accepted(0)]]);
    let path = disk.journal().with_file_name("settings.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("auto", "all")).unwrap();
    let start = DiskStore::open(disk.dir()).unwrap_err().to_string();
    let check = crate::verify(disk.dir()).unwrap_err().to_string();
    for error in [start, check] {
        assert!(error.contains("settings.json"), "{error}");
    }
}

#[test]
fn a_journal_shorter_than_its_state_is_refused() {
    let complete = Change::State { run: RunId(1), state: RunState::Complete };
    let mut disk = OnDisk::closed(&[&[accepted(0), accepted(1), complete]]);
    disk.reopen();
    disk.close();
    let path = disk.journal();
    let text = fs::read_to_string(&path).unwrap();
    let first = text.lines().next().unwrap();
    fs::write(&path, format!("{first}\n")).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
    assert!(error.contains("1 whole lines, but had 2"), "{error}");
    assert!(error.contains("state.json"), "{error}");
    let state = path.with_file_name("state.json");
    fs::remove_file(state).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), [0]);
}

#[test]
fn a_damaged_database_is_rebuilt() {
    let tasks: Vec<_> = (0..30).collect();
    let all: Vec<_> = tasks.iter().map(|task| accepted(*task)).collect();
    let groups = [&all[..10], &all[10..20], &all[20..]];
    let original = OnDisk::closed(&groups);
    let database = original.dir().join("db").join("db");
    let bytes = fs::read(&database).unwrap();
    for step in 0..16 {
        let mut disk = OnDisk::closed(&groups);
        let database = disk.dir().join("db").join("db");
        let mut damaged = bytes.clone();
        let from = bytes.len() * step / 16;
        for byte in damaged.iter_mut().skip(from).take(200) {
            *byte = !*byte;
        }
        fs::write(&database, damaged).unwrap();
        disk.reopen();
        assert_eq!(done(disk.store()), tasks, "damage from byte {from}");
    }
}

/// Even with no run to rebuild, unknown rows must not prevent a start.
#[test]
fn a_bad_database_of_a_directory_without_runs_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    DiskStore::open(dir.path()).unwrap();
    let database = sled::open(dir.path().join("db")).unwrap();
    database.insert(b"v", &[2]).unwrap();
    database.flush().unwrap();
    drop(database);
    DiskStore::open(dir.path()).unwrap();
}

#[test]
fn rows_of_another_journal_are_rebuilt() {
    let mut disk = OnDisk::closed(&[&[accepted(0), accepted(1)]]);
    let other = OnDisk::closed(&[&[accepted(4)], &[accepted(0)], &[accepted(7)]]);
    fs::remove_dir_all(disk.dir().join("db")).unwrap();
    fs::rename(other.dir().join("db"), disk.dir().join("db")).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), [0, 1]);
    assert_eq!(existing_backups(&disk.dir().join("db"), "bad").len(), 1);
}

#[test]
fn rows_that_contradict_the_journal_are_rebuilt() {
    let mut disk = OnDisk::closed(&[&[accepted(0), accepted(1)]]);
    {
        let database = Rows::open(&disk.dir().join("db")).unwrap();
        let row = TaskRow::Counted { sequence: 1 };
        database.put([(RunId(1), TaskId(1), &row)], []).unwrap();
        database.flush().unwrap();
    }
    disk.reopen();
    assert_eq!(existing_backups(&disk.dir().join("db"), "bad").len(), 1);
    assert_eq!(done(disk.store()), [0, 1]);
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(5));
}

#[test]
fn the_total_is_folded_from_the_disk() {
    let mut disk = OnDisk::closed(&[&[accepted(0), accepted(1)]]);
    disk.reopen();
    let path = disk.journal();
    let text = fs::read_to_string(&path).unwrap();
    let shorter = text.lines().next().unwrap().to_owned() + "\n";
    for changed in [text.replace(r#""count":"3""#, r#""count":"4""#), shorter] {
        fs::write(&path, changed).unwrap();
        let error = disk.store().refold(RunId(1)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

#[test]
fn terms_increase_and_a_line_of_an_earlier_one_is_damage() {
    let mut disk = OnDisk::closed(&[&[accepted(0)]]);
    disk.reopen();
    assert_eq!(disk.store().term(), 2);
    disk.store().apply(&[accepted(1)]).unwrap();
    let fences: Vec<_> = lines(disk.store(), 1)
        .iter()
        .map(|(_, _, text)| {
            let line: serde_json::Value = serde_json::from_str(text).unwrap();
            line["fence"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(fences, [1, 2]);
    // A copy may lack the file of the term.
    disk.close();
    fs::remove_file(disk.dir().join("term.json")).unwrap();
    disk.reopen();
    assert_eq!(disk.store().term(), 3);
    disk.store().apply(&[accepted(2)]).unwrap();
    disk.close();
    // A coordinator that was thought to be dead continues to write.
    let text = fs::read_to_string(disk.journal()).unwrap();
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let last = resealed(&last.replace(r#""fence":3"#, r#""fence":1"#));
    fs::write(disk.journal(), format!("{before}\n{last}\n")).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("term 1"), "{error}");
}

/// Only a full disk justifies removing the copy of bad rows.
#[test]
fn a_copy_of_bad_rows_survives_other_errors_than_a_full_disk() {
    let mut disk = OnDisk::new();
    for run in [1, 2] {
        disk.store().create(&manifest(run), Recheck::Auto).unwrap();
    }
    disk.close();
    let database = disk.dir().join("db");
    Rows::open(&database).unwrap().put([], [(RunId(1), 9)]).unwrap();
    let unreadable = DataFiles::new(disk.dir()).run(RunId(2)).journal();
    fs::remove_file(&unreadable).unwrap();
    fs::create_dir(&unreadable).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(existing_backups(&database, "bad").len(), 1);
}
