//! The tokens that were given out, without their secrets.

use std::time::Duration;

use proto::door::{Token, TokenId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Role;

/// The most tokens of one coordinator: people name them one by one.
const MOST_TOKENS: usize = 10_000;

/// The most bytes of a token's name.
const MOST_NAME_BYTES: usize = 64;

/// What is kept of one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// Its public name, as in a log.
    #[serde(with = "id")]
    pub id: TokenId,
    /// What its holder may do.
    pub role: Role,
    /// What its operator called it; the principal of what its holder reports.
    pub name: String,
    /// SHA-256 of the secret, which is too long to guess: a slow hash would only slow calls down.
    #[serde(with = "hash")]
    hash: [u8; 32],
    /// When it was made, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// When it ends, in milliseconds since 1970; `None` for one that does not.
    pub expires_unix_ms: Option<u64>,
    /// When it was revoked, in milliseconds since 1970.
    pub revoked_unix_ms: Option<u64>,
}

/// Why a token does not let its holder in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nothing was sent.
    #[error(
        "this coordinator asks for a token: give the line that it printed at its start \
         (QUEENS_JOIN=queens1-…, or --join @FILE)"
    )]
    Missing,
    /// What was sent is no token.
    #[error("that is no token: copy the join string again, whole")]
    Malformed,
    /// Not a token of this coordinator, or a wrong secret: the two are not told apart.
    #[error(
        "this coordinator does not know the token: it is another coordinator's, or was made anew"
    )]
    Unknown,
    /// Its time is over.
    #[error("the token '{0}' has expired; an operator makes a new one: queensctl token create")]
    Expired(String),
    /// It was taken back.
    #[error("the token '{0}' was revoked; an operator makes a new one: queensctl token create")]
    Revoked(String),
    /// No certificate was shown where one is asked for.
    #[error(
        "this coordinator asks for a certificate: give https:// with --tls-ca, --tls-cert and \
         --tls-key"
    )]
    NoCertificate,
    /// A certificate that does not say what its holder is.
    #[error(
        "no name in the certificate (or more than one) says a role: it must have one such as \
         spiffe://lab.example/queens/worker/NAME or NAME.worker.queens.lab.example; it has: {0}"
    )]
    Nameless(String),
    /// It is another role's.
    #[error("the {what} '{name}' is a {role}'s, which may not do this: use {wanted}")]
    Role {
        /// A token or a certificate.
        what: &'static str,
        /// Its name.
        name: String,
        /// What it may do.
        role: Role,
        /// Whose to use.
        wanted: &'static str,
    },
}

/// A token that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTokenRequest {
    /// Names appear in logs and tables.
    #[error("'{0}' is no name for a token: 1 to 64 letters, digits, '.', '-' and '_'")]
    Name(String),
    /// Two live tokens of one name could not be told apart in a record.
    #[error("there is a token '{0}' already: revoke it, or give another name")]
    Taken(String),
    /// There is an end to it.
    #[error("there are {MOST_TOKENS} tokens: revoke some")]
    TooMany,
}

/// All tokens of one coordinator, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenBook {
    entries: Vec<TokenEntry>,
}

impl TokenBook {
    /// Makes a token. `random` must be the operating system's randomness: its first four bytes
    /// name the token, the rest is its secret.
    pub fn create(
        &mut self,
        (role, name): (Role, &str),
        lifetime: Option<Duration>,
        now_unix_ms: u64,
        random: [u8; 36],
    ) -> Result<Token, BadTokenRequest> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > MOST_NAME_BYTES || !name.chars().all(plain) {
            return Err(BadTokenRequest::Name(name.to_owned()));
        }
        let live = |entry: &&TokenEntry| entry.refusal(now_unix_ms).is_none();
        if self
            .entries
            .iter()
            .filter(live)
            .any(|entry| entry.name == name)
        {
            return Err(BadTokenRequest::Taken(name.to_owned()));
        }
        if self.entries.len() >= MOST_TOKENS {
            self.entries
                .retain(|entry| entry.refusal(now_unix_ms).is_none());
        }
        if self.entries.len() >= MOST_TOKENS {
            return Err(BadTokenRequest::TooMany);
        }
        let (id, secret) = random.split_at(4);
        let mut id = u32::from_be_bytes(id.try_into().expect("four bytes"));
        while self.find(TokenId(id)).is_some() {
            id = id.wrapping_add(1);
        }
        let token = Token::new(TokenId(id), secret.try_into().expect("the rest"));
        self.entries.push(TokenEntry {
            id: token.id(),
            role,
            name: name.to_owned(),
            hash: hash_of(&token),
            created_unix_ms: now_unix_ms,
            expires_unix_ms: lifetime.map(|lifetime| {
                let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
                now_unix_ms.saturating_add(lifetime_ms)
            }),
            revoked_unix_ms: None,
        });
        Ok(token)
    }

    /// Whose token this is, if it lets anybody in.
    pub fn check(&self, token: &Token, now_unix_ms: u64) -> Result<&TokenEntry, Denied> {
        let entry = self.find(token.id()).ok_or(Denied::Unknown)?;
        if !bool::from(entry.hash.ct_eq(&hash_of(token))) {
            return Err(Denied::Unknown);
        }
        match entry.refusal(now_unix_ms) {
            None => Ok(entry),
            Some(denied) => Err(denied),
        }
    }

    /// Takes back the tokens of this name or id; how many were live.
    pub fn revoke(&mut self, name_or_id: &str, now_unix_ms: u64) -> usize {
        let mut revoked = 0;
        for entry in &mut self.entries {
            let meant = entry.name == name_or_id || entry.id.to_string() == name_or_id;
            if meant && entry.revoked_unix_ms.is_none() {
                entry.revoked_unix_ms = Some(now_unix_ms);
                revoked += 1;
            }
        }
        revoked
    }

    /// All of them.
    pub fn entries(&self) -> &[TokenEntry] {
        &self.entries
    }

    fn find(&self, id: TokenId) -> Option<&TokenEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }
}

impl TokenEntry {
    /// Why it lets nobody in, if so.
    pub fn refusal(&self, now_unix_ms: u64) -> Option<Denied> {
        if self.revoked_unix_ms.is_some() {
            return Some(Denied::Revoked(self.name.clone()));
        }
        let expired = self.expires_unix_ms.is_some_and(|at| at <= now_unix_ms);
        expired.then(|| Denied::Expired(self.name.clone()))
    }
}

fn hash_of(token: &Token) -> [u8; 32] {
    Sha256::digest(token.secret()).into()
}

mod id {
    use proto::door::TokenId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &TokenId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TokenId, D::Error> {
        let text = String::deserialize(from)?;
        let id = u32::from_str_radix(&text, 16).map_err(D::Error::custom)?;
        Ok(TokenId(id))
    }
}

mod hash {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let bytes = STANDARD
            .decode(String::deserialize(from)?)
            .map_err(D::Error::custom)?;
        bytes
            .try_into()
            .map_err(|_| D::Error::custom("a hash has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> (TokenBook, Token) {
        let mut book = TokenBook::default();
        let hour = Some(Duration::from_secs(3600));
        let token = book
            .create((Role::Worker, "lab-a"), hour, 1_000, [5; 36])
            .unwrap();
        (book, token)
    }

    #[test]
    fn a_token_lets_in_until_it_ends_or_is_revoked() {
        let (mut book, token) = book();
        assert_eq!(book.check(&token, 1_000).unwrap().name, "lab-a");
        assert_eq!(book.check(&token, 1_000).unwrap().role, Role::Worker);
        assert!(book.check(&token, 3_600_999).is_ok());
        let expired = Err(Denied::Expired("lab-a".to_owned()));
        assert_eq!(book.check(&token, 3_601_000).cloned(), expired);
        assert_eq!(book.revoke("lab-b", 2_000), 0);
        assert_eq!(book.revoke("lab-a", 2_000), 1);
        let revoked = Err(Denied::Revoked("lab-a".to_owned()));
        assert_eq!(book.check(&token, 2_000).cloned(), revoked);
        assert_eq!(book.revoke("lab-a", 3_000), 0, "twice");
    }

    #[test]
    fn a_wrong_secret_is_as_unknown_as_a_wrong_name() {
        let (book, token) = book();
        let mut secret = *token.secret();
        secret[31] ^= 1;
        for other in [
            Token::new(token.id(), secret),
            Token::new(TokenId(1), *token.secret()),
        ] {
            assert_eq!(book.check(&other, 1_000).cloned(), Err(Denied::Unknown));
        }
    }

    #[test]
    fn names_are_told_apart() {
        let (mut book, _) = book();
        let mut create = |name: &str, now| book.create((Role::Viewer, name), None, now, [6; 36]);
        assert_eq!(
            create("lab-a", 1_000),
            Err(BadTokenRequest::Taken("lab-a".to_owned()))
        );
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(
                create(bad, 1_000),
                Err(BadTokenRequest::Name(bad.to_owned()))
            );
        }
        assert!(create("lab-a", 3_700_000).is_ok(), "the first has expired");
        let again = create("lab-b", 1_000).unwrap();
        assert_ne!(again.id(), TokenId(0x0606_0606), "ids are unique");
    }

    #[test]
    fn what_is_kept_has_no_secret() {
        let (book, token) = book();
        let kept = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<TokenBook>(&kept).unwrap(), book);
        use base64::{Engine as _, engine::general_purpose};
        for secret in [
            general_purpose::STANDARD.encode(token.secret()),
            general_purpose::URL_SAFE_NO_PAD.encode(token.secret()),
        ] {
            assert!(!kept.contains(&secret));
        }
        assert!(!format!("{book:?} {token:?}").contains("5, 5, 5"));
    }
}
