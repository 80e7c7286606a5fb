//! What only a disk can do: be torn, altered, full, somebody else's, or at odds with itself.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use common::{plan::TaskId, run::RunId};
use proptest::prelude::*;

use super::{
    Change, DiskStore, MemoryStore, RunState, Store, StoreError, TaskRow, TaskState,
    conformance::{Bench, OnDisk, lines, manifest, record, rows},
    files::Layout,
    journal::{End, Medium},
    manifest as format,
    recover::{self, FoundRun},
    rows::Rows,
};

/// A closed directory with run 1, whose journal was written in the groups given.
fn closed(groups: &[&[Change]]) -> OnDisk {
    let mut disk = OnDisk::new();
    disk.store().create(&manifest(1)).unwrap();
    for group in groups {
        disk.store().apply(group).unwrap();
    }
    disk.close();
    disk
}

fn accepted(task: u64) -> Change {
    Change::Accepted(record(1, task, 1, task + 2))
}

fn journal_path(disk: &OnDisk) -> PathBuf {
    disk.dir()
        .join("runs")
        .join(RunId(1).to_string())
        .join("journal.jsonl")
}

fn found(disk: &OnDisk) -> FoundRun {
    let mut runs = recover::find_runs(&Layout::new(disk.dir())).unwrap();
    runs.remove(0)
}

fn walk(run: &FoundRun) -> Result<End, StoreError> {
    run.check(|_, _| Ok::<_, StoreError>(()))
}

fn done(store: &impl Store) -> Vec<u64> {
    rows(store, 1)
        .iter()
        .filter(|row| matches!(row.state, TaskState::Done { .. }))
        .map(|row| row.task.0)
        .collect()
}

/// The names beside `path` that start with its name and a suffix.
fn set_aside(path: &Path, suffix: &str) -> Vec<PathBuf> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let prefix = format!("{name}.{suffix}-");
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&prefix)
        })
        .collect()
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let disk = closed(&[&[accepted(0)], &[accepted(1), accepted(2)]]);
    let path = journal_path(&disk);
    let whole = fs::read(&path).unwrap();
    let ends: Vec<_> = whole
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    let run = found(&disk);
    for cut in ends[0]..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let end = walk(&run).unwrap();
        let lines = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(end.lines, lines as u64, "cut at byte {cut}");
        assert_eq!(end.bytes, ends[lines - 1] as u64, "cut at byte {cut}");
    }
}

#[test]
fn a_torn_tail_is_kept_aside_and_written_over() {
    for missing in [1, 2, 100, 250] {
        let mut disk = closed(&[&[accepted(0)], &[accepted(1)]]);
        let path = journal_path(&disk);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - missing]).unwrap();
        disk.reopen();
        assert_eq!(done(disk.store()), [0]);
        let torn: Vec<_> = set_aside(&path, "torn")
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(torn, [whole[first..whole.len() - missing].to_vec()]);
        disk.store().apply(&[accepted(1), accepted(2)]).unwrap();
        disk.reopen();
        assert_eq!(done(disk.store()), [0, 1, 2]);
        assert_eq!(set_aside(&path, "torn").len(), 1);
    }
}

#[test]
fn a_changed_byte_is_named_with_its_line() {
    let disk = closed(&[&[accepted(0), accepted(1), accepted(2)]]);
    let path = journal_path(&disk);
    let whole = fs::read(&path).unwrap();
    let run = found(&disk);
    let last = whole[..whole.len() - 1]
        .iter()
        .rposition(|b| *b == b'\n')
        .unwrap()
        + 1;
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let line = whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        match walk(&run) {
            // Nothing whole follows: no different from a torn write.
            Ok(end) => assert!(at >= last && end.lines == 2, "byte {at}: {end:?}"),
            Err(StoreError::Damaged { line: named, .. }) => {
                assert!(at < last && named == Some(line), "byte {at}: {named:?}");
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn an_altered_line_with_a_right_check_sum_breaks_the_chain() {
    let disk = closed(&[&[accepted(0), accepted(1), accepted(2)]]);
    let path = journal_path(&disk);
    let text = fs::read_to_string(&path).unwrap();
    let mut altered: Vec<_> = text.lines().map(str::to_owned).collect();
    let body = altered[1].replace(r#""count":"3""#, r#""count":"4""#);
    let body = &body[..body.rfind(r#","crc""#).unwrap()];
    altered[1] = format!(
        r#"{body},"crc":"{:08x}"}}"#,
        crc32fast::hash(body.as_bytes())
    );
    fs::write(&path, altered.join("\n") + "\n").unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(
        matches!(error, StoreError::Damaged { line: Some(3), .. }),
        "{error}"
    );
}

#[test]
fn a_journal_shorter_than_its_state_is_refused() {
    let complete = Change::State {
        run: RunId(1),
        state: RunState::Complete,
    };
    let mut disk = closed(&[&[accepted(0), accepted(1), complete]]);
    disk.reopen();
    disk.close();
    let path = journal_path(&disk);
    let text = fs::read_to_string(&path).unwrap();
    let first = text.lines().next().unwrap();
    fs::write(&path, format!("{first}\n")).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
    assert!(error.contains("1 whole lines, but had 2"), "{error}");
    assert!(error.contains("state.json"), "{error}");
    let state = path.with_file_name("state.json");
    fs::remove_file(state).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), [0]);
}

#[test]
fn a_damaged_database_is_made_anew() {
    let tasks: Vec<_> = (0..30).collect();
    let all: Vec<_> = tasks.iter().map(|task| accepted(*task)).collect();
    let groups = [&all[..10], &all[10..20], &all[20..]];
    let original = closed(&groups);
    let database = original.dir().join("db").join("db");
    let bytes = fs::read(&database).unwrap();
    for step in 0..16 {
        let mut disk = closed(&groups);
        let database = disk.dir().join("db").join("db");
        let mut damaged = bytes.clone();
        let from = bytes.len() * step / 16;
        for byte in damaged.iter_mut().skip(from).take(200) {
            *byte = !*byte;
        }
        fs::write(&database, damaged).unwrap();
        disk.reopen();
        assert_eq!(done(disk.store()), tasks, "damage from byte {from}");
    }
}

#[test]
fn a_database_of_another_journal_is_made_anew() {
    let mut disk = closed(&[&[accepted(0), accepted(1)]]);
    let other = closed(&[&[accepted(4)], &[accepted(0)], &[accepted(7)]]);
    fs::remove_dir_all(disk.dir().join("db")).unwrap();
    fs::rename(other.dir().join("db"), disk.dir().join("db")).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), [0, 1]);
    assert_eq!(set_aside(&disk.dir().join("db"), "bad").len(), 1);
}

/// Writes some bytes of a group to the file, then fails as a full disk does.
struct Full {
    file: File,
    room: usize,
}

impl Medium for Full {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(&bytes[..self.room.min(bytes.len())])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
}

/// A disk whose sync fails, after which nobody knows what it holds; it cannot be cut either.
struct Broken(File);

impl Medium for Broken {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Err(io::Error::other("input/output error"))
    }

    fn cut(&mut self, _bytes: u64) -> io::Result<()> {
        Err(io::Error::other("input/output error"))
    }
}

fn append_to(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}

#[test]
fn after_a_full_disk_nothing_is_acknowledged_and_nothing_is_lost() {
    for room in [0, 100, 500, 10_000] {
        let mut disk = closed(&[&[accepted(0)]]);
        disk.reopen();
        let file = append_to(&journal_path(&disk));
        disk.store()
            .set_medium(RunId(1), Box::new(Full { file, room }));
        let error = disk.store().apply(&[accepted(1), accepted(2)]).unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        for _ in 0..2 {
            let error = disk.store().apply(&[accepted(3)]).unwrap_err();
            assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        }
        let error = disk.store().create(&manifest(2)).unwrap_err();
        assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        disk.reopen();
        assert_eq!(done(disk.store()), [0], "room for {room} bytes");
        assert_eq!(lines(disk.store(), 1).len(), 1);
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_what_is_whole_is_kept() {
    let mut disk = closed(&[&[accepted(0)]]);
    disk.reopen();
    let file = append_to(&journal_path(&disk));
    disk.store().set_medium(RunId(1), Box::new(Broken(file)));
    disk.store().apply(&[accepted(1)]).unwrap_err();
    let error = disk.store().apply(&[accepted(1)]).unwrap_err();
    assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
    disk.reopen();
    assert_eq!(done(disk.store()), [0, 1]);
}

#[test]
fn a_directory_has_one_writer() {
    let mut disk = closed(&[]);
    disk.reopen();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let pid = format!("(process {})", std::process::id());
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&pid), "{error}");
    disk.close();
    disk.reopen();
}

#[test]
fn directories_that_are_not_ours_are_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    let error = DiskStore::open(dir.path()).unwrap_err();
    assert!(
        matches!(error, StoreError::ForeignDirectory { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let file = dir.path().join("thesis.tex");
    let error = DiskStore::open(&file).unwrap_err();
    assert!(error.to_string().contains("path of a directory"), "{error}");

    // What a crash within the first open leaves is ours to take.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "1\n").unwrap();
    fs::write(dir.path().join("format.tmp"), "{").unwrap();
    fs::create_dir(dir.path().join("runs")).unwrap();
    DiskStore::open(dir.path()).unwrap();
}

/// Nobody can make directories there, whoever runs the test.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_is_named_with_what_to_do() {
    let dir = Path::new("/sys/queens-data");
    let error = DiskStore::open(dir).unwrap_err().to_string();
    assert!(error.contains("cannot create /sys/queens-data"), "{error}");
    assert!(error.contains("writable for this user"), "{error}");
}

#[test]
fn another_format_or_plan_is_refused_with_both() {
    let mut disk = closed(&[]);
    let marker = disk.dir().join("format.json");
    let ours = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, ours.replace(r#""format":2"#, r#""format":3"#)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    let found = matches!(
        error,
        StoreError::FormatVersion {
            found: 3,
            ours: 2,
            ..
        }
    );
    assert!(found, "{error}");
    fs::write(&marker, ours).unwrap();

    let mut other = manifest(1);
    other.plan_version += 1;
    other.spec.task_cost += 1;
    let path = journal_path(&disk).with_file_name("manifest.json");
    fs::write(&path, format::encode(&other)).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Plan(_)), "{error}");
    let plan = super::plan_of(&manifest(1)).unwrap().hash().to_string();
    assert!(error.to_string().contains(&plan), "{error}");

    fs::write(&path, format::encode(&manifest(2))).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    fs::write(&path, format::encode(&manifest(1))).unwrap();
    disk.reopen();
}

#[test]
fn a_run_without_a_manifest_was_never_created() {
    let mut disk = closed(&[]);
    let dir = disk.dir().join("runs").join(RunId(7).to_string());
    fs::create_dir(&dir).unwrap();
    File::create(dir.join("journal.jsonl")).unwrap();
    disk.reopen();
    assert_eq!(disk.store().runs().unwrap().len(), 1);
    disk.store().create(&manifest(7)).unwrap();
    disk.store()
        .apply(&[Change::Accepted(record(7, 0, 1, 1))])
        .unwrap();
    disk.close();
    fs::remove_file(dir.join("manifest.json")).unwrap();
    let error = DiskStore::open(disk.dir()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Change>),
    Reopen,
    LoseDatabase,
}

fn changes() -> impl Strategy<Value = Change> {
    let (run, task) = (RunId(1), 0..4u64);
    (task, 1..5u64, 0..3u64, 0..11u8).prop_map(move |(task, epoch, count, kind)| {
        let record = record(1, task, epoch, count);
        let task = record.task;
        let worker = record.worker;
        let epoch = record.epoch;
        match kind {
            0 | 1 => Change::Leased {
                run,
                task,
                worker,
                epoch,
                until_unix_ms: count,
            },
            2 => Change::Released { run, task, epoch },
            3 => Change::Expired {
                run,
                task,
                epoch,
                worker,
            },
            4 => Change::Parked { run, task },
            5 => Change::Unparked { run, task },
            6 | 7 => Change::Accepted(record),
            8 => Change::Confirmed(record),
            9 => Change::Quarantined { second: record },
            _ => Change::State {
                run,
                state: RunState::Paused,
            },
        }
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec(changes(), 1..4).prop_map(Step::Apply),
        1 => Just(Step::Reopen),
        1 => Just(Step::LoseDatabase),
    ]
}

fn everything(store: &impl Store) -> (Vec<super::StoredRun>, Vec<TaskRow>, Vec<String>) {
    let texts = lines(store, 1).into_iter().map(|(_, _, text)| text);
    (store.runs().unwrap(), rows(store, 1), texts.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_disk_does_what_the_model_does(
        steps in proptest::collection::vec(steps(), 1..24),
        in_segments in any::<bool>(),
    ) {
        let mut disk = if in_segments { OnDisk::in_segments() } else { OnDisk::new() };
        let mut model = MemoryStore::new();
        disk.store().create(&manifest(1)).unwrap();
        model.create(&manifest(1)).unwrap();
        for step in steps {
            match step {
                Step::Apply(group) => {
                    let [ours, theirs] = [disk.store().apply(&group), model.apply(&group)]
                        .map(|result| result.map_err(|error| error.to_string()));
                    prop_assert_eq!(ours, theirs);
                }
                Step::Reopen => {
                    disk.reopen();
                    model.begin_term();
                }
                Step::LoseDatabase => {
                    disk.close();
                    fs::remove_dir_all(disk.dir().join("db")).unwrap();
                    disk.reopen();
                    model.begin_term();
                    model.lose_rows();
                }
            }
            prop_assert_eq!(everything(disk.store()), everything(&model));
        }
    }
}

/// A copy of what this program wrote when its data directories had format 1: a complete run of
/// N = 8, and 20 of the 36 tasks of one of N = 10.
fn format_1() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/format-1");
    copy(&from, dir.path());
    dir
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_directory_of_format_1_is_read_and_gone_on_with() {
    let dir = format_1();
    let [eight, ten] = [RunId(0x6493eb41a8639ddb), RunId(0x87f08c38ffde93ed)];
    let verified = super::verify(dir.path()).unwrap();
    assert_eq!(verified.runs.len(), 2);
    for _ in 0..2 {
        let mut store = DiskStore::open(dir.path()).unwrap();
        let runs = store.runs().unwrap();
        let of = |run| {
            runs.iter()
                .find(|stored| stored.manifest.run == run)
                .unwrap()
        };
        assert_eq!(of(eight).state, RunState::Complete);
        assert_eq!(of(ten).state, RunState::Running);
        assert!(of(ten).elapsed_ms > 0 && of(ten).elapsed_ms < 60_000);
        assert_eq!(store.refold(eight).unwrap().total(), Ok(92));
        let mut done = Vec::new();
        store
            .scan(ten, &mut |row| {
                if matches!(row.state, TaskState::Done { .. }) {
                    done.push(row.task);
                }
            })
            .unwrap();
        // What is added has the new format, in the same chain.
        let next = (0..36).find(|task| !done.contains(&TaskId(*task))).unwrap();
        let mut new = record(1, next, 9, 0);
        new.run = ten;
        store.apply(&[Change::Accepted(new)]).unwrap();
    }
    let verified = super::verify(dir.path()).unwrap();
    let lines: Vec<_> = verified.runs.iter().map(|run| run.lines).collect();
    assert!(lines.contains(&22), "{lines:?}");
    let marker = fs::read_to_string(dir.path().join("format.json")).unwrap();
    assert!(marker.contains(r#""format":2"#), "{marker}");
}

#[test]
fn a_row_that_disagrees_with_the_journal_is_made_anew() {
    let mut disk = closed(&[&[accepted(0), accepted(1)]]);
    {
        let database = Rows::open(&disk.dir().join("db")).unwrap();
        let mut row = database.get(RunId(1), TaskId(1)).unwrap().unwrap();
        let TaskState::Done { vote, .. } = &mut row.state else {
            panic!("{row:?}");
        };
        vote.count += 8;
        let altered = HashMap::from([((RunId(1), TaskId(1)), row)]);
        database.put(&altered, []).unwrap();
        database.flush().unwrap();
    }
    disk.reopen();
    assert_eq!(set_aside(&disk.dir().join("db"), "bad").len(), 1);
    let counts: Vec<_> = rows(disk.store(), 1)
        .into_iter()
        .map(|row| match row.state {
            TaskState::Done { vote, .. } => vote.count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [2, 3]);
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(5));
}

#[test]
fn the_total_is_folded_from_the_disk() {
    let mut disk = closed(&[&[accepted(0), accepted(1)]]);
    disk.reopen();
    let path = journal_path(&disk);
    let text = fs::read_to_string(&path).unwrap();
    let shorter = text.lines().next().unwrap().to_owned() + "\n";
    for changed in [text.replace(r#""count":"3""#, r#""count":"4""#), shorter] {
        fs::write(&path, changed).unwrap();
        let error = disk.store().refold(RunId(1)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

#[test]
fn terms_rise_and_a_line_of_an_earlier_one_is_damage() {
    let mut disk = closed(&[&[accepted(0)]]);
    disk.reopen();
    assert_eq!(disk.store().term(), 2);
    disk.store().apply(&[accepted(1)]).unwrap();
    let fences: Vec<_> = lines(disk.store(), 1)
        .iter()
        .map(|(_, _, text)| {
            let line: serde_json::Value = serde_json::from_str(text).unwrap();
            line["fence"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(fences, [1, 2]);
    // A coordinator that was thought to be dead writes on.
    disk.close();
    let term = disk.dir().join("term.json");
    fs::write(&term, format::encode_term(0)).unwrap();
    disk.reopen();
    disk.store().apply(&[accepted(2)]).unwrap();
    disk.close();
    let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
    assert!(
        error.contains("line 3") && error.contains("term 1"),
        "{error}"
    );
}

#[test]
#[cfg(unix)]
fn the_secret_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let disk = closed(&[]);
    let mode = fs::metadata(disk.dir().join("secret"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(disk.dir().join("secret")).unwrap();
    assert_eq!(secret.trim_end().len(), 72);
}

#[test]
fn a_secret_with_a_changed_digit_is_no_secret() {
    let mut disk = closed(&[]);
    let path = disk.dir().join("secret");
    let text = fs::read_to_string(&path).unwrap();
    for at in 0..72 {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        fs::write(&path, changed).unwrap();
        let error = DiskStore::open(disk.dir()).unwrap_err().to_string();
        assert!(error.contains("its check sum is wrong"), "{error}");
    }
    // As programs wrote it that knew no check sum.
    fs::write(&path, &text[..64]).unwrap();
    disk.reopen();
}

/// A closed directory with run 1, whose nine records are in segments of a line or two.
fn segmented() -> OnDisk {
    let mut disk = OnDisk::in_segments();
    disk.store().create(&manifest(1)).unwrap();
    for task in 0..9 {
        disk.store().apply(&[accepted(task)]).unwrap();
    }
    disk.close();
    disk
}

fn segment(disk: &OnDisk, number: u64, extension: &str) -> PathBuf {
    journal_path(disk).with_extension(format!("{number:06}.{extension}"))
}

#[test]
fn segments_are_one_journal() {
    let mut disk = segmented();
    assert!(segment(&disk, 3, "jsonl").exists());
    let verified = super::verify(disk.dir()).unwrap();
    assert_eq!(verified.runs[0].lines, 9);
    disk.reopen();
    assert_eq!(done(disk.store()), (0..9).collect::<Vec<_>>());
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(54));
    // A torn tail is that of the last segment alone.
    disk.close();
    let path = journal_path(&disk);
    let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
    torn.write_all(b"{\"seq\":10").unwrap();
    drop(torn);
    disk.reopen();
    disk.store().apply(&[accepted(9)]).unwrap();
    disk.reopen();
    assert_eq!(disk.store().refold(RunId(1)).unwrap().total(), Ok(65));
    assert_eq!(set_aside(&path, "torn").len(), 1);
}

#[test]
fn a_crash_while_a_segment_is_sealed_loses_nothing() {
    // Before the renaming: a seal of what is still the last segment.
    let mut disk = segmented();
    let last = (1..)
        .find(|number| !segment(&disk, *number, "jsonl").exists())
        .unwrap();
    // Between the two: there is no last segment.
    fs::rename(journal_path(&disk), segment(&disk, last, "jsonl")).unwrap();
    let verified = super::verify(disk.dir()).unwrap();
    assert_eq!(verified.runs[0].lines, 9);
    disk.reopen();
    disk.store().apply(&[accepted(9)]).unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_segment_that_is_gone_or_altered_is_found_out() {
    let damaged = |disk: &OnDisk| {
        let error = DiskStore::open(disk.dir()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(super::verify(disk.dir()).is_err());
    };
    for number in [1, 2] {
        let disk = segmented();
        fs::remove_file(segment(&disk, number, "jsonl")).unwrap();
        damaged(&disk);
        let disk = segmented();
        let path = segment(&disk, number, "jsonl");
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 20;
        bytes[end] ^= 1;
        fs::write(&path, bytes).unwrap();
        damaged(&disk);
    }
    // All from some segment on are gone, the last one too: only the seals know.
    let disk = segmented();
    fs::write(journal_path(&disk), "").unwrap();
    for number in (2..).take_while(|number| segment(&disk, *number, "jsonl").exists()) {
        fs::remove_file(segment(&disk, number, "jsonl")).unwrap();
    }
    damaged(&disk);
    // A seal that cannot be read seals nothing, and the lines are there all the same.
    let mut disk = segmented();
    fs::write(segment(&disk, 2, "seal"), "{").unwrap();
    disk.reopen();
    assert_eq!(done(disk.store()).len(), 9);
}
