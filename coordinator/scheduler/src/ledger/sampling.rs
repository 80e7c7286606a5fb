//! Random selection of rechecks, recounts and orientations.
//!
//! Selections use a keyed hash, so workers cannot predict them, and they are the same after every restart of
//! the coordinator. The key is stored with the data.

use std::fmt;

use common::{
    messages::{
        recheck::{MILLION, Recheck},
        run::RunId,
    },
    plan::TaskId,
};
use sha2::{Digest, Sha256};

/// Denominator of the fraction of first counts in the rotated orientation.
/// More would hide rechecks better, but each change of orientation costs a worker its setup (frames: 0.1 s).
const ROTATED_ONE_IN: u64 = 8;

/// Random selection with the key of one data directory.
#[derive(Clone)]
pub struct RecheckSampler {
    key: [u8; 32],
}

impl fmt::Debug for RecheckSampler {
    /// Omits the key, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecheckSampler")
    }
}

impl RecheckSampler {
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Returns whether a task is selected; a larger fraction includes the smaller ones.
    pub fn selects(&self, run: RunId, task: TaskId, recheck: Recheck) -> bool {
        let number = u128::from(self.hash(b"recheck", run, task, 0));
        (number * u128::from(MILLION)) >> 64 < u128::from(recheck.millionths())
    }

    /// Returns a task's secret 64-bit rank; the referee recounts the lowest ranks.
    pub fn rank(&self, run: RunId, task: TaskId) -> u64 {
        self.hash(b"recount", run, task, 0)
    }

    /// Returns whether the lease after `epoch` is counted in the rotated orientation.
    pub fn rotates(&self, run: RunId, task: TaskId, epoch: u64) -> bool {
        self.hash(b"turned", run, task, epoch).is_multiple_of(ROTATED_ONE_IN)
    }

    fn hash(&self, purpose: &[u8], run: RunId, task: TaskId, epoch: u64) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(purpose);
        hash.update(run.0.to_be_bytes());
        hash.update(task.0.to_be_bytes());
        hash.update(epoch.to_be_bytes());
        let digest = hash.finalize();
        u64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_not_displayed() {
        assert_eq!(format!("{:?}", RecheckSampler::new([7; 32])), "RecheckSampler");
    }

    #[test]
    fn a_fraction_selects_the_numbers_below_it() {
        let sampler = RecheckSampler::new([1; 32]);
        for task in (0..100).map(TaskId) {
            let hash = u128::from(sampler.hash(b"recheck", RunId(9), task, 0));
            let number = u32::try_from((hash * u128::from(MILLION)) >> 64).unwrap();
            let selects = |parts| sampler.selects(RunId(9), task, Recheck::Millionths(parts));
            assert!(!selects(number) && selects(number + 1), "{task}: {number}");
        }
    }

    #[test]
    fn selections_have_their_frequency_and_differ_by_key() {
        let samplers = [1, 2].map(|key| RecheckSampler::new([key; 32]));
        let selected = samplers.clone().map(|sampler| {
            let tasks = (0..20_000).map(TaskId);
            tasks.filter(|&task| sampler.selects(RunId(9), task, Recheck::Auto)).collect::<Vec<_>>()
        });
        for selected in &selected {
            // 400 ± 20.
            assert!((300..500).contains(&selected.len()), "{}", selected.len());
        }
        let common = selected[0].iter().filter(|task| selected[1].contains(task));
        assert!(common.count() < 30);
        let selects = |task: &TaskId, recheck| samplers[0].selects(RunId(9), *task, recheck);
        assert!(selected[0].iter().all(|task| selects(task, Recheck::Millionths(30_000))));
        let tasks: Vec<_> = (0..1_000).map(TaskId).collect();
        assert!(tasks.iter().all(|task| selects(task, Recheck::All)));
        assert!(!tasks.iter().any(|task| selects(task, Recheck::Millionths(0))));
        let rotated =
            (0..10_000).map(TaskId).filter(|&task| samplers[0].rotates(RunId(9), task, 1));
        assert!((1_000..1_500).contains(&rotated.count()));
    }
}
