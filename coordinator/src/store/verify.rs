//! Rechecks a data directory from its manifests and journals alone; writes nothing, trusts nothing
//! that sled says.

use std::{
    fmt,
    io::ErrorKind,
    ops::Range,
    path::{Path, PathBuf},
};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{
    JournalEntry, Recheck, RunManifest, RunState, StoreError, SymmetricCounts, TrustRecord,
    disk::kept_recheck,
    files::{self, DataFiles, Lock, Reading},
    journal::{End, Next, Source},
    line::{JournalLine, Link},
    manifest,
    meter::{Examined, Meter},
    recover::{self, Disorder, FoundRun},
    total::Checks,
    trust::TrustLog,
};
use crate::{
    checks::{self, Check, Evidence},
    ledger::{
        Draw,
        fold::{self, Fold},
    },
    text::{method_name, plural},
};

/// The most flaws that are listed of one run.
const MAX_FLAWS: usize = 20;

/// What a data directory holds, after every check passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The directory.
    pub dir: PathBuf,
    /// Its runs, in order of creation.
    pub runs: Vec<RunReport>,
}

/// What the journal of one run proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// What the run is.
    pub manifest: RunManifest,
    /// How far it is, as its state file says.
    pub state: RunState,
    /// Tasks of the plan.
    pub tasks_total: u64,
    /// Tasks with an accepted count.
    pub tasks_done: u64,
    /// The sum of the accepted counts.
    pub solutions: u128,
    /// Whole lines of the journal.
    pub lines: u64,
    /// Records that confirm an accepted count.
    pub confirmed: u64,
    /// Tasks whose counts contradict each other, undecided.
    pub quarantined: Vec<TaskId>,
    /// How long coordinators have served it, in milliseconds.
    pub elapsed_ms: u64,
    /// Bytes of a last line that was not finished: it is being written, or the next start cuts it.
    pub torn_bytes: u64,
    /// A coordinator had the directory open: this is how the run stood while it was read.
    pub live: bool,
    /// What the total was checked against, once every task is done.
    pub checks: Option<Checks>,
    /// How its counts were checked against each other.
    pub evidence: Evidence,
    /// Whether those who counted had proved that they count right.
    pub canaries: Check,
}

impl RunReport {
    /// What the directory proves of the run's result, by name.
    pub fn proofs(&self) -> Vec<Check> {
        let mut all = checks::of_counts(&self.evidence);
        all.extend(checks::of_journal(self.lines, self.tasks_done));
        if let Some(passed) = &self.checks {
            let symmetric = passed.counts.map(Ok);
            let published = passed.published.then_some(true);
            let board = self.manifest.spec.board;
            all.extend(checks::of_total(board, symmetric.as_ref(), published));
        }
        all.push(self.canaries.clone());
        all.push(checks::of_independence());
        all
    }
}

/// Why a data directory cannot be vouched for.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It cannot be read, is in use, or is of another program or version.
    #[error(transparent)]
    Unreadable(#[from] StoreError),
    /// It is no data directory at all.
    #[error("{0} is no data directory of this program: it has no format.json")]
    NotOurs(PathBuf),
    /// What it holds is not what was written, or contradicts itself.
    #[error("{}", list(.0))]
    Flawed(Vec<Flaw>),
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// In which file.
    pub path: PathBuf,
    /// In which line, counted from 1.
    pub line: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// Rechecks every line of every journal in `dir`, refolds the totals and checks complete ones.
///
/// Reads only, also while a coordinator writes the directory: what it wrote until now is checked
/// then, and a last line that is half written is no flaw.
pub fn verify(dir: &Path) -> Result<VerifyReport, VerifyError> {
    verify_watched(dir, &mut |_| {})
}

/// The same as [`verify`]; `watch` is told how far it is.
pub fn verify_watched(
    dir: &Path,
    watch: &mut dyn FnMut(Examined),
) -> Result<VerifyReport, VerifyError> {
    let data_files = DataFiles::new(dir);
    if !Lock::marked(&data_files)? {
        return Err(VerifyError::NotOurs(dir.to_owned()));
    }
    let reading = Lock::shared(&data_files)?;
    let kept = Overall {
        live: matches!(reading, Reading::WhileWritten),
        draw: data_files.kept_secret()?.map(|secret| Draw::new(secret.0)),
        trust: TrustLog::read_only(&data_files.trust())?,
    };
    let runs = recover::find_runs(&data_files)?.into_iter().map(|found| {
        let recheck = kept_recheck(&found.files, found.manifest.run)?;
        Ok((found, recheck))
    });
    verify_all(dir.to_owned(), runs, &kept, watch)
}

/// What is kept beside the runs, and whether they are being written.
pub(super) struct Overall {
    pub(super) live: bool,
    pub(super) draw: Option<Draw>,
    pub(super) trust: Vec<TrustRecord>,
}

/// Rechecks runs, each given with how much of it is counted twice.
pub(super) fn verify_all<S: Source>(
    dir: PathBuf,
    found: impl Iterator<Item = Result<(FoundRun<S>, Option<Recheck>), StoreError>>,
    kept: &Overall,
    watch: &mut dyn FnMut(Examined),
) -> Result<VerifyReport, VerifyError> {
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let lengths = found.iter().map(|(found, _)| found.files.length());
    let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
    let mut meter = Meter::new(lengths.iter().sum(), watch);
    let mut runs = Vec::new();
    let mut flaws = Vec::new();
    for ((found, recheck), length) in found.into_iter().zip(lengths) {
        let mut audit = Audit::new(&found, kept.draw.clone(), recheck)?;
        audit.read(&mut |_, _| {}, &mut meter)?;
        meter.journal(length);
        runs.push(RunReport {
            live: kept.live,
            ..audit.report(&kept.trust)
        });
        flaws.append(&mut audit.flaws);
    }
    match flaws.is_empty() {
        true => Ok(VerifyReport { dir, runs }),
        false => Err(VerifyError::Flawed(flaws)),
    }
}

/// Every run of a data directory, with the time of its creation in milliseconds since 1970.
pub fn runs_in(dir: &Path) -> Result<Vec<(u64, RunId)>, VerifyError> {
    let data_files = DataFiles::new(dir);
    if !Lock::marked(&data_files)? {
        return Err(VerifyError::NotOurs(dir.to_owned()));
    }
    let found = recover::find_runs(&data_files)?;
    let named = |run: FoundRun| (run.manifest.created_unix_ms, run.manifest.run);
    Ok(found.into_iter().map(named).collect())
}

/// The same as [`verify`] for one run; `visit` is shown every line, with the task's units, before it
/// is known whether all of them are right.
pub fn verify_run(
    dir: &Path,
    run: RunId,
    visit: &mut dyn FnMut(Range<u64>, &JournalEntry),
) -> Result<RunReport, VerifyError> {
    let data_files = DataFiles::new(dir);
    if !Lock::marked(&data_files)? {
        return Err(VerifyError::NotOurs(dir.to_owned()));
    }
    let reading = Lock::shared(&data_files)?;
    let live = matches!(reading, Reading::WhileWritten);
    let draw = data_files.kept_secret()?.map(|secret| Draw::new(secret.0));
    let trust = TrustLog::read_only(&data_files.trust())?;
    let found = recover::find_run(&data_files, run)?.ok_or(StoreError::NoSuchRun(run))?;
    let mut audit = Audit::new(&found, draw, kept_recheck(&found.files, run)?)?;
    audit.read(visit, &mut Meter::new(0, &mut |_| {}))?;
    let report = RunReport {
        live,
        ..audit.report(&trust)
    };
    match audit.flaws.is_empty() {
        true => Ok(report),
        false => Err(VerifyError::Flawed(audit.flaws)),
    }
}

/// The symmetric solutions that are kept with a run.
pub fn kept_symmetric(dir: &Path, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
    let files = DataFiles::new(dir).run(run);
    // One that is not whole, or no text, is as good as none: it can be counted again.
    let text = match recover::read_if_there(&files.symmetric()) {
        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::InvalidData => None,
        other => other?,
    };
    Ok(text.and_then(|text| manifest::decode_symmetric(run, text.trim_end()).ok()))
}

/// The key that signs for a data directory; drawn when it is asked for first.
pub fn signing_key(dir: &Path) -> Result<[u8; 32], StoreError> {
    DataFiles::new(dir).keep_signing_key().map(|key| key.0)
}

/// One run under examination.
struct Audit<'a, S> {
    found: &'a FoundRun<S>,
    plan: Plan,
    fold: Fold,
    /// `None` where the directory's secret is missing: nobody knows then what was drawn.
    draw: Option<Draw>,
    recheck: Recheck,
    end: End,
    /// After as many lines as the state file says.
    saved_head: Option<Link>,
    /// The line before was bad: this one's place cannot be checked.
    lost: bool,
    torn_bytes: u64,
    flaws: Vec<Flaw>,
}

impl<'a, S: Source> Audit<'a, S> {
    fn new(
        found: &'a FoundRun<S>,
        draw: Option<Draw>,
        recheck: Option<Recheck>,
    ) -> Result<Self, StoreError> {
        let end = End::empty(&found.manifest);
        let plan = fold::plan_of(&found.manifest)?;
        Ok(Self {
            found,
            fold: Fold::new(&found.manifest, &plan),
            draw,
            recheck: recheck.unwrap_or_default(),
            plan,
            end,
            saved_head: found.head_if_saved_at(&end),
            lost: false,
            torn_bytes: 0,
            flaws: Vec::new(),
        })
    }

    fn flaw(&mut self, line: Option<u64>, what: impl ToString) {
        if self.flaws.len() < MAX_FLAWS {
            let path = self.found.files.name();
            let what = what.to_string();
            self.flaws.push(Flaw { path, line, what });
        }
    }

    fn read(
        &mut self,
        visit: &mut dyn FnMut(Range<u64>, &JournalEntry),
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let path = self.found.files.name();
        let mut reader = self.found.files.open(&self.end)?;
        for number in 1.. {
            let start = reader.offset();
            match reader.next().map_err(files::failed("read", &path))? {
                Next::End => break,
                Next::Torn => self.torn_bytes = reader.offset() - start,
                Next::Bad(bad) => {
                    self.flaw(Some(number), bad.to_string());
                    self.lost = true;
                }
                Next::Line(line, text) => {
                    let link = Link::after(text.as_bytes());
                    self.line(number, &line, link);
                    let task = line.entry.record().task;
                    if self.plan.contains(task) {
                        visit(self.plan.task_units(task), &line.entry);
                    }
                }
            }
            meter.line(S::place(reader.offset(), number));
        }
        if !self.lost && self.flaws.is_empty() {
            if let Err(what) = self.found.check_all_seals(&self.end) {
                self.flaw(None, what);
            }
            self.check_saved()?;
        }
        Ok(())
    }

    fn check_saved(&mut self) -> Result<(), StoreError> {
        match self.found.check_saved(&self.end, self.saved_head) {
            Err(StoreError::Damaged { what, .. }) => self.flaw(None, what),
            other => other?,
        }
        Ok(())
    }

    fn line(&mut self, number: u64, line: &JournalLine, link: Link) {
        if self.lost {
            self.end.lines = line.sequence.saturating_sub(1);
            self.end.head = line.prev;
            self.lost = false;
        }
        if let Err(what) = self.found.check_place(line, &self.end) {
            self.flaw(Some(number), what);
        }
        if let Err(what) = self.settle(line) {
            self.flaw(Some(number), what);
        }
        self.end.lines = line.sequence;
        self.end.head = link;
        self.end.fence = line
            .stamp
            .as_ref()
            .map_or(self.end.fence, |stamp| stamp.fence);
        if let Err(what) = self.found.check_seals(&self.end) {
            self.flaw(Some(number), what);
        }
        let saved_head = self.found.head_if_saved_at(&self.end);
        self.saved_head = self.saved_head.or(saved_head);
    }

    fn settle(&mut self, line: &JournalLine) -> Result<(), Disorder> {
        self.fold
            .take(&self.plan, &line.entry, line.sequence)
            .map_err(Disorder::Refused)
            .and_then(|()| recover::check_units(&self.plan, line))
    }

    fn report(&mut self, trust: &[TrustRecord]) -> RunReport {
        let tasks_done = self.fold.tasks_done();
        let solutions = self.fold.total().unwrap_or_else(|error| {
            self.flaw(None, error.to_string());
            0
        });
        let complete = tasks_done == self.plan.tasks();
        let state = self
            .found
            .saved
            .map_or(RunState::Running, |saved| saved.state);
        if state == RunState::Complete && !complete && self.flaws.is_empty() {
            let tasks = self.plan.tasks();
            let what =
                format!("the run is said to be complete, with {tasks_done} of {tasks} tasks");
            self.flaw(None, what);
        }
        let checks = if complete && self.flaws.is_empty() {
            Checks::of(self.found.manifest.spec.board, solutions)
                .map_err(|what| self.flaw(None, what))
                .ok()
        } else {
            None
        };
        RunReport {
            manifest: self.found.manifest.clone(),
            state,
            tasks_total: self.plan.tasks(),
            tasks_done,
            solutions,
            lines: self.end.lines,
            confirmed: self.fold.confirmed(),
            quarantined: self.fold.quarantined(),
            elapsed_ms: self.fold.elapsed_ms(),
            torn_bytes: self.torn_bytes,
            live: false,
            checks,
            canaries: checks::of_canaries(&self.fold, trust),
            evidence: Evidence::of(&self.fold, |task| {
                let run = self.found.manifest.run;
                self.draw
                    .as_ref()
                    .is_some_and(|draw| draw.chosen(run, task, self.recheck))
            }),
        }
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
        write!(f, ": {}", self.what)
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
            "  journal    {}; every check sum, link, task and limit is right",
            plural(self.lines, "line")
        )?;
        if self.live {
            writeln!(
                f,
                "             a coordinator has the directory open: this is how far it was\n             \
                 when it was read"
            )?;
        } else if self.torn_bytes > 0 {
            writeln!(
                f,
                "             {} bytes of an unfinished last line: the next start cuts them",
                self.torn_bytes
            )?;
        }
        writeln!(
            f,
            "  tasks      {} of {} done, {} second counts equal to the first, {} quarantined",
            self.tasks_done,
            self.tasks_total,
            self.confirmed,
            self.quarantined.len()
        )?;
        match &self.checks {
            Some(checks) => checks.describe(f, self.solutions)?,
            None => write!(f, "  solutions  {} so far", self.solutions)?,
        }
        if self.checks.is_some() || self.state == RunState::Disputed {
            for check in self.proofs() {
                write!(f, "\n{}", checks::shown(&check))?;
            }
        }
        Ok(())
    }
}
