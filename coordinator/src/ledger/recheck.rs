//! How much of a run is counted a second time: the operator's word.

use std::{fmt, str::FromStr};

/// Millionths of all tasks that [`Recheck::Auto`] draws.
const AUTO_PARTS: u32 = common::forecast::SECOND_COUNTS_MILLIONTHS;

const ALL_PARTS: u32 = 1_000_000;

/// How much of a run is counted a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recheck {
    /// 2 % of the tasks, drawn at random, and every worker's first counts.
    #[default]
    Auto,
    /// So many millionths of the tasks, drawn at random; from none to all but all.
    Millionths(u32),
    /// Every task.
    All,
}

/// Text that is no [`Recheck`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no part of a run: give auto, all, or a fraction such as 0.1")]
pub struct BadRecheck(String);

impl Recheck {
    /// Millionths of the tasks that are drawn.
    pub const fn parts(self) -> u32 {
        match self {
            Self::Auto => AUTO_PARTS,
            Self::Millionths(parts) => parts,
            Self::All => ALL_PARTS,
        }
    }

    /// Whether a worker's first counts are compared whatever is drawn.
    pub const fn compares_first_counts(self) -> bool {
        matches!(self, Self::Auto)
    }
}

impl fmt::Display for Recheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Millionths(parts) => write!(f, "{}", f64::from(*parts) / f64::from(ALL_PARTS)),
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
        let fraction = fraction.ok_or_else(|| BadRecheck(text.to_owned()))?;
        // Within 0 and 1,000,000.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let parts = (fraction * f64::from(ALL_PARTS)).round() as u32;
        Ok(match parts {
            ALL_PARTS => Self::All,
            parts => Self::Millionths(parts),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
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
