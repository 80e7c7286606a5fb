//! What is drawn by lot, so that no worker can foresee it: which tasks are counted twice, and which
//! way round a task is counted.
//!
//! A keyed hash: the same in every life of the coordinator, and known to nobody without the key,
//! which stays with the data.

use common::{plan::TaskId, run::RunId};
use sha2::{Digest, Sha256};

use super::Recheck;

/// The lots of one data directory.
#[derive(Clone)]
pub(crate) struct Draw {
    key: [u8; 32],
}

impl std::fmt::Debug for Draw {
    /// The key is nobody's business, a log's least of all.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Draw")
    }
}

/// Parts of a whole in which fractions are given.
const PARTS: u128 = 1_000_000;

impl Draw {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Whether a task is among those that are counted twice. A larger part holds the smaller one.
    pub(crate) fn chosen(&self, run: RunId, task: TaskId, recheck: Recheck) -> bool {
        let parts = recheck.parts();
        if parts == 0 {
            return false;
        }
        let lot = u128::from(self.word(b"recheck", run, (task, 0)));
        (lot * PARTS) >> 64 < u128::from(parts)
    }

    /// Whether a lease is to be counted through the turned data: one in eight. A worker that turns
    /// its data sets up anew, which for frames costs about a tenth of a second; more turned tasks
    /// would hide second counts among them better, and cost more.
    pub(crate) fn turned(&self, run: RunId, task: TaskId, epoch: u64) -> bool {
        self.word(b"turned", run, (task, epoch)).is_multiple_of(8)
    }

    fn word(&self, purpose: &[u8], run: RunId, (task, epoch): (TaskId, u64)) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(purpose);
        hash.update(run.0.to_be_bytes());
        hash.update(task.0.to_be_bytes());
        hash.update(epoch.to_be_bytes());
        let digest = hash.finalize();
        let head = digest.first_chunk().expect("a digest has 32 bytes");
        u64::from_be_bytes(*head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_not_shown() {
        let draw = Draw::new([7; 32]);
        assert_eq!(format!("{draw:?}"), "Draw");
    }

    #[test]
    fn a_part_holds_the_lots_below_it() {
        let draw = Draw::new([1; 32]);
        for task in (0..100).map(TaskId) {
            let word = draw.word(b"recheck", RunId(9), (task, 0));
            let lot = u32::try_from((u128::from(word) * PARTS) >> 64).unwrap();
            let chosen = |parts| draw.chosen(RunId(9), task, Recheck::Millionths(parts));
            assert!(!chosen(lot) && chosen(lot + 1), "{task}: {lot}");
        }
    }

    #[test]
    fn lots_fall_as_often_as_they_should_and_differ_by_key() {
        let draws = [Draw::new([1; 32]), Draw::new([2; 32])];
        let drawn = draws.clone().map(|draw| {
            let tasks = (0..20_000).map(TaskId);
            let chosen = tasks.filter(|&task| draw.chosen(RunId(9), task, Recheck::Auto));
            chosen.collect::<Vec<_>>()
        });
        for drawn in &drawn {
            // 400 ± 20.
            assert!((300..500).contains(&drawn.len()), "{}", drawn.len());
        }
        let common = drawn[0].iter().filter(|task| drawn[1].contains(task));
        assert!(common.count() < 30);
        let larger = |task: &TaskId| draws[0].chosen(RunId(9), *task, Recheck::Millionths(30_000));
        assert!(drawn[0].iter().all(larger));
        assert!(
            (0..1_000)
                .map(TaskId)
                .all(|task| draws[0].chosen(RunId(9), task, Recheck::All))
        );
        assert!(!(0..1_000).map(TaskId).any(|task| draws[0].chosen(
            RunId(9),
            task,
            Recheck::Millionths(0)
        )));
        let turned = (0..10_000)
            .map(TaskId)
            .filter(|&task| draws[0].turned(RunId(9), task, 1));
        assert!((1_000..1_500).contains(&turned.count()));
    }
}
