//! Verification of manifests, journals and trust records, without the index.
//! Only [`signing_key`] writes.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use common::{
    board::Board,
    messages::run::RunId,
    solutions::{
        published::published_counts,
        symmetric::{half_turn, quarter_turn},
        tally::Counts,
    },
    text::{Escaped, check_text, labeled, method_name, plural},
};
use scheduler::{
    checks::{self, Check, Evidence},
    ledger::{
        Confirmation, RecheckSampler,
        fold::{self, Fold},
    },
};

use crate::{
    JournalEntry, RunManifest, RunState, StoreError, SymmetricCounts, TrustRecord,
    directory::files::{self, DataFiles, Lock, Reading, SIGNING_KEY},
    journal::{Next, Source, trust::TrustChain},
    journal_store::recover::{self, FoundRun, Walk},
};

/// The maximum number of flaws listed per run.
const MAX_FLAWS: usize = 20;

/// The contents of a data directory that passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    pub dir: PathBuf,
    /// In order of creation.
    pub runs: Vec<RunReport>,
}

/// The contents of one run's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    pub manifest: RunManifest,
    /// The state in its state file.
    pub state: RunState,
    /// Tasks with an accepted count.
    pub tasks_done: u64,
    /// The sum of the accepted counts.
    pub solutions: u128,
    /// Whole lines of the journal.
    pub lines: u64,
    /// The time during which its tasks were being counted.
    pub elapsed_ms: u64,
    /// Bytes of an unfinished last line.
    pub torn_bytes: u64,
    /// Whether a coordinator had the store open, so it may have changed since.
    pub live: bool,
    /// The checks of the total, once every task is done.
    pub checks: Option<Checks>,
    /// The evidence of rechecks and recounts.
    pub evidence: Evidence,
    /// The check of the workers' self-tests.
    pub self_tests: Check,
}

impl RunReport {
    /// Returns all checks of the run's result.
    pub fn all_checks(&self) -> Vec<Check> {
        let mut all = checks::of_counts(&self.evidence);
        all.extend(checks::of_journal(self.lines, self.tasks_done));
        if let Some(passed) = &self.checks {
            let symmetric = passed.counts.map(Ok);
            let published = passed.published.then_some(true);
            let board = self.manifest.spec.board;
            all.extend(checks::of_total(board, symmetric.as_ref(), published));
        }
        all.push(self.self_tests.clone());
        all.push(checks::of_independence());
        all
    }
}

/// A data directory that cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Unreadable(#[from] StoreError),
    #[error("{0} is not a data directory of this program: it has no format.json")]
    NotOurs(PathBuf),
    #[error("{}", list(.0))]
    Flawed(Vec<Flaw>),
}

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    pub path: PathBuf,
    /// Counted from 1.
    pub line: Option<u64>,
    pub what: String,
}

/// Verifies every journal line in `dir`, and the totals of complete runs.
///
/// Writes nothing, and works while a coordinator writes the directory. It then verifies the lines written
/// so far, and a half-written last line is not a flaw.
pub fn verify(dir: &Path) -> Result<VerifyReport, VerifyError> {
    verify_watched(dir, &mut |_| {})
}

/// Verifies as [`verify`], and reports progress to `watch`.
pub fn verify_watched(
    dir: &Path,
    watch: &mut dyn FnMut(Examined),
) -> Result<VerifyReport, VerifyError> {
    let data_files = marked(dir)?;
    let (shared, _reading) = SharedData::of(&data_files)?;
    verify_all(dir.to_owned(), &recover::find_runs(&data_files)?, &shared, watch)
}

fn marked(dir: &Path) -> Result<DataFiles, VerifyError> {
    let data_files = DataFiles::new(dir);
    match Lock::marked(&data_files)? {
        true => Ok(data_files),
        false => Err(VerifyError::NotOurs(dir.to_owned())),
    }
}

/// The data that all runs share, and whether a coordinator is writing them.
pub(crate) struct SharedData {
    pub(crate) live: bool,
    pub(crate) sampler: Option<RecheckSampler>,
    pub(crate) trust: Vec<TrustRecord>,
}

impl SharedData {
    /// Reads a data directory, and locks it until the second value is dropped.
    fn of(data_files: &DataFiles) -> Result<(Self, Reading), StoreError> {
        let reading = Lock::shared(data_files)?;
        // Damaged, it keeps a coordinator from starting.
        data_files.last_term()?;
        let shared = Self {
            live: matches!(reading, Reading::WhileWritten),
            sampler: data_files.existing_secret()?.map(|secret| RecheckSampler::new(secret.0)),
            trust: TrustChain::read(&data_files.trust(), false)?.records,
        };
        Ok((shared, reading))
    }
}

pub(crate) fn verify_all<S: Source>(
    dir: PathBuf,
    found: &[FoundRun<S>],
    shared: &SharedData,
    watch: &mut dyn FnMut(Examined),
) -> Result<VerifyReport, VerifyError> {
    let lengths = found.iter().map(|found| found.files.length());
    let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
    let mut meter = Meter::new(lengths.iter().sum(), watch);
    let mut runs = Vec::new();
    let mut flaws = Vec::new();
    for (found, length) in found.iter().zip(lengths) {
        match audit(found, shared, &mut |_| {}, &mut meter) {
            Ok((report, _)) => runs.push(report),
            Err(VerifyError::Flawed(of_run)) => flaws.extend(of_run),
            Err(other) => return Err(other),
        }
        meter.journal(length);
    }
    match flaws.is_empty() {
        true => Ok(VerifyReport { dir, runs }),
        false => Err(VerifyError::Flawed(flaws)),
    }
}

/// Returns the manifest of every run of a data directory.
pub fn runs_in(dir: &Path) -> Result<Vec<RunManifest>, VerifyError> {
    let found = recover::find_runs(&marked(dir)?)?;
    Ok(found.into_iter().map(|run| run.manifest).collect())
}

/// Verifies one run; also returns the fold of its journal.
/// Passes every line to `visit` before it is known whether all lines are valid.
pub fn verify_run(
    dir: &Path,
    run: RunId,
    visit: &mut dyn FnMut(&JournalEntry),
) -> Result<(RunReport, Fold), VerifyError> {
    let data_files = marked(dir)?;
    let (shared, _reading) = SharedData::of(&data_files)?;
    let found = recover::find_run(&data_files, run)?.ok_or(StoreError::NoSuchRun(run))?;
    audit(&found, &shared, visit, &mut Meter::new(0, &mut |_| {}))
}

/// Returns the key that signs a directory's certificates; creates a missing key.
pub fn signing_key(dir: &Path) -> Result<[u8; 32], StoreError> {
    // Another user may have planted the key.
    files::claim_folder(dir)?;
    DataFiles::new(dir).load_or_create_secret(SIGNING_KEY).map(|key| key.0)
}

/// Reads one run and reports it, unless it has flaws.
fn audit<S: Source>(
    found: &FoundRun<S>,
    shared: &SharedData,
    visit: &mut dyn FnMut(&JournalEntry),
    meter: &mut Meter<'_>,
) -> Result<(RunReport, Fold), VerifyError> {
    let plan = fold::plan_of(&found.manifest).map_err(StoreError::from)?;
    let path = found.files.name();
    let mut flaws = Vec::new();
    let mut flaw = |line, what: String| {
        if flaws.len() < MAX_FLAWS {
            flaws.push(Flaw { path: path.clone(), line, what });
        }
    };
    let mut walk = Walk::new(found, &plan);
    let mut reader = found.files.open(&walk.end)?;
    // Whether the line before was bad: the place of the next line cannot be checked.
    let mut lost = false;
    let mut sound = true;
    let mut torn_bytes = 0;
    for number in 1.. {
        let start = reader.offset();
        match reader.next().map_err(files::failed("read", &path))? {
            Next::End => break,
            Next::Torn => torn_bytes = reader.offset() - start,
            Next::Bad(bad) => {
                flaw(Some(number), bad.0);
                (lost, sound) = (true, false);
            }
            Next::Line(line, text) => {
                if std::mem::take(&mut lost) {
                    walk.skip_to(&line);
                }
                for what in walk.take(&line, text, start + text.len() as u64 + 1) {
                    flaw(Some(number), what.0);
                    sound = false;
                }
                visit(&line.entry);
            }
        }
        meter.line(found.files.position(reader.offset(), number));
    }
    if sound {
        for checked in [walk.check_all_seals(), walk.check_saved()] {
            if let Err(what) = checked {
                flaw(None, what.0);
                sound = false;
            }
        }
    }
    let Walk { end, fold, .. } = walk;
    let (tasks, tasks_done) = (plan.tasks(), fold.tasks_done());
    let solutions = fold.total().unwrap_or_else(|error| {
        flaw(None, error.to_string());
        sound = false;
        0
    });
    let state = found.saved.map_or(RunState::Running, |saved| saved.state);
    let complete = tasks_done == tasks;
    let evidence =
        Evidence::of(&fold, |task| Some(shared.sampler.as_ref()?.rank(found.manifest.run, task)));
    // Lines after the state was saved may have reopened the run, and a dispute leaves it complete until the
    // referee has counted.
    let is_last = found.saved.is_some_and(|saved| saved.lines == end.lines);
    let is_counted = tasks_done + evidence.disputed_number == tasks;
    if state == RunState::Complete && is_last && !is_counted && sound {
        let what = format!("its state is complete with {tasks_done} of {tasks} tasks done");
        flaw(None, what);
    }
    let board = found.manifest.spec.board;
    let checks = (complete && sound).then(|| Checks::of(board, solutions, found.symmetric));
    let checks = checks.transpose().unwrap_or_else(|what| {
        flaw(None, what);
        None
    });
    if !flaws.is_empty() {
        return Err(VerifyError::Flawed(flaws));
    }
    let report = RunReport {
        manifest: found.manifest.clone(),
        state,
        tasks_done,
        solutions,
        lines: end.lines,
        elapsed_ms: fold.elapsed.ms(),
        torn_bytes,
        live: shared.live,
        checks,
        self_tests: checks::of_self_tests(&fold, &shared.trust),
        evidence,
    };
    Ok((report, fold))
}

/// The largest board whose symmetric solutions are enumerated (about a second).
/// Above it the published numbers are used, or else those that the coordinator counted.
const ENUMERATED_N: u8 = 20;

/// The checks that a complete run's total passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The total and the symmetric solutions, consistent by Burnside's lemma.
    /// `None` if the number of symmetric solutions is neither stored, published nor quickly enumerated.
    pub counts: Option<Counts>,
    /// Whether the symmetric solutions were enumerated.
    pub enumerated: bool,
    /// Whether the total is the published one; false if none is published.
    pub published: bool,
}

impl Checks {
    /// Checks the total of a complete run; fails with the contradiction.
    fn of(board: Board, solutions: u128, stored: Option<SymmetricCounts>) -> Result<Self, String> {
        let known = published_counts(board);
        let enumerated = board.n() <= ENUMERATED_N;
        let symmetric = if enumerated {
            let half = half_turn(board, &|| ControlFlow::Continue(()));
            let half = half.map_err(|error| error.to_string())?;
            Some((half, quarter_turn(board)))
        } else {
            let stored = || stored.map(|stored| (stored.half_turn, stored.quarter_turn));
            known.map(|known| (known.half_turn(), known.quarter_turn())).or_else(stored)
        };
        let counts =
            symmetric.map(|(half, quarter)| Counts::new(solutions, half, quarter)).transpose();
        let counts = counts.map_err(|error| error.to_string())?;
        if let Some(known) = known.filter(|known| known.all() != solutions) {
            let published = known.all();
            return Err(format!(
                "the total {solutions} is not the published {published} for N = {board}"
            ));
        }
        Ok(Self { counts, enumerated, published: known.is_some() })
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>, solutions: u128) -> fmt::Result {
        write!(f, "  solutions  {solutions}")?;
        if let Some(counts) = &self.counts {
            let source = match (self.enumerated, self.published) {
                (true, _) => "enumerated",
                (false, true) => "as published",
                (false, false) => "as stored",
            };
            write!(
                f,
                " ({} fundamental)\n  checks     {} half-turn and {} quarter-turn solutions, {source},\n             \
                 agree by Burnside's lemma",
                counts.fundamental(),
                counts.half_turn(),
                counts.quarter_turn()
            )?;
        }
        let published = if self.published {
            "the total is the published one"
        } else {
            "no total is published for this board"
        };
        write!(f, "\n             {published}")
    }
}

/// Lines between two reports.
const REPORT_LINES: u64 = 1_000;

/// The progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Examined {
    /// Lines of all runs so far.
    pub lines: u64,
    /// The verified fraction of all journals, from 0 to 1.
    pub part: f64,
}

/// A reporter of progress.
struct Meter<'a> {
    /// The length of all journals, in the unit of their source.
    total: u64,
    /// The length of the journals before this one.
    before: u64,
    lines: u64,
    watch: &'a mut dyn FnMut(Examined),
}

impl<'a> Meter<'a> {
    fn new(total: u64, watch: &'a mut dyn FnMut(Examined)) -> Self {
        Self { total, before: 0, lines: 0, watch }
    }

    /// Reports a line that ends at this position of its journal.
    fn line(&mut self, place: u64) {
        self.lines += 1;
        if self.lines.is_multiple_of(REPORT_LINES) {
            self.report(self.before.saturating_add(place));
        }
    }

    /// Reports the end of a journal of this length.
    fn journal(&mut self, length: u64) {
        self.before = self.before.saturating_add(length);
        self.report(self.before);
    }

    fn report(&mut self, place: u64) {
        // A journal that is being written grows during the verification.
        let total = self.total.max(place).max(1);
        let part = place as f64 / total as f64;
        (self.watch)(Examined { lines: self.lines, part });
    }
}

fn list(flaws: &[Flaw]) -> String {
    let lines: Vec<_> = flaws.iter().map(Flaw::to_string).collect();
    lines.join("\n")
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", Escaped(&self.what))
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runs.is_empty() {
            return write!(f, "{}: no runs", self.dir.display());
        }
        for (number, run) in self.runs.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{run}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.manifest.spec;
        writeln!(
            f,
            "run {}: N = {}, method {}, plan {}, {}",
            self.manifest.run,
            spec.board,
            method_name(spec.layout),
            self.manifest.plan.short(),
            self.state.name()
        )?;
        writeln!(
            f,
            "  journal    {}; all checksums, links, tasks and limits are valid",
            plural(self.lines, "line")
        )?;
        if self.live {
            writeln!(
                f,
                "             a coordinator writes at the same time: this is the state at the time\n             \
                 of reading"
            )?;
        } else if self.torn_bytes > 0 {
            writeln!(
                f,
                "             {} bytes of an unfinished last line: the next start truncates them",
                self.torn_bytes
            )?;
        }
        writeln!(
            f,
            "  tasks      {} of {} done, {} confirmed by the referee, {} by rechecks, {} disputed",
            self.tasks_done,
            self.evidence.tasks,
            self.evidence.at(Confirmation::Referee),
            self.evidence.by_rechecks(),
            self.evidence.disputed_number
        )?;
        match &self.checks {
            Some(checks) => checks.describe(f, self.solutions)?,
            None => write!(f, "  solutions  {} so far", self.solutions)?,
        }
        if self.checks.is_some() || self.state == RunState::Disputed {
            for check in self.all_checks() {
                let text = check_text(check.name, check.outcome.name(), &check.reason);
                write!(f, "\n{}", labeled("check:", &text))?;
            }
        }
        Ok(())
    }
}
