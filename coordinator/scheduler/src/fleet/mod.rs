//! The fleet: all known workers, by index and by ID. Their tasks are in [`crate::run`].

mod reputation;
mod worker;

use std::{
    collections::{BTreeSet, HashMap},
    ops::Index,
    sync::Arc,
};

use common::messages::{run::WorkerId, sync::WorkerInfo};

pub use self::worker::RefereeStatus;
pub(crate) use self::{
    reputation::Reputation,
    worker::{REFERENCE_SPEED, Referee, SessionUpdate, Worker},
};

use crate::{
    clock::Ticks,
    ledger::{AuthorIx, Caller, Confirmation, Principal, tasks::TaskIx},
};

/// Index of a run in the scheduler.
pub(crate) type RunIx = usize;

/// Index of a worker in [`Workers`]: as an author of counts, too.
pub(crate) type WorkerIx = AuthorIx;

/// Key of a lease within one worker.
pub(crate) type LeaseIx = (RunIx, TaskIx);

/// The worker ID under which the coordinator's own counts are journaled.
pub const REFEREE: WorkerId = WorkerId(0x7265_6665_7265_6500_0000_0000_0000_0000);

/// The index of the coordinator's own referee among the workers.
pub(crate) const OWN_REFEREE: WorkerIx = 0;

/// Time for which a stopped worker is still shown.
const STOPPED_SHOWN_MS: Ticks = 600_000;

/// Number of barred machines from which their token is distrusted, see also [`BARRED_PART`].
const BARRED_MACHINES: usize = 3;

/// Denominator of the least share of barred machines: 3 of 20 do not discredit a token.
const BARRED_PART: usize = 5;

/// Time for which a lost worker is still shown.
const LOST_SHOWN_MS: Ticks = 3_600_000;

/// A worker: its permanent identity, and its state while it is remembered.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) id: WorkerId,
    /// `None` once the worker is forgotten and only its index is in use.
    worker: Option<Box<Worker>>,
    /// Whether tasks refer to the index, which then never names another worker.
    pub(crate) pinned: bool,
    /// The host that the worker names, once it has called.
    host: Option<u64>,
    /// Number of passed self-tests on record.
    pub(crate) stored_self_tests: u64,
    /// Whether an operator trusts the worker's token to referee.
    pub(crate) trusted: bool,
    /// Machine and token of the worker; unknown before its first call or count.
    pub(crate) principal: Principal,
    is_identified: bool,
    /// Whether the worker has vanished with a lease, and counted nothing since.
    pub(crate) vanished: bool,
    token: Token,
    pub(crate) reputation: Reputation,
}

/// The name of a token, if the worker has one.
type Token = Option<Arc<str>>;

#[derive(Debug, Default)]
pub(crate) struct Workers {
    slots: Vec<Slot>,
    free: Vec<WorkerIx>,
    by_id: HashMap<WorkerId, WorkerIx>,
    /// The machines that were found wrong.
    pub(crate) barred: BTreeSet<WorkerIx>,
    /// The tokens with too many of them.
    distrusted_tokens: BTreeSet<Token>,
    /// The tokens that an operator trusted before the start.
    pub(crate) trusted_tokens: BTreeSet<Token>,
    remembered: usize,
    deadlines: BTreeSet<(Ticks, WorkerIx)>,
    /// Lost and stopped workers by the time when they are forgotten.
    gone: BTreeSet<(Ticks, WorkerIx)>,
    /// Number of threads of all connected workers that are not paused.
    live_threads: u64,
}

impl Index<WorkerIx> for Workers {
    type Output = Slot;

    fn index(&self, worker: WorkerIx) -> &Slot {
        &self.slots[worker as usize]
    }
}

impl Workers {
    /// Returns whether an operator trusted a token of workers in other processes before the start.
    pub(crate) fn has_trusted_token(&self) -> bool {
        self.trusted_tokens.iter().any(|token| token.as_deref() != Some(Caller::LOCAL))
    }

    /// Returns the index of a worker that tasks refer to.
    pub(crate) fn pinned(&mut self, id: WorkerId) -> WorkerIx {
        let worker = self.number(id);
        self.pin(worker);
        worker
    }

    /// Reserves an index forever.
    pub(crate) fn pin(&mut self, worker: WorkerIx) {
        self.slots[worker as usize].pinned = true;
    }

    fn number(&mut self, id: WorkerId) -> WorkerIx {
        if let Some(&worker) = self.by_id.get(&id) {
            return worker;
        }
        let slot = Slot { id, ..Slot::default() };
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

    /// Adds a worker unless it is known; `None` if there is no room for it.
    pub(crate) fn remember(
        &mut self,
        id: WorkerId,
        info: &WorkerInfo,
        most: usize,
    ) -> Option<WorkerIx> {
        let known = self.by_id.get(&id).copied();
        if known.is_some_and(|worker| self.find(worker).is_some()) {
            return known;
        }
        if self.remembered >= most {
            self.forget_some(most / 16 + 1);
        }
        if self.remembered >= most {
            return None;
        }
        let worker = self.number(id);
        self.slots[worker as usize].worker =
            Some(Box::new(Worker { info: info.clone(), ..Worker::default() }));
        self.remembered += 1;
        Some(worker)
    }

    /// Forgets the lost workers that were last seen longest ago.
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
            self.free.push(worker);
        }
    }

    /// Forgets workers that were gone for long enough, except barred ones.
    /// Returns those whose promised return has passed: they are lost.
    pub(crate) fn forget_gone(&mut self, now: Ticks) -> Vec<WorkerIx> {
        let mut lost = Vec::new();
        while let Some(&(at, worker)) = self.gone.first()
            && at <= now
        {
            self.gone.pop_first();
            let known = self.get_mut(worker);
            known.forget_at = None;
            if !known.leases.is_empty() {
                known.has_stopped = false;
                self.disconnect(worker, at + LOST_SHOWN_MS);
                lost.push(worker);
            } else if !self.is_barred(worker) {
                self.forget(worker);
            }
        }
        lost
    }

    /// Marks a drained worker as stopped.
    pub(crate) fn stop(&mut self, worker: WorkerIx) {
        let forget_at = self.get(worker).seen + STOPPED_SHOWN_MS;
        self.leave(worker, forget_at);
    }

    /// Disconnects a worker that does not call before `until`; with leases, it is away.
    pub(crate) fn leave(&mut self, worker: WorkerIx, until: Ticks) {
        self.get_mut(worker).has_stopped = true;
        self.disconnect(worker, until);
    }

    /// Disconnects a worker, which is forgotten later.
    fn disconnect(&mut self, worker: WorkerIx, forget_at: Ticks) {
        let known = self.get_mut(worker);
        let before = known.forget_at.replace(forget_at);
        let threads = std::mem::take(&mut known.live_threads);
        if let Some(deadline) = known.deadline.take() {
            self.deadlines.remove(&(deadline, worker));
            self.live_threads -= threads;
        }
        if let Some(at) = before {
            self.gone.remove(&(at, worker));
        }
        self.gone.insert((forget_at, worker));
    }

    pub(crate) fn set_vanished(&mut self, worker: WorkerIx, vanished: bool) {
        self.slots[worker as usize].vanished = vanished;
    }

    /// Returns the reputation of a worker and reserves its index.
    pub(crate) fn reputation_mut(&mut self, worker: WorkerIx) -> &mut Reputation {
        let slot = &mut self.slots[worker as usize];
        slot.pinned = true;
        &mut slot.reputation
    }

    /// Sets a worker's machine and token once known; returns whether they match.
    /// The coordinator issues a secret for one token, and derives the machine and the worker's ID from it.
    pub(crate) fn identify(&mut self, worker: WorkerIx, principal: &Principal) -> bool {
        let slot = &mut self.slots[worker as usize];
        if slot.is_identified {
            return slot.principal == *principal;
        }
        slot.is_identified = true;
        slot.token = principal.token().map(Arc::from);
        slot.principal = principal.clone();
        slot.trusted = self.trusted_tokens.contains(&slot.token);
        true
    }

    /// Sets the host that a worker names, and whether its token is trusted.
    pub(crate) fn set_host(&mut self, worker: WorkerIx, host: u64, trusted: bool) {
        let slot = &mut self.slots[worker as usize];
        (slot.host, slot.trusted) = (Some(host), trusted);
    }

    /// Returns whether a worker is connected or away.
    fn is_live(&self, worker: WorkerIx) -> bool {
        self.find(worker).is_some_and(|known| known.deadline.is_some() || known.is_away())
    }

    /// Returns whether two workers may share hardware.
    /// Workers of unknown machines are treated as one: omitting the machine must not make them independent.
    pub(crate) fn same_machine(&self, one: WorkerIx, other: WorkerIx) -> bool {
        let (a, b) = (&self[one], &self[other]);
        let same_host = a.host.is_some() && a.host == b.host;
        same_host || a.principal.same_machine(&b.principal)
    }

    /// Returns all workers with this one's token, itself included: each is a machine.
    /// The coordinator's referee, which has no token, is not one of them.
    pub(crate) fn of_same_token(&self, worker: WorkerIx) -> impl Iterator<Item = WorkerIx> + '_ {
        let token = &self[worker].token;
        self.all().filter(move |&other| self[other].token == *token && other != OWN_REFEREE)
    }

    /// Returns whether a worker may call with a token that admits `most` machines.
    /// It may if it is connected or away with the token, or fewer than `most` others are, or are barred.
    pub(crate) fn has_room(&self, id: WorkerId, token: Option<&str>, most: usize) -> bool {
        let shares = |worker: &WorkerIx| self.token(*worker) == token;
        let known = self.by_id.get(&id).filter(|worker| self.is_live(**worker) && shares(worker));
        let uses = |&other: &WorkerIx| {
            self[other].id != id && shares(&other) && (self.is_live(other) || self.is_barred(other))
        };
        // In most fleets the first two conditions decide: the last one scans all workers.
        known.is_some() || self.by_id.len() < most || self.all().filter(uses).count() < most
    }

    /// Returns every index in use.
    pub(crate) fn all(&self) -> impl Iterator<Item = WorkerIx> + '_ {
        let known = |slot: &Slot| slot.worker.is_some() || slot.pinned;
        (0..).zip(&self.slots).filter(move |(_, slot)| known(slot)).map(|(number, _)| number)
    }

    pub(crate) fn is_barred(&self, worker: WorkerIx) -> bool {
        self.barred.contains(&worker)
    }

    /// Returns whether the worker of an identity is barred.
    pub(crate) fn is_known_barred(&self, id: WorkerId) -> bool {
        self.by_id.get(&id).is_some_and(|&worker| self.is_barred(worker))
    }

    pub(crate) fn bar(&mut self, worker: WorkerIx) {
        self.pin(worker);
        self.barred.insert(worker);
        self.weigh_token(worker);
    }

    pub(crate) fn readmit(&mut self, worker: WorkerIx) {
        self.barred.remove(&worker);
        self.weigh_token(worker);
    }

    /// Doubts a worker's token if enough of its machines are barred.
    pub(crate) fn weigh_token(&mut self, worker: WorkerIx) {
        let token = self[worker].token.clone();
        let barred = self.of_same_token(worker).filter(|&other| self.is_barred(other)).count();
        let counted = |other: &WorkerIx| self[*other].reputation.has_counted;
        let is_distrusted = barred >= BARRED_MACHINES
            && BARRED_PART * barred >= self.of_same_token(worker).filter(counted).count();
        match is_distrusted {
            true => self.distrusted_tokens.insert(token),
            false => self.distrusted_tokens.remove(&token),
        };
    }

    /// Returns whether nobody has confirmed a count of this machine, and many with its token were wrong.
    pub(crate) fn is_distrusted(&self, worker: WorkerIx) -> bool {
        self.distrusted_tokens.contains(&self[worker].token)
            && !self[worker].reputation.is_checked
            && !self.is_referee(worker)
            && worker != OWN_REFEREE
    }

    /// Returns whether a worker is the one in the coordinator's own process.
    pub(crate) fn is_local(&self, worker: WorkerIx) -> bool {
        self.token(worker) == Some(Caller::LOCAL)
    }

    /// Returns whether an operator trusts a worker to referee, and it is not barred.
    pub(crate) fn is_referee(&self, worker: WorkerIx) -> bool {
        self[worker].trusted && !self.is_barred(worker)
    }

    pub(crate) fn raise_stored_self_tests(&mut self, worker: WorkerIx, passed: u64) {
        let stored = &mut self.slots[worker as usize].stored_self_tests;
        *stored = passed.max(*stored);
    }

    pub(crate) fn token(&self, worker: WorkerIx) -> Option<&str> {
        self[worker].token.as_deref()
    }

    /// Returns how a count by `other` confirms an equal one by `first`.
    pub(crate) fn confirmed_by(&self, first: WorkerIx, other: WorkerIx) -> Confirmation {
        if self.same_machine(first, other) {
            return Confirmation::SameMachine;
        }
        self[first].principal.confirmed_by(&self[other].principal)
    }

    /// Returns a worker's display name; empty if it has none or was forgotten.
    pub(crate) fn name(&self, worker: WorkerIx) -> &str {
        self.find(worker).map_or("", |known| &known.info.name)
    }

    /// Returns a worker's display name with the start of its identity.
    pub(crate) fn shown(&self, worker: WorkerIx) -> String {
        let id = self[worker].id.to_string();
        let short = id.get(..8).unwrap_or(&id);
        match self.name(worker) {
            "" => format!("worker {short}"),
            name => format!("{name} ({short})"),
        }
    }

    /// Returns a worker that is remembered.
    ///
    /// # Panics
    /// If the worker was forgotten. Workers that call, hold leases or are live never are.
    pub(crate) fn get(&self, worker: WorkerIx) -> &Worker {
        self.find(worker).expect("remembered")
    }

    pub(crate) fn get_mut(&mut self, worker: WorkerIx) -> &mut Worker {
        self.find_mut(worker).expect("remembered")
    }

    pub(crate) fn find(&self, worker: WorkerIx) -> Option<&Worker> {
        self[worker].worker.as_deref()
    }

    pub(crate) fn find_mut(&mut self, worker: WorkerIx) -> Option<&mut Worker> {
        self.slots[worker as usize].worker.as_deref_mut()
    }

    pub(crate) fn with_id(&self, id: WorkerId) -> Option<&Worker> {
        self.find(*self.by_id.get(&id)?)
    }

    pub(crate) fn find_live(&mut self, id: WorkerId) -> Option<&mut Worker> {
        let worker = *self.by_id.get(&id)?;
        self.find_mut(worker).filter(|known| known.deadline.is_some() && known.session.is_some())
    }

    pub(crate) fn find_away(&self, id: WorkerId) -> Option<WorkerIx> {
        let worker = *self.by_id.get(&id)?;
        self.find(worker).filter(|known| known.is_away()).map(|_| worker)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerIx, &Worker)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| {
            let worker = slot.worker.as_deref()?;
            Some((number, worker))
        })
    }

    /// Returns the number of workers that called within the duration of a lease.
    pub(crate) fn live(&self) -> usize {
        self.deadlines.len()
    }

    /// Returns the connected workers, those with the oldest call first.
    pub(crate) fn connected(&self) -> impl Iterator<Item = WorkerIx> + '_ {
        self.deadlines.iter().map(|&(_, worker)| worker)
    }

    /// Returns the number of threads of connected, unpaused workers; at least 1.
    pub(crate) fn live_threads(&self) -> u64 {
        self.live_threads.max(1)
    }

    pub(crate) fn expect_by(&mut self, worker: WorkerIx, deadline: Ticks) {
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

    /// Returns when the next worker is lost or forgotten.
    pub(crate) fn next_deadline(&self) -> Option<Ticks> {
        let lost = self.deadlines.first();
        let forgotten = self.gone.first();
        lost.into_iter().chain(forgotten).map(|&(at, _)| at).min()
    }

    /// Removes and returns a worker whose deadline has passed: it is lost.
    pub(crate) fn pop_lost(&mut self, now: Ticks) -> Option<WorkerIx> {
        let &(deadline, worker) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.disconnect(worker, deadline + LOST_SHOWN_MS);
        Some(worker)
    }
}
