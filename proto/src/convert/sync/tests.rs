//! Round trips through bytes, bad fields by name, and the size of full messages.

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanHash, PlanSpec, TaskId},
    run::{RunId, TaskRef, WorkerId},
};
use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::*;

fn task_ref() -> impl Strategy<Value = TaskRef> {
    (any::<u64>(), any::<[u8; 32]>(), any::<u64>()).prop_map(|(run, plan, task)| TaskRef {
        run: RunId(run),
        plan: PlanHash::try_from(plan.as_slice()).unwrap(),
        task: TaskId(task),
    })
}

fn kernel_name() -> impl Strategy<Value = KernelName> {
    proptest::sample::select(KernelName::ALL.to_vec())
}

fn any_orientation() -> impl Strategy<Value = Orientation> {
    prop_oneof![Just(Orientation::Upright), Just(Orientation::Turned)]
}

fn any_worker() -> impl Strategy<Value = WorkerInfo> {
    (
        (any::<u128>(), any::<u64>()),
        ("[a-zé0-9 .-]{0,40}", "[0-9.]{0,20}"),
        kernel_name(),
        1..=limits::THREADS,
        any::<u64>(),
    )
        .prop_map(
            |((id, session), (name, version), kernel, threads, memory)| WorkerInfo {
                id: WorkerId(id),
                session: SessionId(session),
                name,
                version,
                kernel,
                threads,
                memory_bytes_per_thread: memory,
                machine: memory.rotate_left(7),
            },
        )
}

fn held_lease() -> impl Strategy<Value = HeldLease> {
    (task_ref(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
        |(task, epoch, cost_done, started)| HeldLease {
            task,
            epoch: Epoch(epoch),
            cost_done,
            started,
        },
    )
}

fn any_partial() -> impl Strategy<Value = Partial> {
    (
        (task_ref(), any::<u64>(), any::<u64>()),
        kernel_name(),
        any_orientation(),
        any::<u64>(),
    )
        .prop_map(
            |((task, epoch, count), kernel, orientation, duration_us)| Partial {
                task,
                epoch: Epoch(epoch),
                count,
                kernel,
                orientation,
                duration_us,
            },
        )
}

prop_compose! {
    fn any_request()(
        worker in any_worker(),
        held in vec(held_lease(), 0..8),
        partials in vec(any_partial(), 0..8),
        seconds_wanted in 0.0..=limits::SECONDS_WANTED,
        draining in any::<bool>(),
        failed_canaries in (any::<u32>(), any::<u64>(), any::<u64>())
            .prop_map(|(threads, unproven_ms, passed)| FailedCanaries { threads, unproven_ms, passed }),
        paused in any_reason(),
    ) -> SyncRequest {
        SyncRequest { worker, held, partials, seconds_wanted, draining, failed_canaries, paused }
    }
}

fn any_reason() -> impl Strategy<Value = String> {
    "[ -~é]{0,60}"
}

fn acknowledgement() -> impl Strategy<Value = Acknowledgement> {
    let verdicts = vec![
        Verdict::Accepted,
        Verdict::Duplicate,
        Verdict::Conflict,
        Verdict::Refused,
    ];
    (
        task_ref(),
        any::<u64>(),
        proptest::sample::select(verdicts),
        any_reason(),
    )
        .prop_map(|(task, epoch, verdict, reason)| Acknowledgement {
            task,
            epoch: Epoch(epoch),
            verdict,
            reason,
        })
}

fn any_grant() -> impl Strategy<Value = Grant> {
    let layouts = vec![Layout::FirstRows, Layout::Border, Layout::Frames];
    (
        (task_ref(), any::<u64>()),
        (
            1..=Board::MAX,
            proptest::sample::select(layouts),
            1..=u64::MAX,
        ),
        any_orientation(),
    )
        .prop_map(
            |((task, epoch), (n, layout, task_cost), orientation)| Grant {
                task,
                epoch: Epoch(epoch),
                spec: PlanSpec {
                    board: Board::new(n).unwrap(),
                    layout,
                    task_cost,
                },
                orientation,
            },
        )
}

prop_compose! {
    fn any_reply()(
        acknowledgements in vec(acknowledgement(), 0..8),
        grants in vec(any_grant(), 0..8),
        revoked in vec(
            (task_ref(), any::<u64>(), any_reason()).prop_map(|(task, epoch, reason)| Revocation {
                task,
                epoch: Epoch(epoch),
                reason,
            }),
            0..8,
        ),
        next_sync_ms in 0..=limits::INTERVAL_MS,
        lease_ms in 0..=limits::INTERVAL_MS,
        (reason, all_runs_over, drain) in (any_reason(), any::<bool>(), any::<bool>()),
    ) -> SyncReply {
        SyncReply {
            acknowledgements,
            grants,
            revoked,
            next_sync_ms,
            lease_ms,
            reason,
            all_runs_over,
            drain,
        }
    }
}

proptest! {
    #[test]
    fn requests_round_trip(request in any_request()) {
        let bytes = v1::SyncRequest::from(request.clone()).encode_to_vec();
        let message = v1::SyncRequest::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(SyncRequest::try_from(message), Ok(request));
    }

    #[test]
    fn replies_round_trip(reply in any_reply()) {
        let bytes = v1::SyncResponse::from(reply.clone()).encode_to_vec();
        let message = v1::SyncResponse::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(SyncReply::try_from(message), Ok(reply));
    }

    #[test]
    fn damaged_requests_never_panic_and_stay_within_the_limits(
        request in any_request(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = v1::SyncRequest::from(request).encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let converted = v1::SyncRequest::decode(bytes.as_slice()).map(SyncRequest::try_from);
        if let Ok(Ok(request)) = converted {
            prop_assert!((0.0..=limits::SECONDS_WANTED).contains(&request.seconds_wanted));
            prop_assert!(request.worker.name.len() <= limits::NAME_BYTES);
        }
    }
}

fn sample_task() -> TaskRef {
    let spec = PlanSpec::new(Board::new(16).unwrap(), Layout::FirstRows);
    TaskRef {
        run: RunId(u64::MAX),
        plan: Plan::new(spec).unwrap().hash(),
        task: TaskId(u64::MAX),
    }
}

fn sample_partial() -> Partial {
    Partial {
        task: sample_task(),
        epoch: Epoch(u64::MAX),
        count: u64::MAX,
        kernel: KernelName::Avx512,
        orientation: Orientation::Turned,
        duration_us: u64::MAX,
    }
}

fn sample_request() -> SyncRequest {
    SyncRequest {
        worker: WorkerInfo {
            id: WorkerId(7),
            session: SessionId(8),
            name: "n".repeat(limits::NAME_BYTES),
            version: "1".repeat(limits::VERSION_BYTES),
            kernel: KernelName::Scalar,
            threads: limits::THREADS,
            memory_bytes_per_thread: u64::MAX,
            machine: u64::MAX,
        },
        held: vec![
            HeldLease {
                task: sample_task(),
                epoch: Epoch(u64::MAX),
                cost_done: u64::MAX,
                started: true,
            };
            limits::HELD
        ],
        partials: vec![sample_partial(); limits::PARTIALS],
        seconds_wanted: 1.5,
        draining: true,
        failed_canaries: FailedCanaries {
            threads: limits::THREADS,
            unproven_ms: u64::MAX,
            passed: u64::MAX,
        },
        paused: "p".repeat(limits::REASON_BYTES),
    }
}

#[test]
fn full_messages_fit_the_limit() {
    let request = sample_request();
    assert!(v1::SyncRequest::from(request).encoded_len() <= limits::MESSAGE_BYTES);
    let reason = "r".repeat(limits::REASON_BYTES);
    let spec = PlanSpec::new(Board::new(32).unwrap(), Layout::FirstRows);
    let reply = SyncReply {
        acknowledgements: vec![
            Acknowledgement {
                task: sample_task(),
                epoch: Epoch(u64::MAX),
                verdict: Verdict::Refused,
                reason: reason.clone(),
            };
            limits::PARTIALS
        ],
        grants: vec![
            Grant {
                task: sample_task(),
                epoch: Epoch(u64::MAX),
                spec,
                orientation: Orientation::Turned,
            };
            limits::GRANTS
        ],
        // A worker whose every lease is unknown to a coordinator that lost its leases.
        revoked: vec![
            Revocation {
                task: sample_task(),
                epoch: Epoch(u64::MAX),
                reason: "this lease ended and the task went to another worker".to_owned(),
            };
            limits::HELD
        ],
        next_sync_ms: limits::INTERVAL_MS,
        lease_ms: limits::INTERVAL_MS,
        reason,
        all_runs_over: true,
        drain: true,
    };
    let size = v1::SyncResponse::from(reply).encoded_len();
    assert!(size <= limits::MESSAGE_BYTES, "{size}");
}

fn complaint(change: impl FnOnce(&mut v1::SyncRequest)) -> String {
    let mut request = sample_request();
    request.held.truncate(3);
    request.partials.truncate(5);
    let mut message = v1::SyncRequest::from(request);
    change(&mut message);
    SyncRequest::try_from(message).unwrap_err().to_string()
}

#[test]
fn a_bad_field_is_named() {
    let plan_hash = complaint(|request| {
        request.partials[3].task.as_mut().unwrap().plan_hash.pop();
    });
    assert_eq!(
        plan_hash,
        "partials[3].task.plan_hash: a plan hash has 32 bytes, got 31"
    );
    type Damage = (&'static str, fn(&mut v1::SyncRequest));
    let checks: [Damage; 10] = [
        ("worker: must be set", |r| r.worker = None),
        ("held[2].task: must be set", |r| r.held[2].task = None),
        ("partials[0].kernel: expected 1 scalar", |r| {
            r.partials[0].kernel = 9;
        }),
        ("partials[4].orientation: expected 1 upright", |r| {
            r.partials[4].orientation = 0;
        }),
        ("worker.id: a worker's id has 16 bytes, got 3", |r| {
            r.worker.as_mut().unwrap().id = vec![1, 2, 3];
        }),
        ("worker.name: at most 128 bytes, got 129", |r| {
            r.worker.as_mut().unwrap().name = "x".repeat(129);
        }),
        ("worker.name: must hold no control characters", |r| {
            r.worker.as_mut().unwrap().name = "two\nlines".to_owned();
        }),
        ("worker.threads: expected 1 to 4096, got 0", |r| {
            r.worker.as_mut().unwrap().threads = 0;
        }),
        ("seconds_wanted: expected 0 to 86400, got NaN", |r| {
            r.seconds_wanted = f64::NAN;
        }),
        ("partials: at most 4096 in one message, got 4097", |r| {
            r.partials = vec![r.partials[0].clone(); 4097];
        }),
    ];
    for (expected, change) in checks {
        let error = complaint(change);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn another_protocol_is_refused_with_both_versions() {
    let mut message = v1::SyncRequest::from(sample_request());
    message.protocol = 7;
    let error = SyncRequest::try_from(message).unwrap_err();
    assert_eq!(error, BadMessage::Protocol { theirs: 7, ours: 1 });
    assert!(error.to_string().contains("version 7") && error.to_string().contains("version 1"));
    assert_eq!(
        tonic::Status::from(error).code(),
        tonic::Code::FailedPrecondition
    );
    // Even a message from a version that this one cannot read in full names the versions first.
    let bare = v1::SyncRequest {
        protocol: 2,
        ..Default::default()
    };
    assert!(matches!(
        SyncRequest::try_from(bare),
        Err(BadMessage::Protocol { theirs: 2, .. })
    ));
}

#[test]
fn reasons_are_sent_as_one_line_cut_at_a_character() {
    let reply = SyncReply {
        reason: format!("\n\t{}", "é".repeat(limits::REASON_BYTES)),
        ..SyncReply::default()
    };
    let sent = v1::SyncResponse::from(reply);
    assert_eq!(sent.reason.len(), limits::REASON_BYTES);
    assert!(SyncReply::try_from(sent).is_ok());
}
