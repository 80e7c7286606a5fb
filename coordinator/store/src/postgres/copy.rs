//! Copies between a data directory and a database, neither of them in use.
//! They include keys, tokens, secrets and the trust log; journal lines and their hashes stay unchanged.

use std::{fs, io, path::Path};

use proto::connect::FOLDER;
use scheduler::ledger::fold;

use crate::{
    Observed, StoreError, descriptors,
    directory::files::{
        self, DataFiles, LOCK, Lock, MARKER, Reading, SECRET, SIGNING_KEY, write_durably,
    },
    journal::{JournalEnd, Next, Source, manifest, trust::TrustChain},
    journal_store::{
        Medium as _, Text,
        recover::{self, FoundRun},
    },
    postgres::{
        Database, PgStore,
        connection::Step,
        load,
        tables::{delete_run, put_lines, put_named, put_run, put_text, put_trust, signed},
    },
};

const BATCH_LINES: usize = 20_000;

/// Files of a data directory with the same names in a database, one text each.
const TEXTS: [&str; 3] = [SECRET, SIGNING_KEY, "events.jsonl"];

/// Copies an unused data directory into a database without runs and keys.
/// Checks every journal first; returns the number of runs. Runs and keys appear with the last transaction: no
/// coordinator can serve a part of them.
pub fn copy_to_database(
    dir: &Path,
    url: &str,
    waits: &mut dyn FnMut(&Observed),
) -> Result<usize, StoreError> {
    let data_files = DataFiles::new(dir);
    if !Lock::marked(&data_files)? {
        return Err(StoreError::unusable(
            dir.display(),
            "it has no format.json",
            "give a data directory",
        ));
    }
    let reading = Lock::shared(&data_files)?;
    if matches!(reading, Reading::WhileWritten) {
        let holder = " (a coordinator)".to_owned();
        return Err(StoreError::InUse { dir: dir.to_owned(), holder });
    };
    let found = recover::find_runs(&data_files)?;
    let store = PgStore::open(url, "queensctl copy", waits)?;
    let mut database = store.medium;
    let has_runs = !load::find_runs(&database.link)?.is_empty() || !store.trust.records.is_empty();
    let held = match has_runs {
        true => Some("it holds runs already"),
        // Those of a coordinator, which may have distributed its join strings.
        false => has_keys(&database)?.then_some("it holds keys already"),
    };
    if let Some(held) = held {
        let advice = "give an empty database (createdb)";
        return Err(database.link.lock().server.failed(held, advice));
    }
    let (mut term, mut steps) = (data_files.last_term()?, Vec::new());
    for run in &found {
        let (fence, creation) = database.import(run, dir)?;
        term = term.max(fence);
        steps.extend(creation);
    }
    for name in TEXTS {
        if let Some(text) = files::read_text(&dir.join(name))? {
            steps.push(put_named(name, text.trim_end()));
        }
    }
    let folder = dir.join(FOLDER);
    let secrets = if folder.exists() { files::entries(&folder)? } else { Vec::new() };
    for path in secrets {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Skips a file that a crash left half written.
        if name.ends_with(".tmp") || name.ends_with(".new") {
            continue;
        }
        if let Some(text) = files::read_text(&path)? {
            steps.push(put_named(&format!("{FOLDER}/{name}"), &text));
        }
    }
    let trust = TrustChain::read(&data_files.trust(), false)?;
    let (_, lines) = TrustChain::new().with(&trust.records);
    steps.push(put_trust(1, lines));
    // Later records name later terms. This is the last transaction of this term.
    steps.push(Step::new(
        "UPDATE queens.leader SET term = greatest(term, $1), leads = false",
        vec![Box::new(signed(term))],
    ));
    drop(reading);
    database.transact(steps)?;
    Ok(found.len())
}

fn has_keys(database: &Database) -> Result<bool, StoreError> {
    let texts = database.texts().all()?;
    Ok(texts.iter().any(|(name, _)| Path::new(name).starts_with(FOLDER)))
}

/// Copies a database without running coordinators into an empty or new directory.
/// Checks every journal first; returns the number of runs. The marker comes last: without it no coordinator uses
/// the directory.
pub fn copy_to_directory(
    url: &str,
    dir: &Path,
    waits: &mut dyn FnMut(&Observed),
) -> Result<usize, StoreError> {
    let data_files = DataFiles::new(dir);
    let lock = Lock::unmarked(&data_files)?;
    // Also a directory without runs has keys.
    if files::entries(dir)?.iter().any(|path| path.file_name().is_none_or(|name| name != LOCK)) {
        let advice = "give an empty or a new directory";
        return Err(StoreError::unusable(dir.display(), "it is not empty", advice));
    }
    let store = PgStore::open(url, "queensctl copy", waits)?;
    for (name, text) in store.medium.texts().all()? {
        // A run's notes follow with its folder.
        if !name.starts_with("runs/") {
            files::write_private(&dir.join(&name), text.as_bytes())?;
        }
    }
    let (chain, lines) = TrustChain::new().with(&store.trust.records);
    chain.append(&data_files.trust(), &lines)?;
    write_durably(&data_files.term(), &manifest::encode_term(store.term))?;
    let folder = data_files.runs();
    fs::create_dir_all(&folder).map_err(files::failed("create", &folder))?;
    let runs = load::find_runs(&store.medium.link)?;
    for found in &runs {
        store.medium.export(found, &data_files)?;
    }
    write_durably(&dir.join(MARKER), &manifest::marker())?;
    drop(lock);
    Ok(runs.len())
}

impl Database {
    /// Copies the lines and rows of a run of directory `dir`.
    /// Returns the term of its last line, and the statements that create the run.
    fn import(&mut self, found: &FoundRun, dir: &Path) -> Result<(u64, Vec<Step>), StoreError> {
        let (run, path) = (found.manifest.run, found.files.name());
        let survey = found.survey(&fold::plan_of(&found.manifest)?)?;
        // Removes the rest of an interrupted copy.
        self.transact(delete_run(run))?;
        let end = survey.end;
        let mut reader = found.files.open(&JournalEnd::empty(&found.manifest))?;
        let (mut first, mut lines) = (1, Vec::new());
        while reader.offset() < end.bytes {
            match reader.next().map_err(files::failed("read", &path))? {
                Next::Line(_, text) => lines.push(text.to_owned()),
                Next::Bad(_) | Next::Torn | Next::End => {
                    let what = "it changed while it was copied";
                    return Err(StoreError::damaged(&path, None, what));
                }
            }
            if lines.len() == BATCH_LINES || reader.offset() == end.bytes {
                let next = first + lines.len() as u64;
                self.transact(vec![put_lines(run, first, std::mem::take(&mut lines))])?;
                first = next;
            }
        }
        self.put_rows(run, &mut survey.rows_after(0), end.lines)?;
        let mut steps = vec![put_run(&found.manifest, &end)];
        for text in Text::all(run) {
            if let Some(content) = files::read_text(&dir.join(text.path()))? {
                steps.push(put_text(text, content.trim_end()));
            }
        }
        Ok((end.fence, steps))
    }

    /// Copies a run to a data directory. The manifest comes last: it creates the run.
    fn export(
        &self,
        found: &FoundRun<super::Table>,
        data_files: &DataFiles,
    ) -> Result<(), StoreError> {
        let run = found.manifest.run;
        let to = data_files.run(run);
        let path = to.journal();
        fs::create_dir_all(&to.dir).map_err(files::failed("create", &to.dir))?;
        files::sync_parent(&to.dir)?;
        let mut lines = found.files.open(&JournalEnd::empty(&found.manifest))?.into_inner();
        descriptors::open(|| fs::File::create(&path))
            .and_then(|mut file| {
                io::copy(&mut lines, &mut file)?;
                file.sync_all()
            })
            .map_err(files::failed("write", &path))?;
        for text in Text::all(run) {
            if let Some(content) = self.read(text)? {
                write_durably(&data_files.dir.join(text.path()), &content)?;
            }
        }
        write_durably(&to.manifest(), &manifest::encode(&found.manifest))
    }
}

#[cfg(test)]
mod tests {
    use common::messages::run::RunId;
    use kit::postgres::Postgres;

    use super::*;
    use crate::{
        Change, DiskStore, EntryKind, Recheck, RunState, Settings, Store, SymmetricCounts, Trust,
        conformance::{accepted, lines, manifest, record, tasks, trust},
        postgres::verify_database,
        verify,
    };

    fn fill(store: &mut dyn Store) {
        store.create(&manifest(1), Recheck::Auto).unwrap();
        store.create(&manifest(2), Recheck::Auto).unwrap();
        store.apply(&(0..30).map(accepted).collect::<Vec<_>>()).unwrap();
        let changes = [
            Change::State { run: RunId(2), state: RunState::Paused },
            Change::Settings {
                run: RunId(1),
                settings: Settings { recheck: Recheck::All, priority: 7 },
            },
            Change::Trust(trust("王后 \\ \"x\"", Trust::Barred)),
        ];
        store.apply(&changes).unwrap();
        let counts = SymmetricCounts { half_turn: 12, quarter_turn: 0 };
        store.keep_symmetric(RunId(1), counts).unwrap();
    }

    fn everything(store: &mut impl Store) -> String {
        let all = (
            store.runs().unwrap(),
            lines(store, 1),
            tasks(store, 1),
            store.trust().unwrap(),
            store.secret(),
            store.symmetric(RunId(1)).unwrap(),
        );
        format!("{all:#?}")
    }

    #[test]
    fn a_copy_to_a_database_and_back_is_complete_and_usable() {
        let Some(server) = Postgres::start(&["fsync=off"]) else {
            return;
        };
        let url = server.database("queens");
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let quiet = &mut |_: &Observed| {};
        let mut disk = DiskStore::open(&from).unwrap();
        fill(&mut disk);
        assert!(matches!(copy_to_database(&from, &url, quiet), Err(StoreError::InUse { .. })));
        let (before, term) = (everything(&mut disk), disk.term());
        drop(disk);
        fs::create_dir(from.join("auth")).unwrap();
        fs::write(from.join("auth/tokens.json"), "[ ]\n").unwrap();
        assert_eq!(copy_to_database(&from, &url, quiet).unwrap(), 2);
        let again = copy_to_database(&from, &url, quiet).unwrap_err().to_string();
        assert!(again.contains("holds runs already"), "{again}");
        let text = verify_database(&url, &mut |_| {}).unwrap().to_string();
        assert_eq!(text, verify(&from).unwrap().to_string());
        let mut database = PgStore::open(&url, "test", quiet).unwrap();
        assert_eq!(everything(&mut database), before);
        assert!(database.term() > term);
        let secrets = database.secrets().unwrap();
        assert_eq!(secrets.read("tokens.json").unwrap().unwrap(), "[ ]\n");
        // The copy is usable in the database, also while it is verified …
        database.apply(&[accepted(30)]).unwrap();
        assert!(verify_database(&url, &mut |_| {}).unwrap().runs[0].live);
        let (after, term) = (everything(&mut database), database.term());
        drop((database, secrets));
        // … and on disk again.
        assert_eq!(copy_to_directory(&url, &to, quiet).unwrap(), 2);
        let mut disk = DiskStore::open(&to).unwrap();
        assert_eq!(everything(&mut disk), after);
        assert!(disk.term() > term);
        disk.apply(&[accepted(31)]).unwrap();
        drop(disk);
        assert_eq!(verify(&to).unwrap().runs[0].tasks_done, 32);
        assert_eq!(fs::read_to_string(to.join("auth/tokens.json")).unwrap(), "[ ]\n");
        assert!(copy_to_directory(&url, &to, quiet).is_err());
        // A changed byte is found.
        server.ask(
            "queens",
            "UPDATE queens.lines SET line = replace(line, '1.2.3', '1.2.4') WHERE seq = 7",
        );
        let flawed = verify_database(&url, &mut |_| {}).unwrap_err().to_string();
        assert!(flawed.contains("line 7: its checksum"), "{flawed}");
    }

    #[test]
    fn an_interrupted_copy_cannot_be_served_and_keys_are_not_replaced() {
        let Some(server) = Postgres::start(&["fsync=off"]) else {
            return;
        };
        let url = server.database("queens");
        let dir = tempfile::tempdir().unwrap();
        let [from, to, used] = ["from", "to", "used"].map(|name| dir.path().join(name));
        let quiet = &mut |_: &Observed| {};
        let mut disk = DiskStore::open(&from).unwrap();
        disk.create(&manifest(1), Recheck::Auto).unwrap();
        disk.create(&manifest(2), Recheck::Auto).unwrap();
        disk.apply(&[EntryKind::Accepted.change(record(2, 0, 1, 2))]).unwrap();
        disk.apply(&[Change::State { run: RunId(2), state: RunState::Paused }]).unwrap();
        drop(disk);
        // The copy ends after the first run: the second one has lost its line.
        let journal = DataFiles::new(&from).run(RunId(2)).journal();
        let whole = fs::read(&journal).unwrap();
        fs::write(&journal, "").unwrap();
        copy_to_database(&from, &url, quiet).unwrap_err();
        assert_eq!(PgStore::open(&url, "test", quiet).unwrap().runs().unwrap(), []);
        fs::write(&journal, whole).unwrap();
        assert_eq!(copy_to_database(&from, &url, quiet).unwrap(), 2);
        // A coordinator without runs has keys.
        let with_keys = server.database("keys");
        let database = PgStore::open(&with_keys, "test", quiet).unwrap();
        database.secrets().unwrap().write("tokens.json", "[]").unwrap();
        drop(database);
        let refused = copy_to_database(&from, &with_keys, quiet).unwrap_err().to_string();
        assert!(refused.contains("it holds keys already"), "{refused}");
        drop(DiskStore::open(&used).unwrap());
        let refused = copy_to_directory(&url, &used, quiet).unwrap_err().to_string();
        assert!(refused.contains("it is not empty"), "{refused}");
        // A folder in the place of a file ends the copy after the first files.
        let text = "INSERT INTO queens.texts (name, content) VALUES ('trust.jsonl/x', '')";
        server.ask("queens", text);
        copy_to_directory(&url, &to, quiet).unwrap_err();
        assert!(to.join(SECRET).exists() && !to.join(MARKER).exists());
    }
}
