//! Small texts with a check hash, and reasons to refuse a stored text. Pure.
//!
//! Each text is one JSON object with its struct's fields in their order, without spaces, then `check`: the
//! SHA-256 of all bytes before `,"check":`. (Lines of journals and spools, of which there are many,
//! end in a shorter checksum: `common::messages::sealed`.)

use std::{
    fmt::{self, Display},
    str::FromStr,
};

use common::messages::hex;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

/// The version of the data directory and of everything in it.
pub(crate) const FORMAT: u32 = 1;

const CHECK_KEY: &str = r#","check":""#;

/// The reason why stored data is invalid. Callers only report it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damage(pub(crate) String);

impl Damage {
    pub(crate) fn new(what: impl Display) -> Self {
        Self(what.to_string())
    }
}

/// A link of a hash chain: the first 16 bytes of a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainHash(pub(crate) [u8; 16]);

impl ChainHash {
    /// Returns the link that the line after `line` must contain.
    pub(crate) fn after(line: &[u8]) -> Self {
        let digest = Sha256::digest(line);
        Self(digest[..16].try_into().expect("16 of 32 bytes"))
    }
}

impl Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", hex::display(&self.0))
    }
}

impl FromStr for ChainHash {
    type Err = Damage;

    fn from_str(text: &str) -> Result<Self, Damage> {
        let damage = || Damage(format!("'{text}' is not 32 hexadecimal digits"));
        hex::decode(text).map(Self).ok_or_else(damage)
    }
}

/// Encodes `fields` as JSON with a check hash as the last field.
pub(crate) fn seal(fields: &impl Serialize) -> String {
    let mut text = serde_json::to_string(fields).expect("strings and numbers become JSON");
    text.pop();
    with_check(text)
}

/// Decodes a text that [`seal`] encoded.
pub(crate) fn unseal<T: DeserializeOwned>(text: &str) -> Result<T, Damage> {
    if let Some(found) = format_of(text).filter(|format| *format != FORMAT) {
        let what = format!("unsupported format {found} (this version supports {FORMAT})");
        return Err(Damage(what));
    }
    let (body, check) = text
        .rsplit_once(CHECK_KEY)
        .and_then(|(body, tail)| Some((body, tail.strip_suffix("\"}")?)))
        .ok_or_else(|| Damage::new("it does not end in a check hash"))?;
    let computed = digest(body);
    if computed != check {
        let what = format!("its check hash is {computed}, not {check}: bytes have changed");
        return Err(Damage(what));
    }
    serde_json::from_str(&format!("{body}}}")).map_err(Damage::new)
}

/// Returns the format that a text states, in a field that all versions have.
pub(crate) fn format_of(text: &str) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("format")?.as_u64()?.try_into().ok()
}

/// Returns the text with the correct check hash for its other fields.
pub(crate) fn resealed(text: &str) -> String {
    let body = text
        .rsplit_once(CHECK_KEY)
        .map_or(text.strip_suffix('}').unwrap_or(text), |(body, _)| body);
    with_check(body.to_owned())
}

fn with_check(body: String) -> String {
    let check = digest(&body);
    body + CHECK_KEY + &check + "\"}"
}

fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes()))
}
