//! Cost of a coordinator's decisions for a large fleet over days of virtual time,
//! and of replacing half of the fleet repeatedly.
//!
//! The scheduler is the real one, and messages are encoded and decoded; workers have one thread of the
//! reference machine's speed and count runs of N = 28, one after the other. Not included: the disk and
//! connections ([`crate::many_workers`]).

use std::{cmp::Reverse, collections::BinaryHeap, process};

use anyhow::{Context as _, ensure};
use common::{
    board::Board,
    compute::kernel::KernelName,
    messages::{
        run::{Partial, RunId, SessionId},
        sync::{Grant, HeldLease, SyncReply, SyncRequest},
    },
    method::Layout,
    plan::{Plan, PlanSpec},
};
use coordinator::driver::new_manifest;
use kit::{FakeWorker, held, partial};
use prost::Message as _;
use proto::v1;
use scheduler::{
    Config, Millis, Scheduler,
    ledger::{Caller, Change, EntryKind, JournalEntry, LeaseEvent, Recheck, StoredRun},
};
use tests::load::{core_seconds, resident_bytes};

const HOUR_MS: u64 = 3_600_000;

/// Time from a worker's start to its first call.
const START_MS: u64 = 1_000;

/// Cost of a coordinator's decisions for a large fleet over days of virtual time, and of replacing half of the
/// fleet repeatedly.
#[derive(clap::Args)]
pub(super) struct Options {
    #[arg(default_value_t = 10_000)]
    workers: usize,
    #[arg(default_value_t = 168)]
    hours: u64,
    /// Interval at which half of the workers drain and are replaced; 0: never.
    #[arg(default_value_t = 0)]
    minutes: u64,
    /// Seconds in which a draining worker finishes tasks; the default is that of a worker.
    #[arg(default_value_t = 10)]
    grace: u64,
    /// Replace workers by the same ones with their spools.
    #[arg(long)]
    again: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let &Options { workers, hours, minutes, grace, again } = options;
    let mut world = World::new(workers, grace * 1_000, again)?;
    world.live(hours * HOUR_MS, minutes * 60_000)?;
    world.report(hours)
}

/// A worker of one thread; it counts the first of the leases that it holds.
struct Worker {
    fake: FakeWorker,
    /// Counted and not submitted.
    counted: Vec<Partial>,
    /// Start of the current task, or end of the last one.
    since: u64,
    leaves: bool,
}

struct World {
    scheduler: Scheduler,
    plan: Plan,
    runs: u64,
    /// The last complete run, kept until the next one is complete for late counts.
    complete: Option<RunId>,
    now: u64,
    grace_ms: u64,
    /// Whether the same workers come back.
    again: bool,
    fleet: Vec<Worker>,
    /// Time, place and session of each next call; a replacement has another session.
    calls: BinaryHeap<Reverse<(u64, usize, u64)>>,
    sessions: u64,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    calls: u64,
    bytes_up: u64,
    bytes_down: u64,
    accepted: u64,
    confirmed: u64,
    failed: u64,
    left: u64,
    /// Times of accepted first counts and rechecks.
    accepted_ms: u64,
    confirmed_ms: u64,
    /// Time of all finished counts.
    counted_ms: u64,
    /// Time of released and revoked tasks.
    thrown_away_ms: u64,
    /// Time without work.
    waited_ms: u64,
}

impl World {
    fn new(workers: usize, grace_ms: u64, again: bool) -> anyhow::Result<Self> {
        let spec = PlanSpec::new(Board::new(28)?, Layout::Frames);
        let mut world = Self {
            scheduler: Scheduler::new(Config::default(), 1),
            plan: Plan::new(spec)?,
            runs: 0,
            complete: None,
            now: 0,
            grace_ms,
            again,
            fleet: Vec::new(),
            calls: BinaryHeap::new(),
            sessions: 0,
            tally: Tally::default(),
        };
        world.submit();
        for place in 0..workers {
            let worker = world.new_worker();
            world.fleet.push(worker);
            // A fleet of this size does not start within one second.
            world.call_at(place as u64 * 20, place);
        }
        Ok(world)
    }

    fn submit(&mut self) {
        let mut manifest = new_manifest(&self.plan, 0, Millis(self.now));
        self.runs += 1;
        manifest.run = RunId(self.runs);
        self.scheduler.add_run(StoredRun::new(manifest, Recheck::Auto), self.plan.clone());
    }

    fn new_worker(&mut self) -> Worker {
        self.sessions += 1;
        let mut fake = FakeWorker::new(self.sessions);
        fake.info.session = SessionId(self.sessions);
        fake.info.name = format!("rack-07-{:05}", self.sessions);
        fake.info.kernel = KernelName::Avx512;
        fake.info.memory_bytes_per_thread = 4 << 30;
        Worker { fake, counted: Vec::new(), since: self.now, leaves: false }
    }

    fn call_at(&mut self, at: u64, place: usize) {
        let session = self.fleet[place].fake.info.session.0;
        self.calls.push(Reverse((at, place, session)));
    }

    fn live(&mut self, span: u64, churn: u64) -> anyhow::Result<()> {
        let mut next_churn = if churn == 0 { u64::MAX } else { churn };
        while let Some(Reverse((at, place, session))) = self.calls.pop() {
            if at.min(next_churn) >= span {
                break;
            }
            if next_churn <= at {
                self.calls.push(Reverse((at, place, session)));
                self.now = next_churn;
                self.replace_half(next_churn / churn)?;
                next_churn += churn;
                continue;
            }
            if self.fleet[place].fake.info.session.0 != session {
                continue;
            }
            self.now = at;
            self.fleet[place].count_until(at, &self.plan, &mut self.tally);
            let next = self.sync(place)?;
            if !self.replaced(place) {
                self.call_at(at + next.max(1), place);
            }
        }
        Ok(())
    }

    /// Drains every other worker, alternately those at even and at odd places.
    fn replace_half(&mut self, round: u64) -> anyhow::Result<()> {
        let first = usize::from(round.is_multiple_of(2));
        for place in (first..self.fleet.len()).step_by(2) {
            let worker = &mut self.fleet[place];
            if worker.leaves {
                continue;
            }
            worker.count_until(self.now, &self.plan, &mut self.tally);
            worker.stop(self.now + self.grace_ms, (self.now, &self.plan), &mut self.tally);
            self.sync(place)?;
            // A worker that still counts calls again.
            self.replaced(place);
        }
        Ok(())
    }

    /// Replaces a worker if it has left; returns whether it had.
    fn replaced(&mut self, place: usize) -> bool {
        let worker = &self.fleet[place];
        let gone = worker.leaves && worker.fake.held.is_empty();
        if gone {
            self.tally.left += 1;
            let mut next = self.new_worker();
            if self.again {
                let session = next.fake.info.session;
                next.fake.id = self.fleet[place].fake.id;
                next.fake.info = self.fleet[place].fake.info.clone();
                next.fake.info.session = session;
            }
            self.fleet[place] = next;
            self.call_at(self.now + START_MS, place);
        }
        gone
    }

    /// Makes one call with encoded messages; returns the milliseconds until the next.
    fn sync(&mut self, place: usize) -> anyhow::Result<u64> {
        let worker = &mut self.fleet[place];
        let bytes = v1::SyncRequest::from(worker.request(self.now, &self.plan)).encode_to_vec();
        self.tally.bytes_up += bytes.len() as u64;
        let request = SyncRequest::try_from(v1::SyncRequest::decode(&*bytes)?)?;
        let caller = Caller::new(worker.fake.id, None);
        let reply = self.scheduler.sync_by(&caller, &request, Millis(self.now));
        let bytes = v1::SyncResponse::from(reply).encode_to_vec();
        self.tally.bytes_down += bytes.len() as u64;
        let reply = SyncReply::try_from(v1::SyncResponse::decode(&*bytes)?)?;
        self.tally.calls += 1;
        for answer in &reply.acknowledgements {
            ensure!(answer.reason.is_empty(), "refused: {}", answer.reason);
        }
        let worker = &mut self.fleet[place];
        worker.take(reply.clone(), self.now, &mut self.tally);
        let done = worker.end(&self.plan).map(|end| end.saturating_sub(self.now));
        self.take_changes()?;
        // With a result a worker calls within a second or two.
        Ok(done.map_or(reply.next_sync_ms, |done| reply.next_sync_ms.min(done + 1_000)))
    }

    fn take_changes(&mut self) -> anyhow::Result<()> {
        while let Some(change) = self.scheduler.poll_change() {
            match change {
                Change::Recorded(JournalEntry { kind: EntryKind::Accepted, record }) => {
                    self.tally.accepted += 1;
                    self.tally.accepted_ms += self.plan.task_cost(record.task) / 1_000;
                }
                Change::Recorded(JournalEntry { kind: EntryKind::Confirmed, record }) => {
                    self.tally.confirmed += 1;
                    self.tally.confirmed_ms += self.plan.task_cost(record.task) / 1_000;
                }
                Change::Lease { event: LeaseEvent::Failed(_) | LeaseEvent::Parked, .. }
                | Change::Recorded(_) => {
                    self.tally.failed += 1;
                }
                _ => {}
            }
        }
        while let Some(run) = self.scheduler.poll_finished() {
            self.scheduler.conclude(run, true);
            // A coordinator keeps runs until they are deleted.
            if let Some(before) = self.complete.replace(run) {
                self.scheduler.forget_run(before);
            }
            self.submit();
        }
        Ok(())
    }

    fn report(&self, hours: u64) -> anyhow::Result<()> {
        let Tally { calls, accepted, confirmed, failed, left, .. } = self.tally;
        let worker_days = self.fleet.len() as f64 * hours as f64 / 24.0;
        let up = self.tally.bytes_up as f64 / worker_days / 1e3;
        let down = self.tally.bytes_down as f64 / worker_days / 1e3;
        let (core, _) = core_seconds(process::id()).context("no /proc")?;
        let memory = resident_bytes(process::id()).context("no /proc")? as f64 / 1e6;
        let journal = 473.0 * (accepted + confirmed) as f64 / (hours as f64 / 24.0) / 1e9;
        let whole = self.fleet.len() as f64 * (hours * HOUR_MS) as f64;
        let percent = |ms: u64| 100.0 * ms as f64 / whole;
        let useful = self.tally.accepted_ms + self.tally.confirmed_ms;
        println!(
            "{} workers, {hours} hours, {} runs of {} tasks",
            self.fleet.len(),
            self.runs,
            self.plan.tasks()
        );
        println!("calls        {calls}, {:.1} per second", calls as f64 / (hours * 3600) as f64);
        println!(
            "results      {accepted}, and {confirmed} rechecks; journal {journal:.2} GB per day"
        );
        println!(
            "core time    {core:.0} s with the workers' own part: {:.2} % of one core",
            core / (hours * 36) as f64
        );
        println!("memory       {memory:.0} MB with the workers");
        println!(
            "messages     {up:.1} kB up and {down:.1} kB down per worker and day, without HTTP/2 and TLS"
        );
        println!("fleet        {left} left; {failed} attempts failed");
        println!(
            "its time     {:.2} % first counts, {:.2} % rechecks; released or revoked {:.2} %, superseded \
             {:.2} %, without work {:.2} %; the rest is in progress at the end",
            percent(self.tally.accepted_ms),
            percent(self.tally.confirmed_ms),
            percent(self.tally.thrown_away_ms),
            percent(self.tally.counted_ms.saturating_sub(useful)),
            percent(self.tally.waited_ms),
        );
        ensure!(failed == 0, "a drain was counted as a failed attempt");
        Ok(())
    }
}

impl Worker {
    /// Returns the end of its task.
    fn end(&self, plan: &Plan) -> Option<u64> {
        let grant = self.fake.held.first()?;
        Some(self.since + plan.task_cost(grant.lease.task.task) / 1_000)
    }

    fn count_until(&mut self, now: u64, plan: &Plan, tally: &mut Tally) {
        while let Some(end) = self.end(plan).filter(|end| *end <= now) {
            let grant = self.fake.held.remove(0);
            tally.counted_ms += end - self.since;
            let duration_us = plan.task_cost(grant.lease.task.task);
            let kernel = self.fake.info.kernel;
            self.counted.push(Partial { kernel, duration_us, ..partial(&grant, 0) });
            self.since = end;
        }
    }

    /// Drops revoked leases and, unless it drains, adds new ones.
    fn take(&mut self, mut reply: SyncReply, now: u64, tally: &mut Tally) {
        if self.leaves {
            reply.grants.clear();
        }
        let before = self.fake.held.first().copied();
        self.fake.take(&reply);
        let after = self.fake.held.first().copied();
        match before {
            None if after.is_some() => tally.waited_ms += now - self.since,
            Some(_) if after != before => tally.thrown_away_ms += now - self.since,
            _ => return,
        }
        self.since = now;
    }

    /// Drains the worker: keeps a task that ends by `latest`, releases the others.
    fn stop(&mut self, latest: u64, (now, plan): (u64, &Plan), tally: &mut Tally) {
        self.leaves = true;
        self.fake.held.truncate(1);
        if self.end(plan).is_some_and(|end| end > latest) {
            tally.thrown_away_ms += now - self.since;
            self.fake.held.clear();
        }
    }

    fn request(&mut self, now: u64, plan: &Plan) -> SyncRequest {
        let cost = |grant: &Grant| plan.task_cost(grant.lease.task.task);
        let mut leases: Vec<HeldLease> = self.fake.held.iter().map(held).collect();
        if let Some((lease, grant)) = leases.first_mut().zip(self.fake.held.first()) {
            lease.started = true;
            lease.cost_done = ((now - self.since) * 1_000).min(cost(grant));
        }
        let left: u64 = self.fake.held.iter().map(cost).sum();
        // One task in progress, and one that waits.
        let wants = self.fake.held.len() < 2 && !self.leaves;
        self.fake.seconds_wanted = if wants { 300.0 - (left as f64 / 1e6).min(299.0) } else { 0.0 };
        let counted = std::mem::take(&mut self.counted);
        SyncRequest { held: leases, draining: self.leaves, ..self.fake.report(counted) }
    }
}
