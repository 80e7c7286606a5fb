use std::io::Write as _;

use super::{
    super::{
        Change, DiskStore, Store as _,
        conformance::{lines, manifest, record},
        verify,
    },
    *,
};

fn follows_and_restores(place: &ArchivePlace) {
    let all = tempfile::tempdir().unwrap();
    let [data, other] = ["data", "other"].map(|name| all.path().join(name));
    let mut store = DiskStore::open(&data).unwrap();
    store.create(&manifest(1)).unwrap();
    let data_files = DataFiles::new(&data);
    place.make().unwrap();
    let mut archive = Archive::open(place).unwrap();
    let mut kept = 0_usize;
    for losses in 0..8 {
        for task in 0..3 {
            // A segment for every line or two.
            store.set_segment_bytes(700);
            let change = Change::Accepted(record(1, losses * 4 + task, 1, 40));
            store.apply(&[change]).unwrap();
            kept += 1;
        }
        archive.pass(&data_files).unwrap();
        let after = Change::Accepted(record(1, losses * 4 + 3, 1, 40));
        store.apply(&[after]).unwrap();
        let to = all.path().join(format!("restored-{losses}"));
        restore(place, &to).unwrap();
        assert_eq!(verify(&to).unwrap().runs[0].lines, kept as u64);
        let restored = DiskStore::open(&to).unwrap();
        assert_eq!(lines(&restored, 1)[..], lines(&store, 1)[..kept]);
        assert_eq!(restored.secret(), store.secret());
        kept += 1;
    }
    // Another directory's copies do not go there, nor does a restored one lie over another.
    drop(DiskStore::open(&other).unwrap());
    let refused = Archiver::start(&other, place).err().unwrap().to_string();
    assert!(refused.contains("it is not the archive of"), "{refused}");
    assert!(restore(place, &other).is_err());
    // The last pass is made when it ends.
    let archiver = Archiver::start(&data, place).unwrap();
    store
        .apply(&[Change::Accepted(record(1, 35, 1, 40))])
        .unwrap();
    drop(archiver);
    let to = all.path().join("restored");
    restore(place, &to).unwrap();
    assert_eq!(verify(&to).unwrap().runs[0].lines, kept as u64 + 1);
    assert_eq!(verify(&data).unwrap().runs[0].lines, kept as u64 + 1);
}

fn place(text: &str) -> ArchivePlace {
    let Ok(place) = text.parse();
    place
}

#[test]
fn a_lost_disk_costs_what_came_after_the_last_pass() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    follows_and_restores(&place(archive.to_str().unwrap()));
}

/// With a store and keys from the environment: `tests/s3/with` starts one.
#[test]
fn a_bucket_is_as_good_as_a_directory() {
    let Ok(bucket) = std::env::var("QUEENS_TEST_S3") else {
        let loud = "SKIPPED: archives in a bucket: run this under tests/s3/with, which starts one";
        writeln!(std::io::stderr(), "{loud}").unwrap();
        return;
    };
    follows_and_restores(&place(&format!("{bucket}/{:016x}", rand::random::<u64>())));
}

#[test]
fn a_place_that_cannot_be_is_told() {
    let said = restore(&place("s3:///there"), Path::new("x")).unwrap_err();
    assert!(said.to_string().contains("names no bucket"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let data = dir.path().join("data");
    drop(DiskStore::open(&data).unwrap());
    for lies_in in [dir.path(), &data.join("archive")] {
        let said = Archiver::start(&data, &place(lies_in.to_str().unwrap()));
        let said = said.err().unwrap().to_string();
        assert!(said.contains("lie in one another"), "{said}");
    }
    let within = file.join("archive");
    let within = place(within.to_str().unwrap());
    let said = Archiver::start(&data, &within).err().unwrap().to_string();
    assert!(said.contains("create"), "{said}");
    let said = restore(&within, Path::new("x")).unwrap_err().to_string();
    assert!(said.contains("cannot open"), "{said}");
}
