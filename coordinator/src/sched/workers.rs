//! The workers that the scheduler remembers, their leases and their speed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use common::{
    kernel::KernelName,
    run::{SessionId, WorkerId},
    sync::WorkerInfo,
};

use super::{clock::Ticks, run::RunIx, tasks::TaskIx, trust::Standing};
use crate::ledger::{Confirmed, Principal};

/// A worker's index in [`Workers`].
pub(super) type WorkerIx = u32;

/// Names a lease within one worker.
pub(super) type LeaseKey = (RunIx, TaskIx);

/// Sessions of a worker that are remembered as over.
const PAST_SESSIONS: usize = 4;

/// Runs of which a worker's refusals are remembered.
const DECLINED_RUNS: usize = 16;

/// How long a worker that drained and left is still shown.
const LEFT_SHOWN_MS: Ticks = 600_000;

/// How long a worker that was lost is still shown: longer, since somebody should look after it.
const LOST_SHOWN_MS: Ticks = 3_600_000;

/// How much an older task weighs against the next in a worker's measured speed.
const SPEED_MEMORY: f64 = 0.8;

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The count of a task that has none.
    Count,
    /// A second count of a task that is done.
    Recheck,
    /// One more count of a task whose counts contradict each other.
    Decide,
}

/// A task leased to one worker.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) epoch: u64,
    pub(super) purpose: Purpose,
    pub(super) turned: bool,
    /// The worker has named it: it knows that it holds the task.
    pub(super) seen: bool,
    /// Grants in which it was sent before it was seen.
    pub(super) grants: u8,
    /// A thread has begun it.
    pub(super) started: bool,
    /// The worker's count was refused: the attempt has failed.
    pub(super) spoilt: bool,
    pub(super) cost_done: u64,
    pub(super) granted: Ticks,
    /// The round of the worker's syncs that last named it.
    pub(super) round: u64,
}

/// A run that a worker gives back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declined {
    pub(super) run: RunIx,
    pub(super) times: u32,
    pub(super) until: Ticks,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) info: WorkerInfo,
    /// `None`: known from its leases on disk only.
    pub(super) session: Option<SessionId>,
    past_sessions: VecDeque<SessionId>,
    pub(super) draining: bool,
    /// It has drained and holds nothing more.
    pub(super) left: bool,
    /// When it was told to call again.
    pub(super) due: Ticks,
    pub(super) leases: BTreeMap<LeaseKey, Lease>,
    pub(super) round: u64,
    pub(super) seen: Ticks,
    /// When it is lost unless it calls; `None` when it is.
    pub(super) deadline: Option<Ticks>,
    /// When it is forgotten; `None` while it is live.
    forget_at: Option<Ticks>,
    /// Its threads, as counted among those of all live workers.
    live_threads: u64,
    pub(super) tasks_done: u64,
    pub(super) declined: Vec<Declined>,
    /// Its counting threads that failed their canaries.
    pub(super) failed_threads: u32,
    /// Tasks under way in its last call.
    pub(super) crews: u32,
    /// How often a thread of this process has passed them.
    pub(super) proofs: u64,
    /// The call that told of a failure was full: what comes with the next one is as old.
    pub(super) has_unproven_left: bool,
    /// Its last reply said that every run is over.
    pub(super) knows_the_end: bool,
    speed: Speed,
}

/// Cost done in an amount of time, older tasks weighing less.
#[derive(Debug, Default)]
struct Speed {
    cost: f64,
    core_seconds: f64,
}

/// What became of a worker's introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The session goes on, or is the first known.
    Known,
    /// The worker was started anew.
    Restarted,
    /// A later session of this worker has called before.
    Superseded,
}

impl Worker {
    fn new(info: WorkerInfo) -> Self {
        Self {
            info,
            session: None,
            past_sessions: VecDeque::new(),
            draining: false,
            left: false,
            due: 0,
            leases: BTreeMap::new(),
            round: 0,
            seen: 0,
            deadline: None,
            forget_at: None,
            live_threads: 0,
            tasks_done: 0,
            declined: Vec::new(),
            failed_threads: 0,
            crews: 0,
            proofs: 0,
            has_unproven_left: false,
            knows_the_end: false,
            speed: Speed::default(),
        }
    }

    /// Takes the worker's word about itself. `silent`: the present session has not called for so
    /// long that one thought to be over may take its place.
    pub(super) fn greet(&mut self, info: &WorkerInfo, silent: bool) -> Greeting {
        if self.past_sessions.contains(&info.session) {
            if !silent {
                return Greeting::Superseded;
            }
            self.past_sessions
                .retain(|session| *session != info.session);
        }
        let greeting = match self.session {
            Some(session) if session != info.session => {
                self.past_sessions.push_back(session);
                if self.past_sessions.len() > PAST_SESSIONS {
                    self.past_sessions.pop_front();
                }
                // Another process, with threads of its own.
                self.failed_threads = 0;
                Greeting::Restarted
            }
            Some(_) | None => Greeting::Known,
        };
        self.session = Some(info.session);
        if self.info != *info {
            if (self.info.kernel, &self.info.version) != (info.kernel, &info.version) {
                self.speed = Speed::default();
            }
            self.info = info.clone();
        }
        greeting
    }

    /// Learns from a finished task.
    pub(super) fn measure(&mut self, cost: u64, duration_us: u64) {
        let Speed {
            cost: sum,
            core_seconds,
        } = &mut self.speed;
        *sum = *sum * SPEED_MEMORY + cost as f64;
        *core_seconds = *core_seconds * SPEED_MEMORY + duration_us.max(1) as f64 / 1e6;
    }

    /// Cost a second of all threads together, once a task was finished.
    pub(super) fn cost_per_second(&self) -> Option<f64> {
        let Speed { cost, core_seconds } = self.speed;
        (core_seconds > 0.0).then(|| cost / core_seconds * f64::from(self.info.threads.max(1)))
    }

    pub(super) fn declines(&self, run: RunIx, now: Ticks) -> bool {
        let declined = self.declined.iter().find(|declined| declined.run == run);
        declined.is_some_and(|declined| now < declined.until)
    }

    /// Notes that leases of `run` came back unworked; after `most` times in a row, for `pause`.
    pub(super) fn decline(&mut self, run: RunIx, now: Ticks, (most, pause): (u32, u64)) {
        let known = self
            .declined
            .iter_mut()
            .find(|declined| declined.run == run);
        if let Some(declined) = known {
            declined.times += 1;
            if declined.times >= most {
                declined.until = now + pause;
            }
            return;
        }
        if self.declined.len() == DECLINED_RUNS {
            self.declined.remove(0);
        }
        self.declined.push(Declined {
            run,
            times: 1,
            until: if most <= 1 { now + pause } else { now },
        });
    }
}

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
    standing: Standing,
}

/// All workers, by number and by name.
#[derive(Debug, Default)]
pub(super) struct Workers {
    slots: Vec<Slot>,
    free: Vec<WorkerIx>,
    by_id: HashMap<WorkerId, WorkerIx>,
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
        let slot = &mut self.slots[worker as usize];
        slot.machine = machine;
        if slot.token.as_ref() != token {
            slot.token = token.cloned();
        }
    }

    /// On whose word a worker counted that has not called since the start.
    pub(super) fn restore_principal(&mut self, worker: WorkerIx, principal: &Principal) {
        let slot = &mut self.slots[worker as usize];
        slot.machine = principal.machine().unwrap_or(slot.machine);
        slot.token = principal.token().map(Arc::from);
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
        let slot = &self.slots[worker as usize];
        Principal::new(slot.machine, slot.token.as_deref())
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
        let threads = u64::from(known.info.threads);
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

/// What is known of a worker that only leases on disk speak of.
pub(super) fn unknown_worker(id: WorkerId) -> WorkerInfo {
    WorkerInfo {
        id,
        session: SessionId(0),
        name: String::new(),
        version: String::new(),
        kernel: KernelName::Scalar,
        threads: 1,
        memory_bytes_per_thread: 0,
        machine: 0,
    }
}
