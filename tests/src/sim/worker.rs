//! A worker process as the coordinator sees it: threads that take their time, an inventory, an
//! outbox that may survive a crash.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::TaskId,
    run::{Partial, SessionId, WorkerId},
    sync::{Grant, HeldLease, SyncReply, SyncRequest, WorkerInfo},
};

use super::{SECOND, Time, scenario::Scenario};

/// A call without an answer is given up after this.
const CALL_TIMEOUT: Time = 30 * SECOND;

/// Work kept in stock.
const STOCK_SECONDS: f64 = 60.0;

/// A task in a worker.
#[derive(Clone, Debug)]
struct Held {
    grant: Grant,
    /// When a thread began it and when it will be done.
    running: Option<(Time, Time)>,
}

/// One machine; its process comes and goes.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) info: WorkerInfo,
    /// Which of the machine's processes this is; messages and events of earlier ones are dropped.
    pub(super) life: u64,
    pub(super) up: bool,
    pub(super) frozen_until: Time,
    pub(super) wake_at: Time,
    /// Speed of a thread, 1 being the usual.
    speed: f64,
    /// Reports wrong counts, by this much and more.
    lie: Option<u64>,
    held: Vec<Held>,
    outbox: Vec<Partial>,
    call: Option<(u64, Time)>,
    calls: u64,
    next_sync: Time,
    /// The earliest moment at which running dry is a reason to call.
    hungry_at: Time,
    backoff: Time,
    draining: bool,
    /// Tasks counted, over all lives.
    pub(super) counted: u64,
    /// Tasks named in lies.
    pub(super) lies: BTreeSet<TaskId>,
}

/// What a worker wants done.
#[derive(Debug)]
pub(super) enum Act {
    /// Send this under this number of a call.
    Call(u64, SyncRequest),
    /// The drained process ends.
    Exit,
}

impl Worker {
    pub(super) fn new(id: u128, session: u64, threads: u32, speed: f64, lie: Option<u64>) -> Self {
        let kernels = KernelName::ALL;
        let kernel = kernels[usize::try_from(id % 4).expect("below four")];
        Self {
            info: WorkerInfo {
                id: WorkerId(id),
                session: SessionId(session),
                name: format!("worker-{id}"),
                version: "sim".to_owned(),
                kernel,
                threads,
                memory_bytes_per_thread: 1 << 30,
                machine: u64::try_from(id).unwrap_or(0),
            },
            life: 0,
            up: true,
            frozen_until: 0,
            wake_at: 0,
            speed,
            lie,
            held: Vec::new(),
            outbox: Vec::new(),
            call: None,
            calls: 0,
            next_sync: 0,
            hungry_at: 0,
            backoff: SECOND,
            draining: false,
            counted: 0,
            lies: BTreeSet::new(),
        }
    }

    pub(super) fn is_honest(&self) -> bool {
        self.lie.is_none()
    }

    /// The process dies; without its spool the machine comes back under a new name.
    pub(super) fn crash(&mut self, new_id: Option<u128>) {
        self.up = false;
        self.life += 1;
        self.held.clear();
        self.call = None;
        self.draining = false;
        if let Some(id) = new_id {
            self.outbox.clear();
            self.info.id = WorkerId(id);
        }
    }

    pub(super) fn start(&mut self, session: u64, now: Time) {
        self.up = true;
        self.info.session = SessionId(session);
        self.next_sync = now;
        self.hungry_at = now;
        self.backoff = SECOND;
    }

    /// Asked to stop: what is not begun goes back, what is begun is finished.
    pub(super) fn drain(&mut self, now: Time) {
        self.draining = true;
        self.held.retain(|held| held.running.is_some());
        self.next_sync = now;
    }

    /// Lets time pass; returns what has to be done now.
    pub(super) fn act(&mut self, now: Time, scenario: &Scenario) -> Option<Act> {
        self.finish(now, scenario);
        self.begin(now, scenario);
        if let Some((_, since)) = self.call {
            if now < since + CALL_TIMEOUT {
                return None;
            }
            self.call = None;
            self.backoff = (self.backoff * 2).min(100 * SECOND);
            self.next_sync = now + self.backoff;
            self.hungry_at = self.next_sync;
        }
        let idle = self.running() < self.info.threads as usize;
        let due = now >= self.next_sync || (idle && now >= self.hungry_at);
        if !due {
            return None;
        }
        self.calls += 1;
        self.call = Some((self.calls, now));
        Some(Act::Call(self.calls, self.request(now, scenario)))
    }

    /// When [`Self::act`] has something to do next.
    pub(super) fn next(&self, now: Time) -> Time {
        let ends = self.held.iter().filter_map(|held| held.running);
        let end = ends.map(|(_, end)| end).min().unwrap_or(Time::MAX);
        let call = match self.call {
            Some((_, since)) => since + CALL_TIMEOUT,
            None if self.running() < self.info.threads as usize => {
                self.next_sync.min(self.hungry_at)
            }
            None => self.next_sync,
        };
        end.min(call).max(now + 1)
    }

    fn running(&self) -> usize {
        let running = self.held.iter().filter(|held| held.running.is_some());
        running.count()
    }

    fn finish(&mut self, now: Time, scenario: &Scenario) {
        let mut kept = Vec::with_capacity(self.held.len());
        for held in std::mem::take(&mut self.held) {
            match held.running {
                Some((begun, end)) if end <= now => {
                    let partial = self.partial(&held.grant, end - begun, scenario);
                    self.outbox.push(partial);
                    self.counted += 1;
                }
                Some(_) | None => kept.push(held),
            }
        }
        self.held = kept;
    }

    fn partial(&mut self, grant: &Grant, duration_ms: Time, scenario: &Scenario) -> Partial {
        let task = grant.task.task;
        let truth = scenario.truth.count(task);
        let faults = &scenario.faults;
        // Lies of different workers, and of one worker through different data, never agree, unless
        // they are to.
        let count = match (self.lie, grant.orientation) {
            (None, _) => truth,
            (Some(liar), _) if !lies(liar, task, faults) => truth,
            (Some(_), _) if faults.liars_agree => truth + 8,
            (Some(lie), Orientation::Upright) => truth + 2 * lie + 1,
            (Some(lie), Orientation::Turned) => truth + 2 * lie + 2,
        };
        if count != truth {
            self.lies.insert(task);
        }
        Partial {
            task: grant.task,
            epoch: grant.epoch,
            count,
            kernel: self.info.kernel,
            orientation: grant.orientation,
            duration_us: duration_ms * 1_000,
        }
    }

    fn begin(&mut self, now: Time, scenario: &Scenario) {
        if self.draining {
            return;
        }
        let mut idle = (self.info.threads as usize).saturating_sub(self.running());
        let speed = self.speed;
        for held in &mut self.held {
            if idle == 0 {
                break;
            }
            if held.running.is_none() {
                held.running = Some((now, now + duration(&held.grant, scenario, speed)));
                idle -= 1;
            }
        }
    }

    pub(super) fn request(&self, now: Time, scenario: &Scenario) -> SyncRequest {
        let cost = |held: &Held| scenario.truth.plan.task_cost(held.grant.task.task);
        let held = self
            .held
            .iter()
            .map(|held| {
                let done = held.running.map_or(0.0, |(begun, end)| {
                    (now - begun) as f64 / (end - begun).max(1) as f64
                });
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let cost_done = (done * cost(held) as f64) as u64;
                HeldLease {
                    task: held.grant.task,
                    epoch: held.grant.epoch,
                    cost_done,
                    started: held.running.is_some(),
                }
            })
            .collect();
        let stock_ms: Time = self
            .held
            .iter()
            .map(|held| duration(&held.grant, scenario, self.speed))
            .sum();
        let stock = stock_ms as f64 / 1e3 / f64::from(self.info.threads);
        SyncRequest {
            worker: self.info.clone(),
            held,
            partials: self.outbox.clone(),
            seconds_wanted: if self.draining {
                0.0
            } else {
                (STOCK_SECONDS - stock).max(0.0)
            },
            draining: self.draining,
            failed_canaries: Default::default(),
        }
    }

    /// The answer to a call; those to calls given up, or of a dead process, are dropped.
    pub(super) fn answered(&mut self, call: u64, reply: &SyncReply, now: Time) -> Option<Act> {
        if self.call.map(|(open, _)| open) != Some(call) {
            return None;
        }
        self.call = None;
        self.backoff = SECOND;
        let answered: BTreeSet<_> = reply
            .acknowledgements
            .iter()
            .map(|answer| (answer.task.task, answer.epoch))
            .collect();
        self.outbox
            .retain(|partial| !answered.contains(&(partial.task.task, partial.epoch)));
        let revoked: BTreeSet<_> = reply
            .revoked
            .iter()
            .map(|gone| (gone.task.task, gone.epoch))
            .collect();
        self.held
            .retain(|held| !revoked.contains(&(held.grant.task.task, held.grant.epoch)));
        if self.draining {
            self.next_sync = now + reply.next_sync_ms.min(5 * SECOND);
            self.hungry_at = self.next_sync;
            return (self.held.is_empty() && self.outbox.is_empty()).then_some(Act::Exit);
        }
        let known: BTreeMap<_, _> = self
            .held
            .iter()
            .map(|held| held.grant)
            .map(|grant| (grant.task.task, grant.epoch))
            .collect();
        for grant in &reply.grants {
            if known.get(&grant.task.task) != Some(&grant.epoch) {
                self.held.push(Held {
                    grant: *grant,
                    running: None,
                });
            }
        }
        self.next_sync = now + reply.next_sync_ms;
        self.hungry_at = if reply.grants.is_empty() {
            self.next_sync
        } else {
            now + SECOND / 2
        };
        None
    }

    /// Counts in the outbox, by lease.
    pub(super) fn counts(request: &SyncRequest) -> BTreeMap<(TaskId, common::run::Epoch), u64> {
        let partials = request.partials.iter();
        partials
            .map(|partial| ((partial.task.task, partial.epoch), partial.count))
            .collect()
    }
}

/// Whether a liar lies about a task; those that agree lie about the same ones.
fn lies(liar: u64, task: TaskId, faults: &super::Faults) -> bool {
    let liar = if faults.liars_agree { 0 } else { liar + 1 };
    let draw = (task.0 ^ liar << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    (draw as f64) < faults.lie_rate * (1u64 << 53) as f64
}

/// How long a thread takes for a task: by its cost, and by how wrong the cost is.
fn duration(grant: &Grant, scenario: &Scenario, speed: f64) -> Time {
    let task = grant.task.task;
    let cost = scenario.truth.plan.task_cost(task) as f64;
    let wrong =
        0.3 + (task.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 23) as f64;
    let ms = cost * scenario.ms_per_cost * wrong / speed;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let ms = ms as Time;
    ms.max(1)
}
