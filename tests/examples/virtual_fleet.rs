//! A coordinator's decisions for a large fleet over days of virtual time: what they cost it, and what a
//! fleet loses of which half leaves and comes every so often.
//!
//! `cargo run --release -p tests --example virtual_fleet -- [WORKERS] [HOURS] [MINUTES]`
//!
//! The scheduler is the one that is shipped, and every message is written and read as it travels; workers
//! have one thread of the reference machine's speed and count runs of N = 28, one after the other. After
//! every MINUTES half of them leave in good order and as many others come; never where it is 0. Not in
//! it: the disk, which `store_bench` measures, and connections, which `many_workers` does.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    env, process,
};

use anyhow::{Context as _, ensure};
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

/// What a worker that stops still finishes.
const PATIENCE_MS: u64 = 10_000;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |place: usize, usual: u64| match arguments.get(place) {
        Some(given) => given
            .parse()
            .context("WORKERS, HOURS and MINUTES are numbers"),
        None => Ok(usual),
    };
    let (workers, hours, minutes) = (argument(0, 10_000)?, argument(1, 168)?, argument(2, 0)?);
    let mut world = World::new(usize::try_from(workers)?)?;
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
    /// When it began what it counts.
    since: u64,
}

struct World {
    scheduler: Scheduler,
    plan: Plan,
    runs: u64,
    now: u64,
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
    counting_ms: u64,
    thrown_away_ms: u64,
    left: u64,
}

impl World {
    fn new(workers: usize) -> anyhow::Result<Self> {
        let spec = PlanSpec::new(Board::new(28)?, Layout::Frames);
        let mut world = Self {
            scheduler: Scheduler::new(Config::default(), 1),
            plan: Plan::new(spec)?,
            runs: 0,
            now: 0,
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
            since: 0,
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
            let next = self.sync(place, false)?;
            self.call_at(at + next.max(1), place);
        }
        Ok(())
    }

    /// Every other worker leaves, those of odd places one time and of even ones the next.
    fn exchange_half(&mut self, round: u64) -> anyhow::Result<()> {
        let first = usize::from(round.is_multiple_of(2));
        for place in (first..self.fleet.len()).step_by(2) {
            let now = self.now;
            let worker = &mut self.fleet[place];
            worker.count_until(now, &mut self.tally);
            worker.give_up(now, &mut self.tally);
            self.sync(place, true)?;
            self.tally.left += 1;
            self.fleet[place] = self.newcomer();
            self.call_at(now + 1_000 + place as u64, place);
        }
        Ok(())
    }

    /// One call, as it travels. When to call again, in milliseconds.
    fn sync(&mut self, place: usize, leaves: bool) -> anyhow::Result<u64> {
        let worker = &mut self.fleet[place];
        let bytes = prost_bytes(&v1::SyncRequest::from(worker.request(self.now, leaves)));
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
        for gone in &reply.revoked {
            worker
                .work
                .retain(|(grant, _)| (grant.task, grant.epoch) != (gone.task, gone.epoch));
        }
        if !leaves {
            if worker.work.is_empty() {
                worker.since = self.now;
            }
            let cost = |grant: &Grant| self.plan.task_cost(grant.task.task);
            worker
                .work
                .extend(reply.grants.iter().map(|grant| (*grant, cost(grant))));
        }
        let done = worker
            .work
            .front()
            .map(|(_, cost)| (worker.since + cost / 1_000).saturating_sub(self.now));
        self.take_changes()?;
        // With a result a worker calls within a second or two, as a period allows.
        Ok(done.map_or(reply.next_sync_ms, |done| {
            reply.next_sync_ms.min(done + 1_000)
        }))
    }

    fn take_changes(&mut self) -> anyhow::Result<()> {
        while let Some(change) = self.scheduler.poll_change() {
            match change {
                Change::Accepted(_) => self.tally.accepted += 1,
                Change::Confirmed(_) => self.tally.confirmed += 1,
                Change::Expired { .. } | Change::Parked { .. } | Change::Quarantined { .. } => {
                    self.tally.failed += 1;
                }
                _ => {}
            }
        }
        while let Some(run) = self.scheduler.poll_finished() {
            self.scheduler.conclude(run, true);
            self.scheduler.forget_run(run);
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
        let thrown =
            100.0 * self.tally.thrown_away_ms as f64 / self.tally.counting_ms.max(1) as f64;
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
        println!(
            "fleet        {left} left; {failed} attempts failed; {thrown:.2} % of the counting was thrown away"
        );
        ensure!(failed == 0, "a stop in good order counted against somebody");
        Ok(())
    }
}

impl Worker {
    /// Counts what it has until then.
    fn count_until(&mut self, now: u64, tally: &mut Tally) {
        while let Some((grant, cost)) = self.work.front().copied()
            && self.since + cost / 1_000 <= now
        {
            self.finish(&grant, cost, tally);
        }
    }

    fn finish(&mut self, grant: &Grant, cost: u64, tally: &mut Tally) {
        self.work.pop_front();
        self.since += cost / 1_000;
        tally.counting_ms += cost / 1_000;
        self.counted.push(Partial {
            task: grant.task,
            epoch: grant.epoch,
            count: 0,
            kernel: self.info.kernel,
            orientation: grant.orientation,
            duration_us: cost,
        });
    }

    /// Finishes what takes a few seconds, and gives the rest back.
    fn give_up(&mut self, now: u64, tally: &mut Tally) {
        if let Some((grant, cost)) = self.work.front().copied() {
            if self.since + cost / 1_000 <= now + PATIENCE_MS {
                self.finish(&grant, cost, tally);
            } else {
                let spent = now - self.since;
                tally.thrown_away_ms += spent;
                tally.counting_ms += spent;
            }
        }
        self.work.clear();
    }

    fn request(&mut self, now: u64, leaves: bool) -> SyncRequest {
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
        let wants = if self.work.len() < 2 && !leaves {
            300.0 - (left as f64 / 1e6).min(299.0)
        } else {
            0.0
        };
        SyncRequest {
            worker: self.info.clone(),
            held,
            partials: std::mem::take(&mut self.counted),
            seconds_wanted: wants,
            draining: leaves,
            failed_canaries: Default::default(),
            paused: String::new(),
        }
    }
}

fn prost_bytes(message: &impl prost::Message) -> Vec<u8> {
    message.encode_to_vec()
}
