//! The log of trust in workers: a hash chain of sealed JSON objects, one per line.
//! It belongs to the data directory, since a faulty machine is faulty in every run. `trust.seal` next to it
//! states the number of lines and the hash of the last: otherwise the loss of the last lines would readmit
//! barred workers unnoticed.

use std::{fmt::Display, fs::OpenOptions, io::Write as _, path::Path};

use common::messages::{run::WorkerId, sealed::as_text};
use scheduler::ledger::Principal;
use serde::{Deserialize, Serialize};

use crate::{
    StoreError, Trust, TrustRecord, descriptors,
    directory::files,
    journal::text::{self, ChainHash, Damage, FORMAT},
};

/// The fields of a line, in their order, without the check hash at its end.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: u32,
    seq: u64,
    trust: String,
    #[serde(with = "as_text")]
    worker: WorkerId,
    principal: String,
    name: String,
    reason: String,
    since_unix_ms: u64,
    /// Set for [`Trust::SelfTestFailed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_unix_ms: Option<u64>,
    /// Set for [`Trust::SelfTestPassed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passed: Option<u64>,
    #[serde(with = "as_text")]
    prev: ChainHash,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealFields {
    format: u32,
    lines: u64,
    #[serde(with = "as_text")]
    head: ChainHash,
}

/// The records so far, and the link that the next line names.
#[derive(Clone, Debug)]
pub(crate) struct TrustChain {
    pub(crate) records: Vec<TrustRecord>,
    head: ChainHash,
}

impl TrustChain {
    pub(crate) fn new() -> Self {
        Self { records: Vec::new(), head: ChainHash::after(b"") }
    }

    /// Reads and checks a file; if `repair`, cuts an unfinished last line.
    pub(crate) fn read(path: &Path, repair: bool) -> Result<Self, StoreError> {
        let damaged = |line, what: &dyn Display| {
            let remedy = "restore it and trust.seal from a copy, or remove both: then every worker is trusted";
            StoreError::repairable(path, line, what, remedy)
        };
        // Reads the seal before the lines: a coordinator may append some meanwhile.
        let sealed = read_seal(path)?;
        let bytes = files::read_bytes(path)?.unwrap_or_default();
        let mut chain = Self::new();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let text = str::from_utf8(&bytes[..whole]).map_err(|error| damaged(None, &error))?;
        for (number, line) in (1..).zip(text.lines()) {
            chain.take(line).map_err(|what| damaged(Some(number), &what))?;
            if sealed.as_ref().is_some_and(|seal| seal.lines == number && seal.head != chain.head) {
                return Err(damaged(
                    Some(number),
                    &"its hash is not the one that trust.seal names",
                ));
            }
        }
        let (lines, sealed) = (chain.records.len(), sealed.map_or(0, |seal| seal.lines));
        if sealed > lines as u64 {
            let what = format!("it has {lines} whole lines, but trust.seal states {sealed}");
            return Err(damaged(None, &what));
        }
        if repair && whole < bytes.len() {
            tracing::warn!(path = %path.display(), "truncated the torn last line");
            descriptors::open(|| OpenOptions::new().write(true).open(path))
                .and_then(|file| file.set_len(whole as u64).and_then(|()| file.sync_all()))
                .map_err(files::failed("cut", path))?;
        }
        Ok(chain)
    }

    /// Returns the chain with `records` appended, and their lines without line ends.
    pub(crate) fn with(&self, records: &[TrustRecord]) -> (Self, Vec<String>) {
        let mut longer = self.clone();
        let mut lines = Vec::new();
        for record in records {
            let line = encode(longer.records.len() as u64 + 1, record, longer.head);
            longer.head = ChainHash::after(line.as_bytes());
            longer.records.push(record.clone());
            lines.push(line);
        }
        (longer, lines)
    }

    /// Appends the next line to the chain, if it follows.
    pub(crate) fn take(&mut self, line: &str) -> Result<(), Damage> {
        let (seq, prev, record) = decode(line)?;
        let expected = self.records.len() as u64 + 1;
        if seq != expected {
            return Err(Damage(format!("its sequence number is {seq}, not {expected}")));
        }
        if prev != self.head {
            let what = format!("it names {prev} as the previous hash, which is {}", self.head);
            return Err(Damage(what));
        }
        self.head = ChainHash::after(line.as_bytes());
        self.records.push(record);
        Ok(())
    }

    /// Appends lines to a file, durably; the file then holds this chain.
    pub(crate) fn append(&self, path: &Path, lines: &[String]) -> Result<(), StoreError> {
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let new = !path.exists();
        descriptors::open(|| OpenOptions::new().create(true).append(true).open(path))
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_data()
            })
            .map_err(files::failed("write", path))?;
        if new {
            files::sync_parent(path)?;
        }
        let lines = self.records.len() as u64;
        let seal = text::seal(&SealFields { format: FORMAT, lines, head: self.head });
        // The lines are valid without the seal, so a failure to write it is only logged.
        if let Err(error) = files::write_durably(&path.with_extension("seal"), &seal) {
            tracing::warn!("{error}");
        }
        Ok(())
    }
}

/// Reads the seal next to a file; ignores an invalid one, since lines are chained.
fn read_seal(path: &Path) -> Result<Option<SealFields>, StoreError> {
    let path = path.with_extension("seal");
    let Some(text) = files::read_bytes(&path)? else { return Ok(None) };
    match text::unseal(String::from_utf8_lossy(&text).trim_end()) {
        Ok(seal) => Ok(Some(seal)),
        Err(what) => {
            tracing::warn!(path = %path.display(), "ignoring an invalid seal file: {what}");
            Ok(None)
        }
    }
}

pub(crate) fn encode(seq: u64, record: &TrustRecord, prev: ChainHash) -> String {
    let (from_unix_ms, passed) = match record.trust {
        Trust::Barred | Trust::Trusted => (None, None),
        Trust::SelfTestFailed { from_unix_ms } => (Some(from_unix_ms), None),
        Trust::SelfTestPassed { passed } => (None, Some(passed)),
    };
    text::seal(&Fields {
        format: FORMAT,
        seq,
        trust: record.trust.stored().to_owned(),
        worker: record.worker,
        principal: record.principal.to_string(),
        name: record.name.clone(),
        reason: record.reason.clone(),
        since_unix_ms: record.since_unix_ms,
        from_unix_ms,
        passed,
        prev,
    })
}

pub(crate) fn decode(line: &str) -> Result<(u64, ChainHash, TrustRecord), Damage> {
    let fields: Fields = text::unseal(line)?;
    let all = [
        Some(Trust::Barred),
        Some(Trust::Trusted),
        fields.from_unix_ms.map(|from_unix_ms| Trust::SelfTestFailed { from_unix_ms }),
        fields.passed.map(|passed| Trust::SelfTestPassed { passed }),
    ];
    let trust = all.into_iter().flatten().find(|trust| trust.stored() == fields.trust);
    let record = TrustRecord {
        worker: fields.worker,
        principal: Principal::from_stored(&fields.principal),
        name: fields.name,
        trust: trust.ok_or_else(|| Damage(format!("invalid trust '{}'", fields.trust)))?,
        reason: fields.reason,
        since_unix_ms: fields.since_unix_ms,
    };
    Ok((fields.seq, fields.prev, record))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record(trust: Trust) -> TrustRecord {
        TrustRecord {
            worker: WorkerId(0xcd),
            principal: Principal::from_stored("lab"),
            name: "a \"name\",\nof 王后".to_owned(),
            trust,
            reason: "task 7 of run 1".to_owned(),
            since_unix_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn records_are_durable_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.jsonl");
        let all = [
            record(Trust::Trusted),
            record(Trust::Barred),
            record(Trust::SelfTestPassed { passed: 16 }),
            record(Trust::Trusted),
            record(Trust::SelfTestFailed { from_unix_ms: 5 }),
        ];
        let open = || TrustChain::read(&path, true);
        let append = |records: &[TrustRecord]| {
            let (chain, lines) = open().unwrap().with(records);
            chain.append(&path, &lines).unwrap();
        };
        append(&all[..2]);
        append(&all[2..]);
        assert_eq!(open().unwrap().records, all);
        let text = fs::read_to_string(&path).unwrap();
        // A lost last line is found by the seal; a torn one is cut, and the next one follows.
        let last = text[..text.len() - 1].rfind('\n').unwrap() + 1;
        let seal = path.with_extension("seal");
        let whole = fs::read_to_string(&seal).unwrap();
        for cut in [0, last, last + 30] {
            fs::write(&path, &text[..cut]).unwrap();
            let error = open().unwrap_err().to_string();
            assert!(error.contains("trust.seal states 5"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(open().is_err());
        fs::remove_file(&seal).unwrap();
        append(&all[..4]);
        fs::write(&path, &text[..last + 30]).unwrap();
        assert_eq!(open().unwrap().records, all[..4]);
        append(&all[4..]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_to_string(&seal).unwrap(), whole);
        fs::write(&seal, "nonsense").unwrap();
        assert_eq!(open().unwrap().records, all);
        // A missing line or a changed byte is damage.
        for bad in [text[last..].to_owned(), text.replacen("lab", "bad", 1)] {
            fs::write(&path, bad).unwrap();
            let error = open().unwrap_err();
            assert!(matches!(error, StoreError::Damaged { line: Some(1), .. }), "{error}");
        }
    }

    #[test]
    fn the_text_is_frozen() {
        let mut plain = record(Trust::Barred);
        "lab-7".clone_into(&mut plain.name);
        let text = encode(2, &plain, ChainHash::after(b""));
        let body = concat!(
            r#"{"format":1,"seq":2,"trust":"barred","worker":"000000000000000000000000000000cd","#,
            r#""principal":"lab","name":"lab-7","reason":"task 7 of run 1","#,
            r#""since_unix_ms":1700000000000,"prev":"e3b0c44298fc1c149afbf4c8996fb924","#,
            r#""check":""#,
        );
        assert!(text.starts_with(body), "{text}");
        // Optional fields come before `prev`.
        for (trust, part) in [
            (Trust::SelfTestPassed { passed: 16 }, r#","passed":16,"prev""#),
            (Trust::SelfTestFailed { from_unix_ms: 5 }, r#","from_unix_ms":5,"prev""#),
        ] {
            let text = encode(2, &record(trust), ChainHash::after(b""));
            assert!(text.contains(part), "{text}");
        }
    }
}
