//! Conversions between messages and domain types.

use std::convert::identity;

use common::{
    board::Board,
    compute::kernel::KernelName,
    count::Orientation,
    messages::{
        limits,
        recheck::{MILLION, Recheck},
        run::{Epoch, LeaseKey, Partial, Proof, RunId, SessionId, SubmitKey, TaskRef},
        sync::{
            Acknowledgement, Grant, HeldLease, PackageRequest, Revocation, SelfTestReport,
            SyncReply, SyncRequest, Verdict, WorkerInfo,
        },
    },
    method::Layout,
    plan::{PlanHash, PlanSpec, TaskId},
    text::{Escaped, is_visible, worker_name},
};

use crate::{
    PROTOCOL_VERSION,
    connect::WorkerSecret,
    v1::{self, recheck::Part},
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    #[error(
        "unsupported protocol version {theirs} (this program speaks version {ours}): install the \
         same release on coordinator and workers"
    )]
    Protocol { theirs: u32, ours: u32 },
    /// An invalid field and its path, such as `partials[3].task.plan_hash`.
    #[error("{field}: {problem}")]
    Field { field: String, problem: String },
}

impl BadMessage {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }

    /// Prepends the field of the outer message to the path.
    pub(crate) fn inside(self, parent: &str) -> Self {
        match self {
            Self::Protocol { .. } => self,
            Self::Field { field, problem } => {
                Self::Field { field: format!("{parent}.{field}"), problem }
            }
        }
    }
}

impl From<BadMessage> for tonic::Status {
    fn from(bad: BadMessage) -> Self {
        match bad {
            BadMessage::Protocol { .. } => Self::failed_precondition(bad.to_string()),
            BadMessage::Field { .. } => Self::invalid_argument(bad.to_string()),
        }
    }
}

/// Rejects a field unless `valid`.
fn require(valid: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), BadMessage> {
    if valid { Ok(()) } else { Err(BadMessage::new(field, problem())) }
}

/// A value that a message transmits as a field of type `W`.
trait Field<W>: Sized {
    fn decode(field: &str, wire: W) -> Result<Self, BadMessage>;

    fn encode(self) -> W;
}

/// Implements [`Field`] for types to which every value of the field converts.
macro_rules! plain_fields {
    ($($domain:ty as $wire:ty: $decode:expr, $encode:expr;)+) => {$(
        impl Field<$wire> for $domain {
            fn decode(_: &str, wire: $wire) -> Result<Self, BadMessage> {
                Ok($decode(wire))
            }

            fn encode(self) -> $wire {
                $encode(self)
            }
        }
    )+};
}

plain_fields! {
    bool as bool: identity, identity;
    u32 as u32: identity, identity;
    u64 as u64: identity, identity;
    RunId as u64: RunId, |RunId(run)| run;
    TaskId as u64: TaskId, |TaskId(task)| task;
    Epoch as u64: Epoch, |Epoch(epoch)| epoch;
    SessionId as u64: SessionId, |SessionId(session)| session;
}

impl Field<Vec<u8>> for Proof {
    fn decode(field: &str, wire: Vec<u8>) -> Result<Self, BadMessage> {
        let bytes = wire.as_slice().try_into();
        let bad = |_| BadMessage::new(field, format!("a proof has 16 bytes, got {}", wire.len()));
        bytes.map(u128::from_be_bytes).map(Proof).map_err(bad)
    }

    fn encode(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

/// A human-readable reason or name.
impl Field<String> for String {
    fn decode(field: &str, wire: String) -> Result<Self, BadMessage> {
        text(field, limits::REASON_BYTES, wire)
    }

    fn encode(self) -> String {
        let mut line = Escaped(&self).to_string();
        line.truncate(line.floor_char_boundary(limits::REASON_BYTES));
        line
    }
}

/// A message that must be set.
impl<M: From<T>, T: TryFrom<M, Error = BadMessage>> Field<Option<M>> for T {
    fn decode(field: &str, wire: Option<M>) -> Result<Self, BadMessage> {
        let message = wire.ok_or_else(|| BadMessage::new(field, "must be set"))?;
        T::try_from(message).map_err(|bad| bad.inside(field))
    }

    fn encode(self) -> Option<M> {
        Some(self.into())
    }
}

/// A message that occurs at most `MAX` times in a list of another message.
trait Listed {
    const MAX: usize;
}

impl<M: From<T>, T: Listed + TryFrom<M, Error = BadMessage>> Field<Vec<M>> for Vec<T> {
    fn decode(field: &str, wire: Vec<M>) -> Result<Self, BadMessage> {
        require(wire.len() <= T::MAX, field, || {
            format!("at most {} in one message, got {}", T::MAX, wire.len())
        })?;
        let decode = |(index, message)| {
            T::try_from(message).map_err(|bad| bad.inside(&format!("{field}[{index}]")))
        };
        wire.into_iter().enumerate().map(decode).collect()
    }

    fn encode(self) -> Vec<M> {
        self.into_iter().map(Into::into).collect()
    }
}

/// Implements conversions between a domain type and its message, field by field.
macro_rules! message {
    ($name:ident, at most $max:expr, { $($field:ident),+ }) => {
        impl Listed for $name {
            const MAX: usize = $max;
        }

        impl TryFrom<v1::$name> for $name {
            type Error = BadMessage;

            fn try_from(message: v1::$name) -> Result<Self, BadMessage> {
                Ok(Self { $($field: Field::decode(stringify!($field), message.$field)?),+ })
            }
        }

        impl From<$name> for v1::$name {
            fn from(value: $name) -> Self {
                Self { $($field: value.$field.encode()),+ }
            }
        }
    };
}

/// Implements [`Field`] for an enumeration; rejects 0 and unknown numbers.
macro_rules! enumeration {
    ($domain:ident, $expected:literal, $($name:ident => $wire:ident),+) => {
        impl From<$domain> for v1::$domain {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$name => Self::$wire,)+
                }
            }
        }

        impl Field<i32> for $domain {
            fn decode(field: &str, wire: i32) -> Result<Self, BadMessage> {
                let bad = || {
                    let problem = format!(concat!("expected ", $expected, ", got {}"), wire);
                    BadMessage::new(field, problem)
                };
                match v1::$domain::try_from(wire).map_err(|_| bad())? {
                    v1::$domain::Unspecified => Err(bad()),
                    $(v1::$domain::$wire => Ok(Self::$name),)+
                }
            }

            fn encode(self) -> i32 {
                v1::$domain::from(self).into()
            }
        }
    };
}

/// Checks human-readable text: at most `max` bytes, without invisible characters.
fn text(field: &str, max: usize, text: String) -> Result<String, BadMessage> {
    require(text.len() <= max, field, || format!("at most {max} bytes, got {}", text.len()))?;
    if let Some(c) = text.chars().find(|&c| !is_visible(c)) {
        let problem = format!("must not contain the invisible character {c:?}");
        return Err(BadMessage::new(field, problem));
    }
    Ok(text)
}

// `KernelName` is the domain type of `v1::Kernel`.
use KernelName as Kernel;

enumeration!(
    Layout,
    "1 first-rows, 2 border or 3 frames",
    FirstRows => FirstRows, Border => Border, Frames => Frames
);
enumeration!(
    Kernel,
    "1 scalar, 2 avx2, 3 avx512, 4 neon, 5 opencl or 6 simd128",
    Scalar => Scalar, Avx2 => Avx2, Avx512 => Avx512, Neon => Neon, OpenCl => Opencl,
    Simd128 => Simd128
);
enumeration!(Orientation, "1 upright or 2 rotated", Upright => Upright, Rotated => Rotated);

fn board_and_layout(spec: v1::PlanSpec) -> Result<(Board, Layout), BadMessage> {
    let bad = || {
        let problem = format!("expected 1 to {}, got {}", Board::MAX, spec.n);
        BadMessage::new("n", problem)
    };
    let n = u8::try_from(spec.n).map_err(|_| bad())?;
    let board = Board::new(n).map_err(|_| bad())?;
    Ok((board, Field::decode("layout", spec.layout)?))
}

impl TryFrom<v1::PlanSpec> for PlanSpec {
    type Error = BadMessage;

    fn try_from(spec: v1::PlanSpec) -> Result<Self, BadMessage> {
        let (board, layout) = board_and_layout(spec)?;
        require(spec.task_cost > 0, "task_cost", || "must be at least 1".to_owned())?;
        Ok(Self { board, layout, task_cost: spec.task_cost })
    }
}

impl From<PlanSpec> for v1::PlanSpec {
    fn from(spec: PlanSpec) -> Self {
        Self {
            n: u32::from(spec.board.n()),
            layout: spec.layout.encode(),
            task_cost: spec.task_cost,
        }
    }
}

/// Converts a submitted spec, in which a task cost of 0 selects the default.
pub fn submitted_spec(spec: Option<v1::PlanSpec>) -> Result<PlanSpec, BadMessage> {
    let spec = spec.ok_or_else(|| BadMessage::new("spec", "must be set"))?;
    let (board, layout) = board_and_layout(spec).map_err(|bad| bad.inside("spec"))?;
    let defaults = PlanSpec::new(board, layout);
    Ok(match spec.task_cost {
        0 => defaults,
        task_cost => PlanSpec { task_cost, ..defaults },
    })
}

/// Parses an idempotency key; `None` if it is empty.
pub fn submitted_key(key: &str) -> Result<Option<SubmitKey>, BadMessage> {
    let problem = "must be 1 to 64 letters, digits, '-', '_', '.' or ':'";
    let bad = |_| BadMessage::new("idempotency_key", problem);
    (!key.is_empty()).then(|| key.parse().map_err(bad)).transpose()
}

impl TryFrom<v1::Recheck> for Recheck {
    type Error = BadMessage;

    fn try_from(recheck: v1::Recheck) -> Result<Self, BadMessage> {
        let part = recheck.part.ok_or_else(|| BadMessage::new("part", "must be set"))?;
        match part {
            Part::Millionths(parts) => Self::from_millionths(parts).ok_or_else(|| {
                BadMessage::new("millionths", format!("expected 0 to {MILLION}, got {parts}"))
            }),
            Part::Level(level) => match v1::RecheckLevel::try_from(level) {
                Ok(v1::RecheckLevel::Auto) => Ok(Self::Auto),
                Ok(v1::RecheckLevel::All) => Ok(Self::All),
                Ok(v1::RecheckLevel::Unspecified) | Err(_) => {
                    let problem = format!("expected 1 auto or 2 all, got {level}");
                    Err(BadMessage::new("level", problem))
                }
            },
        }
    }
}

impl From<Recheck> for v1::Recheck {
    fn from(recheck: Recheck) -> Self {
        let part = match recheck {
            Recheck::Auto => Part::Level(v1::RecheckLevel::Auto.into()),
            Recheck::Millionths(parts) => Part::Millionths(parts),
            Recheck::All => Part::Level(v1::RecheckLevel::All.into()),
        };
        Self { part: Some(part) }
    }
}

/// Converts the recheck of a request; none selects the default.
pub fn requested_recheck(recheck: Option<v1::Recheck>) -> Result<Recheck, BadMessage> {
    match recheck {
        None => Ok(Recheck::default()),
        Some(_) => Field::decode("recheck", recheck),
    }
}

impl TryFrom<v1::TaskRef> for TaskRef {
    type Error = BadMessage;

    fn try_from(task: v1::TaskRef) -> Result<Self, BadMessage> {
        let plan = PlanHash::try_from(task.plan_hash.as_slice()).map_err(|_| {
            let problem = format!("a plan hash has 32 bytes, got {}", task.plan_hash.len());
            BadMessage::new("plan_hash", problem)
        })?;
        Ok(Self { run: RunId(task.run), plan, task: TaskId(task.task) })
    }
}

impl From<TaskRef> for v1::TaskRef {
    fn from(task: TaskRef) -> Self {
        Self { run: task.run.0, plan_hash: task.plan.as_bytes().to_vec(), task: task.task.0 }
    }
}

enumeration!(
    Verdict,
    "1 accepted, 2 duplicate, 3 conflict, 4 refused or 5 refused and kept",
    Accepted => Accepted, Duplicate => Duplicate, Conflict => Conflict, Refused => Refused,
    RefusedKeep => RefusedKeep
);

message!(LeaseKey, at most 1, { task, epoch, granted_unix_ms, return_unix_ms, proof });
message!(HeldLease, at most limits::HELD, { lease, cost_done, started, failed });
message!(Partial, at most limits::PARTIALS, { lease, count, kernel, orientation, duration_us });
message!(Acknowledgement, at most limits::PARTIALS, { lease, verdict, reason });
message!(Grant, at most limits::GRANTS, { lease, spec, orientation });
message!(Revocation, at most limits::HELD, { lease, reason });
message!(SelfTestReport, at most 1, { failed_threads, suspect_window_ms, tests_passed });

impl TryFrom<v1::SyncRequest> for SyncRequest {
    type Error = BadMessage;

    fn try_from(request: v1::SyncRequest) -> Result<Self, BadMessage> {
        if request.protocol != PROTOCOL_VERSION {
            return Err(BadMessage::Protocol { theirs: request.protocol, ours: PROTOCOL_VERSION });
        }
        let seconds = request.seconds_wanted;
        require((0.0..=limits::SECONDS_WANTED).contains(&seconds), "seconds_wanted", || {
            format!("expected 0 to {}, got {seconds}", limits::SECONDS_WANTED)
        })?;
        Ok(Self {
            worker: Field::decode("worker", request.worker)?,
            held: Field::decode("held", request.held)?,
            partials: Field::decode("partials", request.partials)?,
            seconds_wanted: seconds,
            draining: request.draining,
            self_test: request.self_test.map(TryInto::try_into).transpose()?.unwrap_or_default(),
            paused: Field::decode("paused", request.paused)?,
            package: request.package.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<SyncRequest> for v1::SyncRequest {
    fn from(request: SyncRequest) -> Self {
        let self_test = request.self_test;
        Self {
            protocol: PROTOCOL_VERSION,
            worker: request.worker.encode(),
            held: request.held.encode(),
            partials: request.partials.encode(),
            seconds_wanted: request.seconds_wanted,
            draining: request.draining,
            self_test: (self_test != SelfTestReport::default()).then(|| self_test.into()),
            paused: request.paused.encode(),
            secret: Vec::new(),
            package: request.package.map(Into::into),
        }
    }
}

impl TryFrom<v1::PackageRequest> for PackageRequest {
    type Error = BadMessage;

    fn try_from(request: v1::PackageRequest) -> Result<Self, BadMessage> {
        let v1::PackageRequest { run, away_ms, tasks, core_seconds } = request;
        require(core_seconds > 0.0, "core_seconds", || "must be above 0".to_owned())?;
        Ok(Self { run: text("run", limits::VERSION_BYTES, run)?, away_ms, tasks, core_seconds })
    }
}

impl From<PackageRequest> for v1::PackageRequest {
    fn from(request: PackageRequest) -> Self {
        let PackageRequest { run, away_ms, tasks, core_seconds } = request;
        Self { run, away_ms, tasks, core_seconds }
    }
}

impl TryFrom<v1::WorkerInfo> for WorkerInfo {
    type Error = BadMessage;

    fn try_from(worker: v1::WorkerInfo) -> Result<Self, BadMessage> {
        require((1..=limits::THREADS).contains(&worker.threads), "threads", || {
            format!("expected 1 to {}, got {}", limits::THREADS, worker.threads)
        })?;
        Ok(Self {
            session: Field::decode("session", worker.session)?,
            name: worker_name(&worker.name)
                .map_err(|bad| BadMessage::new("name", bad.to_string()))?,
            version: text("version", limits::VERSION_BYTES, worker.version)?,
            kernel: Field::decode("kernel", worker.kernel)?,
            threads: worker.threads,
            memory_bytes_per_thread: worker.memory_bytes_per_thread,
            machine: worker.machine,
            device: Field::decode("device", worker.device)?,
        })
    }
}

impl From<WorkerInfo> for v1::WorkerInfo {
    fn from(worker: WorkerInfo) -> Self {
        Self {
            session: worker.session.encode(),
            name: worker.name,
            version: worker.version,
            kernel: worker.kernel.encode(),
            threads: worker.threads,
            memory_bytes_per_thread: worker.memory_bytes_per_thread,
            machine: worker.machine,
            device: worker.device.encode(),
        }
    }
}

/// Returns a request's secret, if any. The conversion of the request drops it.
pub fn sent_secret(request: &v1::SyncRequest) -> Result<Option<WorkerSecret>, BadMessage> {
    secret("secret", &request.secret)
}

/// Returns the secret that a reply issues instead of answering, if any.
pub fn issued_secret(reply: &v1::SyncResponse) -> Result<Option<WorkerSecret>, BadMessage> {
    secret("issued_secret", &reply.issued_secret)
}

fn secret(field: &str, bytes: &[u8]) -> Result<Option<WorkerSecret>, BadMessage> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let secret = WorkerSecret::try_from(bytes);
    secret.map(Some).map_err(|_| {
        let problem = format!("a worker's secret has 32 bytes, got {}", bytes.len());
        BadMessage::new(field, problem)
    })
}

fn interval_ms(field: &str, ms: u64) -> Result<u64, BadMessage> {
    let max = limits::INTERVAL_MS;
    require(ms <= max, field, || format!("at most {max} ms, got {ms}"))?;
    Ok(ms)
}

impl TryFrom<v1::SyncResponse> for SyncReply {
    type Error = BadMessage;

    fn try_from(reply: v1::SyncResponse) -> Result<Self, BadMessage> {
        Ok(Self {
            acknowledgements: Field::decode("acknowledgements", reply.acknowledgements)?,
            grants: Field::decode("grants", reply.grants)?,
            revoked: Field::decode("revoked", reply.revoked)?,
            next_sync_ms: interval_ms("next_sync_ms", reply.next_sync_ms)?,
            lease_ms: interval_ms("lease_ms", reply.lease_ms)?,
            reason: Field::decode("reason", reply.reason)?,
            all_runs_finished: reply.all_runs_finished,
            drain: reply.drain,
            self_test_stored: reply.self_test_stored,
        })
    }
}

impl From<SyncReply> for v1::SyncResponse {
    fn from(reply: SyncReply) -> Self {
        Self {
            acknowledgements: reply.acknowledgements.encode(),
            grants: reply.grants.encode(),
            revoked: reply.revoked.encode(),
            next_sync_ms: reply.next_sync_ms.min(limits::INTERVAL_MS),
            lease_ms: reply.lease_ms.min(limits::INTERVAL_MS),
            reason: reply.reason.encode(),
            all_runs_finished: reply.all_runs_finished,
            drain: reply.drain,
            issued_secret: Vec::new(),
            self_test_stored: reply.self_test_stored,
        }
    }
}

#[cfg(test)]
mod tests;
