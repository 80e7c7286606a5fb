//! What a run's journal says of how its counts were checked.

use common::plan::TaskId;

use crate::ledger::{Confirmed, Fold, TaskState};

/// The most tasks that are named.
const NAMED_TASKS: usize = 100;

/// How the counts of a run were checked against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Counts on which another machine agreed, with whatever token.
    pub elsewhere: u64,
    /// Of those: with another token than the first count's.
    pub other_token: u64,
    /// Counts on which the same machine agreed, the other way round.
    pub here: u64,
    /// Counts that nobody made again.
    pub unconfirmed: u64,
    /// Of those drawn by lot: counts on which another machine agreed.
    pub drawn_elsewhere: u64,
    /// Whether any count came with a token.
    pub tokens: bool,
    /// Tasks whose counts disagreed at some time.
    pub disagreements: u64,
    /// Tasks whose counts disagree still, the first hundred of them.
    pub disputed: Vec<TaskId>,
    /// All tasks whose counts disagree still.
    pub disputed_number: u64,
}

impl Evidence {
    /// What the fold of a run's journal shows; `drawn` says which tasks were drawn by lot to be counted
    /// twice.
    pub fn of(fold: &Fold, drawn: impl Fn(TaskId) -> bool) -> Self {
        let mut evidence = Self {
            disagreements: fold.disagreements(),
            tokens: fold.has_tokens(),
            ..Self::default()
        };
        for (task, row) in fold.rows() {
            match &row.state {
                TaskState::Done { confirmed, .. } => match confirmed {
                    Confirmed::No => evidence.unconfirmed += 1,
                    Confirmed::SameMachine => evidence.here += 1,
                    Confirmed::OtherMachine | Confirmed::OtherToken => {
                        evidence.elsewhere += 1;
                        evidence.other_token += u64::from(*confirmed == Confirmed::OtherToken);
                        evidence.drawn_elsewhere += u64::from(drawn(task));
                    }
                },
                TaskState::Quarantined { .. } => {
                    evidence.disputed_number += 1;
                    if evidence.disputed.len() < NAMED_TASKS {
                        evidence.disputed.push(task);
                    }
                }
                TaskState::Pending | TaskState::Leased { .. } | TaskState::Parked => {}
            }
        }
        evidence
    }
}

#[cfg(test)]
mod tests {
    use common::{
        board::Board,
        count::Orientation,
        kernel::KernelName,
        method::Layout,
        plan::{Plan, PlanSpec},
        run::{Epoch, RunId, WorkerId},
    };

    use super::*;
    use crate::{
        driver::new_manifest,
        ledger::{JournalEntry, Principal, Record},
        sched::Millis,
    };

    fn record(task: u64, (machine, token): (u64, Option<&str>), count: u64) -> Record {
        Record {
            run: RunId(1),
            task: TaskId(task),
            epoch: Epoch(1),
            count,
            worker: WorkerId(machine.into()),
            principal: Principal::new(machine, token),
            version: String::new(),
            kernel: KernelName::Scalar,
            orientation: Orientation::Upright,
            duration_us: 1,
            accepted_unix_ms: 1,
            elapsed_ms: 1,
        }
    }

    #[test]
    fn a_journal_says_who_agreed_with_whom() {
        use JournalEntry::{Accepted, Confirmed, Quarantined};
        let (one, two, three) = ((1, Some("a")), (2, Some("a")), (3, Some("b")));
        let spec = PlanSpec {
            task_cost: 1,
            ..PlanSpec::new(Board::new(8).unwrap(), Layout::FirstRows)
        };
        let plan = Plan::new(spec).unwrap();
        let mut fold = Fold::new(&new_manifest(&plan, 0, Millis(1)), &plan);
        assert_eq!(Evidence::of(&fold, |_| true), Evidence::default());
        let entries = [
            Accepted(record(0, one, 4)),
            Accepted(record(1, one, 4)),
            Confirmed(record(1, one, 4)),
            Accepted(record(2, one, 4)),
            Confirmed(record(2, two, 4)),
            // Better than what was known, and then nothing better.
            Accepted(record(3, one, 4)),
            Confirmed(record(3, one, 4)),
            Confirmed(record(3, three, 4)),
            Confirmed(record(3, two, 4)),
            // Decided by a third machine for the first, with the first one's token.
            Accepted(record(4, one, 4)),
            Quarantined(record(4, three, 5)),
            Accepted(record(4, two, 4)),
            // Not decided.
            Accepted(record(5, one, 4)),
            Quarantined(record(5, two, 5)),
            Quarantined(record(5, three, 6)),
        ];
        for (entry, sequence) in entries.iter().zip(1..) {
            fold.take(&plan, entry, sequence).unwrap();
        }
        let evidence = Evidence::of(&fold, |task| task == TaskId(2));
        assert_eq!(
            evidence,
            Evidence {
                elsewhere: 3,
                other_token: 1,
                here: 1,
                unconfirmed: 1,
                drawn_elsewhere: 1,
                tokens: true,
                disagreements: 2,
                disputed: vec![TaskId(5)],
                disputed_number: 1,
            }
        );
        assert_eq!((fold.lines(), fold.tasks_done()), (entries.len() as u64, 5));
    }
}
