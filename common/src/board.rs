//! The size of a board, validated once.

use std::{fmt, str::FromStr};

/// Side N of a board, 1 … 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Board(u8);

/// An invalid board size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid N '{given}': expected a whole number from 1 to {max}", max = Board::MAX)]
pub struct BadBoard {
    pub given: String,
}

impl Board {
    /// The largest side for which every mask of this crate fits.
    pub const MAX: u8 = 32;

    /// Creates a board of side `n`.
    pub fn new(n: u8) -> Result<Self, BadBoard> {
        if (1..=Self::MAX).contains(&n) {
            Ok(Self(n))
        } else {
            Err(BadBoard { given: n.to_string() })
        }
    }

    pub const fn n(self) -> u8 {
        self.0
    }

    /// Returns the low N bits set: one bit per column, bit 0 the leftmost.
    pub const fn full_row(self) -> u32 {
        u32::MAX >> (Self::MAX - self.0)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Board {
    type Err = BadBoard;

    fn from_str(text: &str) -> Result<Self, BadBoard> {
        let bad = || BadBoard { given: text.to_owned() };
        Self::new(text.parse().map_err(|_| bad())?).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_one_to_thirty_two_and_nothing_else() {
        for n in 0..=u8::MAX {
            assert_eq!(Board::new(n).is_ok(), (1..=32).contains(&n), "N = {n}");
        }
        for text in ["0", "33", "-1", "abc", "", "300", "8.0"] {
            let error = text.parse::<Board>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("1 to 32"), "{error}");
        }
    }
}
