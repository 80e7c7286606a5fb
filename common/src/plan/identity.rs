//! The name of a plan: a hash over explicit, ordered, versioned bytes.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

use super::spec::PlanSpec;
use crate::method::Layout;

/// SHA-256 of a plan's spec and of the version of the rules it is divided by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanHash([u8; 32]);

/// Bytes or text that are not a plan hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a plan hash has 32 bytes, 64 lower-case hexadecimal digits as text")]
pub struct BadHash;

/// What is hashed, in this order: the tag, then big-endian plan version (2 bytes), N (1), layout
/// (1: 0 first-rows, 1 border, 2 frames) and task cost (8). These bytes are frozen.
const TAG: &[u8; 12] = b"queens plan\n";

impl PlanHash {
    pub(super) fn of(spec: &PlanSpec) -> Self {
        let layout = match spec.layout {
            Layout::FirstRows => 0u8,
            Layout::Border => 1,
            Layout::Frames => 2,
        };
        let mut hasher = Sha256::new();
        hasher.update(TAG);
        hasher.update(spec.version().to_be_bytes());
        hasher.update([spec.board.n(), layout]);
        hasher.update(spec.task_cost.to_be_bytes());
        Self(hasher.finalize().into())
    }

    /// The 32 bytes, as they are sent.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hexadecimal digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }

    pub(super) fn order_key(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(first)
    }
}

impl TryFrom<&[u8]> for PlanHash {
    type Error = BadHash;

    fn try_from(bytes: &[u8]) -> Result<Self, BadHash> {
        bytes.try_into().map(Self).map_err(|_| BadHash)
    }
}

impl FromStr for PlanHash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(BadHash),
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(BadHash);
        };
        let mut hash = [0; 32];
        if pairs.len() != hash.len() {
            return Err(BadHash);
        }
        for (byte, &[high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (high, low) = self.0.split_at(16);
        let number = |half: &[u8]| u128::from_be_bytes(half.try_into().expect("16 bytes"));
        write!(f, "{:032x}{:032x}", number(high), number(low))
    }
}

impl fmt::Debug for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        let spec = PlanSpec {
            board: crate::board::Board::new(8).unwrap(),
            layout: Layout::FirstRows,
            task_cost: 1000,
        };
        let hash = PlanHash::of(&spec);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(PlanHash::try_from(hash.as_bytes().as_slice()), Ok(hash));
        assert_eq!("é".repeat(32).parse::<PlanHash>(), Err(BadHash));
        assert_eq!("AB".repeat(32).parse::<PlanHash>(), Err(BadHash));
        assert_eq!(PlanHash::try_from([0u8; 31].as_slice()), Err(BadHash));
    }
}
