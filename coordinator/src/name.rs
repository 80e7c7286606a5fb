//! How a run is named on the command line and in addresses of pages.

use std::str::FromStr;

use anyhow::anyhow;
use common::run::RunId;

/// A run: the first digits of its name, or the one created last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunName {
    /// The one created last.
    Last,
    /// The whole name.
    Whole(RunId),
    /// Lower-case hexadecimal digits, fewer than a whole name has.
    Start(String),
}

/// Text that names no run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' names no run: give its name or the first of its hexadecimal digits, see `queensctl \
     runs`, or last for the run created last"
)]
pub struct BadRunName(String);

impl FromStr for RunName {
    type Err = BadRunName;

    fn from_str(text: &str) -> Result<Self, BadRunName> {
        if text == "last" {
            return Ok(Self::Last);
        }
        let digits = text.to_lowercase();
        if let Ok(whole) = digits.parse() {
            return Ok(Self::Whole(whole));
        }
        let is_digit = |c: char| c.is_ascii_hexdigit();
        if (1..16).contains(&digits.len()) && digits.chars().all(is_digit) {
            return Ok(Self::Start(digits));
        }
        Err(BadRunName(text.to_owned()))
    }
}

impl RunName {
    /// Which of these, each with the time of its creation, it names.
    pub fn among(&self, runs: &[(u64, RunId)]) -> anyhow::Result<RunId> {
        match self {
            Self::Whole(run) => Ok(*run),
            Self::Last => {
                let last = runs.iter().max();
                last.map(|(_, run)| *run).ok_or_else(|| {
                    anyhow!("there are no runs; start one with `queensctl submit --n N`")
                })
            }
            Self::Start(digits) => {
                let names = runs.iter().map(|(_, run)| *run);
                let matching: Vec<_> = names
                    .filter(|run| run.to_string().starts_with(digits))
                    .collect();
                match matching[..] {
                    [run] => Ok(run),
                    [] => Err(anyhow!(
                        "there is no run whose name begins with {digits}; `queensctl runs` lists \
                         them"
                    )),
                    [first, second, ..] => Err(anyhow!(
                        "the names of {} runs begin with {digits}, such as {first} and {second}; \
                         give more digits",
                        matching.len()
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_by_their_first_digits_or_as_the_last() {
        let [old, new, other] = [RunId(0xab_cd), RunId(0xab << 56), RunId(0xac << 56)];
        let runs = [(1, old), (5, new), (3, other)];
        let find = |text: &str| text.parse::<RunName>().unwrap().among(&runs);
        for (text, run) in [
            ("last", new),
            ("ab", new),
            ("AC", other),
            ("0", old),
            ("000000000000abcd", old),
            ("0000000000001234", RunId(0x1234)),
        ] {
            assert_eq!(find(text).unwrap(), run, "{text}");
        }
        let several = find("a").unwrap_err().to_string();
        assert!(
            several.contains("2 runs") && several.contains("more digits"),
            "{several}"
        );
        let none = find("b").unwrap_err().to_string();
        assert!(none.contains("begins with b"), "{none}");
        let none = RunName::Last.among(&[]).unwrap_err().to_string();
        assert!(none.contains("submit"), "{none}");
        for bad in ["", "xyz", "00000000000000000", "-1", "a b", "latest"] {
            let refused = bad.parse::<RunName>().unwrap_err();
            assert_eq!(refused, BadRunName(bad.to_owned()));
        }
    }
}
