//! The certificate: a JSON text, signed over all of its bytes before the signature.

use std::collections::BTreeMap;

use common::{
    board::Board,
    messages::hex,
    method::UnknownName,
    plan::{PlanHash, PlanSpec},
    text::Escaped,
};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use scheduler::ledger::{Confirmation, Principal};
use serde::{Deserialize, Serialize};

use crate::certify::leaves::{Hash, Leaf};

/// The version of the text.
pub(crate) const FORMAT: u32 = 1;

/// The separator between the signed bytes and the signature.
const SIGNATURE_KEY: &str = ",\n  \"signature\": \"";
const END: &str = "\"\n}\n";

/// The certified facts of a run.
/// Counts are decimal strings, since they exceed 2^53; hashes and keys are lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The version of this text and of the leaves.
    pub format: u32,
    pub n: u8,
    pub run: String,
    pub created_unix_ms: u64,
    pub layout: String,
    /// The work per task in microseconds of one core, as requested.
    pub task_cost: u64,
    /// The version of the plan's rules, which fix the weights of units.
    pub plan_version: u16,
    pub plan_hash: String,
    /// all(N).
    pub solutions: String,
    /// Fundamental solutions, if the symmetric ones are known.
    pub fundamental: Option<String>,
    /// Solutions fixed by a half turn.
    pub half_turn: Option<String>,
    /// Solutions fixed by a quarter turn.
    pub quarter_turn: Option<String>,
    /// The time during which the run's tasks were being counted.
    pub seconds: f64,
    pub checks: Vec<Check>,
    pub confirmed: Levels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recounts: Option<Recounts>,
    pub workers: Vec<Share>,
    /// The visitors who want to be named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contributors: Vec<Contributor>,
    pub counts: u64,
    /// The root of the tree over the counts.
    pub merkle_root: String,
    pub program: String,
    /// The signer's key; compare it with the coordinator's.
    pub public_key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub name: String,
    /// `passed`, `failed`, `not_possible` or `not_applicable`.
    pub outcome: String,
    pub reason: String,
}

/// The numbers of counts by their best confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    pub none: u64,
    /// Confirmed by the same machine, on the rotated board.
    pub same_machine: u64,
    /// Confirmed by another machine with the same token.
    pub same_token: u64,
    /// Confirmed by another machine with another token.
    pub other_token: u64,
    pub referee: u64,
}

/// The result of random recounts by the referee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recounts {
    /// Recounted tasks, selected at random.
    pub random: u64,
    /// The recounted tasks whose count was wrong and was corrected.
    pub wrong: u64,
    /// The upper bound on wrong counts, with 95 % confidence, even under collusion.
    pub at_most_wrong: u64,
}

impl Levels {
    pub(crate) fn of<'a>(leaves: impl IntoIterator<Item = &'a Leaf>) -> Self {
        let mut levels = Self::default();
        for leaf in leaves {
            *match leaf.level() {
                Confirmation::None => &mut levels.none,
                Confirmation::SameMachine => &mut levels.same_machine,
                Confirmation::SameToken => &mut levels.same_token,
                Confirmation::OtherToken => &mut levels.other_token,
                Confirmation::Referee => &mut levels.referee,
            } += 1;
        }
        levels
    }
}

/// One worker's contribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub worker: String,
    /// The token or certificate with which the worker authenticated.
    pub principal: String,
    pub kernels: Vec<String>,
    pub versions: Vec<String>,
    /// Number of its accepted counts.
    pub counts: u64,
    /// Number of counts that it confirmed by a recheck or as a referee.
    pub confirmed: u64,
    /// Core time of its accepted counts.
    pub core_seconds: u64,
}

/// The counts of those who gave a name for publication; nobody checks that it is theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contributor {
    pub name: String,
    /// Number of counts that stand.
    pub counts: u64,
    /// Sum of these counts.
    pub solutions: String,
}

impl Contributor {
    /// Returns the named contributors of counts, in the order of their names.
    pub(crate) fn all<'a>(leaves: impl IntoIterator<Item = &'a Leaf>) -> Vec<Self> {
        let mut all = BTreeMap::<_, (u64, u128)>::new();
        for Leaf { count, first, .. } in leaves {
            if let Some(name) = Principal::from_stored(&first.principal).public_name() {
                let (counts, solutions) = all.entry(name.to_owned()).or_default();
                *counts += 1;
                *solutions += u128::from(*count);
            }
        }
        let named = |(name, (counts, solutions)): (_, (_, u128))| Self {
            name,
            counts,
            solutions: solutions.to_string(),
        };
        all.into_iter().map(named).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    #[error("not a certificate: {}", Escaped(.0))]
    Form(String),
    #[error("unsupported format {0} (this version supports {FORMAT}): use a later queensctl")]
    Format(u32),
    #[error("its signature is invalid: it was changed after it was signed")]
    Signature,
}

fn form(why: impl ToString) -> BadCertificate {
    BadCertificate::Form(why.to_string())
}

impl Certificate {
    /// Inserts the public key, and returns the signed text.
    pub fn sign(mut self, secret: &[u8; 32]) -> String {
        let key = SigningKey::from_bytes(secret);
        self.public_key = hex::encode(key.verifying_key().as_bytes());
        let text = serde_json::to_string_pretty(&self).expect("texts and numbers become JSON");
        let signed = text.strip_suffix("\n}").expect("a pretty-printed object ends like this");
        let signature = key.sign(signed.as_bytes()).to_bytes();
        format!("{signed}{SIGNATURE_KEY}{}{END}", hex::encode(&signature))
    }

    /// Parses a text and checks its signature.
    pub fn read(text: &str) -> Result<Self, BadCertificate> {
        let (signed, tail) = text
            .rsplit_once(SIGNATURE_KEY)
            .ok_or_else(|| form("it does not end in a signature"))?;
        let signature = tail
            .strip_suffix(END)
            .and_then(hex::decode::<64>)
            .ok_or_else(|| form("its signature is not 128 hexadecimal digits"))?;
        let text = format!("{signed}\n}}");
        let any: serde_json::Value = serde_json::from_str(&text).map_err(form)?;
        let format = any.get("format").and_then(serde_json::Value::as_u64);
        match format.and_then(|format| u32::try_from(format).ok()) {
            Some(FORMAT) => {}
            Some(other) => return Err(BadCertificate::Format(other)),
            None => return Err(form("it has no format")),
        }
        let certificate: Self = serde_json::from_str(&text).map_err(form)?;
        let key = hex::decode::<32>(&certificate.public_key)
            .and_then(|key| VerifyingKey::from_bytes(&key).ok())
            .ok_or_else(|| form("public_key is not a key"))?;
        key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature))
            .map_err(|_| BadCertificate::Signature)?;
        Ok(certificate)
    }

    pub fn spec(&self) -> Result<PlanSpec, BadCertificate> {
        Ok(PlanSpec {
            board: Board::new(self.n).map_err(form)?,
            layout: self.layout.parse().map_err(|bad: UnknownName| form(bad))?,
            task_cost: self.task_cost,
        })
    }

    pub fn plan(&self) -> Result<PlanHash, BadCertificate> {
        self.plan_hash.parse().map_err(|_| form("plan_hash is not a hash"))
    }

    pub(crate) fn root(&self) -> Result<Hash, BadCertificate> {
        hex::decode(&self.merkle_root).ok_or_else(|| form("merkle_root is not a hash"))
    }
}

/// Returns the public key of a secret key, in hexadecimal.
pub fn public_key(secret: &[u8; 32]) -> String {
    hex::encode(SigningKey::from_bytes(secret).verifying_key().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Certificate {
        Certificate {
            format: FORMAT,
            n: 8,
            run: "00000000000000ab".to_owned(),
            created_unix_ms: 1_700_000_000_000,
            layout: "first-rows".to_owned(),
            task_cost: 10,
            plan_version: 2,
            plan_hash: "01".repeat(32),
            solutions: "92".to_owned(),
            fundamental: Some("12".to_owned()),
            half_turn: Some("4".to_owned()),
            quarter_turn: Some("0".to_owned()),
            seconds: 1.5,
            checks: vec![Check {
                name: "sum".to_owned(),
                outcome: "passed".to_owned(),
                reason: "a \"reason\"".to_owned(),
            }],
            confirmed: Levels { none: 2, referee: 1, ..Levels::default() },
            recounts: Some(Recounts { random: 1, wrong: 0, at_most_wrong: 2 }),
            workers: Vec::new(),
            contributors: Vec::new(),
            counts: 3,
            merkle_root: "23".repeat(32),
            program: "queensctl 0.1.0".to_owned(),
            public_key: String::new(),
        }
    }

    #[test]
    fn only_signed_texts_are_read() {
        let secret = [9; 32];
        let text = certificate().sign(&secret);
        let read = Certificate::read(&text).unwrap();
        assert_eq!(read.public_key, public_key(&secret));
        let expected = Certificate { public_key: public_key(&secret), ..certificate() };
        assert_eq!(read, expected);
        for at in 0..text.len() - END.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(Certificate::read(&changed).is_err(), "byte {at}");
        }
        // A text that another key signed is valid, but names that key.
        let forged = certificate().sign(&[8; 32]);
        assert_ne!(Certificate::read(&forged).unwrap().public_key, public_key(&secret));
        let later = text.replace("\"format\": 1", "\"format\": 2");
        assert_eq!(Certificate::read(&later), Err(BadCertificate::Format(2)));
    }
}
