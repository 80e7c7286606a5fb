//! An independent account of what the scheduler decided and the disk kept, against which every step
//! is checked.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    plan::TaskId,
    run::{Epoch, WorkerId},
    sync::{SyncReply, Verdict},
};
use coordinator::{
    sched::Scheduler,
    store::{Change, TaskRow, Trust},
};

use super::truth::Truth;

/// What is known of the run from outside.
#[derive(Debug)]
pub(super) struct Ledger {
    seed: u64,
    truth: &'static Truth,
    /// Accepted counts on disk; tasks in quarantine are not in it.
    durable: BTreeMap<TaskId, u64>,
    /// Counts that are on disk in whatever way.
    reported: BTreeSet<(TaskId, u64)>,
    /// Whose lease an epoch names, kept or not.
    epochs: BTreeMap<(TaskId, Epoch), WorkerId>,
    highest: BTreeMap<TaskId, Epoch>,
    /// Whose accepted count a task has.
    by: BTreeMap<TaskId, WorkerId>,
    /// Who has counted a task whose counts contradict each other.
    contested: BTreeMap<TaskId, BTreeSet<WorkerId>>,
    /// How many counts of each worker were compared with another one's, and it is known who was right.
    compared: BTreeMap<WorkerId, u64>,
    /// Workers that were barred, and after how many comparisons.
    pub(super) barred: BTreeMap<WorkerId, u64>,
    /// Workers that were found wrong.
    pub(super) caught: BTreeSet<WorkerId>,
    /// Whether some workers are not honest.
    liars: bool,
    pub(super) conflicts: u64,
    pub(super) confirmed: u64,
}

impl Ledger {
    pub(super) fn new(seed: u64, truth: &'static Truth, liars: bool) -> Self {
        Self {
            seed,
            truth,
            durable: BTreeMap::new(),
            reported: BTreeSet::new(),
            epochs: BTreeMap::new(),
            highest: BTreeMap::new(),
            by: BTreeMap::new(),
            contested: BTreeMap::new(),
            compared: BTreeMap::new(),
            barred: BTreeMap::new(),
            caught: BTreeSet::new(),
            liars,
            conflicts: 0,
            confirmed: 0,
        }
    }

    /// The scheduler decided this; the disk may never hear of it.
    pub(super) fn decided(&mut self, changes: &[Change]) {
        let seed = self.seed;
        for change in changes {
            let Change::Leased {
                task,
                worker,
                epoch,
                ..
            } = *change
            else {
                continue;
            };
            let before = self.epochs.insert((task, epoch), worker);
            let highest = self.highest.entry(task).or_insert(Epoch(0));
            match before {
                // A worker came back with a lease it had.
                Some(before) => assert_eq!(
                    before, worker,
                    "seed {seed}: task {task}, epoch {epoch:?} leased to two workers"
                ),
                None => assert!(
                    epoch > *highest,
                    "seed {seed}: task {task}, epoch {epoch:?} after {highest:?}"
                ),
            }
            *highest = epoch.max(*highest);
        }
    }

    /// The coordinator starts with what is on disk: epochs rise from there. Those that a crash lost
    /// may be passed by or not, but are never given to another worker.
    pub(super) fn restarted(&mut self, rows: &[TaskRow]) {
        self.highest = rows.iter().map(|row| (row.task, row.epoch)).collect();
    }

    /// The disk has this for good.
    pub(super) fn kept(&mut self, changes: &[Change]) {
        let seed = self.seed;
        for change in changes {
            match change {
                Change::Accepted(record) => {
                    let before = self.durable.insert(record.task, record.count);
                    assert_eq!(before, None, "seed {seed}: {record:?} is accepted twice");
                    self.reported.insert((record.task, record.count));
                    self.by.insert(record.task, record.worker);
                    let decided = self.contested.remove(&record.task);
                    self.compared(decided.into_iter().flatten());
                }
                Change::Confirmed(record) => {
                    let first = self.by.get(&record.task).copied();
                    self.compared(first.into_iter().chain([record.worker]));
                    let first = self.durable.get(&record.task);
                    assert_eq!(first, Some(&record.count), "seed {seed}: {record:?}");
                    self.confirmed += 1;
                }
                Change::Quarantined { second } => {
                    let first = self.by.get(&second.task).copied();
                    let contested = self.contested.entry(second.task).or_default();
                    contested.extend(first.into_iter().chain([second.worker]));
                    self.durable.remove(&second.task);
                    self.reported.insert((second.task, second.count));
                    self.conflicts += 1;
                }
                Change::Leased { .. }
                | Change::Released { .. }
                | Change::Expired { .. }
                | Change::Parked { .. }
                | Change::Unparked { .. }
                | Change::State { .. }
                | Change::Recheck { .. } => {}
                Change::Trust(record) => {
                    self.caught.insert(record.worker);
                    if record.trust == Trust::Barred {
                        let compared = self.compared.get(&record.worker).copied();
                        self.barred
                            .entry(record.worker)
                            .or_insert(compared.unwrap_or_default());
                    }
                }
            }
        }
    }

    fn compared(&mut self, workers: impl IntoIterator<Item = WorkerId>) {
        for worker in workers {
            *self.compared.entry(worker).or_default() += 1;
        }
    }

    /// The disk is gone, and all that was on it.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.seed, self.truth, self.liars);
    }

    /// Nothing is acknowledged that is not on disk.
    pub(super) fn acknowledged(&self, reply: &SyncReply, counts: &BTreeMap<(TaskId, Epoch), u64>) {
        for answer in &reply.acknowledgements {
            let on_disk = || {
                let count = counts[&(answer.task.task, answer.epoch)];
                self.reported.contains(&(answer.task.task, count))
            };
            match answer.verdict {
                Verdict::Accepted | Verdict::Duplicate | Verdict::Conflict => assert!(
                    on_disk(),
                    "seed {}: {answer:?} before the disk had it",
                    self.seed
                ),
                Verdict::Refused => assert!(
                    !answer.reason.is_empty(),
                    "seed {}: refused without a reason",
                    self.seed
                ),
            }
        }
    }

    /// The scheduler agrees with the disk, and gives no total before its time.
    pub(super) fn compare(&self, scheduler: &Scheduler, run: common::run::RunId) {
        let seed = self.seed;
        if let Err(reason) = scheduler.audit() {
            panic!("seed {seed}: {reason}");
        }
        let runs = scheduler.runs();
        let done = runs[0].tasks.done;
        assert_eq!(
            done,
            self.durable.len() as u64,
            "seed {seed}: tasks done in memory and on disk"
        );
        if let Some(total) = scheduler.total(run) {
            assert_eq!(done, self.truth.plan.tasks(), "seed {seed}: an early total");
            let right = total == Ok(self.truth.total);
            assert!(right || self.liars, "seed {seed}: the total is {total:?}");
        }
    }

    /// Tasks that are counted now.
    pub(super) fn done(&self) -> usize {
        self.durable.len()
    }
}
