//! Load for benchmarks: workers that report at once and count nothing.

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec},
    run::{Partial, SessionId, WorkerId},
    sync::{Grant, HeldLease, SyncReply, SyncRequest, WorkerInfo},
};

/// A worker that claims to have found nothing: what is measured is the way of its reports.
#[derive(Debug)]
pub struct IdleWorker {
    info: WorkerInfo,
    grants: Vec<Grant>,
}

impl IdleWorker {
    /// The worker of this number.
    pub fn new(number: u32) -> Self {
        Self {
            info: WorkerInfo {
                id: WorkerId(u128::from(number) + 1),
                session: SessionId(u64::from(number) + 1),
                name: format!("idle-{number}"),
                version: "0.0.0".to_owned(),
                kernel: KernelName::Scalar,
                threads: 1,
                memory_bytes_per_thread: 1 << 30,
                machine: 1 + u64::from(number),
            },
            grants: Vec::new(),
        }
    }

    /// A call that reports up to `most` tasks and asks for more.
    pub fn report(&mut self, most: usize) -> SyncRequest {
        let kept = self.grants.split_off(most.min(self.grants.len()));
        let reported = std::mem::replace(&mut self.grants, kept);
        SyncRequest {
            worker: self.info.clone(),
            held: self.held(),
            partials: reported.iter().map(found_nothing).collect(),
            seconds_wanted: if self.grants.is_empty() { 1.0 } else { 0.0 },
            draining: false,
            failed_canaries: Default::default(),
            paused: String::new(),
        }
    }

    /// A call that only renews its leases, and asks for one if it has none.
    pub fn renew(&self) -> SyncRequest {
        SyncRequest {
            worker: self.info.clone(),
            held: self.held(),
            partials: Vec::new(),
            seconds_wanted: if self.grants.is_empty() { 1.0 } else { 0.0 },
            draining: false,
            failed_canaries: Default::default(),
            paused: String::new(),
        }
    }

    /// Takes the leases of a reply.
    pub fn take(&mut self, reply: &SyncReply) {
        self.grants.extend(&reply.grants);
    }

    fn held(&self) -> Vec<HeldLease> {
        let held = |grant: &Grant| HeldLease {
            task: grant.task,
            epoch: grant.epoch,
            cost_done: 0,
            started: true,
        };
        self.grants.iter().map(held).collect()
    }
}

fn found_nothing(grant: &Grant) -> Partial {
    Partial {
        task: grant.task,
        epoch: grant.epoch,
        count: 0,
        kernel: KernelName::Scalar,
        orientation: Orientation::Upright,
        duration_us: 50_000,
    }
}

/// A plan of first-rows prefixes with at least this many tasks, and less than twice as many if the
/// rules allow.
///
/// # Panics
/// If no plan has so many tasks.
pub fn plan_of(tasks: u64) -> Plan {
    let board = Board::new(22).expect("a board");
    let mut task_cost = 1u64 << 40;
    loop {
        let spec = PlanSpec {
            board,
            layout: Layout::FirstRows,
            task_cost,
        };
        let plan = Plan::new(spec).expect("fewer tasks than the most");
        if plan.tasks() >= tasks {
            return plan;
        }
        assert!(task_cost > 1, "no plan has {tasks} tasks");
        task_cost = task_cost * 3 / 4;
    }
}

/// Resident memory of a process, in bytes; `None` where the system does not tell.
pub fn resident_bytes(process: u32) -> Option<u64> {
    memory_bytes(process, "VmRSS:")
}

/// The most that it ever was.
pub fn peak_bytes(process: u32) -> Option<u64> {
    memory_bytes(process, "VmHWM:")
}

fn memory_bytes(process: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Time of one core that a process has used, and that its ended children have, in seconds; `None`
/// where the system does not tell. To be compared on a machine that does other things too.
pub fn core_seconds(process: u32) -> Option<(f64, f64)> {
    /// Ticks a second, the same on every Linux.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses that may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    let (user, system, of_children_user, of_children_system) = (next()?, next()?, next()?, next()?);
    Some((
        (user + system) / TICKS,
        (of_children_user + of_children_system) / TICKS,
    ))
}

/// The value at `part` (0 to 1) of sorted values; zero of none.
pub fn quantile(sorted: &[std::time::Duration], part: f64) -> std::time::Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let index = (sorted.len().saturating_sub(1) as f64 * part) as usize;
    sorted.get(index).copied().unwrap_or_default()
}
