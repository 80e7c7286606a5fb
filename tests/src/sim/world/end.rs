//! What must be true when a run is complete.

use std::collections::BTreeMap;

use common::{plan::TaskId, run::WorkerId};
use coordinator::{
    ledger::Recheck,
    store::{JournalCursor, JournalEntry},
};

use super::{super::disk::Disk, Outcome, World};

impl World {
    /// The run is complete: what is on disk is the exact total, each task counted once.
    pub(super) fn finish(mut self) -> Outcome {
        let seed = self.seed();
        let shared = self.disk.clone();
        let mut disk = shared.disk();
        self.outcome.faults += disk.tally;
        self.outcome.time_ms = self.now;
        self.outcome.counted = self.workers.iter().map(|worker| worker.share.counted).sum();
        self.outcome.shares = self.workers.iter().map(|worker| worker.share).collect();
        let ledger = &disk.ledger;
        self.outcome.conflicts = ledger.conflicts;
        self.outcome.confirmed = ledger.confirmed;
        self.outcome.caught = ledger.caught.len() as u64;
        self.outcome.barred = ledger.barred.len() as u64;
        self.outcome.compared = ledger.barred.values().copied().max().unwrap_or(0);
        if self.scenario.faults.planted > 0 {
            return self.outcome;
        }
        let (counts, by) = journalled(&mut disk, seed);
        let truth = self.scenario.truth;
        assert_eq!(counts.len(), truth.counts.len(), "seed {seed}: tasks");
        for (task, count) in &counts {
            if *count != truth.count(*task) {
                self.outcome.missed += 1;
                self.check_missed(*task, by[task], &disk);
            }
        }
        self.check_honour(&disk);
        let total: u128 = counts.values().copied().map(u128::from).sum();
        self.outcome.exact = total == truth.total;
        assert!(
            self.outcome.exact || self.outcome.missed > 0,
            "seed {seed}: the journal's total"
        );
        assert_eq!(disk.ledger.done(), counts.len(), "seed {seed}");
        self.outcome
    }

    /// Whoever was caught once has no wrong count left, and where everything is counted twice nobody
    /// has; two that agree confirm each other.
    pub(super) fn check_missed(&self, task: TaskId, worker: WorkerId, disk: &Disk) {
        let faults = &self.scenario.faults;
        let caught = disk.ledger.caught.contains(&worker);
        let checked = self.scenario.recheck == Recheck::All;
        let undetected = faults.liars > 0 && !caught && !checked || faults.liars_agree;
        let seed = self.seed();
        assert!(undetected, "seed {seed}: task {task} of worker {worker}");
    }

    /// No honest worker was found wrong, but by two that agree.
    pub(super) fn check_honour(&self, disk: &Disk) {
        let faults = &self.scenario.faults;
        let honest = |worker: &&WorkerId| worker.0 > faults.liars as u128;
        let wronged = disk.ledger.caught.iter().find(honest);
        assert!(
            wronged.is_none() || faults.liars_agree,
            "seed {}: honest worker {wronged:?} was found wrong",
            self.seed()
        );
    }
}

/// The accepted count of each task, and whose it is, as the journal has them.
fn journalled(disk: &mut Disk, seed: u64) -> (BTreeMap<TaskId, u64>, BTreeMap<TaskId, WorkerId>) {
    let run = disk.run().expect("the run is complete");
    let mut counts = BTreeMap::new();
    let mut by = BTreeMap::new();
    let mut visit = |_, entry: &JournalEntry, _: &str| {
        match entry {
            JournalEntry::Accepted(record) => {
                let before = counts.insert(record.task, record.count);
                by.insert(record.task, record.worker);
                assert_eq!(before, None, "seed {seed}: {record:?} is counted twice");
            }
            JournalEntry::Confirmed(_) => {}
            JournalEntry::Quarantined(record) => drop(counts.remove(&record.task)),
        }
        std::ops::ControlFlow::Continue(())
    };
    disk.settled()
        .journal(run, JournalCursor::default(), &mut visit)
        .expect("a sound store");
    (counts, by)
}
