//! Moving everything between a data directory and a database, both at rest: runs, keys, tokens,
//! secrets and what is thought of workers. The journals go over line by line as they are, so that the
//! hash chains that were begun in one go on in the other.

use std::{fs, io::Write as _, path::Path};

use common::run::RunId;

use super::{
    super::{
        Leader, StoreError,
        files::{self, DataFiles, Lock, Reading, write_durably},
        journal::{End, Next, Reader, Source as _},
        manifest,
        recover::{self, FoundRun, Survey},
        trust::{TrustChain, TrustLog},
    },
    PgStore, PgVault, Table,
    group::signed,
    link::Step,
};
use crate::{descriptors, ledger::fold};

/// Lines or rows that go over in one transaction.
const AT_A_TIME: usize = 20_000;

/// The files of a data directory that hold one small text each, under the names that a database has
/// for them too.
const SECRETS: [&str; 2] = ["secret", "signing-key"];

/// Copies a data directory that no coordinator has open into a database without runs; how many runs
/// went over. Every journal is checked first.
pub fn copy_to_database(
    dir: &Path,
    url: &str,
    waits: &mut dyn FnMut(&Leader),
) -> Result<usize, StoreError> {
    let data_files = DataFiles::new(dir);
    if !Lock::marked(&data_files)? {
        let what = "it is no data directory: it has no format.json";
        return Err(StoreError::damaged(dir, None, what));
    }
    let reading = Lock::shared(&data_files)?;
    if matches!(reading, Reading::WhileWritten) {
        return Err(StoreError::InUse {
            dir: dir.to_owned(),
            holder: " (a coordinator)".to_owned(),
        });
    };
    let found = recover::find_runs(&data_files)?;
    let mut store = PgStore::open(url, "queensctl copy", waits)?;
    if !store.runs.is_empty() || !store.trust.records().is_empty() {
        let what = "it holds runs already".to_owned();
        let advice = "give a database of its own (createdb)";
        return Err(store.link.lock().server.failed(what, advice));
    }
    for run in &found {
        store.take_in(run)?;
    }
    store.take_in_secrets(&data_files)?;
    store.take_in_trust(&data_files)?;
    // Later records name later terms. This is the last that is done in this one.
    let kept = data_files.kept_term()?;
    drop(reading);
    store.transact(vec![Step::new(
        "UPDATE queens.leader SET term = greatest(term, $1), leads = false",
        vec![Box::new(signed(kept))],
    )])?;
    Ok(found.len())
}

/// Copies a database whose coordinators have ended into a directory that is empty or new; how many
/// runs went over. Every journal is checked first.
pub fn copy_to_directory(
    url: &str,
    dir: &Path,
    waits: &mut dyn FnMut(&Leader),
) -> Result<usize, StoreError> {
    let data_files = DataFiles::new(dir);
    let lock = Lock::exclusive(&data_files)?;
    if !recover::find_runs(&data_files)?.is_empty() {
        let what = "it holds runs already: give an empty or a new directory";
        return Err(StoreError::damaged(dir, None, what));
    }
    let store = PgStore::open(url, "queensctl copy", waits)?;
    for (name, text) in store.vault()?.all()? {
        files::write_private(&dir.join(&name), text.as_bytes())?;
    }
    let mut trust = TrustLog::open(&data_files.trust())?;
    trust.append(store.trust.records())?;
    write_durably(
        &data_files.term(),
        &manifest::encode_term(store.leader.term),
    )?;
    let runs = super::found::find_runs(&store.link)?;
    let number = runs.len();
    for (found, _) in runs {
        store.give_out(&found, &data_files)?;
    }
    drop(lock);
    Ok(number)
}

impl PgStore {
    /// Its manifest comes last: it is what makes the run exist.
    fn take_in(&mut self, found: &FoundRun) -> Result<(), StoreError> {
        let plan = fold::plan_of(&found.manifest)?;
        let Survey { end, fold, .. } = Survey::of(found, &plan, 0)?;
        let run = found.manifest.run;
        let gone = |sql| Step::new(sql, vec![Box::new(run.to_string())]);
        // Of a copy that was cut off.
        self.transact(vec![gone("DELETE FROM queens.lines WHERE run = $1")])?;
        let mut reader = found.files.open(&End::empty(&found.manifest))?;
        loop {
            let lines = some_lines(&mut reader, &found.files.journal(), &end)?;
            if lines.1.is_empty() {
                break;
            }
            self.transact(vec![Step::new(
                "INSERT INTO queens.lines (run, seq, line) \
                 SELECT $1, seq, line FROM unnest($2::bigint[], $3::text[]) AS new (seq, line)",
                vec![
                    Box::new(run.to_string()),
                    Box::new(lines.0),
                    Box::new(lines.1),
                ],
            )])?;
        }
        self.rebuild_rows(run, &fold)?;
        let text = |path| Ok::<_, StoreError>(recover::read_if_there(path)?.map(trimmed));
        self.transact(vec![Step::new(
            "INSERT INTO queens.runs (run, manifest, state, recheck, symmetric_counts, lines, head) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            vec![
                Box::new(run.to_string()),
                Box::new(manifest::encode(&found.manifest)),
                Box::new(text(&found.files.state())?),
                Box::new(text(&found.files.recheck())?),
                Box::new(text(&found.files.symmetric())?),
                Box::new(signed(end.lines)),
                Box::new(end.head.to_string()),
            ],
        )])
    }

    fn take_in_secrets(&mut self, data_files: &DataFiles) -> Result<(), StoreError> {
        let mut steps = Vec::new();
        for name in SECRETS {
            if let Some(text) = recover::read_if_there(&data_files.dir.join(name))? {
                steps.push(super::vault::keep_named(name, &trimmed(text)));
            }
        }
        let doors = data_files.dir.join("doors");
        if doors.exists() {
            let entries = fs::read_dir(&doors).map_err(files::failed("read", &doors))?;
            for entry in entries {
                let path = entry.map_err(files::failed("read", &doors))?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // What a crash left half written.
                if name.ends_with(".new") {
                    continue;
                }
                if let Some(text) = recover::read_if_there(&path)? {
                    steps.push(super::vault::keep_named(&format!("doors/{name}"), &text));
                }
            }
        }
        self.transact(steps)
    }

    fn take_in_trust(&mut self, data_files: &DataFiles) -> Result<(), StoreError> {
        let records = TrustLog::read_only(&data_files.trust())?;
        let (chain, lines) = TrustChain::new().with(&records);
        let numbers: Vec<_> = (1..).take(lines.len()).collect();
        self.transact(vec![super::group::put_trust(numbers, lines)])?;
        self.trust = chain;
        Ok(())
    }

    fn give_out(&self, found: &FoundRun<Table>, data_files: &DataFiles) -> Result<(), StoreError> {
        let run = found.manifest.run;
        let to = data_files.run(run);
        let path = to.journal();
        fs::create_dir_all(&to.dir).map_err(files::failed("create", &to.dir))?;
        files::sync_parent(&to.dir)?;
        let mut file = descriptors::open(|| fs::File::create(&path))
            .map_err(files::failed("create", &path))?;
        let mut after = 0;
        loop {
            let page = found.files.page(after, super::pages::PAGE)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            let text: String = page
                .iter()
                .flat_map(|(_, line)| [line.as_str(), "\n"])
                .collect();
            file.write_all(text.as_bytes())
                .map_err(files::failed("write", &path))?;
        }
        file.sync_all().map_err(files::failed("write", &path))?;
        for (path, text) in self.small_texts(run, &to)? {
            write_durably(&path, &text)?;
        }
        write_durably(&to.manifest(), &manifest::encode(&found.manifest))
    }

    fn small_texts(
        &self,
        run: RunId,
        to: &files::RunFiles,
    ) -> Result<Vec<(std::path::PathBuf, String)>, StoreError> {
        const SQL: &str = "SELECT state, recheck, symmetric_counts FROM queens.runs WHERE run = $1";
        let name = run.to_string();
        let rows = self
            .link
            .lock()
            .call(async |session| session.query(SQL, &[&name]).await)?
            .unwrap_or_default();
        let texts = [to.state(), to.recheck(), to.symmetric()];
        let kept = texts.into_iter().enumerate().filter_map(|(column, path)| {
            let text: Option<String> = rows.first()?.get(column);
            text.map(|text| (path, text))
        });
        Ok(kept.collect())
    }
}

fn trimmed(text: String) -> String {
    text.trim_end().to_owned()
}

/// The next lines of a journal that was checked until `end`, with their numbers.
fn some_lines<R: std::io::BufRead>(
    reader: &mut Reader<R>,
    path: &Path,
    end: &End,
) -> Result<(Vec<i64>, Vec<String>), StoreError> {
    let mut lines = (Vec::new(), Vec::new());
    while lines.0.len() < AT_A_TIME && reader.offset() < end.bytes {
        match reader.next().map_err(files::failed("read", path))? {
            Next::Line(line, text) => {
                lines.0.push(signed(line.sequence));
                lines.1.push(text.to_owned());
            }
            Next::Bad(_) | Next::Torn | Next::End => {
                let what = "it changed while it was copied";
                return Err(StoreError::damaged(path, None, what));
            }
        }
    }
    Ok(lines)
}

impl PgVault {
    /// Everything that is kept, by name.
    fn all(&self) -> Result<Vec<(String, String)>, StoreError> {
        const SQL: &str = "SELECT name, content FROM queens.kept ORDER BY name";
        let rows = self
            .link
            .lock()
            .call(async |session| session.query(SQL, &[]).await)?
            .unwrap_or_default();
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{
            Change, DiskStore, Recheck, RunState, Store, SymmetricCounts, Trust, TrustRecord,
            conformance::{lines, manifest, record, rows},
            verify,
        },
        super::{server::Postgres, verify_database},
        *,
    };
    use crate::ledger::Principal;
    use common::run::WorkerId;

    fn fill(store: &mut dyn Store) {
        store.create(&manifest(1)).unwrap();
        store.create(&manifest(2)).unwrap();
        let counted = (0..30).map(|task| Change::Accepted(record(1, task, 1, 40)));
        store.apply(&counted.collect::<Vec<_>>()).unwrap();
        let trust = TrustRecord {
            worker: WorkerId(5),
            principal: Principal::kept("lab"),
            name: "王后 \\ \"x\"".to_owned(),
            trust: Trust::Doubted,
            faults: 1,
            reason: "a count was wrong".to_owned(),
            since_unix_ms: 1_700_000_000_000,
        };
        let said = [
            Change::State {
                run: RunId(2),
                state: RunState::Paused,
            },
            Change::Recheck {
                run: RunId(1),
                recheck: Recheck::All,
            },
            Change::Trust(trust),
        ];
        store.apply(&said).unwrap();
        let counts = SymmetricCounts {
            half_turn: 12,
            quarter_turn: 0,
        };
        store.keep_symmetric(RunId(1), counts).unwrap();
    }

    fn everything(store: &impl Store) -> String {
        let all = (
            store.runs().unwrap(),
            lines(store, 1),
            rows(store, 1),
            store.trust().unwrap(),
            store.secret(),
            store.symmetric(RunId(1)).unwrap(),
        );
        format!("{all:#?}")
    }

    #[test]
    fn everything_goes_into_a_database_and_back_and_goes_on_there() {
        let Some(server) = Postgres::start(&["fsync=off"]) else {
            return;
        };
        let url = server.database("queens");
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let quiet = &mut |_: &Leader| {};
        let mut disk = DiskStore::open(&from).unwrap();
        fill(&mut disk);
        assert!(matches!(
            copy_to_database(&from, &url, quiet),
            Err(StoreError::InUse { .. })
        ));
        let (before, term) = (everything(&disk), disk.term());
        drop(disk);
        fs::create_dir(from.join("doors")).unwrap();
        fs::write(from.join("doors/tokens.json"), "[ ]\n").unwrap();
        assert_eq!(copy_to_database(&from, &url, quiet).unwrap(), 2);
        let again = copy_to_database(&from, &url, quiet)
            .unwrap_err()
            .to_string();
        assert!(again.contains("holds runs already"), "{again}");
        let text = verify_database(&url, &mut |_| {}).unwrap().to_string();
        assert_eq!(text, verify(&from).unwrap().to_string());
        let mut database = PgStore::open(&url, "test", quiet).unwrap();
        assert_eq!(everything(&database), before);
        assert!(database.term() > term);
        let vault = database.vault().unwrap();
        assert_eq!(vault.read("doors/tokens.json").unwrap().unwrap(), "[ ]\n");
        // It goes on there, also while it is looked at …
        database
            .apply(&[Change::Accepted(record(1, 30, 1, 40))])
            .unwrap();
        assert!(verify_database(&url, &mut |_| {}).unwrap().runs[0].live);
        let (after, term) = (everything(&database), database.term());
        drop((database, vault));
        // … and on a disk again.
        assert_eq!(copy_to_directory(&url, &to, quiet).unwrap(), 2);
        let mut disk = DiskStore::open(&to).unwrap();
        assert_eq!(everything(&disk), after);
        assert!(disk.term() > term);
        disk.apply(&[Change::Accepted(record(1, 31, 1, 40))])
            .unwrap();
        drop(disk);
        assert_eq!(verify(&to).unwrap().runs[0].tasks_done, 32);
        assert_eq!(
            fs::read_to_string(to.join("doors/tokens.json")).unwrap(),
            "[ ]\n"
        );
        assert!(copy_to_directory(&url, &to, quiet).is_err());
        // A changed byte is found where it is.
        server.ask(
            "queens",
            "UPDATE queens.lines SET line = replace(line, '1.2.3', '1.2.4') WHERE seq = 7",
        );
        let flawed = verify_database(&url, &mut |_| {}).unwrap_err().to_string();
        assert!(flawed.contains("line 7: its check sum"), "{flawed}");
    }
}
