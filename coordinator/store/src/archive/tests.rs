use std::fs;

use common::messages::run::RunId;

use super::*;
use crate::{
    DiskStore, EntryKind, Event, Recheck, Store as _,
    conformance::{accepted, lines, manifest, record},
    verify,
};

fn follows_and_restores(place: &ArchivePlace) {
    let all = tempfile::tempdir().unwrap();
    let [data, other] = ["data", "other"].map(|name| all.path().join(name));
    let mut store = DiskStore::open(&data).unwrap();
    store.create(&manifest(1), Recheck::Auto).unwrap();
    let data_files = DataFiles::new(&data);
    place.make().unwrap();
    let mut archive = Archive::open(place).unwrap();
    let mut kept = 0_usize;
    for losses in 0..8 {
        for task in 0..3 {
            // A segment for every line or two.
            store.set_segment_bytes(700);
            store.apply(&[accepted(losses * 4 + task)]).unwrap();
            kept += 1;
        }
        archive.pass(&data_files).unwrap();
        store.apply(&[accepted(losses * 4 + 3)]).unwrap();
        let to = all.path().join(format!("restored-{losses}"));
        restore(place, &to).unwrap();
        assert_eq!(verify(&to).unwrap().runs[0].lines, kept as u64);
        let restored = DiskStore::open(&to).unwrap();
        assert_eq!(lines(&restored, 1)[..], lines(&store, 1)[..kept]);
        assert_eq!(restored.secret(), store.secret());
        kept += 1;
    }
    // The ids of these runs begin with the name of the index.
    let more = [0xdb00_0000_0000_0002, 0xdbad_0000_0000_0003];
    for run in more {
        store.create(&manifest(run), Recheck::Auto).unwrap();
        store.apply(&[EntryKind::Accepted.change(record(run, 0, 1, 2))]).unwrap();
    }
    archive.pass(&data_files).unwrap();
    let to = all.path().join("restored-more");
    restore(place, &to).unwrap();
    let lines: Vec<_> = verify(&to).unwrap().runs.iter().map(|run| run.lines).collect();
    assert_eq!(lines, [kept as u64, 1, 1]);
    // A run whose manifest is lost is reported, and not silently left out.
    let lost = format!("runs/{}/manifest.json", RunId(more[1]));
    archive.remove(&lost).unwrap();
    let to = all.path().join("restored-damaged");
    restore(place, &to).unwrap();
    let damage = verify(&to).unwrap_err().to_string();
    assert!(damage.contains(&lost) && damage.contains("has records"), "{damage}");
    archive.pass(&data_files).unwrap();
    // Other directories are neither archived there nor overwritten.
    drop(DiskStore::open(&other).unwrap());
    let refused = Archive::of(&other, place).err().unwrap().to_string();
    assert!(refused.contains("it is not the archive of"), "{refused}");
    assert!(restore(place, &other).is_err());
    // Nor is an older copy, which would replace the later lines.
    let older = Archive::of(&all.path().join("restored-0"), place).err().unwrap().to_string();
    assert!(older.contains("it has counts that are not in"), "{older}");
    // Dropping the archiver makes a last pass.
    let archiver = Archiver::start(&data, Archive::of(&data, place).unwrap()).unwrap();
    store.apply(&[accepted(35)]).unwrap();
    drop(archiver);
    let to = all.path().join("restored");
    restore(place, &to).unwrap();
    assert_eq!(verify(&to).unwrap().runs[0].lines, kept as u64 + 1);
    assert_eq!(verify(&data).unwrap().runs[0].lines, kept as u64 + 1);
}

#[test]
fn an_older_copy_with_the_same_counts_is_refused() {
    let all = tempfile::tempdir().unwrap();
    let [data, first, second, place] =
        ["data", "first", "second", "archive"].map(|name| all.path().join(name));
    let place = ArchivePlace::from(place.to_str().unwrap());
    let log = |sequence, kind| {
        let mut log = EventLog::default();
        log.add(Event { sequence, ..Event::new(1, kind, "") });
        log.encode()
    };
    let refused = |dir: &Path| {
        let error = Archive::of(dir, &place).err().expect("an older copy").to_string();
        assert!(error.contains("it has events that are not in"), "{error}");
    };
    let mut store = DiskStore::open(&data).unwrap();
    store.create(&manifest(1), Recheck::Auto).unwrap();
    store.keep_note(Some(RunId(1)), Note::Events, &log(1, "submitted")).unwrap();
    let data_files = DataFiles::new(&data);
    let mut archive = Archive::of(&data, &place).unwrap();
    archive.pass(&data_files).unwrap();
    restore(&place, &first).unwrap();
    drop(Archive::of(&first, &place).unwrap());
    // The copy lacks a run without counts.
    store.create(&manifest(2), Recheck::Auto).unwrap();
    store.keep_note(Some(RunId(2)), Note::Events, &log(2, "submitted")).unwrap();
    archive.pass(&data_files).unwrap();
    refused(&first);
    // The directory lacks the run too, once it is deleted there.
    store.delete(RunId(2)).unwrap();
    store.keep_note(None, Note::Events, &log(3, "deleted")).unwrap();
    drop(Archive::of(&data, &place).unwrap());
    archive.pass(&data_files).unwrap();
    restore(&place, &second).unwrap();
    drop(Archive::of(&second, &place).unwrap());
    // A later start, whose event was lost.
    drop(store);
    drop(DiskStore::open(&data).unwrap());
    archive.pass(&data_files).unwrap();
    refused(&second);
    drop(Archive::of(&data, &place).unwrap());
}

#[test]
fn a_lost_disk_costs_the_writes_since_the_last_pass() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    follows_and_restores(&archive.to_str().unwrap().into());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&archive), 0o700);
        for (name, _) in small_files(&archive).unwrap() {
            assert_eq!(mode(&archive.join(&name)), 0o600, "{name}");
        }
    }
}

/// Uses a server and keys from the environment: `tests/s3/with` provides both.
#[test]
fn a_bucket_works_like_a_directory() {
    let Ok(bucket) = std::env::var("QUEENS_TEST_S3") else {
        return kit::not_tested("archives in a bucket: run this under tests/s3/with");
    };
    follows_and_restores(&format!("{bucket}/{:016x}", rand::random::<u64>()).as_str().into());
}

#[test]
fn invalid_places_are_refused() {
    let error = restore(&"s3:///there".into(), Path::new("x")).unwrap_err();
    assert!(error.to_string().contains("no bucket is named"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let data = dir.path().join("data");
    for nested in [dir.path(), &data.join("archive"), &data.join("../new/../data")] {
        let error = Archive::of(&data, &nested.to_str().unwrap().into()).err().unwrap();
        assert!(error.to_string().contains("overlaps with"), "{error}");
    }
    assert_eq!(files::entries(dir.path()).unwrap(), [&*file], "nothing is created");
    let within = file.join("archive");
    let within = within.to_str().unwrap().into();
    let error = Archive::of(&data, &within).err().unwrap().to_string();
    assert!(error.contains("create"), "{error}");
    let error = restore(&within, Path::new("x")).unwrap_err().to_string();
    assert!(error.contains("there is no such directory"), "{error}");
}

#[test]
fn an_error_of_s3_is_one_line() {
    let text = "The operation lacked the privileges: Client error: <?xml version=\"1.0\"?>\n<Error>\
                <Code>AccessDenied</Code><Message>Access Denied.</Message></Error>";
    assert_eq!(super::without_xml(text), "Access Denied. (AccessDenied)");
    assert_eq!(super::without_xml("timed out"), "timed out");
}
