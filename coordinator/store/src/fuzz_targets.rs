//! Fuzz targets for the readers of the store's files.
//! Each accepts any bytes, and panics if valid input does not round-trip.

use common::messages::{run::RunId, sealed};

use crate::{
    certify::{Certificate, leaves},
    journal::{line::JournalLine, manifest, segments, text, trust},
    journal_store::rows,
};

/// Decodes a journal line, as it is and with the right checksum.
pub fn journal_line(bytes: &[u8]) {
    let again = |text: &[u8]| {
        if let Ok(line) = JournalLine::decode(text) {
            assert_eq!(JournalLine::decode(line.encode().as_bytes()).as_ref(), Ok(&line));
        }
    };
    again(bytes);
    again(&sealed::resealed(bytes));
}

/// Decodes the small files, as they are and with the right check hash.
pub fn small_file(bytes: &[u8]) {
    let Ok(given) = std::str::from_utf8(bytes) else {
        return;
    };
    for text in [given.to_owned(), text::resealed(given)] {
        let run = RunId(1);
        if let Ok(read) = manifest::decode(&text) {
            assert_eq!(manifest::decode(&manifest::encode(&read)), Ok(read));
        }
        if let Ok(read) = manifest::decode_state(run, &text) {
            assert_eq!(manifest::decode_state(run, &text::seal(&read)), Ok(read));
        }
        if let Ok(read) = manifest::decode_symmetric(run, &text) {
            let again = manifest::decode_symmetric(run, &manifest::encode_symmetric(run, read));
            assert_eq!(again, Ok(read));
        }
        if let Ok(read) = manifest::decode_settings(run, &text) {
            let again = manifest::decode_settings(run, &manifest::encode_settings(run, read));
            assert_eq!(again, Ok(read));
        }
        if let Ok(term) = manifest::decode_term(&text) {
            assert_eq!(manifest::decode_term(&manifest::encode_term(term)), Ok(term));
        }
        if let Ok(read) = segments::decode(run, 1, &text) {
            assert_eq!(segments::decode(run, 1, &text::seal(&read)), Ok(read));
        }
        // A marker decodes to a number only, so nothing is compared.
        let _ = manifest::check_marker(&text);
    }
}

/// Decodes a task's row.
pub fn sled_value(bytes: &[u8]) {
    if let Some(row) = rows::decode(bytes) {
        assert_eq!(rows::encode(&row), bytes);
    }
}

/// Decodes a line of the trust log, as it is and with the right check hash.
pub fn trust_line(bytes: &[u8]) {
    let Ok(given) = std::str::from_utf8(bytes) else {
        return;
    };
    for text in [given.to_owned(), text::resealed(given)] {
        if let Ok((seq, prev, record)) = trust::decode(&text) {
            let again = trust::decode(&trust::encode(seq, &record, prev));
            assert_eq!(again, Ok((seq, prev, record)));
        }
    }
}

/// Reads a certificate; signs and reads an unsigned one.
pub fn certificate(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let again = |text: &str| {
        if let Ok(read) = Certificate::read(text) {
            // Signed nonsense must not cause a panic.
            let _ = (read.spec(), read.plan(), read.root());
        }
    };
    again(text);
    if let Ok(read) = serde_json::from_str::<Certificate>(text) {
        let signed = read.sign(&[7; 32]);
        assert!(Certificate::read(&signed).is_ok(), "{signed}");
        again(&signed);
    }
}

/// Decodes the file of a certificate's counts.
pub fn counts(bytes: &[u8]) {
    if let Ok(read) = leaves::decode(bytes) {
        assert_eq!(leaves::decode(&leaves::encode(&read)), Ok(read));
    }
}
