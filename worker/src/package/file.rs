//! The files of packages: the tasks to count, and their results.
//!
//! One sealed JSON object per line (`common::messages::sealed`). A package is a header and one line per task. Results
//! are the same header, the lines of the spool for finished tasks, and the numbers of self-tests:
//!
//! ```text
//! {"package":{"version":1,"id":"…","coordinator":"…","run":"…","plan":"…","n":19,"layout":"frames",
//!             "task_cost":…,"return_unix_ms":…},"crc":"…"}
//! {"task":{"task":7,"epoch":3,"granted_unix_ms":…,"proof":"…","orientation":"upright"},"crc":"…"}
//! {"finished":{"run":"…","plan":"…","task":7,…},"crc":"…"}
//! {"self_test":{"passed":4,"failed":0},"crc":"…"}
//! ```
//! Lines are not wrapped as shown here. A test freezes the bytes.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use common::{
    board::Board,
    count::Orientation,
    messages::{
        run::{Epoch, LeaseKey, Partial, Proof, RunId, TaskRef, WorkerId},
        sealed::as_text,
        sync::Grant,
    },
    method::Layout,
    plan::{PlanHash, PlanSpec, TaskId},
};
use serde::{Deserialize, Serialize};

use super::{PackageError, beside};
use crate::spool::line::{SealedLine, SpoolLine, round_trip};

const VERSION: u32 = 1;

/// The first line of a package and of its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The identity under which the coordinator granted the tasks.
    #[serde(with = "as_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) id: WorkerId,
    /// SHA-256 of the coordinator's CA; empty without a join string.
    pub(super) coordinator: String,
    #[serde(with = "as_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) run: RunId,
    #[serde(with = "as_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) plan: PlanHash,
    pub(super) n: u8,
    #[serde(with = "as_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) layout: Layout,
    pub(super) task_cost: u64,
    /// The promised return.
    pub(super) return_unix_ms: u64,
}

impl Header {
    /// Returns the header of a package with these tasks; `None` without tasks.
    pub(super) fn of(id: WorkerId, coordinator: String, grants: &[Grant]) -> Option<Self> {
        let Grant { lease, spec, .. } = grants.first()?;
        Some(Self {
            version: VERSION,
            id,
            coordinator,
            run: lease.task.run,
            plan: lease.task.plan,
            n: spec.board.n(),
            layout: spec.layout,
            task_cost: spec.task_cost,
            return_unix_ms: lease.return_unix_ms,
        })
    }

    pub(super) fn spec(&self) -> Option<PlanSpec> {
        let board = Board::new(self.n).ok()?;
        Some(PlanSpec { board, layout: self.layout, task_cost: self.task_cost })
    }

    /// Returns whether a result is one of a task of this package.
    fn includes(&self, partial: &Partial) -> bool {
        let LeaseKey { task: TaskRef { run, plan, .. }, return_unix_ms, .. } = partial.lease;
        (run, plan, return_unix_ms) == (self.run, self.plan, self.return_unix_ms)
    }
}

/// A line of a package or of its results, except for finished tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    Package(Header),
    /// A task to count; the header has the rest of its lease.
    Task {
        task: u64,
        epoch: u64,
        granted_unix_ms: u64,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        proof: Proof,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        orientation: Orientation,
    },
    /// Self-tests since the previous line of this kind.
    SelfTest(SelfTests),
}

/// Numbers of self-tests that passed, and of threads that failed theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct SelfTests {
    pub(super) passed: u64,
    pub(super) failed: u32,
}

impl Line {
    fn task(grant: &Grant) -> Self {
        let LeaseKey { task, epoch: Epoch(epoch), granted_unix_ms, proof, .. } = grant.lease;
        let (task, orientation) = (task.task.0, grant.orientation);
        Self::Task { task, epoch, granted_unix_ms, proof, orientation }
    }
}

impl SealedLine for Line {}

/// Checks that bytes are either rejected as a line or survive a round trip.
pub(crate) fn round_trip_of_line(text: &[u8]) {
    round_trip::<Line>(text);
}

/// Returns the bytes of a package.
pub(super) fn package(header: &Header, grants: &[Grant]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Line::Package(header.clone()).write(&mut bytes);
    grants.iter().for_each(|grant| Line::task(grant).write(&mut bytes));
    bytes
}

/// The valid lines of a file.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) grants: Vec<Grant>,
    pub(super) partials: Vec<Partial>,
    pub(super) self_tests: SelfTests,
    /// Numbers of the damaged lines.
    pub(super) damaged: Vec<usize>,
    /// Whether the last line was torn.
    pub(super) is_torn: bool,
    /// Number of bytes up to the end of the last whole line.
    whole_bytes: u64,
}

impl Contents {
    /// Reads a file. A torn last line is dropped.
    pub(super) fn read(path: &Path) -> Result<Self, PackageError> {
        let bytes = fs::read(path).map_err(|error| PackageError::at(path, error))?;
        Self::parse(&bytes).map_err(|problem| PackageError::at(path, problem))
    }

    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let (mut headers, mut grants) = (Vec::new(), Vec::new());
        let (mut partials, mut damaged) = (Vec::new(), Vec::new());
        let mut self_tests = SelfTests::default();
        let mut whole_bytes = 0;
        for (line, number) in bytes.split_inclusive(|byte| *byte == b'\n').zip(1..) {
            let is_whole = line.ends_with(b"\n");
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            match (Line::read(line), SpoolLine::read(line).map(SpoolLine::content)) {
                _ if !is_whole => break,
                (Some(Line::Package(header)), _) => headers.push(header),
                (Some(task @ Line::Task { .. }), _) => grants.push(task),
                (Some(Line::SelfTest(SelfTests { passed, failed })), _) => {
                    self_tests.passed = self_tests.passed.saturating_add(passed);
                    self_tests.failed = self_tests.failed.saturating_add(failed);
                }
                (None, Some((_, Some(partial)))) => partials.push((partial, number)),
                (None, _) => damaged.push(number),
            }
            whole_bytes += line.len() as u64 + 1;
        }
        headers.dedup();
        let header = match &headers[..] {
            [header] if header.version == VERSION => header.clone(),
            [_] => return Err("another version of the format: install the release that made it"),
            [] => return Err("not a package or its results: it has no valid header"),
            _ => return Err("files of several packages in one: keep them apart"),
        };
        let Some(spec) = header.spec() else { return Err("invalid header") };
        damaged.extend(partials.extract_if(.., |(of, _)| !header.includes(of)).map(|(_, at)| at));
        damaged.sort_unstable();
        let grants = grants.into_iter().filter_map(|line| granted(&header, spec, line)).collect();
        let partials = partials.into_iter().map(|(partial, _)| partial).collect();
        let is_torn = whole_bytes < bytes.len() as u64;
        Ok(Self { header, grants, partials, self_tests, damaged, is_torn, whole_bytes })
    }
}

fn granted(header: &Header, spec: PlanSpec, line: Line) -> Option<Grant> {
    let Line::Task { task, epoch, granted_unix_ms, proof, orientation } = line else { return None };
    let task = TaskRef { run: header.run, plan: header.plan, task: TaskId(task) };
    let return_unix_ms = header.return_unix_ms;
    let lease = LeaseKey { task, epoch: Epoch(epoch), granted_unix_ms, return_unix_ms, proof };
    Some(Grant { lease, spec, orientation })
}

/// The tasks and results of a package whose lines are not in a file.
#[derive(Debug, Default)]
pub struct Lines {
    pub grants: Vec<Grant>,
    pub partials: Vec<Partial>,
}

impl Lines {
    /// Reads the lines of a package and of its results.
    ///
    /// # Errors
    /// The problem, if any line is not valid.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let Contents { grants, partials, damaged, .. } = Contents::parse(text)?;
        match damaged.first() {
            Some(line) => Err(format!("line {line} is not valid")),
            None => Ok(Self { grants, partials }),
        }
    }

    /// Returns the lines of a package for this identity; empty without tasks.
    pub fn write(id: WorkerId, grants: &[Grant]) -> String {
        let header = Header::of(id, String::new(), grants);
        let bytes = header.map_or_else(Vec::new, |header| package(&header, grants));
        String::from_utf8(bytes).expect("JSON")
    }
}

/// A file of results that grows line by line; no other process appends to it.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) path: PathBuf,
    /// Length of the whole lines: a failed write may leave a part of one.
    bytes: u64,
    _lock: File,
}

impl Results {
    /// Creates the file of a package, or opens it to continue; returns also the leases of the tasks in it.
    pub(super) fn open(
        path: &Path,
        header: &Header,
    ) -> Result<(Self, BTreeSet<LeaseKey>), PackageError> {
        let at = |error: io::Error| PackageError::at(path, error);
        let lock = lock(path).map_err(at)?.ok_or_else(|| {
            PackageError::at(path, "another process adds results to it: give each its own with -o")
        })?;
        let mut results = Self { path: path.to_owned(), bytes: 0, _lock: lock };
        if fs::metadata(path).map_or(0, |known| known.len()) == 0 {
            let mut line = Vec::new();
            Line::Package(header.clone()).write(&mut line);
            results.append(&line).map_err(at)?;
            return Ok((results, BTreeSet::new()));
        }
        let known = Contents::read(path)?;
        if known.header != *header {
            return Err(PackageError::at(
                path,
                "results of another package: give another file with -o",
            ));
        }
        results.bytes = known.whole_bytes;
        Ok((results, known.partials.iter().map(|partial| partial.lease).collect()))
    }

    /// Appends lines durably, and closes the file.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut file =
            OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        file.set_len(self.bytes)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(lines)?;
        file.sync_data()?;
        self.bytes += lines.len() as u64;
        Ok(())
    }
}

/// Locks the results in a file as long as the returned file is open; `None` if another process has locked them.
///
/// The lock is a file of its own: on Windows, a lock of the results would keep this process, too, from appending.
fn lock(results: &Path) -> io::Result<Option<File>> {
    let file = File::create(beside(results, ".lock"))?;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        // Some network file systems have no locks.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Some(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{grant, plan, sample_partial};

    fn sample() -> (Header, Vec<Grant>) {
        let away = |task| {
            let grant = grant(&plan(10), task);
            Grant { lease: LeaseKey { return_unix_ms: 1_800_000_000_000, ..grant.lease }, ..grant }
        };
        let grants: Vec<_> = (0..3).map(away).collect();
        (Header::of(WorkerId(0xabc), "ca".to_owned(), &grants).unwrap(), grants)
    }

    fn finished(task: u64) -> (Partial, Vec<u8>) {
        let (_, grants) = sample();
        let lease = grants[usize::try_from(task).unwrap()].lease;
        let partial = Partial { lease, ..sample_partial(task, 1) };
        let mut line = Vec::new();
        SpoolLine::finished(&partial).write(&mut line);
        (partial, line)
    }

    #[test]
    fn the_bytes_are_frozen() {
        let (header, grants) = sample();
        let text = String::from_utf8(package(&header, &grants[..1])).unwrap();
        let plan = header.plan;
        let line =
            |body: &str| format!("{body},\"crc\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes()));
        let expected = line(&format!(
            "{{\"package\":{{\"version\":1,\"id\":\"00000000000000000000000000000abc\",\"coordinator\":\"ca\",\
             \"run\":\"00000000000000a1\",\"plan\":\"{plan}\",\"n\":10,\"layout\":\"first-rows\",\
             \"task_cost\":{},\"return_unix_ms\":1800000000000}}",
            header.task_cost
        )) + &line(
            "{\"task\":{\"task\":0,\"epoch\":1,\"granted_unix_ms\":1700000000000,\
             \"proof\":\"000000000000000000000000000000ef\",\"orientation\":\"upright\"}",
        );
        assert_eq!(text, expected);
        let mut test = Vec::new();
        Line::SelfTest(SelfTests { passed: 4, failed: 0 }).write(&mut test);
        assert_eq!(
            String::from_utf8(test).unwrap(),
            line("{\"self_test\":{\"passed\":4,\"failed\":0}")
        );
        assert_eq!(Contents::parse(text.as_bytes()).unwrap().grants, grants[..1]);
    }

    /// `QUEENS_SCHEMA=write` updates the schema.
    #[test]
    fn the_schema_in_the_documentation_is_current() {
        #[derive(schemars::JsonSchema)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "only its schema is used")]
        enum AnyLine {
            Package(Line),
            Spool(SpoolLine),
        }
        let mut schema = schemars::schema_for!(AnyLine);
        schema.insert("title".to_owned(), "A line of a package, or of its results".into());
        for kind in ["Line", "SpoolLine"] {
            let kinds = schema.pointer_mut(&format!("/$defs/{kind}/oneOf")).unwrap();
            let kinds = kinds.as_array_mut().unwrap();
            // Only spools have this one.
            kinds.retain(|kind| kind.pointer("/properties/acknowledged").is_none());
            for kind in kinds {
                let crc = serde_json::json!({ "type": "string", "pattern": "^[0-9a-f]{8}$" });
                kind["properties"]["crc"] = crc;
                kind["required"].as_array_mut().unwrap().push("crc".into());
            }
        }
        let mut generated = serde_json::to_string_pretty(&schema).unwrap();
        generated.push('\n');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/package.schema.json");
        if std::env::var_os("QUEENS_SCHEMA").is_some_and(|word| word == "write") {
            fs::write(&path, &generated).unwrap();
        }
        assert_eq!(fs::read_to_string(path).unwrap_or_default(), generated);
    }

    #[test]
    fn joined_files_are_valid_and_damaged_lines_are_named() {
        let (header, _) = sample();
        let start = package(&header, &[]);
        let (one, two) = (finished(0), finished(1));
        let mut bad = two.1.clone();
        bad[40] ^= 1;
        // A result of another run, with a valid checksum.
        let mut other = Vec::new();
        SpoolLine::finished(&sample_partial(2, 1)).write(&mut other);
        let torn = &finished(2).1[..20];
        let joined = [&start[..], &one.1, &start, &bad, &other, &two.1, torn].concat();
        let read = Contents::parse(&joined).unwrap();
        assert_eq!(read.partials, [one.0, two.0]);
        assert_eq!(read.damaged, [4, 5]);
        assert_eq!(read.whole_bytes, (joined.len() - torn.len()) as u64);
        assert!(read.is_torn && !Contents::parse(&start).unwrap().is_torn);
        let foreign = package(&Header { run: RunId(9), ..header }, &[]);
        assert!(Contents::parse(&[start, foreign].concat()).unwrap_err().contains("several"));
        assert!(Contents::parse(b"").unwrap_err().contains("no valid header"));
    }

    #[test]
    fn results_continue_after_the_last_whole_line_in_one_process() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lab.results");
        let (header, _) = sample();
        let (mut results, leases) = Results::open(&path, &header).unwrap();
        assert_eq!(leases, BTreeSet::new());
        assert!(!cfg!(unix) || Results::open(&path, &header).is_err(), "one process at a time");
        let (one, two) = (finished(0), finished(1));
        results.append(&one.1).unwrap();
        // A crash, or a full disk, leaves a part of a line.
        let torn = [fs::read(&path).unwrap(), two.1[..30].to_vec()].concat();
        fs::write(&path, &torn).unwrap();
        drop(results);
        let (mut results, leases) = Results::open(&path, &header).unwrap();
        assert_eq!(leases, [one.0.lease].into());
        results.append(&two.1).unwrap();
        let read = Contents::read(&path).unwrap();
        assert_eq!((read.partials, read.damaged), (vec![one.0, two.0], vec![]));
        drop(results);
        let other = Header { id: WorkerId(1), ..header };
        assert!(Results::open(&path, &other).unwrap_err().to_string().contains("another package"));
    }
}
