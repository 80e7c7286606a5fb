//! From what a crash left to a store that may be written again: read every journal whole, check it,
//! and bring the rows up to it.

use std::{
    collections::HashMap,
    fs,
    io::ErrorKind,
    ops::Range,
    path::{Path, PathBuf},
};

use common::{
    plan::{Plan, PlanHash, TaskId},
    run::RunId,
};

use super::{
    Refusal, RunManifest, StoreError,
    files::{self, DataFiles, RunFiles},
    journal::{End, Next, Source},
    line::{BadLine, JournalLine, Link},
    manifest::{self, SavedState},
    rows::{self, BadRows, Rows},
    segments::{self, Seal},
};
use crate::ledger::fold::{Fold, KeptTask};

/// The suffix of a database that was set aside.
const BAD: &str = "bad";

/// How many journal lines are brought into the rows at a time.
const REPLAY_LINES: usize = 1024;

/// A run as its small files describe it.
#[derive(Debug)]
pub(crate) struct FoundRun<S = RunFiles> {
    /// Where its journal is.
    pub(crate) files: S,
    pub(crate) manifest: RunManifest,
    /// None while its state never changed.
    pub(crate) saved: Option<SavedState>,
    /// How its journal was when segments of it were sealed.
    pub(crate) seals: Vec<Seal>,
}

/// Every run of a data directory, in order of creation.
pub(crate) fn find_runs(data_files: &DataFiles) -> Result<Vec<FoundRun>, StoreError> {
    let dir = data_files.runs();
    let entries = fs::read_dir(&dir).map_err(files::failed("read", &dir))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(files::failed("read", &dir))?;
        let name = entry.file_name();
        if files::is_deleted(&entry.path()) {
            continue;
        }
        let Some(Ok(run)) = name.to_str().map(str::parse::<RunId>) else {
            tracing::warn!(path = %entry.path().display(), "this is no run's: left alone");
            continue;
        };
        found.extend(find_run(data_files, run)?);
    }
    found.sort_by_key(|run| run.manifest.age());
    Ok(found)
}

pub(crate) fn find_run(data_files: &DataFiles, run: RunId) -> Result<Option<FoundRun>, StoreError> {
    let files = data_files.run(run);
    let path = files.manifest();
    let Some(text) = read_if_there(&path)? else {
        // The manifest is written last: without it the run was never created.
        let journal = files.journal();
        return match fs::metadata(&journal) {
            Ok(data) if data.len() > 0 => {
                let what = format!("it is missing, yet {} has records", journal.display());
                Err(StoreError::damaged(&path, None, what))
            }
            _ => Ok(None),
        };
    };
    let manifest =
        manifest::decode(text.trim_end()).map_err(|what| StoreError::damaged(&path, None, what))?;
    if manifest.run != run {
        let what = format!("it is of run {}", manifest.run);
        return Err(StoreError::damaged(&path, None, what));
    }
    if !segments::exists(&files.journal(), false)? {
        let path = files.journal();
        return Err(StoreError::damaged(&path, None, "it is missing"));
    }
    let path = files.state();
    let saved = read_if_there(&path)?
        .map(|text| manifest::decode_state(run, text.trim_end()))
        .transpose()
        .map_err(|what| StoreError::damaged(&path, None, what))?;
    let seals = segments::seals(&files.journal(), run)?;
    Ok(Some(FoundRun {
        files,
        manifest,
        saved,
        seals,
    }))
}

pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, StoreError> {
    match crate::descriptors::open(|| fs::read_to_string(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files::failed("read", path)(error)),
    }
}

/// What is wrong with a line where it stands, or with a journal as a whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Disorder {
    /// A line in itself.
    #[error(transparent)]
    Line(BadLine),
    /// Lines before it are gone, or come twice.
    #[error("its sequence number is {found}, not {expected}")]
    Sequence {
        /// What it says.
        found: u64,
        /// Its place.
        expected: u64,
    },
    /// It belongs elsewhere.
    #[error("it is of run {0}")]
    OtherRun(RunId),
    /// It belongs elsewhere.
    #[error("it is of plan {found}, the run's is {ours}")]
    OtherPlan {
        /// What it says.
        found: PlanHash,
        /// The run's.
        ours: PlanHash,
    },
    /// A coordinator wrote on that another had followed.
    #[error("it is of term {found}, the line before of term {before}: two coordinators wrote it")]
    Term {
        /// What it says.
        found: u64,
        /// Of the line before.
        before: u64,
    },
    /// A program of before wrote on.
    #[error("it has format 1 and follows a line of a later one")]
    OldFormat,
    /// It does not follow the line before it.
    #[error(
        "it names {named} as the hash before it, which is {head}: it or what precedes it was altered"
    )]
    Chain {
        /// What it says.
        named: Link,
        /// Of the line before it.
        head: Link,
    },
    /// The line before a segment's end is not the one that the seal names.
    #[error("it is not the line with which segment {0} was sealed")]
    Seal(u64),
    /// Lines are gone from the journal's end.
    #[error("it has {lines} whole lines, but had {sealed} when segment {segment} was sealed")]
    Short {
        /// That there are.
        lines: u64,
        /// That there were.
        sealed: u64,
        /// The segment that was sealed then.
        segment: u64,
    },
    /// It says something else of its task than the plan.
    #[error("it says that task {task} has the units {found:?}, its plan says {ours:?}")]
    Units {
        /// The task.
        task: TaskId,
        /// What it says.
        found: Range<u64>,
        /// The plan's.
        ours: Range<u64>,
    },
    /// It breaks the journal's grammar.
    #[error(transparent)]
    Refused(Refusal),
}

impl<S: Source> FoundRun<S> {
    /// What is wrong with `line` as the one after `end`; the journal's grammar is not its matter.
    pub(crate) fn check_place(&self, line: &JournalLine, end: &End) -> Result<(), Disorder> {
        let record = line.entry.record();
        if line.sequence != end.lines + 1 {
            return Err(Disorder::Sequence {
                found: line.sequence,
                expected: end.lines + 1,
            });
        }
        if record.run != self.manifest.run {
            return Err(Disorder::OtherRun(record.run));
        }
        if line.plan != self.manifest.plan {
            return Err(Disorder::OtherPlan {
                found: line.plan,
                ours: self.manifest.plan,
            });
        }
        if let Some(stamp) = &line.stamp
            && stamp.fence < end.fence
        {
            return Err(Disorder::Term {
                found: stamp.fence,
                before: end.fence,
            });
        }
        if line.stamp.is_none() && end.fence > 0 {
            return Err(Disorder::OldFormat);
        }
        if line.prev != end.head {
            return Err(Disorder::Chain {
                named: line.prev,
                head: end.head,
            });
        }
        Ok(())
    }

    /// What is wrong with a line that ends at `end` where a segment was sealed.
    pub(crate) fn check_seals(&self, end: &End) -> Result<(), Disorder> {
        let here = |seal: &&Seal| seal.lines == end.lines;
        match self.seals.iter().find(here) {
            Some(seal) if seal.head != end.head => Err(Disorder::Seal(seal.segment)),
            _ => Ok(()),
        }
    }

    /// What is wrong with a journal that ends at `end`, though segments of it were sealed later.
    pub(crate) fn check_all_seals(&self, end: &End) -> Result<(), Disorder> {
        match self.seals.iter().find(|seal| seal.lines > end.lines) {
            Some(seal) => Err(Disorder::Short {
                lines: end.lines,
                sealed: seal.lines,
                segment: seal.segment,
            }),
            None => Ok(()),
        }
    }

    /// What is wrong if the journal that ends at `end`, with `head` after [`SavedState::lines`]
    /// lines, is not the one that the state was saved with.
    pub(crate) fn check_saved(&self, end: &End, head: Option<Link>) -> Result<(), StoreError> {
        let Some(saved) = &self.saved else {
            return Ok(());
        };
        let what = if saved.lines > end.lines {
            format!(
                "it has {} whole lines, but had {} when the run became {}",
                end.lines,
                saved.lines,
                saved.state.name()
            )
        } else if head != Some(saved.head) {
            format!(
                "its first {} lines are not those that it had when the run became {}",
                saved.lines,
                saved.state.name()
            )
        } else {
            return Ok(());
        };
        Err(StoreError::Damaged {
            path: self.files.name(),
            line: None,
            what,
            remedy: format!(
                "restore it from a copy, or remove {} to count the missing tasks again",
                self.files.state_name().display()
            ),
        })
    }

    /// Checks the whole journal and shows every line to `visit`; returns where its whole lines end.
    pub(crate) fn check<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(&JournalLine, &End) -> Result<(), E>,
    ) -> Result<End, E> {
        let start = End::empty(&self.manifest);
        let mut head = self.head_if_saved_at(&start);
        let path = self.files.name();
        let end = self.walk(start, |line, after| {
            head = head.or(self.head_if_saved_at(after));
            self.check_seals(after)
                .map_err(|what| damaged_line(&path, line.sequence, what))?;
            visit(line, after)
        })?;
        self.check_all_seals(&end)
            .map_err(|what| StoreError::damaged(&path, None, what))?;
        self.check_saved(&end, head)?;
        Ok(end)
    }

    /// Reads on from `end` and shows every line to `visit`, with where it ends. A tail without any
    /// whole line is what a torn write leaves: the end returned is before it. Anything else is
    /// damage.
    fn walk<E: From<StoreError>>(
        &self,
        mut end: End,
        mut visit: impl FnMut(&JournalLine, &End) -> Result<(), E>,
    ) -> Result<End, E> {
        let path = self.files.name();
        let mut reader = self.files.open(&end)?;
        let mut bad = None;
        loop {
            match reader.next().map_err(files::failed("read", &path))? {
                Next::End | Next::Torn => return Ok(end),
                Next::Bad(error) => {
                    let error = bad.get_or_insert(error);
                    if reader.hides_a_line() {
                        return Err(damaged_line(&path, end.lines + 1, error).into());
                    }
                }
                Next::Line(line, text) => {
                    let place = match &bad {
                        Some(bad) => Err(Disorder::Line(bad.clone())),
                        None => self.check_place(&line, &end),
                    };
                    place.map_err(|what| damaged_line(&path, end.lines + 1, what))?;
                    let head = Link::after(text.as_bytes());
                    end = End {
                        bytes: reader.offset(),
                        lines: line.sequence,
                        head,
                        fence: line.stamp.as_ref().map_or(end.fence, |stamp| stamp.fence),
                    };
                    visit(&line, &end)?;
                }
            }
        }
    }

    pub(crate) fn head_if_saved_at(&self, end: &End) -> Option<Link> {
        let saved = self.saved.as_ref()?;
        (saved.lines == end.lines).then_some(end.head)
    }
}

fn damaged_line(path: &Path, line: u64, what: impl ToString) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        line: Some(line),
        what: what.to_string(),
        remedy:
            "restore the file from a copy, or cut it before this line: the tasks from there on \
                 are counted again"
                .to_owned(),
    }
}

/// Why rows could not be brought up to a journal.
enum Trouble {
    /// The journal or the disk is at fault.
    Store(StoreError),
    /// The rows are at fault.
    Rows(BadRows),
}

impl Trouble {
    /// As an error, of the rows in `dir`.
    fn at(self, dir: &Path) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Rows(error) => error.at(dir),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BadRows> for Trouble {
    fn from(error: BadRows) -> Self {
        Self::Rows(error)
    }
}

/// Removes what was left of runs that were being removed.
pub(crate) fn remove_deleted(data_files: &DataFiles) -> Result<(), StoreError> {
    let dir = data_files.runs();
    let entries = fs::read_dir(&dir).map_err(files::failed("read", &dir))?;
    for entry in entries {
        let path = entry.map_err(files::failed("read", &dir))?.path();
        if files::is_deleted(&path) {
            fs::remove_dir_all(&path).map_err(files::failed("remove", &path))?;
        }
    }
    Ok(())
}

/// What was learnt from a journal that was read whole.
pub(crate) struct Replayed {
    pub(crate) end: End,
    /// See [`super::StoredRun::elapsed_ms`].
    pub(crate) elapsed_ms: u64,
}

/// Opens the rows and brings them up to the journals; if they cannot be read, or do not agree with
/// the journals, sets them aside and makes them anew. Returns where each run's journal ends.
pub(crate) fn open_rows(
    data_files: &DataFiles,
    runs: &[(FoundRun, Plan)],
) -> Result<(Rows, Vec<Replayed>), StoreError> {
    let path = data_files.database();
    let reason = match try_rows(&path, runs) {
        Ok(done) => return Ok(done),
        Err(Trouble::Rows(BadRows::Wrong(reason))) => reason,
        Err(trouble) => return Err(trouble.at(&path)),
    };
    let aside = set_aside(&path)?;
    tracing::warn!(
        reason,
        set_aside = %aside.display(),
        "the database of tasks is made anew from the journals"
    );
    try_rows(&path, runs)
        .or_else(|trouble| match trouble {
            Trouble::Rows(BadRows::System(_)) => {
                // It may be that both do not fit.
                for path in [&aside, &path] {
                    fs::remove_dir_all(path).map_err(files::failed("remove", path))?;
                }
                try_rows(&path, runs)
            }
            other => Err(other),
        })
        .map_err(|trouble| trouble.at(&path))
}

/// Renames a database that is of no use any more. Only the newest such one is kept, for whoever
/// wants to know what happened to it.
fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    for old in files::set_aside_before(path, BAD) {
        fs::remove_dir_all(&old).map_err(files::failed("remove", &old))?;
    }
    let aside = files::aside(path, BAD);
    fs::rename(path, &aside).map_err(files::failed("set aside", path))?;
    Ok(aside)
}

fn try_rows(path: &Path, runs: &[(FoundRun, Plan)]) -> Result<(Rows, Vec<Replayed>), Trouble> {
    rows::guarded(|| rows_of(path, runs))
}

fn rows_of(path: &Path, runs: &[(FoundRun, Plan)]) -> Result<(Rows, Vec<Replayed>), Trouble> {
    let rows = Rows::open(path)?;
    rows.retain(|run| runs.iter().any(|(found, _)| found.manifest.run == run))?;
    let ends = runs
        .iter()
        .map(|(found, plan)| replay(&rows, found, plan))
        .collect::<Result<_, _>>()?;
    rows.flush()?;
    Ok((rows, ends))
}

/// Brings the rows of one run up to its journal and checks that each says what the journal says.
fn replay(rows: &Rows, found: &FoundRun, plan: &Plan) -> Result<Replayed, Trouble> {
    let run = found.manifest.run;
    let seen = rows.seen(run)?;
    let survey = Survey::of(found, plan, seen)?;
    Replay::new(rows, found, seen).run(&survey)?;
    let mut agreed = 0;
    rows.scan(run, &mut |task, row| {
        let kept = row.sequence > 0 || !row.is_open();
        match survey.fold.row(task) {
            Some(folded) if (row.sequence, &row.state) == (folded.sequence, &folded.state) => {
                agreed += 1;
                Ok(())
            }
            None if !kept && plan.contains(task) => Ok(()),
            folded => Err(BadRows::Wrong(format!(
                "run {run}, task {task}: the row says {row:?}, the journal {folded:?}"
            ))),
        }
    })?;
    let journalled = survey.fold.rows().count();
    if agreed != journalled {
        return Err(Trouble::Rows(BadRows::Wrong(format!(
            "run {run}: {journalled} tasks have records, {agreed} of them have rows"
        ))));
    }
    Ok(Replayed {
        end: survey.end,
        elapsed_ms: survey.fold.elapsed_ms(),
    })
}

/// The fold of a journal, read anew from the disk with every check; it must end where its writer
/// left it.
pub(crate) fn refold<S: Source>(
    found: &FoundRun<S>,
    plan: &Plan,
    end: &End,
) -> Result<Fold, StoreError> {
    let survey = Survey::of(found, plan, 0)?;
    if survey.end == *end {
        return Ok(survey.fold);
    }
    let what = format!(
        "{} lines of {} bytes were written to it, and it holds {} of {}",
        end.lines, end.bytes, survey.end.lines, survey.end.bytes
    );
    Err(StoreError::damaged(&found.files.name(), None, what))
}

/// A journal that was read and checked from end to end.
pub(crate) struct Survey {
    pub(crate) end: End,
    /// After the last line that the rows have seen; none if the journal is shorter.
    seen: Option<End>,
    pub(crate) fold: Fold,
}

impl Survey {
    /// Reads and checks it; `seen` is how many lines the rows have seen.
    pub(crate) fn of<S: Source>(
        found: &FoundRun<S>,
        plan: &Plan,
        seen: u64,
    ) -> Result<Self, StoreError> {
        let path = found.files.name();
        let start = End::empty(&found.manifest);
        let mut seen_end = (seen == 0).then_some(start);
        let mut fold = Fold::new(&found.manifest, plan);
        let end = found.check(|line, after| {
            fold.take(plan, &line.entry, line.sequence)
                .map_err(Disorder::Refused)
                .and_then(|()| check_units(plan, line))
                .map_err(|what| damaged_line(&path, line.sequence, what))?;
            if line.sequence == seen {
                seen_end = Some(*after);
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(Self {
            end,
            seen: seen_end,
            fold,
        })
    }
}

/// Whether a line that names a task of the plan names that task's units, if it names any.
pub(crate) fn check_units(plan: &Plan, line: &JournalLine) -> Result<(), Disorder> {
    let Some(stamp) = &line.stamp else {
        return Ok(());
    };
    let task = line.entry.record().task;
    let units = plan.task_units(task);
    if stamp.units == units {
        return Ok(());
    }
    Err(Disorder::Units {
        task,
        found: stamp.units.clone(),
        ours: units,
    })
}

/// Brings lines that the rows have not seen into them.
struct Replay<'a> {
    rows: &'a Rows,
    found: &'a FoundRun,
    seen: u64,
    batch: HashMap<(RunId, TaskId), KeptTask>,
}

impl<'a> Replay<'a> {
    fn new(rows: &'a Rows, found: &'a FoundRun, seen: u64) -> Self {
        Self {
            rows,
            found,
            seen,
            batch: HashMap::new(),
        }
    }

    fn run(mut self, survey: &Survey) -> Result<(), Trouble> {
        let Some(start) = survey.seen else {
            return Err(Trouble::Rows(BadRows::Wrong(format!(
                "run {}: the rows have seen {} lines of a journal of {}: acknowledged results are \
                 lost, their tasks are counted again",
                self.found.manifest.run, self.seen, survey.end.lines
            ))));
        };
        if start == survey.end {
            return Ok(());
        }
        self.found.walk(start, |line, _| self.line(line))?;
        Ok(self.write(survey.end.lines)?)
    }

    fn line(&mut self, line: &JournalLine) -> Result<(), Trouble> {
        let run = self.found.manifest.run;
        let task = line.entry.record().task;
        let mut row = match self.batch.remove(&(run, task)) {
            Some(row) => row,
            None => self.rows.get(run, task)?.unwrap_or(KeptTask::new()),
        };
        row.settle(&line.entry, line.sequence)
            .map_err(|refusal| contradiction(&refusal, line.sequence))?;
        self.batch.insert((run, task), row);
        if self.batch.len() >= REPLAY_LINES {
            self.write(line.sequence)?;
        }
        Ok(())
    }

    fn write(&mut self, lines: u64) -> Result<(), BadRows> {
        let seen = [(self.found.manifest.run, lines)];
        self.rows.put(&self.batch, seen)?;
        self.batch.clear();
        self.rows.flush()
    }
}

/// The journal does not contradict itself: the rows said something else before.
fn contradiction(refusal: &Refusal, line: u64) -> Trouble {
    Trouble::Rows(BadRows::Wrong(format!("journal line {line}: {refusal}")))
}
