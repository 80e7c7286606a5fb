//! Random histories, on the disk and in the model.

use super::*;

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

fn everything(store: &impl Store) -> (Vec<crate::store::StoredRun>, Vec<TaskRow>, Vec<String>) {
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
