//! One journal line: its text, its check sum and its place in the chain. Pure.
//!
//! A line is one JSON object with the fields of [`Fields`] in that order, without spaces:
//! `prev` is the first 16 bytes of SHA-256 of the line before (of the manifest, for the first
//! line); `crc` seals it (`common::sealed`). The format is frozen by a test; changing it raises [`super::manifest::FORMAT`]. Lines of format 1 lack `units`, `fence`,
//! `principal` and `elapsed_ms`; a journal may begin with such.

use std::{borrow::Borrow, ops::Range};

use common::{
    count::Orientation,
    plan::PlanHash,
    run::Epoch,
    sealed::{self, BrokenSeal},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{JournalEntry, Record, RunManifest, manifest, text::BadField};
use crate::ledger::Principal;

/// The most bytes a line has, without its end.
pub(crate) const MAX_LINE_BYTES: usize = 2048;

/// A link of the chain: the first 16 bytes of a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link([u8; 16]);

/// A line that is not one of ours, or not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadLine {
    /// Nothing that a journal line could be.
    #[error("it is not a journal line: {0}")]
    Malformed(#[from] Malformed),
    /// The bytes are not those that were written.
    #[error(transparent)]
    Changed(BrokenSeal),
}

/// Why something is no journal line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// Longer than any.
    #[error("it has more than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// No text.
    #[error("it is not UTF-8")]
    NoText,
    /// Without a check sum.
    #[error(transparent)]
    Unsealed(BrokenSeal),
    /// Not the fields of a line.
    #[error("{0}")]
    Json(String),
    /// A field says nothing that it could.
    #[error(transparent)]
    Field(#[from] BadField),
    /// Of neither format.
    #[error("of units, fence, principal and elapsed_ms some are missing")]
    HalfStamped,
}

/// The fields of a line, in their order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    seq: u64,
    kind: Kind,
    run: &'a str,
    plan: &'a str,
    task: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    units: Option<[u64; 2]>,
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    count: &'a str,
    worker: &'a str,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    principal: Option<std::borrow::Cow<'a, str>>,
    kernel: &'a str,
    orientation: &'a str,
    #[serde(borrow)]
    version: std::borrow::Cow<'a, str>,
    duration_us: u64,
    accepted_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<u64>,
    prev: &'a str,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Accepted,
    Confirmed,
    Quarantined,
}

/// A line as read: what it says, and what it claims to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalLine<E = JournalEntry> {
    pub(crate) sequence: u64,
    pub(crate) plan: PlanHash,
    /// `None` in a line of format 1, which says neither this nor the record's principal and time.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) entry: E,
    pub(crate) prev: Link,
}

/// What the store adds to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The task's units: they name the work where another plan divides it otherwise.
    pub(crate) units: Range<u64>,
    /// The term of the coordinator that wrote the line.
    pub(crate) fence: u64,
}

impl<E: Borrow<JournalEntry>> JournalLine<E> {
    /// The text of the line, without a line end.
    pub(crate) fn encode(&self) -> String {
        let mut text = Vec::with_capacity(MAX_LINE_BYTES / 4);
        self.encode_onto(&mut text);
        String::from_utf8(text).expect("JSON is UTF-8")
    }

    /// The same at the end of `text`.
    pub(crate) fn encode_onto(&self, text: &mut Vec<u8>) {
        let start = text.len();
        let (kind, record) = match self.entry.borrow() {
            JournalEntry::Accepted(record) => (Kind::Accepted, record),
            JournalEntry::Confirmed(record) => (Kind::Confirmed, record),
            JournalEntry::Quarantined(record) => (Kind::Quarantined, record),
        };
        let stamp = self.stamp.as_ref();
        let run = Digits::<16>::of(&record.run.0.to_be_bytes());
        let plan = Digits::<64>::of(self.plan.as_bytes());
        let worker = Digits::<32>::of(&record.worker.0.to_be_bytes());
        let prev = Digits::<32>::of(&self.prev.0);
        let fields = Fields {
            seq: self.sequence,
            kind,
            run: run.as_str(),
            plan: plan.as_str(),
            task: record.task.0,
            units: stamp.map(|stamp| [stamp.units.start, stamp.units.end]),
            epoch: record.epoch.0,
            fence: stamp.map(|stamp| stamp.fence),
            count: &record.count.to_string(),
            worker: worker.as_str(),
            principal: stamp.map(|_| record.principal.as_str().into()),
            kernel: record.kernel.as_str(),
            orientation: orientation_name(record.orientation),
            version: record.version.as_str().into(),
            duration_us: record.duration_us,
            accepted_unix_ms: record.accepted_unix_ms,
            elapsed_ms: stamp.map(|_| record.elapsed_ms),
            prev: prev.as_str(),
        };
        serde_json::to_writer(&mut *text, &fields).expect("strings and numbers become JSON");
        sealed::seal(text, start);
    }
}

impl JournalLine {
    /// Reads a line without its end, and checks its check sum, not its place in the chain.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, BadLine> {
        if std::str::from_utf8(text).is_err() {
            return Err(Malformed::NoText.into());
        }
        let text = sealed::open(text).map_err(|broken| match broken {
            BrokenSeal::Short | BrokenSeal::Missing => Malformed::Unsealed(broken).into(),
            BrokenSeal::Changed { .. } => BadLine::Changed(broken),
        })?;
        let fields: Fields =
            serde_json::from_slice(&text).map_err(|error| Malformed::Json(error.to_string()))?;
        Ok(fields.line()?)
    }
}

impl Fields<'_> {
    fn line(&self) -> Result<JournalLine, Malformed> {
        let (stamp, principal, elapsed_ms) = match (
            self.units,
            self.fence,
            self.principal.as_deref(),
            self.elapsed_ms,
        ) {
            (Some([start, end]), Some(fence), Some(principal), Some(elapsed_ms)) => {
                let units = start..end;
                (Some(Stamp { units, fence }), principal, elapsed_ms)
            }
            (None, None, None, None) => (None, self.worker, 0),
            _ => return Err(Malformed::HalfStamped),
        };
        let record = Record {
            run: BadField::parse("run", self.run)?,
            task: common::plan::TaskId(self.task),
            epoch: Epoch(self.epoch),
            count: BadField::parse("count", self.count)?,
            worker: BadField::parse("worker", self.worker)?,
            principal: Principal::kept(principal),
            version: self.version.clone().into_owned(),
            kernel: BadField::parse("kernel", self.kernel)?,
            orientation: orientation(self.orientation)?,
            duration_us: self.duration_us,
            accepted_unix_ms: self.accepted_unix_ms,
            elapsed_ms,
        };
        Ok(JournalLine {
            sequence: self.seq,
            plan: BadField::parse("plan", self.plan)?,
            stamp,
            entry: match self.kind {
                Kind::Accepted => JournalEntry::Accepted(record),
                Kind::Confirmed => JournalEntry::Confirmed(record),
                Kind::Quarantined => JournalEntry::Quarantined(record),
            },
            prev: BadField::parse("prev", self.prev)?,
        })
    }
}

impl Link {
    /// What the line after this one must name as `prev`.
    pub(crate) fn after(line: &[u8]) -> Self {
        let digest = Sha256::digest(line);
        Self(digest[..16].try_into().expect("16 of 32 bytes"))
    }

    /// What the first line of a run's journal must name as `prev`.
    pub(crate) fn first(manifest: &RunManifest) -> Self {
        Self::after(manifest::encode(manifest).as_bytes())
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A text that is no link.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not 32 hexadecimal digits")]
pub(crate) struct BadLink(String);

impl std::str::FromStr for Link {
    type Err = BadLink;

    fn from_str(text: &str) -> Result<Self, BadLink> {
        digits::<32>(text)
            .map(|value| Self(value.to_be_bytes()))
            .ok_or_else(|| BadLink(text.to_owned()))
    }
}

/// Lower-case hexadecimal digits, as identities and hashes are displayed, without a formatter and an
/// allocation for each of them: a line has four, and all of it is written before anybody is answered.
struct Digits<const N: usize>([u8; N]);

impl<const N: usize> Digits<N> {
    /// Those of N / 2 bytes.
    fn of(bytes: &[u8]) -> Self {
        const ALL: &[u8; 16] = b"0123456789abcdef";
        assert_eq!(2 * bytes.len(), N, "two digits a byte");
        let mut digits = [0; N];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[ALL[usize::from(byte >> 4)], ALL[usize::from(byte & 15)]]);
        }
        Self(digits)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are ASCII")
    }
}

/// The value of exactly N lower-case hexadecimal digits.
fn digits<const N: usize>(text: &str) -> Option<u128> {
    let plain = text.len() == N && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| plain)
}

const fn orientation_name(orientation: Orientation) -> &'static str {
    match orientation {
        Orientation::Upright => "upright",
        Orientation::Turned => "turned",
    }
}

fn orientation(text: &str) -> Result<Orientation, BadField> {
    [Orientation::Upright, Orientation::Turned]
        .into_iter()
        .find(|orientation| orientation_name(*orientation) == text)
        .ok_or_else(|| {
            BadField::new(
                "orientation",
                format!("'{text}' is neither upright nor turned"),
            )
        })
}

#[cfg(test)]
mod tests {
    use common::{
        kernel::KernelName,
        plan::TaskId,
        run::{RunId, WorkerId},
    };

    use super::*;

    fn line(version: &str) -> JournalLine {
        let record = Record {
            run: RunId(0xab),
            task: TaskId(7),
            epoch: Epoch(2),
            count: u64::MAX,
            worker: WorkerId(0xcd),
            principal: Principal::kept("ab"),
            version: version.to_owned(),
            kernel: KernelName::Avx512,
            orientation: Orientation::Turned,
            duration_us: 1_000_000,
            accepted_unix_ms: 1_700_000_000_000,
            elapsed_ms: 4500,
        };
        JournalLine {
            sequence: 1,
            plan: "0123456789abcdef".repeat(4).parse().unwrap(),
            stamp: Some(Stamp {
                units: 14..16,
                fence: 3,
            }),
            entry: JournalEntry::Quarantined(record),
            prev: Link::after(b"manifest"),
        }
    }

    #[test]
    fn the_text_is_frozen() {
        let expected = concat!(
            r#"{"seq":1,"kind":"quarantined","run":"00000000000000ab","#,
            r#""plan":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","#,
            r#""task":7,"units":[14,16],"epoch":2,"fence":3,"count":"18446744073709551615","#,
            r#""worker":"000000000000000000000000000000cd","principal":"ab","kernel":"avx512","#,
            r#""orientation":"turned","version":"0.1.0","duration_us":1000000,"#,
            r#""accepted_unix_ms":1700000000000,"elapsed_ms":4500,"#,
            r#""prev":"05b3abf2579a5eb66403cd78be557fd8","crc":"a41886d8"}"#,
        );
        assert_eq!(line("0.1.0").encode(), expected);
    }

    #[test]
    fn format_1_is_read_as_it_was_written() {
        let expected = concat!(
            r#"{"seq":1,"kind":"quarantined","run":"00000000000000ab","#,
            r#""plan":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","#,
            r#""task":7,"epoch":2,"count":"18446744073709551615","#,
            r#""worker":"000000000000000000000000000000cd","kernel":"avx512","#,
            r#""orientation":"turned","version":"0.1.0","duration_us":1000000,"#,
            r#""accepted_unix_ms":1700000000000,"prev":"05b3abf2579a5eb66403cd78be557fd8","crc":"079bc185"}"#,
        );
        let line = JournalLine::decode(expected.as_bytes()).unwrap();
        assert_eq!(line.stamp, None);
        assert_eq!(
            line.entry.record().principal.as_str(),
            "000000000000000000000000000000cd"
        );
        assert_eq!(line.encode(), expected);
        // Half of what is new is neither format.
        let body = expected.replace(r#""epoch":2"#, r#""epoch":2,"fence":3"#);
        let error = JournalLine::decode(&sealed::resealed(body.as_bytes()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("missing"), "{error}");
    }

    #[test]
    fn lines_round_trip_whatever_the_version_says() {
        let longest = "\u{1}".repeat(crate::ledger::fold::MAX_VERSION_BYTES);
        for version in [
            "",
            "0.1.0",
            "a \"quoted\" \\ one",
            "line\nend, tab\t, ü, 王后",
            &longest,
        ] {
            let line = line(version);
            let text = line.encode();
            assert!(
                text.len() <= MAX_LINE_BYTES && !text.contains('\n'),
                "{text}"
            );
            assert_eq!(JournalLine::decode(text.as_bytes()), Ok(line));
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let text = line("0.1.0").encode();
        let body = String::from_utf8(sealed::open(text.as_bytes()).unwrap()).unwrap();
        let body = body.strip_suffix('}').unwrap();
        let resealed = |body: String| {
            let text = sealed::resealed(format!("{body}}}").as_bytes());
            String::from_utf8(text).unwrap()
        };
        assert!(JournalLine::decode(resealed(body.to_owned()).as_bytes()).is_ok());
        let bad = [
            String::new(),
            text.replace(r#","crc""#, r#","cr""#),
            resealed(body.replace("avx512", "abacus")),
            resealed(body.replace("turned", "sideways")),
            resealed(body.replace("18446744073709551615", "18446744073709551616")),
            resealed(body.replace(r#""task":7"#, r#""task":-7"#)),
            resealed(body.replace("quarantined", "wished")),
            resealed(format!(r#"{body},"more":"fields"#)),
        ];
        for bad in bad {
            let error = JournalLine::decode(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, BadLine::Malformed(_)), "{bad}: {error}");
        }
        let error = JournalLine::decode(text.replace("1000000", "1000001").as_bytes()).unwrap_err();
        assert!(matches!(error, BadLine::Changed(_)), "{error}");
    }
}
