//! Lower-case hexadecimal digits, as identities, hashes and keys are written.

use std::str;

use data_encoding::HEXLOWER;

/// Returns two digits per byte.
pub fn encode(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Returns the bytes that exactly `2 * N` lower-case digits stand for.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    HEXLOWER.decode_mut(text.as_bytes(), &mut bytes).ok()?;
    Some(bytes)
}

/// The digits of `N / 2` bytes, without an allocation.
#[derive(Clone, Copy)]
pub struct Digits<const N: usize>([u8; N]);

impl<const N: usize> Digits<N> {
    /// # Panics
    /// If there are not `N / 2` bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digits = [0; N];
        HEXLOWER.encode_mut(bytes, &mut digits);
        Self(digits)
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("digits are ASCII")
    }
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
        assert_eq!(Digits::<512>::of(&all).as_str(), text);
        for bad in ["", "0", "000", "0A", "0g", "+1", "é"] {
            assert_eq!(decode::<1>(bad), None, "{bad}");
        }
    }
}
