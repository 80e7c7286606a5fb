//! Everything that parses bytes of others, on the corpus that fuzzing began with and on whatever it
//! found since. `fuzz/` drives the same functions.

use std::{collections::BTreeSet, fs, path::Path};

type Reader = fn(&[u8]);

const READERS: [(&str, Reader); 13] = [
    ("certificate", coordinator::certify::foreign::certificate),
    ("counts", coordinator::certify::foreign::counts),
    ("http_request", coordinator::http::foreign::http_request),
    ("join_string", proto::foreign::join_string),
    ("journal_line", coordinator::store::foreign::journal_line),
    ("operator_messages", proto::foreign::operator_messages),
    ("sled_value", coordinator::store::foreign::sled_value),
    ("small_file", coordinator::store::foreign::small_file),
    ("spool_line", worker::foreign::spool_line),
    ("sync_messages", proto::foreign::sync_messages),
    ("token", proto::foreign::token),
    ("token_book", coordinator::doors::foreign::token_book),
    ("trust_line", coordinator::store::foreign::trust_line),
];

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let name = |path: std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.unwrap().path())).collect()
}

#[test]
fn every_reader_takes_what_fuzzing_knows() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let known: BTreeSet<_> = READERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz.join("fuzz_targets")), known);
    assert_eq!(names(&fuzz.join("corpus")), known);
    for (name, read) in READERS {
        let folder = fuzz.join("corpus").join(name);
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            // The test's output names the file before the reader can panic on it.
            println!("{}", path.display());
            read(&bytes);
            for cut in 0..bytes.len().min(512) {
                read(&bytes[..cut]);
            }
            files += 1;
        }
        assert!(files > 0, "{name} has no corpus");
    }
}
