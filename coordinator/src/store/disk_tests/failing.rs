//! Disks that are full, and disks that fail.

use super::*;

/// Writes some bytes of a group to the file, then fails as a full disk does.
struct Full {
    file: File,
    room: usize,
}

impl Medium for Full {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(&bytes[..self.room.min(bytes.len())])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
}

/// A disk whose sync fails, after which nobody knows what it holds; it cannot be cut either.
struct Broken(File);

impl Medium for Broken {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Err(io::Error::other("input/output error"))
    }

    fn cut(&mut self, _bytes: u64) -> io::Result<()> {
        Err(io::Error::other("input/output error"))
    }
}

fn append_to(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}

#[test]
fn after_a_full_disk_nothing_is_acknowledged_and_nothing_is_lost() {
    for room in [0, 100, 500, 10_000] {
        let mut disk = closed(&[&[accepted(0)]]);
        disk.reopen();
        let file = append_to(&journal_path(&disk));
        disk.store()
            .set_medium(RunId(1), Box::new(Full { file, room }));
        let error = disk.store().apply(&[accepted(1), accepted(2)]).unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        for _ in 0..2 {
            let error = disk.store().apply(&[accepted(3)]).unwrap_err();
            assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        }
        let error = disk.store().create(&manifest(2)).unwrap_err();
        assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        disk.reopen();
        assert_eq!(done(disk.store()), [0], "room for {room} bytes");
        assert_eq!(lines(disk.store(), 1).len(), 1);
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_what_is_whole_is_kept() {
    let mut disk = closed(&[&[accepted(0)]]);
    disk.reopen();
    let file = append_to(&journal_path(&disk));
    disk.store().set_medium(RunId(1), Box::new(Broken(file)));
    disk.store().apply(&[accepted(1)]).unwrap_err();
    let error = disk.store().apply(&[accepted(1)]).unwrap_err();
    assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
    disk.reopen();
    assert_eq!(done(disk.store()), [0, 1]);
}
