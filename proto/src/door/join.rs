//! Join strings: where a coordinator is, how to know it, and a token to be let in.

use std::{fmt, str::FromStr};

use super::{CaHash, Token, armour, disarmour};

pub(crate) const PREFIX: &str = "queens1-";

/// The most addresses of one coordinator.
const MOST_ADDRESSES: usize = 8;

/// One line to paste: addresses of a coordinator, the hash of its private certificate authority,
/// and a token. As secret as its token: it has no `Display`, and its `Debug` shows no token.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinString {
    addresses: Vec<String>,
    ca: CaHash,
    token: Token,
}

/// Text that is no join string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadJoin {
    /// It does not begin as one.
    #[error(
        "that is no join string: one begins with '{PREFIX}'; the coordinator prints it at its start"
    )]
    Form,
    /// Characters are missing or were changed.
    #[error("the join string is cut short or a character of it was changed; copy it again, whole")]
    Damaged,
    /// An address in it cannot be used.
    #[error("'{0}' in the join string is no HOST:PORT; make it again with another --advertise")]
    Address(String),
}

impl JoinString {
    /// A join string for a coordinator at these addresses, each `HOST:PORT`, the first tried first.
    pub fn new(addresses: Vec<String>, ca: CaHash, token: Token) -> Result<Self, BadJoin> {
        if addresses.is_empty() || addresses.len() > MOST_ADDRESSES {
            return Err(BadJoin::Damaged);
        }
        if let Some(bad) = addresses.iter().find(|address| !is_host_port(address)) {
            return Err(BadJoin::Address(bad.clone()));
        }
        Ok(Self {
            addresses,
            ca,
            token,
        })
    }

    /// Where the coordinator is, each `HOST:PORT`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The hash that the coordinator's certificate authority must have.
    pub const fn ca(&self) -> CaHash {
        self.ca
    }

    /// What lets its holder in.
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// The text to paste.
    pub fn expose(&self) -> String {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.ca.0);
        bytes.extend_from_slice(&self.token.to_bytes());
        bytes.extend_from_slice(self.addresses.join(",").as_bytes());
        armour(PREFIX, &bytes)
    }
}

impl FromStr for JoinString {
    type Err = BadJoin;

    fn from_str(text: &str) -> Result<Self, BadJoin> {
        let text = text.trim();
        if !text.starts_with(PREFIX) {
            return Err(BadJoin::Form);
        }
        let bytes = disarmour(PREFIX, text).ok_or(BadJoin::Damaged)?;
        let (ca, rest) = bytes.split_first_chunk().ok_or(BadJoin::Damaged)?;
        let (token, rest) = rest.split_first_chunk().ok_or(BadJoin::Damaged)?;
        let addresses = std::str::from_utf8(rest).map_err(|_| BadJoin::Damaged)?;
        Self::new(
            addresses.split(',').map(str::to_owned).collect(),
            CaHash(*ca),
            Token::from_bytes(token),
        )
    }
}

impl fmt::Debug for JoinString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinString")
            .field("addresses", &self.addresses)
            .field("ca", &self.ca)
            .field("token", &self.token)
            .finish()
    }
}

/// `HOST:PORT` that makes a URL: an IPv6 address stands in brackets.
fn is_host_port(text: &str) -> bool {
    let Ok(authority) = text.parse::<tonic::codegen::http::uri::Authority>() else {
        return false;
    };
    let named = !authority.host().is_empty() && !text.contains('@');
    named && authority.port_u16().is_some_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::door::TokenId;

    fn join(addresses: &[&str]) -> Result<JoinString, BadJoin> {
        let token = Token::new(TokenId(7), [9; 32]);
        let addresses = addresses
            .iter()
            .map(|&address| address.to_owned())
            .collect();
        JoinString::new(addresses, CaHash([3; 32]), token)
    }

    #[test]
    fn a_join_string_comes_back_from_its_text() {
        for addresses in [&["lab-1:7171"][..], &["10.0.0.1:7171", "[2001:db8::1]:9"]] {
            let join = join(addresses).unwrap();
            let text = join.expose();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            assert!(text.chars().all(plain), "{text}");
            assert_eq!(text.parse(), Ok(join.clone()));
            assert_eq!(format!("\n {text} \n").parse(), Ok(join));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [
            "",
            "host",
            "host:0",
            "host:70000",
            ":7171",
            "a b:1",
            "x@y:1",
        ] {
            assert_eq!(join(&[bad]), Err(BadJoin::Address(bad.to_owned())), "{bad}");
        }
        assert!(join(&[]).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let join = join(&["lab-1:7171"]).unwrap();
        let shown = format!("{join:?}");
        assert!(
            shown.contains("lab-1:7171") && shown.contains("00000007"),
            "{shown}"
        );
        assert!(!shown.contains("9, 9"), "{shown}");
    }

    proptest! {
        #[test]
        fn a_changed_character_is_seen(at in 0usize..100, by in 1u8..60) {
            let text = join(&["lab-1:7171"]).unwrap().expose();
            let mut bytes = text.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] = b'A' + (bytes[at].wrapping_sub(b'A').wrapping_add(by)) % 58;
            let changed = String::from_utf8(bytes).unwrap();
            if changed != text {
                prop_assert!(changed.parse::<JoinString>().is_err(), "{changed}");
            }
        }

        #[test]
        fn no_text_panics(text in "(queens1-)?[ -~]{0,200}") {
            let _ = text.parse::<JoinString>();
            let _ = text.parse::<Token>();
        }
    }
}
