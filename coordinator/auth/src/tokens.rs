//! The issued tokens, without their secrets.

use std::{num::NonZeroU32, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use common::{
    messages::sync::PackageLimits,
    text::{Escaped, is_name},
};
use proto::connect::{Token, TokenId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Role;

const MAX_TOKENS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// The public identifier, shown in logs.
    #[serde(serialize_with = "write_id", deserialize_with = "read_id")]
    pub id: TokenId,
    pub role: Role,
    /// The name given by the operator, recorded with everything the holder submits.
    pub name: String,
    /// SHA-256 of the secret, which is too long to guess: a slow hash adds no security.
    #[serde(serialize_with = "write_hash", deserialize_with = "read_hash")]
    hash: [u8; 32],
    pub created_unix_ms: u64,
    /// Time of expiry, if any.
    pub expires_unix_ms: Option<u64>,
    pub revoked_unix_ms: Option<u64>,
    /// Whether the token's machines act as referees.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// Maximum number of machines that may count with the token, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<NonZeroU32>,
    /// Limits of the token's packages, unless they are the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<PackageLimits>,
}

#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    pub role: Role,
    pub name: &'a str,
    /// `None` if the token is valid until it is revoked.
    pub lifetime: Option<Duration>,
    /// Whether the token's machines act as referees.
    pub trusted: bool,
    /// Maximum number of machines that may count with the token, if limited.
    pub machines: Option<NonZeroU32>,
    /// Limits of the token's packages, unless they are the default.
    pub packages: Option<PackageLimits>,
}

impl<'a> NewToken<'a> {
    /// Returns a token without expiry, privileges or limits.
    pub const fn new(role: Role, name: &'a str) -> Self {
        Self { role, name, lifetime: None, trusted: false, machines: None, packages: None }
    }
}

/// The reason for refusing a caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error(
        "TLS required: use the coordinator's join string (QUEENS_JOIN=queens1-…, or \
         --join @FILE), or https:// with --tls-ca if it has --client-ca"
    )]
    PlainText,
    #[error(
        "this coordinator requires a token: give its join string (QUEENS_JOIN=queens1-…, or --join \
         @FILE); on its own machine run the program in the coordinator's directory or with its \
         --data-dir, and without --coordinator"
    )]
    Missing,
    #[error("invalid token or join string: make sure that you copied all of it")]
    Malformed,
    /// An unknown token, or a wrong secret; the two are not distinguished.
    #[error(
        "unknown token: it belongs to another coordinator, or was replaced; ask an operator for a new \
         one (queensctl token create)"
    )]
    Unknown,
    #[error("the token '{0}' has expired: ask an operator for a new one (queensctl token create)")]
    Expired(String),
    #[error("the token '{0}' was revoked: ask an operator for a new one (queensctl token create)")]
    Revoked(String),
    #[error(
        "this coordinator requires a certificate: give https:// with --tls-ca, --tls-cert and \
         --tls-key"
    )]
    NoCertificate,
    #[error(
        "the certificate must have exactly one subject alternative name with a role, such as \
         spiffe://lab.example/queens/worker/NAME or NAME.worker.queens.lab.example; it has: {0}"
    )]
    NoRole(String),
    #[error("permission denied: {kind} '{name}' has role {role}; use {required} {kind}")]
    Role {
        /// `token` or `certificate`.
        kind: &'static str,
        name: String,
        role: Role,
        /// The required role with its article, in the possessive.
        required: &'static str,
    },
}

/// A token that cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTokenRequest {
    #[error("invalid token name '{}': use 1 to 64 letters, digits, '.', '-' and '_'", Escaped(.0))]
    Name(String),
    /// Records could not distinguish two live tokens of one name.
    #[error("a token '{0}' exists: revoke it, or choose another name")]
    Taken(String),
    #[error("no active token '{}' (see `queensctl token list`)", Escaped(.0))]
    NoSuch(String),
    #[error("only a worker's token is renewed: revoke the other one and create another")]
    NotRenewed,
    #[error("only a worker's token can be trusted, or has limits of machines and packages")]
    NotWorker,
    #[error("there are {MAX_TOKENS} tokens: revoke some")]
    TooMany,
}

/// All tokens of one coordinator, in order of creation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenBook(Vec<TokenEntry>);

impl TokenBook {
    /// Creates a token; `random` is its ID (the first four bytes) and its secret.
    pub fn create(
        &mut self,
        NewToken { role, name, lifetime, trusted, machines, packages }: NewToken<'_>,
        now_unix_ms: u64,
        random: [u8; 36],
    ) -> Result<Token, BadTokenRequest> {
        if !is_name(name) {
            return Err(BadTokenRequest::Name(name.to_owned()));
        }
        if role != Role::Worker && (trusted || machines.is_some() || packages.is_some()) {
            return Err(BadTokenRequest::NotWorker);
        }
        let live = |entry: &TokenEntry| entry.refusal(now_unix_ms).is_none();
        if self.0.iter().any(|entry| live(entry) && entry.name == name) {
            return Err(BadTokenRequest::Taken(name.to_owned()));
        }
        if self.0.len() >= MAX_TOKENS {
            self.0.retain(live);
        }
        if self.0.len() >= MAX_TOKENS {
            return Err(BadTokenRequest::TooMany);
        }
        let (id, secret) = random.split_at(4);
        let mut id = u32::from_be_bytes(id.try_into().expect("four bytes"));
        while self.find(TokenId(id)).is_some() {
            id = id.wrapping_add(1);
        }
        let token = Token::new(TokenId(id), secret.try_into().expect("32 bytes"));
        let lifetime_ms =
            |lifetime: Duration| u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.0.push(TokenEntry {
            id: token.id(),
            role,
            name: name.to_owned(),
            hash: hash_of(&token),
            created_unix_ms: now_unix_ms,
            expires_unix_ms: lifetime.map(|time| now_unix_ms.saturating_add(lifetime_ms(time))),
            revoked_unix_ms: None,
            trusted,
            machines,
            packages,
        });
        Ok(token)
    }

    /// Replaces the secret of a worker's token; a lifetime begins again. `random` is the secret.
    ///
    /// The id stays, and with it the identities of the token's workers. Tokens of other roles have none to keep, but
    /// sessions, which a new secret would not end.
    pub fn renew(
        &mut self,
        name: &str,
        now_unix_ms: u64,
        random: [u8; 32],
    ) -> Result<Token, BadTokenRequest> {
        let live = |entry: &&mut TokenEntry| entry.refusal(now_unix_ms).is_none();
        let entry = self.0.iter_mut().filter(live).find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| BadTokenRequest::NoSuch(name.to_owned()))?;
        if entry.role != Role::Worker {
            return Err(BadTokenRequest::NotRenewed);
        }
        let token = Token::new(entry.id, random);
        let lifetime_ms = entry.expires_unix_ms.map(|at| at - entry.created_unix_ms);
        entry.hash = hash_of(&token);
        entry.created_unix_ms = now_unix_ms;
        entry.expires_unix_ms = lifetime_ms.map(|time| now_unix_ms.saturating_add(time));
        Ok(token)
    }

    /// Returns the entry of a valid token.
    pub fn check(&self, token: &Token, now_unix_ms: u64) -> Result<&TokenEntry, AuthError> {
        let entry = self.find(token.id()).ok_or(AuthError::Unknown)?;
        if !bool::from(entry.hash.ct_eq(&hash_of(token))) {
            return Err(AuthError::Unknown);
        }
        entry.refusal(now_unix_ms).map_or(Ok(entry), Err)
    }

    /// Revokes the tokens of this name or ID; returns how many were not revoked before.
    pub fn revoke(&mut self, name_or_id: &str, now_unix_ms: u64) -> usize {
        let mut revoked = 0;
        for entry in &mut self.0 {
            let matches = entry.name == name_or_id || entry.id.to_string() == name_or_id;
            if matches && entry.revoked_unix_ms.is_none() {
                entry.revoked_unix_ms = Some(now_unix_ms);
                revoked += 1;
            }
        }
        revoked
    }

    pub fn entries(&self) -> &[TokenEntry] {
        &self.0
    }

    pub(crate) fn find(&self, id: TokenId) -> Option<&TokenEntry> {
        self.0.iter().find(|entry| entry.id == id)
    }
}

impl TokenEntry {
    /// Returns why the token is no longer valid, if so.
    pub fn refusal(&self, now_unix_ms: u64) -> Option<AuthError> {
        if self.revoked_unix_ms.is_some() {
            return Some(AuthError::Revoked(self.name.clone()));
        }
        let expired = self.expires_unix_ms.is_some_and(|at| at <= now_unix_ms);
        expired.then(|| AuthError::Expired(self.name.clone()))
    }
}

fn hash_of(token: &Token) -> [u8; 32] {
    Sha256::digest(token.secret()).into()
}

fn write_id<S: Serializer>(id: &TokenId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

fn read_id<'de, D: Deserializer<'de>>(from: D) -> Result<TokenId, D::Error> {
    let text = String::deserialize(from)?;
    u32::from_str_radix(&text, 16).map(TokenId).map_err(D::Error::custom)
}

fn write_hash<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(hash))
}

fn read_hash<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
    let bytes = STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
    bytes.try_into().map_err(|_| D::Error::custom("a hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> (TokenBook, Token) {
        let mut book = TokenBook::default();
        let hour = Some(Duration::from_secs(3600));
        let new = NewToken { lifetime: hour, ..NewToken::new(Role::Worker, "lab-a") };
        let token = book.create(new, 1_000, [5; 36]).unwrap();
        (book, token)
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked() {
        let (mut book, token) = book();
        assert_eq!(book.check(&token, 1_000).unwrap().name, "lab-a");
        assert_eq!(book.check(&token, 1_000).unwrap().role, Role::Worker);
        assert!(book.check(&token, 3_600_999).is_ok());
        let expired = Err(AuthError::Expired("lab-a".to_owned()));
        assert_eq!(book.check(&token, 3_601_000).cloned(), expired);
        assert_eq!(book.revoke("lab-b", 2_000), 0);
        assert_eq!(book.revoke("lab-a", 2_000), 1);
        let revoked = Err(AuthError::Revoked("lab-a".to_owned()));
        assert_eq!(book.check(&token, 2_000).cloned(), revoked);
        assert_eq!(book.revoke("lab-a", 3_000), 0, "twice");
    }

    #[test]
    fn a_renewed_token_keeps_all_but_its_secret() {
        let (mut book, token) = book();
        let renewed = book.renew("lab-a", 2_000, [6; 32]).unwrap();
        assert_eq!(book.check(&token, 2_000).cloned(), Err(AuthError::Unknown));
        let entry = book.check(&renewed, 2_000).unwrap();
        assert_eq!((entry.id, entry.role), (token.id(), Role::Worker));
        assert_eq!(entry.expires_unix_ms, Some(3_602_000), "an hour from now");
        for (name, now) in [("lab-b", 2_000), ("lab-a", 3_602_000)] {
            let missing = Err(BadTokenRequest::NoSuch(name.to_owned()));
            assert_eq!(book.renew(name, now, [7; 32]), missing);
        }
        book.create(NewToken::new(Role::Viewer, "screen"), 1_000, [8; 36]).unwrap();
        assert_eq!(book.renew("screen", 2_000, [9; 32]), Err(BadTokenRequest::NotRenewed));
    }

    #[test]
    fn a_wrong_secret_is_as_unknown_as_a_wrong_id() {
        let (book, token) = book();
        let mut secret = *token.secret();
        secret[31] ^= 1;
        for other in [Token::new(token.id(), secret), Token::new(TokenId(1), *token.secret())] {
            assert_eq!(book.check(&other, 1_000).cloned(), Err(AuthError::Unknown));
        }
    }

    #[test]
    fn names_of_live_tokens_are_distinct() {
        let (mut book, _) = book();
        let mut create =
            |name: &str, now| book.create(NewToken::new(Role::Viewer, name), now, [6; 36]);
        assert_eq!(create("lab-a", 1_000), Err(BadTokenRequest::Taken("lab-a".to_owned())));
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(create(bad, 1_000), Err(BadTokenRequest::Name(bad.to_owned())));
        }
        assert!(create("lab-a", 3_700_000).is_ok(), "the first has expired");
        let again = create("lab-b", 1_000).unwrap();
        assert_ne!(again.id(), TokenId(0x0606_0606), "ids are unique");
    }

    #[test]
    fn trust_and_limits_are_stored_and_for_workers_only() {
        let (mut book, _) = book();
        let before = serde_json::to_string(&book).unwrap();
        assert!(!before.contains("trusted") && !before.contains("machines"), "omitted by default");
        let machines = NonZeroU32::new(3);
        let packages = Some(PackageLimits { away_seconds: 86_400, tasks: 4 });
        let new =
            NewToken { trusted: true, machines, packages, ..NewToken::new(Role::Worker, "lab-b") };
        let token = book.create(new, 1_000, [7; 36]).unwrap();
        let json = serde_json::to_string(&book).unwrap();
        let read: TokenBook = serde_json::from_str(&json).unwrap();
        let entry = read.check(&token, 1_000).unwrap();
        assert_eq!((entry.trusted, entry.machines, entry.packages), (true, machines, packages));
        for new in [
            NewToken { trusted: true, ..NewToken::new(Role::Viewer, "screen") },
            NewToken { machines, ..NewToken::new(Role::Operator, "anna") },
            NewToken { packages, ..NewToken::new(Role::Operator, "anna") },
        ] {
            assert_eq!(book.create(new, 1_000, [8; 36]), Err(BadTokenRequest::NotWorker));
        }
        let zero = json.replacen("\"machines\":3", "\"machines\":0", 1);
        assert!(serde_json::from_str::<TokenBook>(&zero).is_err());
    }

    #[test]
    fn stored_entries_contain_no_secret() {
        let (book, token) = book();
        let json = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<TokenBook>(&json).unwrap(), book);
        use base64::{Engine as _, engine::general_purpose};
        for secret in [
            general_purpose::STANDARD.encode(token.secret()),
            general_purpose::URL_SAFE_NO_PAD.encode(token.secret()),
        ] {
            assert!(!json.contains(&secret));
        }
        assert!(!format!("{book:?} {token:?}").contains("5, 5, 5"));
    }
}
