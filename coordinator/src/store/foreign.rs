//! What reads the store's files, as one function a kind of text: for fuzzing. Each takes any bytes,
//! and panics where a reader is not as it should be: what was read must be written and read again as
//! the same.

use common::{run::RunId, sealed};

use super::{line::JournalLine, manifest, rows, segments, text, trust};

/// One journal line: as it is, and with the check sum that these bytes would have.
pub fn journal_line(bytes: &[u8]) {
    let again = |text: &[u8]| {
        if let Ok(line) = JournalLine::decode(text) {
            assert_eq!(
                JournalLine::decode(line.encode().as_bytes()).as_ref(),
                Ok(&line)
            );
        }
    };
    again(bytes);
    again(&sealed::resealed(bytes));
}

/// The small files: a run's manifest, state, symmetric solutions, second counts and seals, the
/// coordinator's term, the directory's marker. As they are, and with their check hash.
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
            let again = manifest::decode_state(run, &manifest::encode_state(run, &read));
            assert_eq!(again, Ok(read));
        }
        if let Ok(read) = manifest::decode_symmetric(run, &text) {
            let again = manifest::decode_symmetric(run, &manifest::encode_symmetric(run, read));
            assert_eq!(again, Ok(read));
        }
        if let Ok(read) = manifest::decode_recheck(run, &text) {
            let again = manifest::decode_recheck(run, &manifest::encode_recheck(run, read));
            assert_eq!(again, Ok(read));
        }
        if let Ok(term) = manifest::decode_term(&text) {
            assert_eq!(
                manifest::decode_term(&manifest::encode_term(term)),
                Ok(term)
            );
        }
        // What says no is all that these can do wrong.
        let _ = manifest::check_marker(&text);
        let _ = segments::decode(run, 1, &text);
    }
}

/// A task's row, as sled gives it back.
pub fn sled_value(bytes: &[u8]) {
    if let Some(row) = rows::decode(bytes) {
        assert_eq!(rows::encode(&row), bytes);
    }
}

/// One line of what is thought of workers: as it is, and with its check hash.
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
