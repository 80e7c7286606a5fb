//! The part of a run that is rechecked.

use std::{fmt, str::FromStr};

use crate::estimate::forecast::RECHECKS_MILLIONTHS;

/// The whole, in millionths.
pub const MILLION: u32 = 1_000_000;

/// Part of a run that is rechecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recheck {
    /// 2 % of the tasks, selected at random, and the first counts of every machine.
    #[default]
    Auto,
    /// A fraction of the tasks in millionths, selected at random.
    Millionths(u32),
    /// Every task.
    All,
}

/// An invalid recheck fraction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid recheck fraction '{0}': expected auto, all, or a number such as 0.1")]
pub struct BadRecheck(String);

impl Recheck {
    /// Selects a fraction; `None` if it is larger than the whole.
    pub fn from_millionths(parts: u32) -> Option<Self> {
        match parts {
            MILLION => Some(Self::All),
            _ => (parts < MILLION).then_some(Self::Millionths(parts)),
        }
    }

    /// Returns the selected fraction of the tasks, in millionths.
    pub const fn millionths(self) -> u32 {
        match self {
            Self::Auto => RECHECKS_MILLIONTHS,
            Self::Millionths(parts) => parts,
            Self::All => MILLION,
        }
    }

    pub fn fraction(self) -> f64 {
        f64::from(self.millionths()) / f64::from(MILLION)
    }
}

impl fmt::Display for Recheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Millionths(_) => write!(f, "{}", self.fraction()),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Recheck {
    type Err = BadRecheck;

    fn from_str(text: &str) -> Result<Self, BadRecheck> {
        let fraction = match text {
            "auto" => return Ok(Self::Auto),
            "all" => return Ok(Self::All),
            number => number.parse::<f64>().ok(),
        };
        let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
        // Between 0 and 1,000,000.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let parts = fraction.map(|fraction| (fraction * f64::from(MILLION)).round() as u32);
        parts.and_then(Self::from_millionths).ok_or_else(|| BadRecheck(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recheck_fractions_round_trip() {
        for (text, recheck) in [
            ("auto", Recheck::Auto),
            ("all", Recheck::All),
            ("0", Recheck::Millionths(0)),
            ("0.1", Recheck::Millionths(100_000)),
            ("0.000001", Recheck::Millionths(1)),
        ] {
            assert_eq!(text.parse(), Ok(recheck));
            assert_eq!(recheck.to_string().parse(), Ok(recheck));
        }
        assert_eq!("1".parse(), Ok(Recheck::All));
        for bad in ["", "2", "-0.1", "NaN", "some", "10%"] {
            let error = bad.parse::<Recheck>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("0.1"), "{error}");
        }
    }
}
