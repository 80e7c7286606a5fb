//! A coordinator's decisions for a large fleet over days of virtual time: what they cost it, and what a
//! fleet loses of which half leaves and comes every so often.
//!
//! `cargo run --release -p tests --example virtual_fleet -- [WORKERS] [HOURS] [MINUTES] [PATIENCE] [again]`
//!
//! The scheduler is the one that is shipped, and every message is written and read as it travels; workers
//! have one thread of the reference machine's speed and count runs of N = 28, one after the other. After
//! every MINUTES half of them are told to leave, finish what takes PATIENCE seconds at most, and others
//! take their places: newcomers that nobody knows, or `again` the same ones, with the spools that they had;
//! never where MINUTES is 0. Not in it: the disk, which `store_bench` measures, and
//! connections, which `many_workers` does.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    env, process,
};

use anyhow::{Context as _, bail, ensure};
use common::{
    board::Board,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec},
    run::{Partial, RunId, SessionId, WorkerId},
    sync::{Grant, HeldLease, SyncReply, SyncRequest, WorkerInfo},
};
use coordinator::{
    driver::new_manifest,
    ledger::{Change, RunState},
    sched::{Config, Millis, Scheduler},
};
use proto::v1;
use tests::load::{core_seconds, resident_bytes};

const HOUR_MS: u64 = 3_600_000;

/// From its start to a worker's first call.
const START_MS: u64 = 1_000;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |place: usize, usual: u64| match arguments.get(place) {
        Some(given) => given
            .parse()
            .context("WORKERS, HOURS, MINUTES and PATIENCE are numbers"),
        None => Ok(usual),
    };
    let (workers, hours) = (argument(0, 10_000)?, argument(1, 168)?);
    // As a worker stops that nobody told otherwise.
    let (minutes, patience) = (argument(2, 0)?, argument(3, 10)?);
    let again = match arguments.get(4).map(String::as_str) {
        None => false,
        Some("again") => true,
        Some(other) => bail!("'{other}' is not 'again'"),
    };
    let mut world = World::new(usize::try_from(workers)?, patience * 1_000)?;
    world.again = again;
    world.live(hours * HOUR_MS, minutes * 60_000)?;
    world.report(hours)
}

/// A worker of one thread.
struct Worker {
    info: WorkerInfo,
    /// Granted, with their cost; the first is being counted.
    work: VecDeque<(Grant, u64)>,
    /// Counted, not yet told.
    counted: Vec<Partial>,
    /// When it began what it counts, or ended what it counted last.
    since: u64,
    /// It was told to leave, and ends with what it counts.
    leaves: bool,
}

struct World {
    scheduler: Scheduler,
    plan: Plan,
    runs: u64,
    /// The last run that is complete: there until the next one is, for counts that come late.
    over: Option<RunId>,
    now: u64,
    patience_ms: u64,
    /// Who left comes back.
    again: bool,
    fleet: Vec<Worker>,
    /// When who calls; a number that has been replaced since has another session.
    calls: BinaryHeap<Reverse<(u64, usize, u64)>>,
    sessions: u64,
    tally: Tally,
}

/// What happened.
#[derive(Default)]
struct Tally {
    calls: u64,
    bytes_up: u64,
    bytes_down: u64,
    accepted: u64,
    confirmed: u64,
    failed: u64,
    left: u64,
    /// Counted, and taken as the first count of a task, or as a second one that was asked for.
    accepted_ms: u64,
    confirmed_ms: u64,
    /// Counted to the end, by whomever.
    counted_ms: u64,
    /// Begun, and given back or taken back.
    thrown_away_ms: u64,
    /// Without work.
    waited_ms: u64,
}

impl World {
    fn new(workers: usize, patience_ms: u64) -> anyhow::Result<Self> {
        let spec = PlanSpec::new(Board::new(28)?, Layout::Frames);
        let mut world = Self {
            scheduler: Scheduler::new(Config::default(), 1),
            plan: Plan::new(spec)?,
            runs: 0,
            over: None,
            now: 0,
            patience_ms,
            again: false,
            fleet: Vec::new(),
            calls: BinaryHeap::new(),
            sessions: 0,
            tally: Tally::default(),
        };
        world.submit();
        for place in 0..workers {
            let worker = world.newcomer();
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
        self.scheduler
            .add_run(&manifest, self.plan.clone(), RunState::Running);
    }

    fn newcomer(&mut self) -> Worker {
        self.sessions += 1;
        Worker {
            info: WorkerInfo {
                id: WorkerId(self.sessions.into()),
                session: SessionId(self.sessions),
                name: format!("rack-07-{:05}", self.sessions),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                kernel: KernelName::Avx512,
                threads: 1,
                memory_bytes_per_thread: 4 << 30,
                machine: self.sessions,
            },
            work: VecDeque::new(),
            counted: Vec::new(),
            since: self.now,
            leaves: false,
        }
    }

    fn call_at(&mut self, at: u64, place: usize) {
        let session = self.fleet[place].info.session.0;
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
                self.exchange_half(next_churn / churn)?;
                next_churn += churn;
                continue;
            }
            if self.fleet[place].info.session.0 != session {
                continue;
            }
            self.now = at;
            self.fleet[place].count_until(at, &mut self.tally);
            let next = self.sync(place)?;
            if !self.replaced(place) {
                self.call_at(at + next.max(1), place);
            }
        }
        Ok(())
    }

    /// Every other worker is told to leave, those of odd places one time and of even ones the next.
    fn exchange_half(&mut self, round: u64) -> anyhow::Result<()> {
        let first = usize::from(round.is_multiple_of(2));
        for place in (first..self.fleet.len()).step_by(2) {
            let worker = &mut self.fleet[place];
            if worker.leaves {
                continue;
            }
            worker.count_until(self.now, &mut self.tally);
            worker.stop(self.now, self.patience_ms, &mut self.tally);
            self.sync(place)?;
            // One that still counts has its next call before it.
            self.replaced(place);
        }
        Ok(())
    }

    /// Whether the worker has left, and another one has its place.
    fn replaced(&mut self, place: usize) -> bool {
        let worker = &self.fleet[place];
        let gone = worker.leaves && worker.work.is_empty();
        if gone {
            self.tally.left += 1;
            let mut next = self.newcomer();
            if self.again {
                let session = next.info.session;
                next.info = self.fleet[place].info.clone();
                next.info.session = session;
            }
            self.fleet[place] = next;
            self.call_at(self.now + START_MS, place);
        }
        gone
    }

    /// One call, as it travels. When to call again, in milliseconds.
    fn sync(&mut self, place: usize) -> anyhow::Result<u64> {
        let worker = &mut self.fleet[place];
        let bytes = prost_bytes(&v1::SyncRequest::from(worker.request(self.now)));
        self.tally.bytes_up += bytes.len() as u64;
        let request = SyncRequest::try_from(<v1::SyncRequest as prost::Message>::decode(&*bytes)?)?;
        let reply = self.scheduler.sync(&request, Millis(self.now));
        let bytes = prost_bytes(&v1::SyncResponse::from(reply));
        self.tally.bytes_down += bytes.len() as u64;
        let reply = SyncReply::try_from(<v1::SyncResponse as prost::Message>::decode(&*bytes)?)?;
        self.tally.calls += 1;
        for answer in &reply.acknowledgements {
            ensure!(answer.reason.is_empty(), "refused: {}", answer.reason);
        }
        let worker = &mut self.fleet[place];
        worker.drop_revoked(&reply, self.now, &mut self.tally);
        if !worker.leaves {
            let cost = |grant: &Grant| self.plan.task_cost(grant.task.task);
            let granted = reply.grants.iter().map(|grant| (*grant, cost(grant)));
            worker.take(granted, self.now, &mut self.tally);
        }
        let done = worker.end().map(|end| end.saturating_sub(self.now));
        self.take_changes()?;
        // With a result a worker calls within a second or two, as a period allows.
        Ok(done.map_or(reply.next_sync_ms, |done| {
            reply.next_sync_ms.min(done + 1_000)
        }))
    }

    fn take_changes(&mut self) -> anyhow::Result<()> {
        while let Some(change) = self.scheduler.poll_change() {
            match change {
                Change::Accepted(record) => {
                    self.tally.accepted += 1;
                    self.tally.accepted_ms += self.plan.task_cost(record.task) / 1_000;
                }
                Change::Confirmed(record) => {
                    self.tally.confirmed += 1;
                    self.tally.confirmed_ms += self.plan.task_cost(record.task) / 1_000;
                }
                Change::Expired { .. } | Change::Parked { .. } | Change::Quarantined { .. } => {
                    self.tally.failed += 1;
                }
                _ => {}
            }
        }
        while let Some(run) = self.scheduler.poll_finished() {
            self.scheduler.conclude(run, true);
            // A coordinator forgets only what somebody deletes.
            if let Some(before) = self.over.replace(run) {
                self.scheduler.forget_run(before);
            }
            self.submit();
        }
        Ok(())
    }

    fn report(&self, hours: u64) -> anyhow::Result<()> {
        let Tally {
            calls,
            accepted,
            confirmed,
            failed,
            left,
            ..
        } = self.tally;
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
        println!(
            "calls        {calls}, {:.1} a second",
            calls as f64 / (hours * 3600) as f64
        );
        println!(
            "results      {accepted}, and {confirmed} second counts; journal {journal:.2} GB a day"
        );
        println!(
            "core time    {core:.0} s with the workers' own part: {:.2} % of one core",
            core / (hours * 36) as f64
        );
        println!("memory       {memory:.0} MB with the workers");
        println!(
            "messages     {up:.1} kB up and {down:.1} kB down, a worker and day, without HTTP/2 and TLS"
        );
        println!("fleet        {left} left; {failed} attempts failed");
        println!(
            "its time     {:.2} % first counts, {:.2} % second counts; thrown away {:.2} %, counted \
             for nothing {:.2} %, without work {:.2} %; the rest is under way at the end",
            percent(self.tally.accepted_ms),
            percent(self.tally.confirmed_ms),
            percent(self.tally.thrown_away_ms),
            percent(self.tally.counted_ms.saturating_sub(useful)),
            percent(self.tally.waited_ms),
        );
        ensure!(failed == 0, "a stop in good order counted against somebody");
        Ok(())
    }
}

impl Worker {
    /// When it ends what it counts.
    fn end(&self) -> Option<u64> {
        let (_, cost) = self.work.front()?;
        Some(self.since + cost / 1_000)
    }

    /// Counts what it has until then.
    fn count_until(&mut self, now: u64, tally: &mut Tally) {
        while self.end().is_some_and(|end| end <= now) {
            let (grant, cost) = self.work.pop_front().expect("it counts");
            self.since += cost / 1_000;
            tally.counted_ms += cost / 1_000;
            self.counted.push(Partial {
                task: grant.task,
                epoch: grant.epoch,
                count: 0,
                kernel: self.info.kernel,
                orientation: grant.orientation,
                duration_us: cost,
            });
        }
    }

    /// New work; until now it may have had none.
    fn take(&mut self, granted: impl Iterator<Item = (Grant, u64)>, now: u64, tally: &mut Tally) {
        let waited = self.work.is_empty();
        self.work.extend(granted);
        if waited && !self.work.is_empty() {
            tally.waited_ms += now - self.since;
            self.since = now;
        }
    }

    /// Leaves what somebody else has counted.
    fn drop_revoked(&mut self, reply: &SyncReply, now: u64, tally: &mut Tally) {
        let lease = |grant: &Grant| (grant.task, grant.epoch);
        let is_gone = |grant: &Grant| {
            let mut gone = reply.revoked.iter();
            gone.any(|gone| (gone.task, gone.epoch) == lease(grant))
        };
        if let Some((grant, _)) = self.work.front()
            && is_gone(grant)
        {
            tally.thrown_away_ms += now - self.since;
            self.since = now;
        }
        self.work.retain(|(grant, _)| !is_gone(grant));
    }

    /// From now on it finishes what takes no longer than it has patience; the rest is given back.
    fn stop(&mut self, now: u64, patience_ms: u64, tally: &mut Tally) {
        self.leaves = true;
        self.work.truncate(1);
        if self.end().is_some_and(|end| end > now + patience_ms) {
            tally.thrown_away_ms += now - self.since;
            self.work.clear();
        }
    }

    fn request(&mut self, now: u64) -> SyncRequest {
        let since = self.since;
        let held = |(place, (grant, cost)): (usize, &(Grant, u64))| HeldLease {
            task: grant.task,
            epoch: grant.epoch,
            cost_done: if place == 0 {
                ((now - since) * 1_000).min(*cost)
            } else {
                0
            },
            started: place == 0,
        };
        let held: Vec<_> = self.work.iter().enumerate().map(held).collect();
        let left: u64 = self.work.iter().map(|(_, cost)| cost).sum();
        // One in hand, and one that waits.
        let wants = if self.work.len() < 2 && !self.leaves {
            300.0 - (left as f64 / 1e6).min(299.0)
        } else {
            0.0
        };
        SyncRequest {
            worker: self.info.clone(),
            held,
            partials: std::mem::take(&mut self.counted),
            seconds_wanted: wants,
            draining: self.leaves,
            failed_canaries: Default::default(),
            paused: String::new(),
        }
    }
}

fn prost_bytes(message: &impl prost::Message) -> Vec<u8> {
    message.encode_to_vec()
}
