//! Identities of the authors of counts, and how one confirms another's count.

use std::{fmt, num::NonZeroU32, sync::Arc};

use common::messages::{run::WorkerId, sync::PackageLimits};

/// Separator of a principal's machine and its token.
const TOKEN: &str = " token ";

/// Separator of a token and the public name of its holder. No token contains it.
const NAME: &str = " name ";

/// The principal of the coordinator's own counting threads.
const REFEREE: &str = "referee";

/// Maximum length of a principal: a machine's name and the longest token name.
const MAX_BYTES: usize = 128;

/// Author of a count, as stored in records.
///
/// It is a machine and its worker's token, such as `machine 0123456789abcdef token lab-7`, a machine without a
/// token, or the coordinator itself: `referee`, which no token can name. A public name may follow the token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    text: Arc<str>,
    /// Length of the machine's name in `text`; cached for frequent comparisons.
    machine_bytes: usize,
}

/// An unknown machine without a token.
impl Default for Principal {
    fn default() -> Self {
        Self::new(0, None)
    }
}

impl Principal {
    /// Creates a principal from a machine's number (0 if unknown) and a token name.
    pub fn new(machine: u64, token: Option<&str>) -> Self {
        Self::from_stored(&match token {
            Some(token) => format!("machine {machine:016x}{TOKEN}{token}"),
            None => format!("machine {machine:016x}"),
        })
    }

    pub fn referee() -> Self {
        Self::from_stored(REFEREE)
    }

    pub fn is_referee(&self) -> bool {
        &*self.text == REFEREE
    }

    /// Restores a principal from its stored text, cut to the maximum length.
    pub fn from_stored(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        Self { text: text.into(), machine_bytes: text.find(TOKEN).unwrap_or(text.len()) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn token(&self) -> Option<&str> {
        let holder = self.holder()?;
        Some(holder.split_once(NAME).map_or(holder, |(token, _)| token))
    }

    /// Returns the name under which the author wants to be published.
    pub fn public_name(&self) -> Option<&str> {
        Some(self.holder()?.split_once(NAME)?.1)
    }

    /// Returns the token and the public name.
    fn holder(&self) -> Option<&str> {
        self.text.get(self.machine_bytes + TOKEN.len()..)
    }

    /// Returns whether both name the same machine; unknown machines count as the same.
    pub fn same_machine(&self, other: &Self) -> bool {
        self.machine_name() == other.machine_name()
    }

    /// Returns how a count by `other` confirms an equal one by this principal.
    pub fn confirmed_by(&self, other: &Self) -> Confirmation {
        if self.same_machine(other) {
            Confirmation::SameMachine
        } else if self.is_referee() || other.is_referee() {
            Confirmation::Referee
        } else if self.token() == other.token() {
            Confirmation::SameToken
        } else {
            Confirmation::OtherToken
        }
    }

    fn machine_name(&self) -> &str {
        &self.text[..self.machine_bytes]
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Confirmation of a count, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    /// Not counted again.
    #[default]
    None,
    /// Recheck by the same machine, in the other orientation.
    SameMachine,
    /// Recheck by another machine with the same token, or both without a token.
    SameToken,
    /// Recheck by another machine with another token.
    OtherToken,
    /// Recount by the referee, which is final.
    Referee,
}

impl Confirmation {
    /// All levels, the best last.
    pub const ALL: [Self; 5] =
        [Self::None, Self::SameMachine, Self::SameToken, Self::OtherToken, Self::Referee];

    /// Returns whether another machine agreed.
    pub fn elsewhere(self) -> bool {
        self >= Self::SameToken
    }
}

/// Caller of a sync: an authenticated worker and the properties of its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The hash of the caller's secret; stable while the worker's spool directory exists.
    pub worker: WorkerId,
    /// The token's permanent name, `name/id`; `None` if tokens are not required.
    pub token: Option<Arc<str>>,
    /// The name under which the worker wants to be published.
    pub public_name: Option<Arc<str>>,
    /// Whether the operator trusts the token: machines with it act as referees.
    pub trusted: bool,
    /// Maximum number of machines of the token; `None` for any number.
    pub max_machines: Option<NonZeroU32>,
    /// Limits of the token's packages.
    pub packages: PackageLimits,
    /// Identifies the caller in counts, bars and readmissions.
    pub machine: u64,
}

impl Caller {
    /// The token of [`Caller::local`]: token and certificate names have no parentheses.
    pub const LOCAL: &str = "(local)";

    /// Creates a caller without privileges; the upper half of its ID is its machine.
    pub fn new(worker: WorkerId, token: Option<Arc<str>>) -> Self {
        let machine = u64::try_from(worker.0 >> 64).expect("64 bits");
        Self {
            worker,
            token,
            public_name: None,
            trusted: false,
            max_machines: None,
            packages: PackageLimits::default(),
            machine,
        }
    }

    /// Creates the caller of the coordinator's own worker; no other has its token.
    pub fn local(worker: WorkerId) -> Self {
        Self { trusted: true, ..Self::new(worker, Some(Self::LOCAL.into())) }
    }

    pub fn principal(&self) -> Principal {
        let principal = Principal::new(self.machine, self.token.as_deref());
        match &self.public_name {
            Some(name) => Principal::from_stored(&format!("{principal}{NAME}{name}")),
            None => principal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_frozen() {
        let bare = Principal::new(0xab, None);
        assert_eq!(bare.as_str(), "machine 00000000000000ab");
        assert_eq!(bare.token(), None);
        let lab = Principal::new(0xab, Some("lab-7"));
        assert_eq!(lab.as_str(), "machine 00000000000000ab token lab-7");
        assert_eq!((lab.token(), lab.public_name()), (Some("lab-7"), None));
        // A public name is no part of the token.
        let visitor = Caller::new(WorkerId(0xab << 64), Some("(volunteers)".into()));
        let named = Caller { public_name: Some("anna".into()), ..visitor.clone() }.principal();
        assert_eq!(named.as_str(), "machine 00000000000000ab token (volunteers) name anna");
        assert_eq!((named.token(), named.public_name()), (Some("(volunteers)"), Some("anna")));
        assert!(named.same_machine(&visitor.principal()));
        let longest = Caller { public_name: Some("x".repeat(64).into()), ..visitor }.principal();
        assert_eq!(longest.public_name().map(str::len), Some(64));
        // The longest token name fits; longer texts are cut between two characters.
        let longest = "x".repeat(64);
        let longest = Principal::new(u64::MAX, Some(&longest));
        assert_eq!(longest.token().map(str::len), Some(64));
        assert_eq!(Principal::from_stored(&"ü".repeat(100)).as_str().len(), 128);
    }

    #[test]
    fn confirmation_depends_on_machine_and_token() {
        let of = |machine, token| Principal::new(machine, token);
        for (one, other, confirmed) in [
            (of(1, None), of(1, None), Confirmation::SameMachine),
            (of(1, Some("a")), of(1, Some("b")), Confirmation::SameMachine),
            (of(1, None), of(2, None), Confirmation::SameToken),
            (of(1, Some("a/1")), of(2, Some("a/1")), Confirmation::SameToken),
            (of(1, Some("a/1")), of(2, Some("a/1 name anna")), Confirmation::SameToken),
            (of(1, Some("a/1")), of(2, Some("a/2")), Confirmation::OtherToken),
            (of(1, Some("a")), of(2, Some("b")), Confirmation::OtherToken),
            (of(1, None), of(2, Some("b")), Confirmation::OtherToken),
            (of(1, Some("a")), Principal::referee(), Confirmation::Referee),
            (Principal::referee(), Principal::referee(), Confirmation::SameMachine),
            // Unknown machines are treated as one.
            (of(0, None), of(0, None), Confirmation::SameMachine),
            (of(0, None), Principal::referee(), Confirmation::Referee),
        ] {
            assert_eq!(one.confirmed_by(&other), confirmed, "{one}, {other}");
            assert_eq!(other.confirmed_by(&one), confirmed, "{other}, {one}");
        }
        let elsewhere = Confirmation::ALL.map(Confirmation::elsewhere);
        assert_eq!(elsewhere, [false, false, true, true, true]);
    }

    #[test]
    fn no_token_names_the_referee() {
        assert_eq!(Principal::referee().as_str(), "referee");
        assert!(Caller::local(WorkerId(1)).trusted && !Caller::new(WorkerId(1), None).trusted);
        for token in [None, Some("referee"), Some("")] {
            assert!(!Principal::new(0, token).is_referee());
        }
    }
}
