//! A journal line: its text, its checksum and its link to the line before. Pure.
//!
//! A line is one JSON object with the fields of [`Fields`] in that order, without spaces.
//! `prev` is the first 16 bytes of the SHA-256 of the line before (of the manifest, for the first
//! line), and `crc` is the checksum (`common::messages::sealed`). The format is frozen by a test; changing it raises
//! [`crate::journal::text::FORMAT`].

use std::{
    borrow::{Borrow, Cow},
    ops::Range,
};

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::{
        run::{Epoch, RunId, WorkerId},
        sealed::{self, as_text},
    },
    plan::{Plan, PlanHash, TaskId},
};
use scheduler::ledger::{EntryKind, Principal};
use serde::{Deserialize, Serialize};

use crate::{
    JournalEntry, Record, RunManifest,
    journal::text::{ChainHash, Damage},
};

/// The maximum length of a line, without its end.
pub(crate) const MAX_LINE_BYTES: usize = 2048;

/// The end of a journal, where the next line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    /// The length of all whole lines.
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    /// The link that the next line names.
    pub(crate) head: ChainHash,
    /// The term of the coordinator that wrote the last line; 0 if there is none.
    pub(crate) fence: u64,
}

impl JournalEnd {
    pub(crate) fn empty(manifest: &RunManifest) -> Self {
        Self { bytes: 0, lines: 0, head: ChainHash::first(manifest), fence: 0 }
    }

    /// Appends the next line, with its line end, to `text` and advances to its end.
    pub(crate) fn append(
        &mut self,
        text: &mut Vec<u8>,
        plan: &Plan,
        entry: &JournalEntry,
        fence: u64,
    ) {
        let start = text.len();
        let line = JournalLine {
            sequence: self.lines + 1,
            plan: plan.hash(),
            units: plan.task_units(entry.record.task),
            fence,
            entry,
            prev: self.head,
        };
        line.encode_onto(text);
        self.head = ChainHash::after(&text[start..]);
        text.push(b'\n');
        self.bytes += (text.len() - start) as u64;
        self.lines += 1;
        self.fence = fence;
    }
}

/// The fields of a line, in their order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    seq: u64,
    kind: EntryKind,
    #[serde(with = "as_text")]
    run: RunId,
    #[serde(with = "as_text")]
    plan: PlanHash,
    task: u64,
    units: [u64; 2],
    epoch: u64,
    fence: u64,
    #[serde(with = "as_text")]
    count: u64,
    #[serde(with = "as_text")]
    worker: WorkerId,
    #[serde(borrow)]
    principal: Cow<'a, str>,
    #[serde(with = "as_text")]
    kernel: KernelName,
    #[serde(with = "as_text")]
    orientation: Orientation,
    #[serde(borrow)]
    version: Cow<'a, str>,
    duration_us: u64,
    accepted_unix_ms: u64,
    elapsed_ms: u64,
    #[serde(with = "as_text")]
    prev: ChainHash,
}

/// A line, with the link that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalLine<E = JournalEntry> {
    pub(crate) sequence: u64,
    pub(crate) plan: PlanHash,
    /// The task's units, which identify the work even if plans divide it differently.
    pub(crate) units: Range<u64>,
    /// The term of the coordinator that wrote the line.
    pub(crate) fence: u64,
    pub(crate) entry: E,
    pub(crate) prev: ChainHash,
}

impl<E: Borrow<JournalEntry>> JournalLine<E> {
    /// Encodes the line without a line end.
    pub(crate) fn encode(&self) -> String {
        let mut text = Vec::with_capacity(MAX_LINE_BYTES / 4);
        self.encode_onto(&mut text);
        String::from_utf8(text).expect("JSON is UTF-8")
    }

    fn encode_onto(&self, text: &mut Vec<u8>) {
        let start = text.len();
        let JournalEntry { kind, record } = self.entry.borrow();
        let fields = Fields {
            seq: self.sequence,
            kind: *kind,
            run: record.run,
            plan: self.plan,
            task: record.task.0,
            units: [self.units.start, self.units.end],
            epoch: record.epoch.0,
            fence: self.fence,
            count: record.count,
            worker: record.worker,
            principal: record.principal.as_str().into(),
            kernel: record.kernel,
            orientation: record.orientation,
            version: record.version.as_str().into(),
            duration_us: record.duration_us,
            accepted_unix_ms: record.accepted_unix_ms,
            elapsed_ms: record.elapsed_ms,
            prev: self.prev,
        };
        serde_json::to_writer(&mut *text, &fields).expect("strings and numbers become JSON");
        sealed::seal(text, start);
    }
}

impl JournalLine {
    /// Decodes a line without its end. Checks its checksum, not its place in the chain.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, Damage> {
        let not_a_line = |why: &dyn std::fmt::Display| Damage(format!("not a journal line: {why}"));
        std::str::from_utf8(text).map_err(|_| not_a_line(&"it is not UTF-8"))?;
        let text = sealed::open(text).map_err(Damage::new)?;
        let fields: Fields = serde_json::from_slice(&text).map_err(|error| not_a_line(&error))?;
        let record = Record {
            run: fields.run,
            task: TaskId(fields.task),
            epoch: Epoch(fields.epoch),
            count: fields.count,
            worker: fields.worker,
            principal: Principal::from_stored(&fields.principal),
            version: fields.version.into_owned(),
            kernel: fields.kernel,
            orientation: fields.orientation,
            duration_us: fields.duration_us,
            accepted_unix_ms: fields.accepted_unix_ms,
            elapsed_ms: fields.elapsed_ms,
        };
        let [start, end] = fields.units;
        Ok(Self {
            sequence: fields.seq,
            plan: fields.plan,
            units: start..end,
            fence: fields.fence,
            entry: fields.kind.of(record),
            prev: fields.prev,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(version: &str) -> JournalLine {
        let record = Record {
            run: RunId(0xab),
            task: TaskId(7),
            epoch: Epoch(2),
            count: u64::MAX,
            worker: WorkerId(0xcd),
            principal: Principal::from_stored("ab"),
            version: version.to_owned(),
            kernel: KernelName::Avx512,
            orientation: Orientation::Rotated,
            duration_us: 1_000_000,
            accepted_unix_ms: 1_700_000_000_000,
            elapsed_ms: 4500,
        };
        JournalLine {
            sequence: 1,
            plan: "0123456789abcdef".repeat(4).parse().unwrap(),
            units: 14..16,
            fence: 3,
            entry: EntryKind::Disputed.of(record),
            prev: ChainHash::after(b"manifest"),
        }
    }

    #[test]
    fn the_text_is_frozen() {
        let expected = concat!(
            r#"{"seq":1,"kind":"disputed","run":"00000000000000ab","#,
            r#""plan":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","#,
            r#""task":7,"units":[14,16],"epoch":2,"fence":3,"count":"18446744073709551615","#,
            r#""worker":"000000000000000000000000000000cd","principal":"ab","kernel":"avx512","#,
            r#""orientation":"rotated","version":"0.1.0","duration_us":1000000,"#,
            r#""accepted_unix_ms":1700000000000,"elapsed_ms":4500,"#,
            r#""prev":"05b3abf2579a5eb66403cd78be557fd8","crc":"e8c17db0"}"#,
        );
        assert_eq!(line("0.1.0").encode(), expected);
    }

    #[test]
    fn lines_round_trip_with_any_version() {
        let longest = "\u{1}".repeat(common::messages::limits::VERSION_BYTES);
        for version in ["", "0.1.0", "a \"quoted\" \\ one", "line\nend, tab\t, ü, 王后", &longest]
        {
            let line = line(version);
            let text = line.encode();
            assert!(text.len() <= MAX_LINE_BYTES && !text.contains('\n'), "{text}");
            assert_eq!(JournalLine::decode(text.as_bytes()), Ok(line));
        }
    }

    #[test]
    fn other_texts_are_refused() {
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
            resealed(body.replace("rotated", "sideways")),
            resealed(body.replace("18446744073709551615", "18446744073709551616")),
            resealed(body.replace(r#""task":7"#, r#""task":-7"#)),
            resealed(body.replace("disputed", "wished")),
            resealed(format!(r#"{body},"more":"fields"#)),
        ];
        for bad in bad {
            assert!(JournalLine::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let error = JournalLine::decode(text.replace("1000000", "1000001").as_bytes()).unwrap_err();
        assert!(error.0.contains("bytes have changed"), "{error}");
    }
}
