//! One row a task, in as few bytes as can be: a million tasks take 26 MB.

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::{Plan, TaskId},
};

use super::index::{TaskIx, WorkerIx};
use crate::ledger::{Confirmed, Vote};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Waiting to be leased.
    Pending,
    /// Leased to one worker or more.
    Leased,
    /// Counted.
    Done,
    /// Set aside after too many failed attempts.
    Parked,
    /// Its counts contradict each other.
    Quarantined,
}

impl Stage {
    const NUMBER: usize = 5;
}

/// How a count was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct How {
    pub(super) kernel: KernelName,
    pub(super) orientation: Orientation,
}

impl How {
    pub(super) fn of(vote: &Vote) -> Self {
        Self {
            kernel: vote.kernel,
            orientation: vote.orientation,
        }
    }

    /// Bits 0–2: kernel; bit 3: turned.
    fn pack(self) -> u8 {
        let kernel = match self.kernel {
            KernelName::Scalar => 0,
            KernelName::Avx2 => 1,
            KernelName::Avx512 => 2,
            KernelName::Neon => 3,
        };
        let turned = match self.orientation {
            Orientation::Upright => 0,
            Orientation::Turned => 8,
        };
        kernel | turned
    }

    fn unpack(byte: u8) -> Self {
        Self {
            kernel: match byte & 7 {
                0 => KernelName::Scalar,
                1 => KernelName::Avx2,
                2 => KernelName::Avx512,
                _ => KernelName::Neon,
            },
            orientation: match byte & 8 {
                0 => Orientation::Upright,
                _ => Orientation::Turned,
            },
        }
    }
}

/// Where the `how` byte says who agreed: two bits, by the place in [`Confirmed::ALL`].
const CONFIRMED_SHIFT: u8 = 4;
const CONFIRMED_MASK: u8 = 3 << CONFIRMED_SHIFT;

/// Second counts that agreed, of done tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// All.
    pub(super) confirmed: u64,
    /// Of tasks that were drawn by lot, and by another machine.
    pub(super) compared: u64,
}

/// Bit of the `how` byte: the task was drawn by lot to be counted twice.
const DRAWN: u8 = 64;

fn pack_confirmed(by: Confirmed) -> u8 {
    let at = match by {
        Confirmed::No => 0,
        Confirmed::SameMachine => 1,
        Confirmed::OtherMachine => 2,
        Confirmed::OtherToken => 3,
    };
    at << CONFIRMED_SHIFT
}

fn unpack_confirmed(byte: u8) -> Confirmed {
    Confirmed::ALL[usize::from((byte & CONFIRMED_MASK) >> CONFIRMED_SHIFT)]
}

fn is_confirmed(how: u8) -> bool {
    unpack_confirmed(how) != Confirmed::No
}

/// Whether a task was drawn by lot, and another machine's count agreed.
fn is_compared(how: u8) -> bool {
    how & DRAWN != 0 && unpack_confirmed(how).elsewhere()
}

/// An accepted count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) count: u64,
    pub(super) worker: WorkerIx,
    pub(super) how: How,
    pub(super) confirmed: Confirmed,
    /// It was drawn by lot to be counted twice.
    pub(super) drawn: bool,
    /// When it was accepted, in seconds of the scheduler's own time; 0 if before it began.
    pub(super) accepted_s: u32,
}

/// All tasks of one run.
#[derive(Debug)]
pub(super) struct TaskTable {
    stages: Vec<Stage>,
    how: Vec<u8>,
    counts: Vec<u64>,
    workers: Vec<WorkerIx>,
    accepted_s: Vec<u32>,
    epochs: Vec<u64>,
    numbers: [u64; Stage::NUMBER],
    costs: [u64; Stage::NUMBER],
    agreed: Agreed,
}

impl TaskTable {
    pub(super) fn new(plan: &Plan) -> Self {
        let size = usize::try_from(plan.tasks()).expect("at most MAX_TASKS");
        let cost = (0..plan.tasks())
            .map(|task| plan.task_cost(TaskId(task)))
            .fold(0u64, u64::saturating_add);
        let mut table = Self {
            stages: vec![Stage::Pending; size],
            how: vec![0; size],
            counts: vec![0; size],
            workers: vec![0; size],
            accepted_s: vec![0; size],
            epochs: vec![0; size],
            numbers: [0; Stage::NUMBER],
            costs: [0; Stage::NUMBER],
            agreed: Agreed::default(),
        };
        table.numbers[Stage::Pending as usize] = plan.tasks();
        table.costs[Stage::Pending as usize] = cost;
        table
    }

    pub(super) fn len(&self) -> u64 {
        self.stages.len() as u64
    }

    pub(super) fn number(&self, stage: Stage) -> u64 {
        self.numbers[stage as usize]
    }

    pub(super) fn cost(&self, stage: Stage) -> u64 {
        self.costs[stage as usize]
    }

    pub(super) fn cost_of_all(&self) -> u64 {
        self.costs
            .iter()
            .fold(0, |sum, cost| sum.saturating_add(*cost))
    }

    pub(super) fn stage(&self, task: TaskIx) -> Stage {
        self.stages[task as usize]
    }

    /// Moves a task of this cost to a stage. Leaving `Done` forgets the count; entering it is
    /// [`Self::accept`]'s.
    pub(super) fn enter(&mut self, task: TaskIx, cost: u64, stage: Stage) {
        let from = std::mem::replace(&mut self.stages[task as usize], stage);
        self.numbers[from as usize] -= 1;
        self.costs[from as usize] = self.costs[from as usize].saturating_sub(cost);
        self.numbers[stage as usize] += 1;
        self.costs[stage as usize] = self.costs[stage as usize].saturating_add(cost);
        if from == Stage::Done {
            self.counts[task as usize] = 0;
            self.set_how(task, 0);
        }
    }

    pub(super) fn accept(&mut self, task: TaskIx, cost: u64, done: Done) {
        self.enter(task, cost, Stage::Done);
        self.counts[task as usize] = done.count;
        self.workers[task as usize] = done.worker;
        self.accepted_s[task as usize] = done.accepted_s;
        let drawn = if done.drawn { DRAWN } else { 0 };
        let how = done.how.pack() | pack_confirmed(done.confirmed) | drawn;
        self.set_how(task, how);
    }

    /// A second count agreed.
    pub(super) fn confirm(&mut self, task: TaskIx, by: Confirmed) {
        let how = self.how[task as usize];
        self.set_how(task, how & !CONFIRMED_MASK | pack_confirmed(by));
    }

    /// The task counts among those drawn from now on, or no longer.
    pub(super) fn draw(&mut self, task: TaskIx, drawn: bool) {
        let how = self.how[task as usize];
        let drawn = if drawn { DRAWN } else { 0 };
        self.set_how(task, how & !DRAWN | drawn);
    }

    /// The only place where a `how` byte changes, so that what is told of all of them stays true.
    fn set_how(&mut self, task: TaskIx, how: u8) {
        let before = std::mem::replace(&mut self.how[task as usize], how);
        self.agreed.confirmed -= u64::from(is_confirmed(before));
        self.agreed.compared -= u64::from(is_compared(before));
        self.agreed.confirmed += u64::from(is_confirmed(how));
        self.agreed.compared += u64::from(is_compared(how));
    }

    /// How many done tasks a second count confirmed.
    pub(super) fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// The accepted count, if there is one.
    pub(super) fn done(&self, task: TaskIx) -> Option<Done> {
        let at = task as usize;
        (self.stages[at] == Stage::Done).then(|| Done {
            count: self.counts[at],
            worker: self.workers[at],
            how: How::unpack(self.how[at]),
            confirmed: unpack_confirmed(self.how[at]),
            drawn: self.how[at] & DRAWN != 0,
            accepted_s: self.accepted_s[at],
        })
    }

    /// Whether a second count agreed.
    pub(super) fn is_confirmed(&self, task: TaskIx) -> bool {
        is_confirmed(self.how[task as usize])
    }

    /// The counts of all done tasks: others hold a zero.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().copied()
    }

    /// The highest epoch that may ever have been issued for a task; 0 when none was.
    pub(super) fn epoch(&self, task: TaskIx) -> u64 {
        self.epochs[task as usize]
    }

    /// Counts epochs that may have been issued without a trace as issued.
    pub(super) fn raise_epochs(&mut self, by: u64) {
        for epoch in &mut self.epochs {
            *epoch = epoch.saturating_add(by);
        }
    }

    pub(super) fn raise_epoch(&mut self, task: TaskIx, epoch: u64) {
        let highest = &mut self.epochs[task as usize];
        *highest = epoch.max(*highest);
    }
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout, plan::PlanSpec};

    use super::*;

    #[test]
    fn what_agreed_is_told_as_every_byte_says_it() {
        let spec = PlanSpec::new(Board::new(8).unwrap(), Layout::FirstRows);
        let mut table = TaskTable::new(&Plan::new(spec).unwrap());
        let how = How {
            kernel: KernelName::Scalar,
            orientation: Orientation::Turned,
        };
        let done = |confirmed, drawn| Done {
            count: 1,
            worker: 0,
            how,
            confirmed,
            drawn,
            accepted_s: 0,
        };
        let told = |table: &TaskTable| (table.agreed().confirmed, table.agreed().compared);
        table.accept(0, 1, done(Confirmed::No, true));
        assert_eq!(told(&table), (0, 0), "nobody agreed");
        table.confirm(0, Confirmed::SameMachine);
        assert_eq!(told(&table), (1, 0), "nobody else");
        table.confirm(0, Confirmed::OtherMachine);
        assert_eq!(told(&table), (1, 1));
        let same = done(Confirmed::OtherMachine, true);
        assert_eq!(table.done(0), Some(same), "the rest is as it was");
        table.draw(0, false);
        assert_eq!(told(&table), (1, 0), "no longer drawn");
        table.draw(0, true);
        table.accept(0, 1, done(Confirmed::OtherToken, true));
        assert_eq!(told(&table), (1, 1), "the same task again");
        table.enter(0, 1, Stage::Quarantined);
        assert_eq!(told(&table), (0, 0), "its count is forgotten");
    }

    #[test]
    fn how_a_count_was_made_survives_packing() {
        for kernel in KernelName::ALL {
            for orientation in [Orientation::Upright, Orientation::Turned] {
                let how = How {
                    kernel,
                    orientation,
                };
                for by in Confirmed::ALL {
                    let byte = how.pack() | pack_confirmed(by) | DRAWN;
                    assert_eq!((How::unpack(byte), unpack_confirmed(byte)), (how, by));
                    assert_eq!(byte & !DRAWN, how.pack() | pack_confirmed(by));
                }
            }
        }
    }
}
