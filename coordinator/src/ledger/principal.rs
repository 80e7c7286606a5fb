//! On whose word a count rests.

use std::{fmt, sync::Arc};

/// What stands between a principal's machine and its token.
const TOKEN: &str = " token ";

/// The most bytes of a principal that are kept: a machine's name and the longest token's.
const MAX_BYTES: usize = 128;

/// The machine that counted and, where its worker came with one, the token that vouches for it: what
/// is kept with every record, as `machine 0123456789abcdef` or `machine 0123456789abcdef token lab-7`.
///
/// Machines name themselves, tokens are given out: so two counts are two opinions only if they are of
/// two machines, and better ones if they are of two tokens. Records of format 1 have the worker's
/// identity for both.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(Arc<str>);

impl Principal {
    /// A machine by its number, 0 where that is not known, and the name of a token.
    pub fn new(machine: u64, token: Option<&str>) -> Self {
        Self::kept(&match token {
            Some(token) => format!("machine {machine:016x}{TOKEN}{token}"),
            None => format!("machine {machine:016x}"),
        })
    }

    /// As it stands in a file, whoever wrote that.
    pub fn kept(text: &str) -> Self {
        Self(text[..text.floor_char_boundary(MAX_BYTES)].into())
    }

    /// As it is kept.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The token's name, if there was a token.
    pub fn token(&self) -> Option<&str> {
        self.0.split_once(TOKEN).map(|(_, token)| token)
    }

    /// The machine's number; `None` where that is not known.
    pub fn machine(&self) -> Option<u64> {
        let number = self.machine_name().strip_prefix("machine ")?;
        let number = u64::from_str_radix(number, 16).ok()?;
        (number != 0).then_some(number)
    }

    /// How a second count by `other` confirms one by this principal.
    pub fn confirmed_by(&self, other: &Self) -> Confirmed {
        if self.machine_name() == other.machine_name() {
            Confirmed::SameMachine
        } else if self.token() == other.token() {
            Confirmed::OtherMachine
        } else {
            Confirmed::OtherToken
        }
    }

    fn machine_name(&self) -> &str {
        self.0.split_once(TOKEN).map_or(&self.0, |(name, _)| name)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who agreed with a count, from nobody to those who say most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmed {
    /// Nobody counted it again.
    #[default]
    No,
    /// The machine that counted it first, the other way round.
    SameMachine,
    /// Another machine, with the same token, or neither with any.
    OtherMachine,
    /// Another machine with another token.
    OtherToken,
}

impl Confirmed {
    /// All of them, from nobody to those who say most.
    pub const ALL: [Self; 4] = [
        Self::No,
        Self::SameMachine,
        Self::OtherMachine,
        Self::OtherToken,
    ];

    /// Whether another machine agreed.
    pub fn elsewhere(self) -> bool {
        self >= Self::OtherMachine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_frozen_and_names_machine_and_token() {
        let bare = Principal::new(0xab, None);
        assert_eq!(bare.as_str(), "machine 00000000000000ab");
        assert_eq!((bare.machine(), bare.token()), (Some(0xab), None));
        let lab = Principal::new(0xab, Some("lab-7"));
        assert_eq!(lab.as_str(), "machine 00000000000000ab token lab-7");
        assert_eq!((lab.machine(), lab.token()), (Some(0xab), Some("lab-7")));
        assert_eq!(Principal::new(0, None).machine(), None);
        // The longest token's name is kept whole, longer texts are cut between two characters.
        let longest = "x".repeat(64);
        let longest = Principal::new(u64::MAX, Some(&longest));
        assert_eq!(longest.token().map(str::len), Some(64));
        assert_eq!(Principal::kept(&"ü".repeat(100)).as_str().len(), 128);
    }

    #[test]
    fn who_agrees_says_how_much() {
        let of = |machine, token| Principal::new(machine, token);
        for (one, other, confirmed) in [
            (of(1, None), of(1, None), Confirmed::SameMachine),
            (of(1, Some("a")), of(1, Some("b")), Confirmed::SameMachine),
            (of(1, None), of(2, None), Confirmed::OtherMachine),
            (of(1, Some("a")), of(2, Some("a")), Confirmed::OtherMachine),
            (of(1, Some("a")), of(2, Some("b")), Confirmed::OtherToken),
            (of(1, None), of(2, Some("b")), Confirmed::OtherToken),
            // Those that do not name their machine are taken to share one.
            (of(0, None), of(0, None), Confirmed::SameMachine),
        ] {
            assert_eq!(one.confirmed_by(&other), confirmed, "{one}, {other}");
            assert_eq!(other.confirmed_by(&one), confirmed, "{other}, {one}");
        }
        // Format 1 names workers.
        let (one, other) = (Principal::kept("00cd"), Principal::kept("00ce"));
        assert_eq!((one.machine(), one.token()), (None, None));
        assert_eq!(one.confirmed_by(&other), Confirmed::OtherMachine);
        assert_eq!(one.confirmed_by(&one), Confirmed::SameMachine);
        let elsewhere = Confirmed::ALL.map(Confirmed::elsewhere);
        assert_eq!(elsewhere, [false, false, true, true]);
    }
}
