//! Journals in segments.

use super::*;

/// A closed directory with run 1, whose nine records are in segments of a line or two.
fn segmented() -> OnDisk {
    let mut disk = OnDisk::in_segments();
    disk.store().create(&manifest(1)).unwrap();
    for task in 0..9 {
        disk.store().apply(&[accepted(task)]).unwrap();
    }
    disk.close();
    disk
}

fn segment(disk: &OnDisk, number: u64, extension: &str) -> PathBuf {
    journal_path(disk).with_extension(format!("{number:06}.{extension}"))
}

#[test]
fn segments_are_one_journal() {
    let mut disk = segmented();
    assert!(segment(&disk, 3, "jsonl").exists());
    let verified = crate::store::verify(disk.dir()).unwrap();
    assert_eq!(verified.runs[0].lines, 9);
    disk.reopen();
    assert_eq!(done(disk.store()), (0..9).collect::<Vec<_>>());
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(54));
    // A torn tail is that of the last segment alone.
    disk.close();
    let path = journal_path(&disk);
    let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
    torn.write_all(b"{\"seq\":10").unwrap();
    drop(torn);
    disk.reopen();
    disk.store().apply(&[accepted(9)]).unwrap();
    disk.reopen();
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(65));
    assert_eq!(set_aside(&path, "torn").len(), 1);
}

#[test]
fn a_crash_while_a_segment_is_sealed_loses_nothing() {
    // Before the renaming: a seal of what is still the last segment.
    let mut disk = segmented();
    let last = (1..)
        .find(|number| !segment(&disk, *number, "jsonl").exists())
        .unwrap();
    // Between the two: there is no last segment.
    fs::rename(journal_path(&disk), segment(&disk, last, "jsonl")).unwrap();
    let verified = crate::store::verify(disk.dir()).unwrap();
    assert_eq!(verified.runs[0].lines, 9);
    disk.reopen();
    disk.store().apply(&[accepted(9)]).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_segment_that_is_gone_or_altered_is_found_out() {
    let damaged = |disk: &OnDisk| {
        let error = DiskStore::open(disk.dir()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(crate::store::verify(disk.dir()).is_err());
    };
    for number in [1, 2] {
        let disk = segmented();
        fs::remove_file(segment(&disk, number, "jsonl")).unwrap();
        damaged(&disk);
        let disk = segmented();
        let path = segment(&disk, number, "jsonl");
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 20;
        bytes[end] ^= 1;
        fs::write(&path, bytes).unwrap();
        damaged(&disk);
    }
    // All from some segment on are gone, the last one too: only the seals know.
    let disk = segmented();
    fs::write(journal_path(&disk), "").unwrap();
    for number in (2..).take_while(|number| segment(&disk, *number, "jsonl").exists()) {
        fs::remove_file(segment(&disk, number, "jsonl")).unwrap();
    }
    damaged(&disk);
    // A seal that cannot be read seals nothing, and the lines are there all the same.
    let mut disk = segmented();
    fs::write(segment(&disk, 2, "seal"), "{").unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()).len(), 9);
}
