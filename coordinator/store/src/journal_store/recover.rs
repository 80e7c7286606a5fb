//! Opening of a store: finds its runs, checks every journal, and updates the rows.

use std::{collections::HashMap, io::ErrorKind, path::Path};

use common::{
    messages::run::RunId,
    plan::{Plan, TaskId},
};
use scheduler::ledger::{
    OpenTask, Stage, StoredTasks,
    fold::{self, Fold},
    tasks,
};

use crate::{
    Note, Recheck, RunManifest, RunState, Settings, StoreError, StoredRun, SymmetricCounts,
    directory::files::{self, DataFiles, RunFiles},
    journal::{
        JournalEnd, Next, Source,
        line::JournalLine,
        manifest::{self, SavedState},
        segments::{self, Seal},
        text::{ChainHash, Damage},
    },
};

use super::{
    Medium, Text,
    index::{Index, IndexedRun},
    rows::TaskRow,
};

/// A run as its small files describe it.
#[derive(Debug)]
pub(crate) struct FoundRun<S = RunFiles> {
    /// The source of its journal.
    pub(crate) files: S,
    pub(crate) manifest: RunManifest,
    /// `None` if its state never changed.
    pub(crate) saved: Option<SavedState>,
    pub(crate) settings: Settings,
    /// `None` if they were not counted, or cannot be read.
    pub(crate) symmetric: Option<SymmetricCounts>,
    pub(crate) seals: Vec<Seal>,
}

/// Finds every run of a data directory, in order of creation.
pub(crate) fn find_runs(data_files: &DataFiles) -> Result<Vec<FoundRun>, StoreError> {
    let mut found = Vec::new();
    for path in files::entries(&data_files.runs())? {
        if files::is_deleted(&path) {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.parse::<RunId>() {
            Ok(run) => found.extend(find_run(data_files, run)?),
            Err(_) => {
                tracing::warn!(path = %path.display(), "ignoring an unrecognized entry");
            }
        }
    }
    found.sort_by_key(|run| run.manifest.age());
    Ok(found)
}

pub(crate) fn find_run(data_files: &DataFiles, run: RunId) -> Result<Option<FoundRun>, StoreError> {
    let files = data_files.run(run);
    let path = files.manifest();
    let Some(manifest) = files::read_decoded(&path, manifest::decode)? else {
        // Without the manifest the run was never created. Its events come later.
        let events = data_files.dir.join(Text::Note(Some(run), Note::Events).path());
        if files.length()? == 0 && !events.exists() {
            return Ok(None);
        }
        let what = format!("it is missing, but {} has records or events", files.name().display());
        return Err(StoreError::damaged(&path, None, what));
    };
    if manifest.run != run {
        let what = format!("it belongs to run {}", manifest.run);
        return Err(StoreError::damaged(&path, None, what));
    }
    let journal = files.journal();
    if !segments::exists(&journal, false)? {
        return Err(StoreError::damaged(&journal, None, "it is missing"));
    }
    let saved = files::read_decoded(&files.state(), |text| manifest::decode_state(run, text))?;
    let path = data_files.dir.join(Text::Settings(run).path());
    let settings = files::read_decoded(&path, |text| manifest::decode_settings(run, text))?;
    let settings = settings.unwrap_or_else(|| Settings::new(&manifest, Recheck::default()));
    let path = data_files.dir.join(Text::Symmetric(run).path());
    let symmetric = files::read_decoded(&path, |text| manifest::decode_symmetric(run, text));
    let symmetric = symmetric.ok().flatten();
    let seals = segments::seals(&journal, run)?;
    Ok(Some(FoundRun { files, manifest, saved, settings, symmetric, seals }))
}

/// A walk over a journal: its end so far, and the data that it must agree with.
pub(crate) struct Walk<'a, S> {
    found: &'a FoundRun<S>,
    plan: &'a Plan,
    pub(crate) end: JournalEnd,
    pub(crate) fold: Fold,
    /// The link after the last line that the saved state covers.
    saved_head: Option<ChainHash>,
}

impl<'a, S: Source> Walk<'a, S> {
    pub(crate) fn new(found: &'a FoundRun<S>, plan: &'a Plan) -> Self {
        let end = JournalEnd::empty(&found.manifest);
        let fold = Fold::new(&found.manifest, plan);
        let mut walk = Self { found, plan, end, fold, saved_head: None };
        walk.note_saved_head();
        walk
    }

    /// Takes the next line and returns everything that is wrong with it.
    pub(crate) fn take(&mut self, line: &JournalLine, text: &str, offset: u64) -> Vec<Damage> {
        let place = self.check_place(line);
        let fold = self
            .fold
            .take(self.plan, &line.entry, line.sequence)
            .map_err(Damage::new)
            .and_then(|()| self.check_units(line));
        self.end = JournalEnd {
            bytes: offset,
            lines: line.sequence,
            head: ChainHash::after(text.as_bytes()),
            fence: line.fence,
        };
        self.note_saved_head();
        [place, fold, self.check_seal()].into_iter().filter_map(Result::err).collect()
    }

    /// Moves to the place before `line`, whose predecessor is unreadable.
    pub(crate) fn skip_to(&mut self, line: &JournalLine) {
        self.end.lines = line.sequence.saturating_sub(1);
        self.end.head = line.prev;
    }

    fn note_saved_head(&mut self) {
        if let Some(saved) = &self.found.saved
            && saved.lines == self.end.lines
        {
            self.saved_head.get_or_insert(self.end.head);
        }
    }

    fn check_place(&self, line: &JournalLine) -> Result<(), Damage> {
        let (record, end, ours) = (&line.entry.record, &self.end, &self.found.manifest);
        let what = if line.sequence != end.lines + 1 {
            format!("its sequence number is {}, not {}", line.sequence, end.lines + 1)
        } else if record.run != ours.run {
            format!("it belongs to run {}", record.run)
        } else if line.plan != ours.plan {
            format!("it belongs to plan {}, but the run has plan {}", line.plan, ours.plan)
        } else if line.fence < end.fence {
            let (fence, before) = (line.fence, end.fence);
            format!(
                "it has term {fence}, but the line before has term {before}: two coordinators wrote \
                 the journal"
            )
        } else if line.prev != end.head {
            let (named, head) = (line.prev, end.head);
            format!(
                "it names {named} as the previous hash, which is {head}: it or its predecessor \
                 was altered"
            )
        } else {
            return Ok(());
        };
        Err(Damage(what))
    }

    /// Checks that a line names its task's units in the plan.
    fn check_units(&self, line: &JournalLine) -> Result<(), Damage> {
        let task = line.entry.record.task;
        let ours = self.plan.task_units(task);
        if line.units == ours {
            return Ok(());
        }
        let named = &line.units;
        Err(Damage(format!("it names units {named:?} for task {task}, but the plan has {ours:?}")))
    }

    fn check_seal(&self) -> Result<(), Damage> {
        match self.found.seals.iter().find(|seal| seal.lines == self.end.lines) {
            Some(seal) if seal.head != self.end.head => {
                let segment = seal.segment;
                let what = format!("it is not the line with which segment {segment} was sealed");
                Err(Damage(what))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the journal, which ends here, has all lines that were sealed.
    pub(crate) fn check_all_seals(&self) -> Result<(), Damage> {
        let lines = self.end.lines;
        match self.found.seals.iter().find(|seal| seal.lines > lines) {
            Some(Seal { segment, lines: sealed, .. }) => Err(Damage(format!(
                "it has {lines} whole lines, but had {sealed} when segment {segment} was sealed"
            ))),
            None => Ok(()),
        }
    }

    /// Checks that the journal, which ends here, is the one of the saved state.
    pub(crate) fn check_saved(&self) -> Result<(), Damage> {
        let Some(saved) = &self.found.saved else {
            return Ok(());
        };
        let state = saved.state.name();
        let what = if saved.lines > self.end.lines {
            format!(
                "it has {} whole lines, but had {} when the run became {state}",
                self.end.lines, saved.lines
            )
        } else if self.saved_head != Some(saved.head) {
            format!(
                "its first {} lines are not those that it had when the run became {state}",
                saved.lines
            )
        } else {
            return Ok(());
        };
        Err(Damage(what))
    }
}

impl<S: Source> FoundRun<S> {
    /// Reads and checks all whole lines of the journal.
    ///
    /// A torn write leaves a tail without any whole line; the end is before that tail. Anything else
    /// is damage.
    pub(crate) fn survey(&self, plan: &Plan) -> Result<Survey, StoreError> {
        let path = self.files.name();
        let mut walk = Walk::new(self, plan);
        let mut last_lines = vec![0; usize::try_from(plan.tasks()).expect("at most MAX_TASKS")];
        let mut reader = self.files.open(&walk.end)?;
        let mut bad = None;
        loop {
            let line = walk.end.lines + 1;
            let offset = reader.offset();
            match reader.next().map_err(files::failed("read", &path))? {
                Next::End | Next::Torn => break,
                Next::Bad(damage) => {
                    let damage = bad.get_or_insert(damage);
                    if reader.hides_a_line() {
                        return Err(damaged_line(&path, line, damage));
                    }
                }
                Next::Line(next, text) => {
                    if let Some(damage) = &bad {
                        return Err(damaged_line(&path, line, damage));
                    }
                    let offset = offset + text.len() as u64 + 1;
                    if let Some(damage) = walk.take(&next, text, offset).first() {
                        return Err(damaged_line(&path, line, damage));
                    }
                    last_lines[tasks::index(next.entry.record.task) as usize] = next.sequence;
                }
            }
        }
        walk.check_all_seals().map_err(|what| StoreError::damaged(&path, None, what))?;
        walk.check_saved().map_err(|what| {
            let state = self.files.state_name();
            let remedy = format!(
                "restore it from a copy, or remove {} to count the missing tasks again",
                state.display()
            );
            StoreError::repairable(&path, None, what, &remedy)
        })?;
        Ok(Survey { end: walk.end, fold: walk.fold, last_lines })
    }
}

fn damaged_line(path: &Path, line: u64, what: &Damage) -> StoreError {
    let remedy = "restore the file from a copy, or truncate it before this line: the tasks from there \
                  on are counted again";
    StoreError::repairable(path, Some(line), what, remedy)
}

/// A journal as it was read.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) end: JournalEnd,
    pub(crate) fold: Fold,
    /// The sequence number of each task's last line; 0 for none.
    last_lines: Vec<u64>,
}

impl Survey {
    /// Returns the rows of the tasks with lines after the first `seen`.
    pub(crate) fn rows_after(&self, seen: u64) -> impl Iterator<Item = (TaskId, TaskRow)> {
        let lines = (0..).map(TaskId).zip(self.last_lines.iter().copied());
        let new = lines.filter(move |(_, sequence)| *sequence > seen);
        new.map(|(task, sequence)| (task, TaskRow::Counted { sequence }))
    }
}

/// All runs of a medium.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) index: Index,
    pub(crate) tasks: HashMap<RunId, StoredTasks>,
}

/// Reads and checks all runs, and rebuilds rows that contradict a journal.
/// Rebuilds the rows of that run, or all rows if the medium cannot remove those of a single run.
pub(crate) fn load<M: Medium>(
    medium: &mut M,
    found: &[FoundRun<M::Journal>],
) -> Result<Loaded, StoreError> {
    let reason = match try_load(medium, found) {
        Err(StoreError::Database(reason)) => reason,
        other => return other,
    };
    tracing::warn!(reason, "rebuilding the rows of tasks from the journals");
    medium.reset_rows(true)?;
    match try_load(medium, found) {
        Err(StoreError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            // The copy and the new rows do not fit on the disk together.
            medium.reset_rows(false)?;
            try_load(medium, found)
        }
        other => other,
    }
}

fn try_load<M: Medium>(
    medium: &mut M,
    found: &[FoundRun<M::Journal>],
) -> Result<Loaded, StoreError> {
    medium.retain_rows(&|run| found.iter().any(|found| found.manifest.run == run))?;
    let mut loaded = Loaded::default();
    for found in found {
        let run = found.manifest.run;
        let plan = fold::plan_of(&found.manifest)?;
        let survey = found.survey(&plan)?;
        let open = match open_tasks(medium, run, &survey) {
            Err(StoreError::Database(reason)) if medium.remove_rows(run)? => {
                tracing::warn!(reason, "rebuilding the rows of run {run} from its journal");
                open_tasks(medium, run, &survey)?
            }
            other => other?,
        };
        let stored = StoredRun {
            manifest: found.manifest.clone(),
            state: found.saved.map_or(RunState::Running, |saved| saved.state),
            settings: found.settings,
        };
        let Survey { end, fold, .. } = survey;
        loaded.index.insert(IndexedRun { stored, plan, end });
        loaded.tasks.insert(run, StoredTasks { fold, open });
    }
    Ok(loaded)
}

/// Brings the rows of a run up to date with its journal; returns those of tasks without a count.
/// [`StoreError::Database`] means that they contradict the journal and have to be rebuilt.
pub(crate) fn open_tasks<M: Medium>(
    medium: &mut M,
    run: RunId,
    survey: &Survey,
) -> Result<Vec<(TaskId, OpenTask)>, StoreError> {
    let Survey { end, fold, last_lines } = survey;
    let wrong = |what| Err(StoreError::Database(format!("run {run}: {what}")));
    let mut open = Vec::new();
    let mut counted = vec![0; last_lines.len()];
    let mut strange = None;
    let seen = medium.rows(run, &mut |task, row| {
        let at = usize::try_from(task.0).ok().filter(|at| *at < last_lines.len());
        match (at, row) {
            (None, _) => strange = Some(task),
            (Some(at), TaskRow::Counted { sequence }) => counted[at] = sequence,
            (Some(_), TaskRow::Open(row)) => open.push((task, row)),
        }
    })?;
    if seen > end.lines {
        return wrong(format!(
            "the rows reflect {seen} lines, but the journal has {}: acknowledged results are lost, \
             and their tasks are counted again",
            end.lines
        ));
    }
    if let Some(task) = strange {
        return wrong(format!("there is a row of task {task}, which the plan lacks"));
    }
    let is_reflected = |at: usize| last_lines[at] <= seen;
    open.retain(|(task, _)| is_reflected(tasks::index(*task) as usize));
    for &(task, _) in &open {
        let task = tasks::index(task);
        if fold.tasks.stage(task) != Stage::Pending {
            return wrong(format!("task {task} has a count, but its row has none"));
        }
        // A count of it is void.
        counted[task as usize] = last_lines[task as usize];
    }
    for (at, (&last, counted)) in last_lines.iter().zip(counted).enumerate() {
        if is_reflected(at) && counted != last {
            return wrong(format!("task {at}: its row names line {counted}, not {last}"));
        }
    }
    if seen < end.lines {
        medium.put_rows(run, &mut survey.rows_after(seen), end.lines)?;
    }
    Ok(open)
}
