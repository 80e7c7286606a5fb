//! Copies between a data directory and a database, neither of them in use.
//! They include keys, tokens, secrets and the trust log; journal lines and their hashes stay unchanged.

use std::{fs, io, path::Path};

use proto::connect::FOLDER;
use scheduler::ledger::fold;

use crate::{
    Observed, StoreError, descriptors,
    directory::files::{self, DataFiles, Lock, Reading, SECRET, SIGNING_KEY, write_durably},
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

/// Copies an unused data directory into a database without runs.
/// Checks every journal first; returns the number of runs.
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
    if !load::find_runs(&database.link)?.is_empty() || !store.trust.records.is_empty() {
        let advice = "give an empty database (createdb)";
        return Err(database.link.lock().server.failed("it holds runs already", advice));
    }
    let mut term = data_files.last_term()?;
    for run in &found {
        term = term.max(database.import(run, dir)?);
    }
    let mut steps = Vec::new();
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

/// Copies a database without running coordinators into an empty or new directory.
/// Checks every journal first; returns the number of runs.
pub fn copy_to_directory(
    url: &str,
    dir: &Path,
    waits: &mut dyn FnMut(&Observed),
) -> Result<usize, StoreError> {
    let data_files = DataFiles::new(dir);
    let lock = Lock::exclusive(&data_files)?;
    if !recover::find_runs(&data_files)?.is_empty() {
        return Err(StoreError::unusable(
            dir.display(),
            "it holds runs already",
            "give an empty or a new directory",
        ));
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
    let runs = load::find_runs(&store.medium.link)?;
    for found in &runs {
        store.medium.export(found, &data_files)?;
    }
    drop(lock);
    Ok(runs.len())
}

impl Database {
    /// Copies a run of directory `dir`, and returns the term of its last line.
    /// The manifest comes last: it creates the run.
    fn import(&mut self, found: &FoundRun, dir: &Path) -> Result<u64, StoreError> {
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
        self.transact(steps)?;
        Ok(end.fence)
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
        Change, DiskStore, Recheck, RunState, Settings, Store, SymmetricCounts, Trust,
        conformance::{accepted, lines, manifest, tasks, trust},
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
}
