//! Parsers of untrusted bytes on the fuzzing corpus; `fuzz/` runs the same ones.

use std::{collections::BTreeSet, fs, path::Path};

type Reader = fn(&[u8]);

const READERS: [(&str, Reader); 13] = [
    ("certificate", store::fuzz_targets::certificate),
    ("counts", store::fuzz_targets::counts),
    ("http_request", coordinator::http::fuzz_targets::http_request),
    ("join_string", proto::fuzz_targets::join_string),
    ("journal_line", store::fuzz_targets::journal_line),
    ("operator_messages", proto::fuzz_targets::operator_messages),
    ("sled_value", store::fuzz_targets::sled_value),
    ("small_file", store::fuzz_targets::small_file),
    ("spool_line", worker::spool_line),
    ("sync_messages", proto::fuzz_targets::sync_messages),
    ("token", proto::fuzz_targets::token),
    ("token_book", auth::fuzz_token_book),
    ("trust_line", store::fuzz_targets::trust_line),
];

#[test]
fn every_reader_accepts_its_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let known: BTreeSet<_> = READERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let targets = manifest.split("[[bin]]\nname = \"").skip(1);
    let targets: BTreeSet<_> =
        targets.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect();
    let corpora = fs::read_dir(fuzz.join("corpus")).unwrap();
    let corpora: BTreeSet<_> =
        corpora.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!((&targets, &corpora), (&known, &known));
    for (name, read) in READERS {
        let folder = fuzz.join("corpus").join(name);
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            // Printed first, in case the reader panics.
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
