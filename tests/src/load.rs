//! Load for benchmarks: workers that count nothing, and measurements of processes.

use std::time::Duration;

use common::{
    board::Board,
    messages::{
        run::{Partial, SessionId},
        sync::{SyncReply, SyncRequest},
    },
    method::Layout,
    plan::{Plan, PlanSpec},
};
use kit::{FakeWorker, partial};
use proto::connect::CoordinatorEndpoint;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{process::Process, service::HandWorker};

/// Returns a worker that holds its grants until [`report`] submits them.
pub fn idle_worker(number: u32) -> FakeWorker {
    let mut worker = FakeWorker { started: true, ..FakeWorker::new(u64::from(number) + 1) };
    worker.info.session = SessionId(u64::from(number) + 1);
    worker
}

/// Returns a call that submits up to `most` tasks as if they had no solutions.
pub fn report(worker: &mut FakeWorker, most: usize) -> SyncRequest {
    let kept = worker.held.split_off(most.min(worker.held.len()));
    let reported = std::mem::replace(&mut worker.held, kept);
    worker.seconds_wanted = if worker.held.is_empty() { 1.0 } else { 0.0 };
    let nothing = |grant| Partial { duration_us: 50_000, ..partial(grant, 0) };
    worker.report(reported.iter().map(nothing).collect())
}

impl HandWorker {
    pub async fn idle(coordinator: &CoordinatorEndpoint, number: u32) -> anyhow::Result<Self> {
        Ok(Self { fake: idle_worker(number), ..Self::at(coordinator, 0).await? })
    }

    /// Submits up to `most` tasks as if they had no solutions, and takes new leases.
    pub async fn report(&mut self, most: usize) -> anyhow::Result<SyncReply> {
        let request = report(&mut self.fake, most);
        let reply = self.sync(request).await?;
        self.fake.take(&reply);
        Ok(reply)
    }
}

/// Submits up to `most` tasks per worker and `period`; prints the response times.
///
/// Response times begin when a call is due; a reply slower than `period` postpones the next call.
pub async fn call_regularly(
    fleet: &mut Vec<HandWorker>,
    most: usize,
    (period, span): (Duration, Duration),
) -> anyhow::Result<()> {
    let number = u32::try_from(fleet.len())?.max(1);
    let (start, mut calling) = (Instant::now(), JoinSet::new());
    for (place, mut member) in (0u32..).zip(fleet.drain(..)) {
        calling.spawn(async move {
            let mut waits = Vec::new();
            let mut next = start + period * place / number;
            while next < start + span {
                sleep_until(next).await;
                member.report(most).await?;
                waits.push(next.elapsed());
                next = (next + period).max(Instant::now());
            }
            anyhow::Ok((member, waits))
        });
    }
    let mut times = Vec::new();
    while let Some(done) = calling.join_next().await {
        let (member, mut waits) = done??;
        fleet.push(member);
        times.append(&mut waits);
    }
    times.sort();
    println!(
        "{} calls, {:.0} per second: median {:.2?}, 99 % {:.2?}, longest {:.2?}",
        times.len(),
        times.len() as f64 / start.elapsed().as_secs_f64(),
        quantile(&times, 0.5),
        quantile(&times, 0.99),
        quantile(&times, 1.0),
    );
    Ok(())
}

/// Makes a plan of first-rows prefixes with at least `tasks` tasks.
/// The plan usually has fewer than twice as many tasks.
pub fn plan_of(tasks: u64) -> Plan {
    let board = Board::new(22).expect("a board");
    let mut task_cost = 1u64 << 40;
    loop {
        let spec = PlanSpec { board, layout: Layout::FirstRows, task_cost };
        let plan = Plan::new(spec).expect("no more tasks than the maximum");
        if plan.tasks() >= tasks {
            return plan;
        }
        assert!(task_cost > 1, "no plan has {tasks} tasks");
        task_cost = task_cost * 3 / 4;
    }
}

/// Returns the arguments with which a coordinator makes this plan.
pub fn arguments_of(plan: &Plan) -> Vec<String> {
    let PlanSpec { board, layout, task_cost } = plan.spec();
    let flags = format!("--n {board} --layout {} --task-cost {task_cost}", layout.name());
    flags.split(' ').map(str::to_owned).collect()
}

/// Prints the memory of a coordinator, and returns it in bytes.
pub fn print_memory(coordinator: &Process) -> u64 {
    let bytes = resident_bytes(coordinator.id()).unwrap_or_default();
    println!("  coordinator memory: {} MB", bytes / 1_000_000);
    bytes
}

/// Returns the resident memory of a process, in bytes; `None` without `/proc`.
pub fn resident_bytes(process: u32) -> Option<u64> {
    memory_bytes(process, "VmRSS:")
}

/// Returns a value in `/proc/PROCESS/status`, such as the peak `VmHWM:`, in bytes.
pub fn memory_bytes(process: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns CPU seconds of a process and its ended children; `None` without `/proc`.
pub fn core_seconds(process: u32) -> Option<(f64, f64)> {
    /// Clock ticks per second (`USER_HZ`), 100 on x86 and Arm.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    let (user, system, of_children_user, of_children_system) = (next()?, next()?, next()?, next()?);
    Some(((user + system) / TICKS, (of_children_user + of_children_system) / TICKS))
}

/// Returns the value at `part` (0 to 1) of sorted values; zero if there are none.
pub fn quantile(sorted: &[Duration], part: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation)]
    let index = (sorted.len().saturating_sub(1) as f64 * part) as usize;
    sorted.get(index).copied().unwrap_or_default()
}
