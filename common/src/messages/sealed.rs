//! Lines of JSON with a checksum: the format of the journal and of spools.
//!
//! The last member of a line, `"crc":"0a1b2c3d"`, is the CRC-32 (IEEE, 8 hexadecimal digits) of all
//! bytes before its comma. It detects any changed byte and any torn end.
//!
//! ```
//! use common::messages::sealed;
//!
//! let mut text = br#"{"task":7}"#.to_vec();
//! sealed::seal(&mut text, 0);
//! assert_eq!(sealed::open(&text).unwrap(), br#"{"task":7}"#);
//! text[8] ^= 1;
//! assert!(sealed::open(&text).is_err());
//! ```

use std::io::Write as _;

const KEY: &[u8] = br#","crc":""#;
const DIGITS: usize = 8;
const END: &[u8] = br#""}"#;
const TAIL_BYTES: usize = KEY.len() + DIGITS + END.len();

/// Reason why a line is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenSeal {
    /// Fewer bytes than a seal.
    #[error("it is too short")]
    Short,
    /// The line does not end in a seal.
    #[error("it does not end in a checksum")]
    Missing,
    /// The checksum does not match.
    #[error("its checksum is {computed:08x}, but the line says {stated}: bytes have changed")]
    Changed { computed: u32, stated: String },
}

/// Seals the nonempty JSON object from byte `start` of `text` on.
///
/// # Panics
/// If the object does not end with `}`.
pub fn seal(text: &mut Vec<u8>, start: usize) {
    assert_eq!(text.pop(), Some(b'}'), "a JSON object ends with a brace");
    let crc = crc32fast::hash(&text[start..]);
    text.extend_from_slice(KEY);
    write!(text, "{crc:08x}").expect("writing to memory cannot fail");
    text.extend_from_slice(END);
}

/// Returns the sealed object if no byte of `line` has changed.
pub fn open(line: &[u8]) -> Result<Vec<u8>, BrokenSeal> {
    let split = line.len().checked_sub(TAIL_BYTES);
    let (body, tail) = line.split_at(split.ok_or(BrokenSeal::Short)?);
    let stated = tail
        .strip_prefix(KEY)
        .and_then(|tail| tail.strip_suffix(END))
        .ok_or(BrokenSeal::Missing)?;
    let computed = crc32fast::hash(body);
    if stated != format!("{computed:08x}").as_bytes() {
        return Err(BrokenSeal::Changed {
            computed,
            stated: String::from_utf8_lossy(stated).into_owned(),
        });
    }
    Ok([body, b"}"].concat())
}

/// Replaces the checksum with the correct one, for tests and fuzzing.
pub fn resealed(line: &[u8]) -> Vec<u8> {
    let stated = line.windows(KEY.len()).rposition(|part| part == KEY);
    let body = stated.map_or(line.strip_suffix(b"}").unwrap_or(line), |at| &line[..at]);
    let mut text = [body, b"}"].concat();
    seal(&mut text, 0);
    text
}

/// Serde functions for values stored as texts: IDs, hashes, names and big numbers.
///
/// Texts must be without escapes.
pub mod as_text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        <&str>::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &[u8] = br#"{"count":"92"}"#;

    fn sealed() -> Vec<u8> {
        let mut text = OBJECT.to_vec();
        seal(&mut text, 0);
        text
    }

    #[test]
    fn the_bytes_are_frozen() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(sealed(), br#"{"count":"92","crc":"908f0708"}"#);
        // The seal does not cover earlier lines.
        let mut text = b"another line\n".to_vec();
        let start = text.len();
        text.extend_from_slice(OBJECT);
        seal(&mut text, start);
        assert_eq!(text[start..], sealed());
    }

    #[test]
    fn every_changed_bit_and_every_torn_end_is_detected() {
        let text = sealed();
        assert_eq!(open(&text), Ok(OBJECT.to_vec()));
        for at in 0..text.len() {
            assert!(open(&text[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = text.clone();
                changed[at] ^= 1 << bit;
                assert!(open(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
        for line in [&text, OBJECT] {
            assert_eq!(resealed(line), text);
        }
        assert_eq!(open(b"{}"), Err(BrokenSeal::Short));
        assert_eq!(open(&text[2..text.len() - 1]), Err(BrokenSeal::Missing));
        let upper = String::from_utf8(text).unwrap().to_uppercase();
        assert_eq!(open(upper.as_bytes()), Err(BrokenSeal::Missing));
    }
}
