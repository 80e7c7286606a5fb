//! Lower-case hexadecimal digits, the text form of identities, hashes and keys.

use std::fmt;

use data_encoding::{Encoding, HEXLOWER};

const LOWER: &Encoding = &HEXLOWER;

/// Returns two digits per byte.
pub fn encode(bytes: &[u8]) -> String {
    LOWER.encode(bytes)
}

/// Decodes exactly `2 * N` lower-case digits.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    LOWER.decode_mut(text.as_bytes(), &mut bytes).ok()?;
    Some(bytes)
}

/// Formats two digits per byte without allocating.
pub fn display(bytes: &[u8]) -> impl fmt::Display {
    LOWER.encode_display(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_round_trip_and_nothing_else_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode(&all);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"));
        assert_eq!(decode::<256>(&text).unwrap().as_slice(), all);
        assert_eq!(display(&all).to_string(), text);
        for bad in ["", "0", "000", "0A", "0g", "+1", "é"] {
            assert_eq!(decode::<1>(bad), None, "{bad}");
        }
    }
}
