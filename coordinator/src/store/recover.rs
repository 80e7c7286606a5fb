//! From what a crash left to a store that may be written again: read every journal whole, check it,
//! and bring the rows up to it.

use std::{collections::HashMap, fs, io::ErrorKind, path::Path};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{
    Refusal, RunManifest, StoreError,
    files::{self, Layout, RunFiles},
    fold::{self, Row},
    journal::{End, Next, Reader},
    line::{Line, Link},
    manifest::{self, SavedState},
    rows::{BadRows, Rows},
};

/// How many journal lines are brought into the rows at a time.
const REPLAY_LINES: usize = 1024;

/// A run as its small files describe it.
#[derive(Debug)]
pub(crate) struct FoundRun {
    pub(crate) files: RunFiles,
    pub(crate) manifest: RunManifest,
    /// None while its state never changed.
    pub(crate) saved: Option<SavedState>,
}

/// Every run of a data directory, in order of creation.
pub(crate) fn find_runs(layout: &Layout) -> Result<Vec<FoundRun>, StoreError> {
    let dir = layout.runs();
    let entries = fs::read_dir(&dir).map_err(files::failed("read", &dir))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(files::failed("read", &dir))?;
        let name = entry.file_name();
        let Some(Ok(run)) = name.to_str().map(str::parse::<RunId>) else {
            tracing::warn!(path = %entry.path().display(), "this is no run's: left alone");
            continue;
        };
        found.extend(find_run(layout, run)?);
    }
    found.sort_by_key(|run| run.manifest.age());
    Ok(found)
}

fn find_run(layout: &Layout, run: RunId) -> Result<Option<FoundRun>, StoreError> {
    let files = layout.run(run);
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
    if !files.journal().exists() {
        let path = files.journal();
        return Err(StoreError::damaged(&path, None, "it is missing"));
    }
    let path = files.state();
    let saved = read_if_there(&path)?
        .map(|text| manifest::decode_state(run, text.trim_end()))
        .transpose()
        .map_err(|what| StoreError::damaged(&path, None, what))?;
    Ok(Some(FoundRun {
        files,
        manifest,
        saved,
    }))
}

fn read_if_there(path: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files::failed("read", path)(error)),
    }
}

impl FoundRun {
    /// What is wrong with `line` as the one after `end`; the journal's grammar is not its matter.
    pub(crate) fn check_place(&self, line: &Line, end: &End) -> Result<(), String> {
        let record = line.entry.record();
        if line.sequence != end.lines + 1 {
            return Err(format!(
                "its sequence number is {}, not {}",
                line.sequence,
                end.lines + 1
            ));
        }
        if record.run != self.manifest.run {
            return Err(format!("it is of run {}", record.run));
        }
        if line.plan != self.manifest.plan {
            return Err(format!(
                "it is of plan {}, the run's is {}",
                line.plan, self.manifest.plan
            ));
        }
        if line.prev != end.head {
            return Err(format!(
                "it names {} as the hash before it, which is {}: it or what precedes it was altered",
                line.prev, end.head
            ));
        }
        Ok(())
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
            path: self.files.journal(),
            line: None,
            what,
            remedy: format!(
                "restore it from a copy, or remove {} to count the missing tasks again",
                self.files.state().display()
            ),
        })
    }

    /// Reads the whole journal and shows every line to `visit`. A tail without any whole line is
    /// what a torn write leaves: the end returned is before it. Anything else is damage.
    pub(crate) fn walk<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(&Line) -> Result<(), E>,
    ) -> Result<End, E> {
        let path = self.files.journal();
        let mut reader = Reader::open(&path, 0)?;
        let mut end = End::empty(&self.manifest);
        let mut head = self.head_if_saved_at(&end);
        let mut bad = None;
        loop {
            match reader.next().map_err(files::failed("read", &path))? {
                Next::End | Next::Torn => break,
                Next::Bad(error) => {
                    let error = bad.get_or_insert(error);
                    if reader.hides_a_line() {
                        let what = error.to_string();
                        return Err(damaged_line(&path, end.lines + 1, what).into());
                    }
                }
                Next::Line(line, text) => {
                    let place = match &bad {
                        Some(bad) => Err(bad.to_string()),
                        None => self.check_place(&line, &end),
                    };
                    place.map_err(|what| damaged_line(&path, end.lines + 1, what))?;
                    let link = Link::after(text.as_bytes());
                    visit(&line)?;
                    end = End {
                        bytes: reader.offset(),
                        lines: line.sequence,
                        head: link,
                    };
                    head = head.or(self.head_if_saved_at(&end));
                }
            }
        }
        self.check_saved(&end, head)?;
        Ok(end)
    }

    pub(crate) fn head_if_saved_at(&self, end: &End) -> Option<Link> {
        let saved = self.saved.as_ref()?;
        (saved.lines == end.lines).then_some(end.head)
    }
}

fn damaged_line(path: &Path, line: u64, what: String) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        line: Some(line),
        what,
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
    /// The rows are at fault: they can be made again.
    Rows(BadRows),
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

/// Opens the rows and brings them up to the journals; if they cannot be read, or do not agree with
/// the journals, sets them aside and makes them anew. Returns where each run's journal ends.
pub(crate) fn open_rows(
    layout: &Layout,
    runs: &[(FoundRun, Plan)],
) -> Result<(Rows, Vec<End>), StoreError> {
    let path = layout.database();
    let trouble = match try_rows(&path, runs) {
        Ok(done) => return Ok(done),
        Err(Trouble::Store(error)) => return Err(error),
        Err(Trouble::Rows(error)) => error,
    };
    let aside = files::aside(&path, "bad");
    fs::rename(&path, &aside).map_err(files::failed("set aside", &path))?;
    tracing::warn!(
        reason = %trouble,
        set_aside = %aside.display(),
        "the database of tasks is made anew from the journals"
    );
    try_rows(&path, runs).map_err(|trouble| match trouble {
        Trouble::Store(error) => error,
        Trouble::Rows(error) => error.into(),
    })
}

fn try_rows(path: &Path, runs: &[(FoundRun, Plan)]) -> Result<(Rows, Vec<End>), Trouble> {
    let rows = Rows::open(path)?;
    let ends = runs
        .iter()
        .map(|(found, plan)| replay(&rows, found, plan))
        .collect::<Result<_, _>>()?;
    rows.flush()?;
    Ok((rows, ends))
}

/// Brings the rows of one run up to its journal and checks that each agrees with it.
fn replay(rows: &Rows, found: &FoundRun, plan: &Plan) -> Result<End, Trouble> {
    let run = found.manifest.run;
    let mut replay = Replay {
        rows,
        run,
        seen: rows.seen(run)?,
        fresh: rows.seen(run)? == 0,
        batch: HashMap::new(),
        last_line: vec![0; usize::try_from(plan.tasks()).expect("tasks fit memory")],
    };
    let path = found.files.journal();
    let end = found.walk(|line| {
        let record = line.entry.record();
        fold::check_task(plan, run, record.task)
            .and_then(|()| fold::check_count(plan, record))
            .map_err(|refusal| damaged_line(&path, line.sequence, refusal.to_string()))?;
        replay.line(line, &path)
    })?;
    replay.write(end.lines)?;
    replay.check(end.lines)?;
    Ok(end)
}

struct Replay<'a> {
    rows: &'a Rows,
    run: RunId,
    /// The lines that the rows had seen before.
    seen: u64,
    /// The rows have seen nothing before: what contradicts them contradicts the journal itself.
    fresh: bool,
    batch: HashMap<(RunId, TaskId), Row>,
    /// By task: the last line about it, 0 for none.
    last_line: Vec<u64>,
}

impl Replay<'_> {
    fn line(&mut self, line: &Line, path: &Path) -> Result<(), Trouble> {
        let task = line.entry.record().task;
        let index = usize::try_from(task.0).expect("checked against the plan");
        self.last_line[index] = line.sequence;
        if line.sequence <= self.seen {
            return Ok(());
        }
        let key = (self.run, task);
        let mut row = match self.batch.remove(&key) {
            Some(row) => row,
            None => self.rows.get(self.run, task)?.unwrap_or(Row::new()),
        };
        row.settle(&line.entry, line.sequence)
            .map_err(|refusal| self.contradiction(refusal, line.sequence, path))?;
        self.batch.insert(key, row);
        if self.batch.len() >= REPLAY_LINES {
            self.write(line.sequence)?;
        }
        Ok(())
    }

    fn contradiction(&self, refusal: Refusal, line: u64, path: &Path) -> Trouble {
        if self.fresh {
            Trouble::Store(damaged_line(path, line, refusal.to_string()))
        } else {
            Trouble::Rows(BadRows(format!("journal line {line}: {refusal}")))
        }
    }

    fn write(&mut self, lines: u64) -> Result<(), BadRows> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.rows.put(&self.batch, [(self.run, lines)])?;
        self.batch.clear();
        self.rows.flush()
    }

    fn check(&self, lines: u64) -> Result<(), BadRows> {
        let (run, seen) = (self.run, self.seen);
        if seen > lines {
            return Err(BadRows(format!(
                "run {run}: the rows have seen {seen} lines of a journal of {lines}: acknowledged \
                 results are lost, their tasks are counted again"
            )));
        }
        let mut settled = 0u64;
        self.rows.scan(run, &mut |task, row| {
            let last = usize::try_from(task.0).ok();
            let last = last.and_then(|task| self.last_line.get(task)).copied();
            if last != Some(row.sequence) {
                return Err(BadRows(format!(
                    "run {run}, task {task}: the row has seen line {}, the journal's last about it \
                     is {last:?}",
                    row.sequence
                )));
            }
            settled += u64::from(row.sequence > 0);
            Ok(())
        })?;
        let expected = self.last_line.iter().filter(|line| **line > 0).count();
        if settled == expected as u64 {
            Ok(())
        } else {
            Err(BadRows(format!(
                "run {run}: {settled} rows of tasks that the journal names, which are {expected}"
            )))
        }
    }
}
