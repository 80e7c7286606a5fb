//! What a program needs to pass a coordinator's door: a join string, and a connection that sends
//! its token only to the coordinator that the join string names.

mod files;
mod join;
mod knock;
mod pin;
mod token;
mod way;

pub use files::{BadTlsFile, Identity, TrustedCa, names_of};
pub use join::{BadJoin, JoinString};
pub use pin::{CaHash, PinnedCa, SERVER_NAME, install_crypto};
pub use token::{BadToken, Token, TokenId};
pub use way::{Certified, Credentials, Door, Way, explain_tls};

pub(crate) use join::PREFIX as JOIN_PREFIX;
pub(crate) use token::PREFIX as TOKEN_PREFIX;

/// Bytes with a prefix as text that survives every shell, chat and mail: letters, digits, `-`, `_`.
pub(crate) fn armour(prefix: &str, bytes: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let crc = crc32fast::hash(bytes).to_be_bytes();
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode([bytes, &crc].concat()))
}

/// The bytes behind [`armour`]; `None` where a character is missing, added or changed.
fn disarmour(prefix: &str, text: &str) -> Option<Vec<u8>> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(prefix)?).ok()?;
    let split = bytes.len().checked_sub(4)?;
    let crc = bytes.split_off(split);
    (crc == crc32fast::hash(&bytes).to_be_bytes()).then_some(bytes)
}
