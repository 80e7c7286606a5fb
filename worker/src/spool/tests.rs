//! Crashes, damage, compaction and the lock of a spool directory.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::testing::sample_partial;

fn tasks(spool: &Spool) -> BTreeSet<u64> {
    spool.unacknowledged().map(|p| p.lease.task.task.0).collect()
}

fn open_in(directory: &Path) -> Spool {
    Spool::open(directory).unwrap()
}

#[test]
fn a_second_worker_is_refused_or_gets_the_next_default_directory() {
    let home = tempfile::tempdir().unwrap();
    let first = open_in(home.path());
    assert!(matches!(Spool::open(home.path()), Err(SpoolError::InUse(_))));
    drop(first);
    open_in(home.path());

    let base = home.path().join("base");
    let open = |directory, number| {
        let spool = open_free(&base, "node/../7").unwrap();
        assert_eq!((&spool.directory, spool.number), (&base.join(directory), number));
        spool
    };
    let one = open("node____7", 1);
    let _two = open("node____7-2", 2);
    drop(one);
    open("node____7", 1);
}

#[test]
#[cfg(unix)]
fn a_planted_spool_is_refused_and_its_links_are_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let (spool, victim) = (home.path().join("spool"), home.path().join("victim"));
    fs::write(&victim, "content").unwrap();
    for name in ["lock", "outbox.jsonl", "outbox.new", "secret"] {
        fs::create_dir_all(&spool).unwrap();
        std::os::unix::fs::symlink(&victim, spool.join(name)).unwrap();
        let error = Spool::open(&spool).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} is a link")), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "content");
        fs::remove_dir_all(&spool).unwrap();
    }
}

#[test]
fn a_failed_self_test_is_marked_until_the_mark_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let mut mark = FailureMark::of(home.path());
    mark.set();
    assert!(FailureMark::of(home.path()).is_set());
    mark.remove();
    assert!(!FailureMark::of(home.path()).is_set());
}

#[test]
fn the_file_does_not_grow_forever() {
    let home = tempfile::tempdir().unwrap();
    let mut spool = open_in(home.path());
    let live = sample_partial(0, 1);
    spool.keep(&[live], &[]).unwrap();
    let one_line = fs::metadata(spool.path()).unwrap().len();
    for task in 1..=3 * COMPACT_AFTER as u64 {
        let partial = sample_partial(task, 1);
        // Skips the result's own line, which would wait for the disk.
        spool.keep(&[], &[partial.lease]).unwrap();
        spool.live.insert(partial.lease, partial);
        spool.keep(&[], &[partial.lease]).unwrap();
    }
    assert!(spool.dead_lines <= COMPACT_AFTER + 2);
    assert_eq!(tasks(&spool), [0].into());
    spool.keep(&[], &[live.lease]).unwrap();
    assert_eq!(fs::metadata(spool.path()).unwrap().len(), 0);
    spool.keep(&[live], &[]).unwrap();
    assert_eq!(fs::metadata(spool.path()).unwrap().len(), one_line);
    drop(spool);
    assert_eq!(tasks(&open_in(home.path())), [0].into());
}

#[test]
fn a_full_disk_loses_no_stored_result() {
    // The kernel's always-full device stands for the disk.
    if !Path::new("/dev/full").exists() {
        // The output of `eprintln!` is shown only if the test fails.
        let _ = writeln!(io::stderr(), "!! NOT TESTED: a full disk: there is no /dev/full here");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut spool = open_in(home.path());
    spool.keep(&[sample_partial(1, 1)], &[]).unwrap();
    spool.file = Some(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    spool.keep(&[sample_partial(2, 1)], &[]).unwrap_err();
    // The disk has space again, and the next write restores the file.
    spool.keep(&[], &[]).unwrap();
    drop(spool);
    assert_eq!(tasks(&open_in(home.path())), [1, 2].into());
}

#[derive(Clone, Debug)]
enum Step {
    Finish(u64),
    Acknowledge(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..12).prop_map(Step::Finish),
        3 => (0u64..12).prop_map(Step::Acknowledge),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checks that a restart finds exactly the finished, unacknowledged results.
    #[test]
    fn a_spool_behaves_like_a_set(steps in vec(step(), 0..40)) {
        let home = tempfile::tempdir().unwrap();
        let mut model = BTreeSet::new();
        let mut spool = Some(open_in(home.path()));
        for step in steps {
            let open = spool.as_mut().unwrap();
            match step {
                Step::Finish(task) => {
                    open.keep(&[sample_partial(task, 1)], &[]).unwrap();
                    model.insert(task);
                }
                Step::Acknowledge(task) => {
                    let lease = sample_partial(task, 1).lease;
                    open.keep(&[], &[lease]).unwrap();
                    model.remove(&task);
                }
                Step::Restart => {
                    drop(spool.take());
                    spool = Some(open_in(home.path()));
                }
            }
            prop_assert_eq!(&tasks(spool.as_ref().unwrap()), &model);
        }
        drop(spool);
        prop_assert_eq!(tasks(&open_in(home.path())), model);
    }

    /// Simulates a crash that leaves whole lines, perhaps part of one, and garbage.
    #[test]
    fn a_torn_tail_costs_only_the_torn_lines(
        count in 1u8..6,
        cut in any::<proptest::sample::Index>(),
        garbage in vec(any::<u8>(), 0..20),
    ) {
        let home = tempfile::tempdir().unwrap();
        let mut spool = open_in(home.path());
        for task in 0..count {
            spool.keep(&[sample_partial(u64::from(task), 1)], &[]).unwrap();
        }
        let path = spool.path();
        drop(spool);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(cut.index(bytes.len() + 1));
        // A whole line may lack only its line end.
        let whole = (0..=count)
            .rev()
            .find(|&lines| {
                let mut expected = Vec::new();
                (0..lines).for_each(|t| SpoolLine::finished(&sample_partial(u64::from(t), 1)).write(&mut expected));
                if lines > 0 {
                    expected.pop();
                }
                bytes.starts_with(&expected)
            })
            .unwrap();
        if bytes.ends_with(b"\n") || bytes.is_empty() {
            bytes.extend_from_slice(&garbage);
        }
        fs::write(&path, &bytes).unwrap();
        let expected: BTreeSet<u64> = (0..u64::from(whole)).collect();
        prop_assert_eq!(tasks(&open_in(home.path())), expected.clone());
        // The repair is complete: a second start reads the same results and can continue.
        let mut spool = open_in(home.path());
        spool.keep(&[sample_partial(99, 1)], &[]).unwrap();
        drop(spool);
        prop_assert_eq!(tasks(&open_in(home.path())).len(), expected.len() + 1);
    }
}
