//! The certificate itself: a JSON text, signed over all of its bytes before the signature.

use common::{
    board::Board,
    plan::{PlanHash, PlanSpec},
};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::leaves::Hash;

/// The version of the text and of the leaves.
const FORMAT: u32 = 1;

/// What separates the signed bytes from the signature.
const SIGNATURE_KEY: &str = ",\n  \"signature\": \"";
const END: &str = "\"\n}\n";

/// What is certified of a run. Counts are decimal strings, since they pass 2^53; hashes and keys are
/// lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The version of this text and of the leaves.
    pub format: u32,
    /// The board's side.
    pub n: u8,
    /// The run's name.
    pub run: String,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// How the board was divided.
    pub layout: String,
    /// The work in a task, as was asked for.
    pub task_cost: u64,
    /// The version of the rules by which the plan is made; they fix what a unit weighs.
    pub plan_version: u16,
    /// The hash of the plan.
    pub plan_hash: String,
    /// all(N).
    pub solutions: String,
    /// Up to rotations and reflections, if the symmetric solutions are known.
    pub unique: Option<String>,
    /// Solutions that a half turn fixes.
    pub half_turn: Option<String>,
    /// Solutions that a quarter turn fixes.
    pub quarter_turn: Option<String>,
    /// How long coordinators served the run, in seconds.
    pub seconds: f64,
    /// What was checked, and how that came out.
    pub checks: Vec<Check>,
    /// Who counted how much.
    pub workers: Vec<Share>,
    /// How many counts there are.
    pub counts: u64,
    /// The root of the tree over them.
    pub merkle_root: String,
    /// The program that wrote this.
    pub program: String,
    /// The key that signed this, for those who know it as the coordinator's.
    pub public_key: String,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// `passed`, `failed` or `not_possible`.
    pub outcome: String,
    /// How, or why not.
    pub reason: String,
}

/// What one worker gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The worker.
    pub worker: String,
    /// On whose word it counted.
    pub principal: String,
    /// Its kernels.
    pub kernels: Vec<String>,
    /// The versions of its program.
    pub versions: Vec<String>,
    /// Counts of it that stand.
    pub counts: u64,
    /// Counts of others that it confirmed.
    pub confirmed: u64,
    /// Time of one core that its standing counts took, in seconds.
    pub core_seconds: u64,
}

/// A text that is no certificate of this program, or not as it was signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// Not a certificate.
    #[error("it is no certificate: {0}")]
    Form(String),
    /// A later one.
    #[error("it has format {0}, this program knows {FORMAT}: use a later queensctl")]
    Format(u32),
    /// The signature is not that of the text by the key that it names.
    #[error("its signature is not right: it is not as it was signed")]
    Signature,
}

impl Certificate {
    /// The version of certificates that this program writes.
    pub const FORMAT: u32 = FORMAT;

    /// The text, signed. The key's public half is put into it.
    pub fn sign(mut self, secret: &[u8; 32]) -> String {
        let key = SigningKey::from_bytes(secret);
        self.public_key = hex(key.verifying_key().as_bytes());
        let text = serde_json::to_string_pretty(&self).expect("texts and numbers become JSON");
        let signed = text
            .strip_suffix("\n}")
            .expect("an object ends so when it is pretty");
        let signature = key.sign(signed.as_bytes()).to_bytes();
        format!("{signed}{SIGNATURE_KEY}{}{END}", hex(&signature))
    }

    /// Reads a text and checks its signature.
    pub fn read(text: &str) -> Result<Self, BadCertificate> {
        let form = |why: &str| BadCertificate::Form(why.to_owned());
        let (signed, tail) = text
            .rsplit_once(SIGNATURE_KEY)
            .ok_or_else(|| form("it does not end in a signature"))?;
        let signature = tail
            .strip_suffix(END)
            .and_then(unhex::<64>)
            .ok_or_else(|| form("its signature is not 128 hexadecimal digits"))?;
        let text = format!("{signed}\n}}");
        let any: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| form(&error.to_string()))?;
        let format = any.get("format").and_then(serde_json::Value::as_u64);
        match format.and_then(|format| u32::try_from(format).ok()) {
            Some(FORMAT) => {}
            Some(other) => return Err(BadCertificate::Format(other)),
            None => return Err(form("it has no format")),
        }
        let certificate: Self =
            serde_json::from_str(&text).map_err(|error| form(&error.to_string()))?;
        let key = unhex::<32>(&certificate.public_key)
            .and_then(|key| VerifyingKey::from_bytes(&key).ok())
            .ok_or_else(|| form("public_key is no key"))?;
        key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature))
            .map_err(|_| BadCertificate::Signature)?;
        Ok(certificate)
    }

    /// What the plan was made from.
    pub fn spec(&self) -> Result<PlanSpec, BadCertificate> {
        let form = |why: String| BadCertificate::Form(why);
        Ok(PlanSpec {
            board: Board::new(self.n).map_err(|bad| form(bad.to_string()))?,
            layout: self
                .layout
                .parse()
                .map_err(|bad: common::method::UnknownName| form(bad.to_string()))?,
            task_cost: self.task_cost,
        })
    }

    /// The hash of the plan.
    pub fn plan(&self) -> Result<PlanHash, BadCertificate> {
        let hash = self.plan_hash.parse();
        hash.map_err(|_| BadCertificate::Form("plan_hash is no hash".to_owned()))
    }

    /// The root of the tree over the counts.
    pub(super) fn root(&self) -> Result<Hash, BadCertificate> {
        unhex(&self.merkle_root)
            .ok_or_else(|| BadCertificate::Form("merkle_root is no hash".to_owned()))
    }
}

/// The public half of a secret, as it is printed and written.
pub fn public_key(secret: &[u8; 32]) -> String {
    hex(SigningKey::from_bytes(secret).verifying_key().as_bytes())
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(plain) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
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
            unique: Some("12".to_owned()),
            half_turn: Some("4".to_owned()),
            quarter_turn: Some("0".to_owned()),
            seconds: 1.5,
            checks: vec![Check {
                name: "sum".to_owned(),
                outcome: "passed".to_owned(),
                reason: "a \"reason\"".to_owned(),
            }],
            workers: Vec::new(),
            counts: 3,
            merkle_root: "23".repeat(32),
            program: "queensctl 0.1.0".to_owned(),
            public_key: String::new(),
        }
    }

    #[test]
    fn what_was_signed_is_read_and_nothing_else() {
        let secret = [9; 32];
        let text = certificate().sign(&secret);
        let read = Certificate::read(&text).unwrap();
        assert_eq!(read.public_key, public_key(&secret));
        let expected = Certificate {
            public_key: public_key(&secret),
            ..certificate()
        };
        assert_eq!(read, expected);
        for at in 0..text.len() - END.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(Certificate::read(&changed).is_err(), "byte {at}");
        }
        // Somebody else's key signs, but it is another key.
        let forged = certificate().sign(&[8; 32]);
        assert_ne!(
            Certificate::read(&forged).unwrap().public_key,
            public_key(&secret)
        );
        let later = text.replace("\"format\": 1", "\"format\": 2");
        assert_eq!(Certificate::read(&later), Err(BadCertificate::Format(2)));
    }
}
