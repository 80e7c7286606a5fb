//! When the coordinator is called, and what it is told.

use std::time::{Duration, Instant};

use common::sync::{HeldLease, SyncRequest};
use proto::limits;

use super::{LeaseKey, Machine, pace::Needs};

impl Machine {
    /// When the next call is due; `None` while one is on its way.
    pub(super) fn call_at(&self, now: Instant) -> Option<Instant> {
        if self.calling.is_some() {
            return None;
        }
        match &self.drain {
            // What takes long to finish stays leased.
            Some(drain) => drain.call_at().or_else(|| {
                let needs = self.needs(now);
                (self.held() > 0).then(|| self.pace.due(needs))
            }),
            None => Some(self.pace.due(self.needs(now))),
        }
    }

    fn needs(&self, now: Instant) -> Needs {
        let backlog = self.leases.backlog();
        let lasts = self.demand.seconds_for(backlog.cost).min(1e6);
        Needs {
            news: self.has_news(),
            low: self.takes_work(now) && self.demand.is_low(backlog),
            lasts: Duration::from_secs_f64(lasts),
        }
    }

    /// Whether the coordinator should hear something before it asks.
    pub(super) fn has_news(&self) -> bool {
        self.given_up || self.outbox.len() > 0
    }

    fn takes_work(&self, now: Instant) -> bool {
        let is_full = self.held() + self.outbox.len() > limits::HELD - limits::GRANTS;
        // What a plan costs nobody knows before it is made.
        let waits = !self.awaiting.is_empty();
        self.drain.is_none() && self.pause.is_none() && !is_full && !waits && !self.is_refusing(now)
    }

    pub(super) fn is_refusing(&self, now: Instant) -> bool {
        self.refusing_until.is_some_and(|until| now < until)
    }

    pub(super) fn wanted(&self, now: Instant) -> f64 {
        match self.takes_work(now) {
            true => self.demand.wanted(self.leases.backlog()),
            false => 0.0,
        }
    }

    /// The whole inventory. More partials than fit one message stay for the next ones; until then
    /// their leases are listed as held, so that nobody takes them for lost.
    pub(super) fn request(&mut self, seconds_wanted: f64, now: Instant) -> SyncRequest {
        let (partials, later) = self.outbox.send(limits::PARTIALS);
        let awaiting = self.awaiting.iter().map(LeaseKey::granted);
        let counted = later.into_iter().map(|lease| listed(lease, true));
        let held = self
            .leases
            .inventory()
            .chain(awaiting.map(|lease| listed(lease, false)))
            .chain(counted)
            .take(limits::HELD)
            .collect();
        self.given_up = false;
        SyncRequest {
            worker: self.info.clone(),
            held,
            partials,
            seconds_wanted,
            draining: self.drain.is_some() || self.pause.is_some(),
            failed_canaries: self.canaries.report(now),
            paused: self.paused().unwrap_or_default().to_owned(),
        }
    }
}

/// A lease of which there is no progress to tell.
fn listed(lease: LeaseKey, started: bool) -> HeldLease {
    HeldLease {
        task: lease.task,
        epoch: lease.epoch,
        cost_done: 0,
        started,
    }
}
