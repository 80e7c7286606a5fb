//! Tokens: who a client is, as a secret.

use std::{fmt, str::FromStr};

use super::{armour, disarmour};

pub(crate) const PREFIX: &str = "queenstoken1-";

/// Names a token without giving it away: 8 lower-case hexadecimal digits as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A secret that names its holder's role to one coordinator. [`Token::expose`] is its text; it has
/// no `Display`, and its `Debug` shows the name alone, so that it reaches no log by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: TokenId,
    secret: [u8; Self::SECRET_BYTES],
}

/// Text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is no token: it is cut short or a character of it was changed; copy it again")]
pub struct BadToken;

impl Token {
    /// Bytes of a secret: too many to guess, so that no slow hash is needed to keep it.
    pub const SECRET_BYTES: usize = 32;

    /// Bytes of [`Self::to_bytes`].
    pub(super) const BYTES: usize = 4 + Self::SECRET_BYTES;

    /// The token of this name; the secret must come from the operating system's randomness.
    pub const fn new(id: TokenId, secret: [u8; Self::SECRET_BYTES]) -> Self {
        Self { id, secret }
    }

    /// Its name.
    pub const fn id(&self) -> TokenId {
        self.id
    }

    /// The secret itself, for whoever compares or keeps it.
    pub const fn secret(&self) -> &[u8; Self::SECRET_BYTES] {
        &self.secret
    }

    /// Its text, as it is sent in the header `authorization: Bearer …`.
    pub fn expose(&self) -> String {
        armour(PREFIX, &self.to_bytes())
    }

    pub(super) fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.id.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.secret);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (id, secret) = bytes.split_at(4);
        Self {
            id: TokenId(u32::from_be_bytes(id.try_into().expect("four bytes"))),
            secret: secret.try_into().expect("the rest"),
        }
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let bytes = disarmour(PREFIX, text).ok_or(BadToken)?;
        let bytes = bytes.as_slice().try_into().map_err(|_| BadToken)?;
        Ok(Self::from_bytes(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}
