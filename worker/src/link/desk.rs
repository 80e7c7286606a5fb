//! What the worker holds, and the messages that tell of it. No I/O, no clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use common::{
    run::Partial,
    sync::{
        Acknowledgement, FailedCanaries, HeldLease, Revocation, SyncRequest, Verdict, WorkerInfo,
    },
};
use proto::limits;

use crate::{
    lease::LeaseKey,
    outbox::Outbox,
    pool::{Job, Left, Outcome},
    summary::Summary,
};

/// The worker's leases and what became of those that it no longer holds.
#[derive(Debug)]
pub(crate) struct Desk {
    info: WorkerInfo,
    held: BTreeMap<LeaseKey, Arc<Job>>,
    pub(crate) outbox: Outbox,
    /// Partials that the call on its way carries.
    sending: BTreeSet<LeaseKey>,
    /// Leases were given up since the last message was made.
    given_up: bool,
    pub(crate) summary: Summary,
}

impl Desk {
    pub(crate) fn new(info: WorkerInfo, outbox: Outbox) -> Self {
        Self {
            info,
            held: BTreeMap::new(),
            outbox,
            sending: BTreeSet::new(),
            given_up: false,
            summary: Summary::default(),
        }
    }

    /// The leases that are waiting or being counted.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.held.values()
    }

    /// How many threads count here.
    pub(crate) fn threads(&self) -> u32 {
        self.info.threads
    }

    /// Whether neither leases nor partials are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.outbox.len() == 0
    }

    /// Whether the coordinator should hear something before it asks.
    pub(crate) fn has_news(&self) -> bool {
        self.given_up || self.outbox.len() > 0
    }

    /// Whether as many leases are held as one message can list.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() + self.outbox.len() > limits::HELD - limits::GRANTS
    }

    /// The whole inventory. More partials than fit one message stay for the next ones; until then
    /// their leases are listed as held, so that nobody takes them for lost.
    pub(crate) fn request(&mut self, seconds_wanted: f64, draining: bool) -> SyncRequest {
        let mut waiting = self.outbox.waiting();
        let partials: Vec<Partial> = waiting.by_ref().take(limits::PARTIALS).copied().collect();
        let counted = waiting.map(|partial| HeldLease {
            task: partial.task,
            epoch: partial.epoch,
            cost_done: 0,
            started: true,
        });
        let running = self.held.values().map(|job| HeldLease {
            task: job.lease.task,
            epoch: job.lease.epoch,
            cost_done: job.cost_done(),
            started: job.started().is_some(),
        });
        let held = running.chain(counted).take(limits::HELD).collect();
        self.sending = partials.iter().map(LeaseKey::of).collect();
        self.given_up = false;
        SyncRequest {
            worker: self.info.clone(),
            held,
            partials,
            seconds_wanted,
            draining,
            failed_canaries: FailedCanaries::default(),
        }
    }

    /// The message was lost, or its answer was: whatever it told has to be told again.
    pub(crate) fn lost(&mut self) {
        self.sending.clear();
        self.given_up = true;
    }

    /// A job that was granted, unless it is here already: grants may be repeated.
    pub(crate) fn take(&mut self, job: Job) -> Option<Arc<Job>> {
        let lease = job.lease;
        if self.held.contains_key(&lease) || self.outbox.contains(&lease) {
            return None;
        }
        let job = Arc::new(job);
        self.held.insert(lease, job.clone());
        Some(job)
    }

    /// A granted lease is not taken: the coordinator should know soon.
    pub(crate) fn decline(&mut self) {
        self.given_up = true;
    }

    /// Gives a lease up; its job is told to stop.
    pub(crate) fn give_up(&mut self, lease: LeaseKey) {
        if let Some(job) = self.held.remove(&lease) {
            job.cancel();
            self.given_up = true;
            self.summary.abandoned += 1;
        }
    }

    /// Stops what the coordinator has taken back. Nothing needs to be told about it.
    pub(crate) fn revoke(&mut self, revocation: &Revocation) {
        let lease = LeaseKey {
            task: revocation.task,
            epoch: revocation.epoch,
        };
        if let Some(job) = self.held.remove(&lease) {
            tracing::info!("{lease} is taken back: {}", revocation.reason);
            job.cancel();
            self.summary.revoked += 1;
        }
    }

    /// Files what a thread made of a job. A late result, after its lease was taken back, is
    /// welcome too.
    pub(crate) fn left(&mut self, left: &Left) {
        let lease = left.job.lease;
        match &left.outcome {
            Outcome::Counted(count) => {
                self.held.remove(&lease);
                self.summary.counted += 1;
                self.outbox.put(Partial {
                    task: lease.task,
                    epoch: lease.epoch,
                    count: *count,
                    kernel: self.info.kernel,
                    orientation: left.job.orientation,
                    duration_us: micros(left.duration),
                });
            }
            Outcome::Cancelled => self.give_up(lease),
            Outcome::Failed(failure) => {
                tracing::error!("{lease} has no count: {failure}; the lease is given back");
                self.give_up(lease);
            }
        }
    }

    /// Drops a partial that the coordinator has answered for, whatever the verdict.
    pub(crate) fn acknowledged(&mut self, answer: &Acknowledgement) {
        let lease = LeaseKey {
            task: answer.task,
            epoch: answer.epoch,
        };
        if !self.sending.contains(&lease) || self.outbox.acknowledge(lease).is_none() {
            return;
        }
        match answer.verdict {
            Verdict::Accepted => self.summary.accepted += 1,
            Verdict::Duplicate => self.summary.duplicates += 1,
            Verdict::Conflict => {
                self.summary.conflicts += 1;
                tracing::error!(
                    "another worker has another count for {lease}: {}; if this happens often, \
                     check this machine's memory and processor",
                    answer.reason
                );
            }
            Verdict::Refused => {
                self.summary.refused += 1;
                tracing::warn!("the count of {lease} was refused: {}", answer.reason);
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
