//! The file that says what is thought of workers: one sealed JSON object a line, each naming the
//! hash of the line before. It belongs to the data directory, since a faulty machine is faulty in
//! every run. Beside it, `trust.seal` says how many lines there are and the hash of the last: lines
//! that went missing at the end would forgive.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    StoreError, Trust, TrustRecord, files,
    line::Link,
    text::{self, BadField, BadText},
};
use crate::{descriptors, ledger::Principal};

/// The fields of a line, in their order, without the check hash at its end.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: u32,
    seq: u64,
    trust: String,
    worker: String,
    principal: String,
    name: String,
    faults: u64,
    reason: String,
    since_unix_ms: u64,
    /// Of what is unproven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_unix_ms: Option<u64>,
    /// Of what is proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proofs: Option<u64>,
    prev: String,
}

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealFields {
    format: u32,
    lines: u64,
    head: String,
}

/// What the seal beside the file says; nothing where there is none, or none that can be read: the
/// lines name one another all the same.
fn sealed(path: &Path) -> Result<Option<(u64, Link)>, StoreError> {
    let path = path.with_extension("seal");
    let text = match descriptors::open(|| fs::read(&path)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(files::failed("read", &path)(error)),
    };
    let read = text::unseal(String::from_utf8_lossy(&text).trim_end());
    let read = read
        .and_then(|fields: SealFields| Ok((fields.lines, BadField::parse("head", &fields.head)?)));
    match read {
        Ok(seal) => Ok(Some(seal)),
        Err(what) => {
            tracing::warn!(path = %path.display(), "this seal seals nothing: {what}");
            Ok(None)
        }
    }
}

/// Everything that was thought of workers, in order, and where the next line goes.
#[derive(Debug)]
pub(super) struct TrustLog {
    path: PathBuf,
    chain: TrustChain,
}

/// Lines that name one another.
#[derive(Clone, Debug)]
pub(super) struct TrustChain {
    records: Vec<TrustRecord>,
    head: Link,
}

impl TrustLog {
    /// Reads the file whole; a last line that was not finished is cut.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let (log, whole, torn) = Self::read(path)?;
        if torn {
            tracing::warn!(path = %path.display(), "its last line was torn: cut");
            descriptors::open(|| OpenOptions::new().write(true).open(path))
                .and_then(|file| file.set_len(whole).and_then(|()| file.sync_all()))
                .map_err(files::failed("cut", path))?;
        }
        Ok(log)
    }

    /// What the file says, without changing it.
    pub(super) fn read_only(path: &Path) -> Result<Vec<TrustRecord>, StoreError> {
        Ok(Self::read(path)?.0.chain.records)
    }

    /// The lines that are whole, how many bytes they are, and whether more follows.
    fn read(path: &Path) -> Result<(Self, u64, bool), StoreError> {
        // First: what a coordinator appends meanwhile is more than this says, not less.
        let sealed = sealed(path)?;
        let text = match descriptors::open(|| fs::read_to_string(path)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(files::failed("read", path)(error)),
        };
        let mut log = Self {
            path: path.to_owned(),
            chain: TrustChain::new(),
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for (number, line) in (1..).zip(text[..whole].lines()) {
            log.chain
                .take(line, number)
                .map_err(|what| damaged(path, Some(number), what))?;
            if sealed.is_some_and(|(lines, head)| lines == number && head != log.chain.head) {
                let what = "its hash is not the one that trust.seal names".to_owned();
                return Err(damaged(path, Some(number), what));
            }
        }
        let (has, had) = (
            log.chain.records.len(),
            sealed.map_or(0, |(lines, _)| lines),
        );
        if had > has as u64 {
            let what = format!("it has {has} whole lines, and had {had} by trust.seal");
            return Err(damaged(path, None, what));
        }
        Ok((log, whole as u64, whole < text.len()))
    }

    pub(super) fn records(&self) -> &[TrustRecord] {
        self.chain.records()
    }

    /// Appends lines and makes them durable.
    pub(super) fn append(&mut self, records: &[TrustRecord]) -> Result<(), StoreError> {
        let (chain, lines) = self.chain.with(records);
        let text: String = lines
            .iter()
            .flat_map(|line| [line.as_str(), "\n"])
            .collect();
        let new = !self.path.exists();
        descriptors::open(|| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)
        })
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_data()
        })
        .map_err(files::failed("write", &self.path))?;
        if new {
            files::sync_parent(&self.path)?;
        }
        self.chain = chain;
        self.seal();
        Ok(())
    }

    /// Says how far the file goes. What is in it counts without that too, so a seal that cannot be
    /// written stays one behind.
    fn seal(&self) {
        let fields = SealFields {
            format: FORMAT,
            lines: self.chain.records.len() as u64,
            head: self.chain.head.to_string(),
        };
        let seal = self.path.with_extension("seal");
        if let Err(error) = files::write_durably(&seal, &text::seal(&fields)) {
            tracing::warn!("{error}");
        }
    }
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadTrust {
    /// In itself.
    #[error(transparent)]
    Text(#[from] BadText),
    /// Lines before it are gone, or come twice.
    #[error("its sequence number is {found}, not {expected}")]
    Sequence {
        /// What it says.
        found: u64,
        /// Its place.
        expected: u64,
    },
    /// It does not follow the line before it.
    #[error("it names {named} as the hash before it, which is {head}")]
    Chain {
        /// What it says.
        named: Link,
        /// Of the line before it.
        head: Link,
    },
}

impl TrustChain {
    /// Without lines.
    pub(super) fn new() -> Self {
        Self {
            records: Vec::new(),
            head: first(),
        }
    }

    pub(super) fn records(&self) -> &[TrustRecord] {
        &self.records
    }

    /// The chain with more records, and the lines that say so, without line ends.
    pub(super) fn with(&self, records: &[TrustRecord]) -> (Self, Vec<String>) {
        let mut longer = self.clone();
        let mut lines = Vec::new();
        for record in records {
            let line = encode(longer.records.len() as u64 + 1, record, longer.head);
            longer.head = Link::after(line.as_bytes());
            longer.records.push(record.clone());
            lines.push(line);
        }
        (longer, lines)
    }

    /// Takes the next line, which is the `number`-th; says what is wrong with it otherwise.
    pub(super) fn take(&mut self, line: &str, number: u64) -> Result<(), BadTrust> {
        let (seq, prev, record) = decode(line)?;
        if seq != number {
            return Err(BadTrust::Sequence {
                found: seq,
                expected: number,
            });
        }
        if prev != self.head {
            let head = self.head;
            return Err(BadTrust::Chain { named: prev, head });
        }
        self.head = Link::after(line.as_bytes());
        self.records.push(record);
        Ok(())
    }
}

fn damaged(path: &Path, line: Option<u64>, what: impl ToString) -> StoreError {
    let remedy =
        "restore it and trust.seal from a copy, or remove both: every worker is trusted then";
    StoreError::Damaged {
        path: path.to_owned(),
        line,
        what: what.to_string(),
        remedy: remedy.to_owned(),
    }
}

/// What the first line names as the hash before it.
fn first() -> Link {
    Link::after(b"")
}

pub(super) fn encode(seq: u64, record: &TrustRecord, prev: Link) -> String {
    let (from_unix_ms, proofs) = match record.trust {
        Trust::Doubted | Trust::Barred | Trust::Trusted => (None, None),
        Trust::Unproven { from_unix_ms } => (Some(from_unix_ms), None),
        Trust::Proven { proofs } => (None, Some(proofs)),
    };
    text::seal(&Fields {
        format: FORMAT,
        seq,
        trust: record.trust.name().to_owned(),
        worker: record.worker.to_string(),
        principal: record.principal.to_string(),
        name: record.name.clone(),
        faults: record.faults,
        reason: record.reason.clone(),
        since_unix_ms: record.since_unix_ms,
        from_unix_ms,
        proofs,
        prev: prev.to_string(),
    })
}

pub(super) fn decode(line: &str) -> Result<(u64, Link, TrustRecord), BadText> {
    let fields: Fields = text::unseal(line)?;
    let thought = [
        Some(Trust::Doubted),
        Some(Trust::Barred),
        Some(Trust::Trusted),
        fields
            .from_unix_ms
            .map(|from_unix_ms| Trust::Unproven { from_unix_ms }),
        fields.proofs.map(|proofs| Trust::Proven { proofs }),
    ];
    let trust = thought
        .into_iter()
        .flatten()
        .find(|trust| trust.name() == fields.trust)
        .ok_or_else(|| {
            let why = format!("'{}' is nothing that is thought of a worker", fields.trust);
            BadField::new("trust", why)
        })?;
    let record = TrustRecord {
        worker: BadField::parse("worker", &fields.worker)?,
        principal: Principal::kept(&fields.principal),
        name: fields.name,
        trust,
        faults: fields.faults,
        reason: fields.reason,
        since_unix_ms: fields.since_unix_ms,
    };
    Ok((fields.seq, BadField::parse("prev", &fields.prev)?, record))
}

#[cfg(test)]
mod tests {
    use common::run::WorkerId;

    use super::*;

    fn record(trust: Trust, faults: u64) -> TrustRecord {
        TrustRecord {
            worker: WorkerId(0xcd),
            principal: Principal::kept("lab"),
            name: "a \"name\",\nof 王后".to_owned(),
            trust,
            faults,
            reason: "task 7 of run 1".to_owned(),
            since_unix_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn what_is_thought_stays_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.jsonl");
        let all = [
            record(Trust::Doubted, 1),
            record(Trust::Barred, 3),
            record(Trust::Trusted, 3),
            record(Trust::Proven { proofs: 16 }, 3),
            record(Trust::Unproven { from_unix_ms: 5 }, 3),
        ];
        let mut log = TrustLog::open(&path).unwrap();
        log.append(&all[..2]).unwrap();
        let mut log = TrustLog::open(&path).unwrap();
        log.append(&all[2..]).unwrap();
        assert_eq!(TrustLog::open(&path).unwrap().records(), all);
        let text = fs::read_to_string(&path).unwrap();
        // A last line that the seal knows is missed; one that a crash tore is cut, and gone on from.
        let last = text[..text.len() - 1].rfind('\n').unwrap() + 1;
        let seal = path.with_extension("seal");
        let whole = fs::read_to_string(&seal).unwrap();
        for cut in [0, last, last + 30] {
            fs::write(&path, &text[..cut]).unwrap();
            let error = TrustLog::open(&path).unwrap_err().to_string();
            assert!(error.contains("had 5 by trust.seal"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(TrustLog::open(&path).is_err());
        fs::remove_file(&seal).unwrap();
        TrustLog::open(&path).unwrap().append(&all[..4]).unwrap();
        fs::write(&path, &text[..last + 30]).unwrap();
        let mut log = TrustLog::open(&path).unwrap();
        assert_eq!(log.records(), &all[..4]);
        log.append(&all[4..]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_to_string(&seal).unwrap(), whole);
        fs::write(&seal, "nonsense").unwrap();
        assert_eq!(TrustLog::open(&path).unwrap().records(), all);
        // A line less, or a changed byte, is damage.
        for bad in [text[last..].to_owned(), text.replacen("lab", "bad", 1)] {
            fs::write(&path, bad).unwrap();
            let error = TrustLog::open(&path).unwrap_err();
            assert!(
                matches!(error, StoreError::Damaged { line: Some(1), .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn the_text_is_frozen() {
        let mut plain = record(Trust::Barred, 3);
        "lab-7".clone_into(&mut plain.name);
        let text = encode(2, &plain, first());
        let body = concat!(
            r#"{"format":1,"seq":2,"trust":"barred","worker":"000000000000000000000000000000cd","#,
            r#""principal":"lab","name":"lab-7","faults":3,"reason":"task 7 of run 1","#,
            r#""since_unix_ms":1700000000000,"prev":"e3b0c44298fc1c149afbf4c8996fb924","#,
            r#""check":""#,
        );
        assert!(text.starts_with(body), "{text}");
        // What lines of before did not say comes before `prev`.
        for (trust, said) in [
            (Trust::Proven { proofs: 16 }, r#","proofs":16,"prev""#),
            (
                Trust::Unproven { from_unix_ms: 5 },
                r#","from_unix_ms":5,"prev""#,
            ),
        ] {
            let text = encode(2, &record(trust, 0), first());
            assert!(text.contains(said), "{text}");
        }
    }
}
