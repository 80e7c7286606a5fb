//! The messages of `work_queue.proto`.

use common::{
    run::{Epoch, Partial, SessionId},
    sync::{
        Acknowledgement, FailedCanaries, Grant, HeldLease, Revocation, SyncReply, SyncRequest,
        Verdict, WorkerInfo,
    },
};

use super::{
    BadMessage, check_protocol, list, one_line, required, text,
    types::{kernel, orientation, worker_id, worker_id_bytes},
};
use crate::{PROTOCOL_VERSION, limits, v1};

impl TryFrom<v1::SyncRequest> for SyncRequest {
    type Error = BadMessage;

    fn try_from(request: v1::SyncRequest) -> Result<Self, BadMessage> {
        check_protocol(request.protocol)?;
        let seconds = request.seconds_wanted;
        if !(0.0..=limits::SECONDS_WANTED).contains(&seconds) {
            let problem = format!("expected 0 to {}, got {seconds}", limits::SECONDS_WANTED);
            return Err(BadMessage::new("seconds_wanted", problem));
        }
        Ok(Self {
            worker: required("worker", request.worker)?,
            held: list("held", limits::HELD, request.held)?,
            partials: list("partials", limits::PARTIALS, request.partials)?,
            seconds_wanted: seconds,
            draining: request.draining,
            failed_canaries: request.failed_canaries.map_or_else(
                FailedCanaries::default,
                |failed| FailedCanaries {
                    threads: failed.threads,
                    unproven_ms: failed.unproven_ms,
                    passed: failed.passed,
                },
            ),
            paused: text("paused", limits::REASON_BYTES, request.paused)?,
        })
    }
}

impl From<SyncRequest> for v1::SyncRequest {
    fn from(request: SyncRequest) -> Self {
        Self {
            protocol: PROTOCOL_VERSION,
            worker: Some(request.worker.into()),
            held: request.held.into_iter().map(Into::into).collect(),
            partials: request.partials.into_iter().map(Into::into).collect(),
            seconds_wanted: request.seconds_wanted,
            draining: request.draining,
            failed_canaries: (request.failed_canaries != FailedCanaries::default()).then_some(
                v1::FailedCanaries {
                    threads: request.failed_canaries.threads,
                    unproven_ms: request.failed_canaries.unproven_ms,
                    passed: request.failed_canaries.passed,
                },
            ),
            paused: one_line(&request.paused, limits::REASON_BYTES),
        }
    }
}

impl TryFrom<v1::WorkerInfo> for WorkerInfo {
    type Error = BadMessage;

    fn try_from(worker: v1::WorkerInfo) -> Result<Self, BadMessage> {
        if !(1..=limits::THREADS).contains(&worker.threads) {
            let problem = format!("expected 1 to {}, got {}", limits::THREADS, worker.threads);
            return Err(BadMessage::new("threads", problem));
        }
        Ok(Self {
            id: worker_id("id", &worker.id)?,
            session: SessionId(worker.session),
            name: text("name", limits::NAME_BYTES, worker.name)?,
            version: text("version", limits::VERSION_BYTES, worker.version)?,
            kernel: kernel("kernel", worker.kernel)?,
            threads: worker.threads,
            memory_bytes_per_thread: worker.memory_bytes_per_thread,
            machine: worker.machine,
        })
    }
}

impl From<WorkerInfo> for v1::WorkerInfo {
    fn from(worker: WorkerInfo) -> Self {
        Self {
            id: worker_id_bytes(worker.id),
            session: worker.session.0,
            name: worker.name,
            version: worker.version,
            kernel: v1::Kernel::from(worker.kernel).into(),
            threads: worker.threads,
            memory_bytes_per_thread: worker.memory_bytes_per_thread,
            machine: worker.machine,
        }
    }
}

impl TryFrom<v1::HeldLease> for HeldLease {
    type Error = BadMessage;

    fn try_from(lease: v1::HeldLease) -> Result<Self, BadMessage> {
        Ok(Self {
            task: required("task", lease.task)?,
            epoch: Epoch(lease.epoch),
            cost_done: lease.cost_done,
            started: lease.started,
        })
    }
}

impl From<HeldLease> for v1::HeldLease {
    fn from(lease: HeldLease) -> Self {
        Self {
            task: Some(lease.task.into()),
            epoch: lease.epoch.0,
            cost_done: lease.cost_done,
            started: lease.started,
        }
    }
}

impl TryFrom<v1::Partial> for Partial {
    type Error = BadMessage;

    fn try_from(partial: v1::Partial) -> Result<Self, BadMessage> {
        Ok(Self {
            task: required("task", partial.task)?,
            epoch: Epoch(partial.epoch),
            count: partial.count,
            kernel: kernel("kernel", partial.kernel)?,
            orientation: orientation("orientation", partial.orientation)?,
            duration_us: partial.duration_us,
        })
    }
}

impl From<Partial> for v1::Partial {
    fn from(partial: Partial) -> Self {
        Self {
            task: Some(partial.task.into()),
            epoch: partial.epoch.0,
            count: partial.count,
            kernel: v1::Kernel::from(partial.kernel).into(),
            orientation: v1::Orientation::from(partial.orientation).into(),
            duration_us: partial.duration_us,
        }
    }
}

fn interval_ms(field: &str, ms: u64) -> Result<u64, BadMessage> {
    if ms <= limits::INTERVAL_MS {
        Ok(ms)
    } else {
        let problem = format!("at most {} ms, got {ms}", limits::INTERVAL_MS);
        Err(BadMessage::new(field, problem))
    }
}

impl TryFrom<v1::SyncResponse> for SyncReply {
    type Error = BadMessage;

    fn try_from(reply: v1::SyncResponse) -> Result<Self, BadMessage> {
        Ok(Self {
            acknowledgements: list("acknowledgements", limits::PARTIALS, reply.acknowledgements)?,
            grants: list("grants", limits::GRANTS, reply.grants)?,
            revoked: list("revoked", limits::HELD, reply.revoked)?,
            next_sync_ms: interval_ms("next_sync_ms", reply.next_sync_ms)?,
            lease_ms: interval_ms("lease_ms", reply.lease_ms)?,
            reason: text("reason", limits::REASON_BYTES, reply.reason)?,
            all_runs_over: reply.all_runs_over,
            drain: reply.drain,
        })
    }
}

impl From<SyncReply> for v1::SyncResponse {
    fn from(reply: SyncReply) -> Self {
        Self {
            acknowledgements: reply.acknowledgements.into_iter().map(Into::into).collect(),
            grants: reply.grants.into_iter().map(Into::into).collect(),
            revoked: reply.revoked.into_iter().map(Into::into).collect(),
            next_sync_ms: reply.next_sync_ms.min(limits::INTERVAL_MS),
            lease_ms: reply.lease_ms.min(limits::INTERVAL_MS),
            reason: one_line(&reply.reason, limits::REASON_BYTES),
            all_runs_over: reply.all_runs_over,
            drain: reply.drain,
        }
    }
}

fn verdict(raw: i32) -> Result<Verdict, BadMessage> {
    let bad = || {
        let expected = "1 accepted, 2 duplicate, 3 conflict or 4 refused";
        BadMessage::new("verdict", format!("expected {expected}, got {raw}"))
    };
    match v1::Verdict::try_from(raw).map_err(|_| bad())? {
        v1::Verdict::Unspecified => Err(bad()),
        v1::Verdict::Accepted => Ok(Verdict::Accepted),
        v1::Verdict::Duplicate => Ok(Verdict::Duplicate),
        v1::Verdict::Conflict => Ok(Verdict::Conflict),
        v1::Verdict::Refused => Ok(Verdict::Refused),
    }
}

impl From<Verdict> for v1::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Accepted => Self::Accepted,
            Verdict::Duplicate => Self::Duplicate,
            Verdict::Conflict => Self::Conflict,
            Verdict::Refused => Self::Refused,
        }
    }
}

impl TryFrom<v1::Acknowledgement> for Acknowledgement {
    type Error = BadMessage;

    fn try_from(answer: v1::Acknowledgement) -> Result<Self, BadMessage> {
        Ok(Self {
            task: required("task", answer.task)?,
            epoch: Epoch(answer.epoch),
            verdict: verdict(answer.verdict)?,
            reason: text("reason", limits::REASON_BYTES, answer.reason)?,
        })
    }
}

impl From<Acknowledgement> for v1::Acknowledgement {
    fn from(answer: Acknowledgement) -> Self {
        Self {
            task: Some(answer.task.into()),
            epoch: answer.epoch.0,
            verdict: v1::Verdict::from(answer.verdict).into(),
            reason: one_line(&answer.reason, limits::REASON_BYTES),
        }
    }
}

impl TryFrom<v1::Grant> for Grant {
    type Error = BadMessage;

    fn try_from(grant: v1::Grant) -> Result<Self, BadMessage> {
        Ok(Self {
            task: required("task", grant.task)?,
            epoch: Epoch(grant.epoch),
            spec: required("spec", grant.spec)?,
            orientation: orientation("orientation", grant.orientation)?,
        })
    }
}

impl From<Grant> for v1::Grant {
    fn from(grant: Grant) -> Self {
        Self {
            task: Some(grant.task.into()),
            epoch: grant.epoch.0,
            spec: Some(grant.spec.into()),
            orientation: v1::Orientation::from(grant.orientation).into(),
        }
    }
}

impl TryFrom<v1::Revocation> for Revocation {
    type Error = BadMessage;

    fn try_from(revocation: v1::Revocation) -> Result<Self, BadMessage> {
        Ok(Self {
            task: required("task", revocation.task)?,
            epoch: Epoch(revocation.epoch),
            reason: text("reason", limits::REASON_BYTES, revocation.reason)?,
        })
    }
}

impl From<Revocation> for v1::Revocation {
    fn from(revocation: Revocation) -> Self {
        Self {
            task: Some(revocation.task.into()),
            epoch: revocation.epoch.0,
            reason: one_line(&revocation.reason, limits::REASON_BYTES),
        }
    }
}

#[cfg(test)]
mod tests;
