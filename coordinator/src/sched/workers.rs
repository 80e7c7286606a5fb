//! The workers that the scheduler remembers, by number, by name and by machine.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use common::{run::WorkerId, sync::WorkerInfo};

use super::{
    clock::Ticks,
    index::WorkerIx,
    trust::{KNOWN, Standing},
    worker::Worker,
};
use crate::ledger::{Confirmed, Principal};

/// How long a worker that drained and left is still shown.
const LEFT_SHOWN_MS: Ticks = 600_000;

/// How long a worker that was lost is still shown: longer, since somebody should look after it.
const LOST_SHOWN_MS: Ticks = 3_600_000;

#[derive(Debug)]
struct Slot {
    id: WorkerId,
    /// `None` once the worker itself is forgotten and only its number is still in use.
    worker: Option<Box<Worker>>,
    /// Tasks refer to it: the number can never name another worker.
    pinned: bool,
    /// Where it runs; 0 while that is not known.
    machine: u64,
    /// Proofs of it that are on record.
    proofs_kept: u64,
    /// The name of the token that it came with, if it came with one.
    token: Option<Arc<str>>,
    /// The two in one, as every record of it says.
    principal: Principal,
    standing: Standing,
}

/// All workers, by number and by name.
#[derive(Debug, Default)]
pub(super) struct Workers {
    slots: Vec<Slot>,
    free: Vec<WorkerIx>,
    by_id: HashMap<WorkerId, WorkerIx>,
    /// Those that name their machine, by it: a machine whose worker lost its identity has more than one.
    by_machine: HashMap<u64, Vec<WorkerIx>>,
    remembered: usize,
    deadlines: BTreeSet<(Ticks, WorkerIx)>,
    /// Those that are lost or have left, by the time when they are forgotten.
    gone: BTreeSet<(Ticks, WorkerIx)>,
    /// Threads of all live workers.
    live_threads: u64,
}

impl Workers {
    /// The number of a worker that tasks refer to, whether it is remembered or not.
    pub(super) fn pinned(&mut self, id: WorkerId) -> WorkerIx {
        let worker = self.number(id);
        self.pin(worker);
        worker
    }

    /// From now on tasks refer to this number: it stays the worker's.
    pub(super) fn pin(&mut self, worker: WorkerIx) {
        self.slots[worker as usize].pinned = true;
    }

    fn number(&mut self, id: WorkerId) -> WorkerIx {
        if let Some(&worker) = self.by_id.get(&id) {
            return worker;
        }
        let slot = Slot {
            id,
            worker: None,
            pinned: false,
            machine: 0,
            token: None,
            principal: Principal::new(0, None),
            proofs_kept: 0,
            standing: Standing::default(),
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                WorkerIx::try_from(self.slots.len() - 1).expect("fewer workers than tasks")
            }
        };
        self.by_id.insert(id, number);
        number
    }

    /// The worker of this name, remembered from now on; `None` when `most` are and none of them
    /// can be forgotten.
    pub(super) fn remember(&mut self, info: &WorkerInfo, most: usize) -> Option<WorkerIx> {
        if let Some(&worker) = self.by_id.get(&info.id)
            && self.slots[worker as usize].worker.is_some()
        {
            return Some(worker);
        }
        if self.remembered >= most {
            self.forget_some(most / 16 + 1);
        }
        if self.remembered >= most {
            return None;
        }
        let worker = self.number(info.id);
        self.slots[worker as usize].worker = Some(Box::new(Worker::new(info.clone())));
        self.remembered += 1;
        Some(worker)
    }

    /// Forgets the lost workers that were seen longest ago.
    fn forget_some(&mut self, number: usize) {
        let mut lost: Vec<_> = self
            .iter()
            .filter(|(_, worker)| worker.deadline.is_none() && worker.leases.is_empty())
            .map(|(number, worker)| (worker.seen, number))
            .collect();
        lost.sort_unstable();
        for &(_, worker) in lost.iter().take(number) {
            self.forget(worker);
        }
    }

    fn forget(&mut self, worker: WorkerIx) {
        let slot = &mut self.slots[worker as usize];
        if let Some(at) = slot.worker.take().and_then(|known| known.forget_at) {
            self.gone.remove(&(at, worker));
        }
        self.remembered -= 1;
        if !slot.pinned {
            self.by_id.remove(&slot.id);
            self.set_machine(worker, 0);
            self.free.push(worker);
        }
    }

    /// Forgets workers that have been gone for long. One that was ever wrong is remembered.
    pub(super) fn forget_gone(&mut self, now: Ticks) {
        while let Some(&(at, worker)) = self.gone.first()
            && at <= now
        {
            self.gone.pop_first();
            let known = self.get_mut(worker);
            known.forget_at = None;
            let known = self.get(worker);
            if known.leases.is_empty() && self.standing(worker).faults() == 0 {
                self.forget(worker);
            }
        }
    }

    /// A drained worker says goodbye: nobody waits for it any more.
    pub(super) fn leave(&mut self, worker: WorkerIx) {
        let known = self.get_mut(worker);
        known.left = true;
        let (deadline, seen) = (known.deadline.take(), known.seen);
        let threads = std::mem::take(&mut known.live_threads);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, worker));
            self.live_threads -= threads;
        }
        self.gone_until(worker, seen + LEFT_SHOWN_MS);
    }

    fn gone_until(&mut self, worker: WorkerIx, at: Ticks) {
        self.get_mut(worker).forget_at = Some(at);
        self.gone.insert((at, worker));
    }

    /// What its counts have shown of a worker, remembered or not.
    pub(super) fn standing(&self, worker: WorkerIx) -> Standing {
        self.slots[worker as usize].standing
    }

    /// What its counts have shown of a worker; from now on its number stays.
    pub(super) fn standing_mut(&mut self, worker: WorkerIx) -> &mut Standing {
        let slot = &mut self.slots[worker as usize];
        slot.pinned = true;
        &mut slot.standing
    }

    /// Takes a worker's word on which machine it runs, and whose token it came with.
    pub(super) fn calls_from(&mut self, worker: WorkerIx, machine: u64, token: Option<&Arc<str>>) {
        self.set_machine(worker, machine);
        if self.slots[worker as usize].token.as_ref() != token {
            self.set_token(worker, token.cloned());
        }
    }

    /// On whose word a worker counted that has not called since the start.
    pub(super) fn restore_principal(&mut self, worker: WorkerIx, principal: &Principal) {
        if let Some(machine) = principal.machine() {
            self.set_machine(worker, machine);
        }
        self.set_token(worker, principal.token().map(Arc::from));
    }

    fn set_token(&mut self, worker: WorkerIx, token: Option<Arc<str>>) {
        let slot = &mut self.slots[worker as usize];
        slot.principal = Principal::new(slot.machine, token.as_deref());
        slot.token = token;
    }

    fn set_machine(&mut self, worker: WorkerIx, machine: u64) {
        let slot = &mut self.slots[worker as usize];
        let before = std::mem::replace(&mut slot.machine, machine);
        if before == machine {
            return;
        }
        slot.principal = Principal::new(machine, slot.token.as_deref());
        if let Some(others) = self.by_machine.get_mut(&before) {
            others.retain(|&other| other != worker);
            if others.is_empty() {
                self.by_machine.remove(&before);
            }
        }
        if machine != 0 {
            self.by_machine.entry(machine).or_default().push(worker);
        }
    }

    /// Whether a worker's word weighs more than that of machines that nobody has seen before: others
    /// have agreed with its machine often enough, under whatever identities it counted with the same
    /// token, and none of these was found wrong. A machine's number is its own secret, by which it is
    /// found again when its worker has lost its identity; whoever names another's needs its token too.
    pub(super) fn is_known(&self, worker: WorkerIx) -> bool {
        let slot = &self.slots[worker as usize];
        let alone = [worker];
        let on_machine = self.by_machine.get(&slot.machine);
        let identities = on_machine.map_or(&alone[..], Vec::as_slice).iter();
        let mut standings = identities
            .map(|&one| &self.slots[one as usize])
            .filter(|one| one.token == slot.token)
            .map(|one| one.standing);
        let sum = standings.try_fold(0u32, |sum, standing| {
            let right = standing.faults() == 0;
            right.then(|| sum.saturating_add(standing.compared()))
        });
        slot.standing.is_trusted() || sum.is_some_and(|sum| sum >= KNOWN)
    }

    /// Whether two workers share their hardware, as far as is known: those that do not name their
    /// machine are taken to share one, so that nobody becomes two opinions by saying nothing.
    pub(super) fn same_machine(&self, one: WorkerIx, other: WorkerIx) -> bool {
        let machine = |worker: WorkerIx| self.slots[worker as usize].machine;
        one == other || machine(one) == machine(other)
    }

    /// Proofs of a worker that are on record.
    pub(super) fn proofs_kept(&mut self, worker: WorkerIx) -> &mut u64 {
        &mut self.slots[worker as usize].proofs_kept
    }

    /// The token that vouches for a worker.
    pub(super) fn token(&self, worker: WorkerIx) -> Option<&Arc<str>> {
        self.slots[worker as usize].token.as_ref()
    }

    /// How a second count by `other` confirms one by `first`.
    pub(super) fn confirmed_by(&self, first: WorkerIx, other: WorkerIx) -> Confirmed {
        if self.same_machine(first, other) {
            Confirmed::SameMachine
        } else if self.token(first) == self.token(other) {
            Confirmed::OtherMachine
        } else {
            Confirmed::OtherToken
        }
    }

    /// On whose word a worker counts: its machine's, since identities cost nothing, and its token's.
    pub(super) fn principal(&self, worker: WorkerIx) -> Principal {
        self.slots[worker as usize].principal.clone()
    }

    /// A worker's name for people; empty if it has none, or was forgotten.
    pub(super) fn name(&self, worker: WorkerIx) -> &str {
        let known = self.slots[worker as usize].worker.as_ref();
        known.map_or("", |known| &known.info.name)
    }

    /// Live workers on another machine than this one's that take what they are given.
    pub(super) fn elsewhere(&self, worker: WorkerIx) -> impl Iterator<Item = WorkerIx> + '_ {
        self.live_ones().filter(move |&other| {
            let known = self.get(other);
            let idle = known.draining || self.standing(other).is_barred();
            !idle && known.session.is_some() && !self.same_machine(worker, other)
        })
    }

    pub(super) fn id(&self, worker: WorkerIx) -> WorkerId {
        self.slots[worker as usize].id
    }

    /// A worker's name for people, with enough of its identity to tell it from its namesakes.
    pub(super) fn shown(&self, worker: WorkerIx) -> String {
        let slot = &self.slots[worker as usize];
        let id = slot.id.to_string();
        let short = id.get(..8).unwrap_or(&id);
        match &slot.worker {
            Some(known) if !known.info.name.is_empty() => format!("{} ({short})", known.info.name),
            Some(_) | None => format!("worker {short}"),
        }
    }

    /// # Panics
    /// If the worker was forgotten: those that call, hold leases or are live never are.
    pub(super) fn get(&self, worker: WorkerIx) -> &Worker {
        self.slots[worker as usize]
            .worker
            .as_deref()
            .expect("remembered")
    }

    /// # Panics
    /// If the worker was forgotten: those that call, hold leases or are live never are.
    pub(super) fn get_mut(&mut self, worker: WorkerIx) -> &mut Worker {
        self.slots[worker as usize]
            .worker
            .as_deref_mut()
            .expect("remembered")
    }

    pub(super) fn find_mut(&mut self, worker: WorkerIx) -> Option<&mut Worker> {
        self.slots[worker as usize].worker.as_deref_mut()
    }

    /// The worker of this name, if it calls.
    pub(super) fn find_live(&mut self, id: WorkerId) -> Option<&mut Worker> {
        let worker = *self.by_id.get(&id)?;
        self.find_mut(worker)
            .filter(|known| known.deadline.is_some() && known.session.is_some())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerIx, &Worker)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| {
            let worker = slot.worker.as_deref()?;
            Some((number, worker))
        })
    }

    /// Workers that called within the time of a lease.
    pub(super) fn live(&self) -> usize {
        self.deadlines.len()
    }

    /// The live workers, those longest unheard of first.
    pub(super) fn live_ones(&self) -> impl Iterator<Item = WorkerIx> + '_ {
        self.deadlines.iter().map(|&(_, worker)| worker)
    }

    /// Threads of the live workers, at least 1.
    pub(super) fn live_threads(&self) -> u64 {
        self.live_threads.max(1)
    }

    pub(super) fn expect_by(&mut self, worker: WorkerIx, deadline: Ticks) {
        let known = self.get_mut(worker);
        let threads = known.threads_at_work();
        let before = known.deadline.replace(deadline);
        let threads_before = std::mem::replace(&mut known.live_threads, threads);
        let forget_at = known.forget_at.take();
        if let Some(before) = before {
            self.deadlines.remove(&(before, worker));
        }
        if let Some(at) = forget_at {
            self.gone.remove(&(at, worker));
        }
        self.deadlines.insert((deadline, worker));
        self.live_threads = self.live_threads - threads_before + threads;
    }

    /// When the next one is lost or forgotten.
    pub(super) fn next_deadline(&self) -> Option<Ticks> {
        let lost = self.deadlines.first();
        let forgotten = self.gone.first();
        lost.into_iter().chain(forgotten).map(|&(at, _)| at).min()
    }

    /// A worker whose deadline has come: it is lost.
    pub(super) fn pop_lost(&mut self, now: Ticks) -> Option<WorkerIx> {
        let &(deadline, worker) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        let lost = self.get_mut(worker);
        lost.deadline = None;
        let threads = std::mem::take(&mut lost.live_threads);
        self.live_threads -= threads;
        self.gone_until(worker, deadline + LOST_SHOWN_MS);
        Some(worker)
    }
}
