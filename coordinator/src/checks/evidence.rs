//! What a run's journal says of how its counts were checked.

use std::collections::HashMap;

use common::plan::TaskId;

use crate::ledger::JournalEntry;

/// The most tasks that are named.
const NAMED_TASKS: usize = 100;

/// How the counts of a run were checked against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Counts on which another machine agreed.
    pub elsewhere: u64,
    /// Counts on which the same machine agreed, the other way round.
    pub here: u64,
    /// Counts that nobody made again.
    pub unconfirmed: u64,
    /// Of those drawn by lot: counts on which another machine agreed.
    pub drawn_elsewhere: u64,
    /// Tasks whose counts disagreed at some time.
    pub disagreements: u64,
    /// Tasks whose counts disagree still, the first hundred of them.
    pub disputed: Vec<TaskId>,
    /// All tasks whose counts disagree still.
    pub disputed_number: u64,
}

/// Where the counts of one task stand.
#[derive(Clone, Debug)]
enum Standing {
    Counted {
        by: u32,
        confirmed: Confirmed,
    },
    /// Each count with who made it.
    Disputed(Vec<(u64, u32)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmed {
    No,
    Here,
    Elsewhere,
}

/// Takes a journal in, entry by entry.
#[derive(Debug, Default)]
pub struct Witness {
    /// Principals by number: a long journal names few.
    principals: HashMap<String, u32>,
    tasks: HashMap<TaskId, (u64, Standing)>,
    disagreements: u64,
}

impl Witness {
    /// A witness that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next entry of the journal, which the store has checked.
    pub fn see(&mut self, entry: &JournalEntry) {
        let record = entry.record();
        let number = u32::try_from(self.principals.len()).unwrap_or(u32::MAX);
        let by = match self.principals.get(&record.principal) {
            Some(&by) => by,
            None => *self
                .principals
                .entry(record.principal.clone())
                .or_insert(number),
        };
        let before = self.tasks.remove(&record.task);
        let standing = match (entry, before) {
            (JournalEntry::Accepted(_), Some((_, Standing::Disputed(votes)))) => {
                let mut others = votes.iter();
                let agrees = others.any(|&(count, other)| count == record.count && other != by);
                Standing::Counted {
                    by,
                    confirmed: match agrees {
                        true => Confirmed::Elsewhere,
                        false => Confirmed::No,
                    },
                }
            }
            (JournalEntry::Accepted(_), _) => Standing::Counted {
                by,
                confirmed: Confirmed::No,
            },
            (
                JournalEntry::Confirmed(_),
                Some((
                    _,
                    Standing::Counted {
                        by: first,
                        confirmed,
                    },
                )),
            ) => Standing::Counted {
                by: first,
                confirmed: match (first == by, confirmed) {
                    (false, _) | (_, Confirmed::Elsewhere) => Confirmed::Elsewhere,
                    (true, Confirmed::No | Confirmed::Here) => Confirmed::Here,
                },
            },
            (JournalEntry::Quarantined(_), Some((first, Standing::Counted { by: other, .. }))) => {
                self.disagreements += 1;
                Standing::Disputed(vec![(first, other), (record.count, by)])
            }
            (JournalEntry::Quarantined(_), Some((_, Standing::Disputed(mut votes)))) => {
                votes.push((record.count, by));
                Standing::Disputed(votes)
            }
            // The store refuses such journals.
            (JournalEntry::Confirmed(_), Some((_, standing))) => standing,
            (JournalEntry::Confirmed(_) | JournalEntry::Quarantined(_), None) => return,
        };
        self.tasks.insert(record.task, (record.count, standing));
    }

    /// What was seen; `drawn` says which tasks were drawn by lot to be counted twice.
    pub fn evidence(&self, drawn: impl Fn(TaskId) -> bool) -> Evidence {
        let mut evidence = Evidence {
            disagreements: self.disagreements,
            ..Evidence::default()
        };
        for (&task, (_, standing)) in &self.tasks {
            match standing {
                Standing::Counted { confirmed, .. } => match confirmed {
                    Confirmed::No => evidence.unconfirmed += 1,
                    Confirmed::Here => evidence.here += 1,
                    Confirmed::Elsewhere => {
                        evidence.elsewhere += 1;
                        evidence.drawn_elsewhere += u64::from(drawn(task));
                    }
                },
                Standing::Disputed(_) => {
                    evidence.disputed_number += 1;
                    evidence.disputed.push(task);
                }
            }
        }
        evidence.disputed.sort_unstable();
        evidence.disputed.truncate(NAMED_TASKS);
        evidence
    }
}
