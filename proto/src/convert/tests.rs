//! Round trips, bad fields by name, and the size of full messages.

use common::text::{NAME_BYTES, is_name};
use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::*;

const REASON: &str = "this lease ended and the task went to another worker";

/// The revocations with this reason that a reply has room for.
const REVOCATIONS: usize =
    limits::REVOCATION_BYTES / (limits::REVOCATION_FRAME_BYTES + REASON.len());

/// A source of values: random words, then only the largest word.
struct Words(std::vec::IntoIter<u64>);

impl Words {
    /// Creates a source of only the largest values.
    fn largest() -> Self {
        Self(Vec::new().into_iter())
    }

    fn next(&mut self) -> u64 {
        self.0.next().unwrap_or(u64::MAX)
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        let index = self.next().min(u64::MAX - 1) % values.len() as u64;
        values[usize::try_from(index).unwrap()]
    }

    fn up_to(&mut self, max: u64) -> u64 {
        let word = self.next();
        if word == u64::MAX { max } else { word % (max + 1) }
    }

    /// Returns 0 to 7 values; `max` values if the next word is the largest.
    fn list<T>(&mut self, max: usize, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = match self.next() {
            u64::MAX => max,
            word => usize::try_from(word % 8).unwrap(),
        };
        (0..length).map(|_| value(self)).collect()
    }

    fn text(&mut self, max: usize) -> String {
        let length = usize::try_from(self.up_to(max as u64)).unwrap();
        let letters = ["a", "Z", "7", "-", " ", "~", "é"];
        let mut text: String = (0..length).map(|_| self.pick(&letters)).collect();
        text.truncate(text.floor_char_boundary(max));
        text
    }

    fn task(&mut self) -> TaskRef {
        TaskRef {
            run: RunId(self.next()),
            plan: PlanHash::try_from([self.next().to_le_bytes(); 4].as_flattened()).unwrap(),
            task: TaskId(self.next()),
        }
    }

    fn orientation(&mut self) -> Orientation {
        self.pick(&[Orientation::Upright, Orientation::Rotated])
    }

    fn kernel(&mut self) -> KernelName {
        self.pick(&KernelName::ALL)
    }

    fn worker(&mut self) -> WorkerInfo {
        WorkerInfo {
            session: SessionId(self.next()),
            name: (0..=self.up_to(NAME_BYTES as u64 - 1))
                .map(|_| self.pick(&["n", "N", "8", ".", "_", "-"]))
                .collect(),
            version: self.text(limits::VERSION_BYTES),
            kernel: self.kernel(),
            threads: 1 + u32::try_from(self.up_to(u64::from(limits::THREADS) - 1)).unwrap(),
            memory_bytes_per_thread: self.next(),
            machine: self.next(),
            device: self.text(limits::REASON_BYTES),
        }
    }

    fn lease(&mut self) -> LeaseKey {
        LeaseKey {
            task: self.task(),
            epoch: Epoch(self.next()),
            granted_unix_ms: self.next(),
            return_unix_ms: self.next(),
            proof: Proof(u128::from(self.next()) << 64 | u128::from(self.next())),
        }
    }

    fn partial(&mut self) -> Partial {
        Partial {
            lease: self.lease(),
            count: self.next(),
            kernel: self.kernel(),
            orientation: self.orientation(),
            duration_us: self.next(),
        }
    }

    fn request(&mut self) -> SyncRequest {
        SyncRequest {
            worker: self.worker(),
            held: self.list(limits::HELD, |words| HeldLease {
                lease: words.lease(),
                cost_done: words.next(),
                started: words.next() > 1 << 63,
                failed: words.next() > 1 << 63,
            }),
            partials: self.list(limits::PARTIALS, Self::partial),
            seconds_wanted: self.up_to(1 << 20) as f64 / (1 << 20) as f64 * limits::SECONDS_WANTED,
            draining: self.next() > 1 << 63,
            self_test: SelfTestReport {
                failed_threads: u32::try_from(self.next() >> 32).unwrap(),
                suspect_window_ms: self.next(),
                tests_passed: self.next(),
            },
            paused: self.text(limits::REASON_BYTES),
            package: Some(PackageRequest {
                run: self.text(limits::VERSION_BYTES),
                away_ms: self.next(),
                tasks: u32::try_from(self.next() >> 32).unwrap(),
                core_seconds: 1.0 + self.up_to(1 << 20) as f64,
            }),
        }
    }

    fn reply(&mut self) -> SyncReply {
        SyncReply {
            acknowledgements: self.list(limits::PARTIALS, |words| Acknowledgement {
                lease: words.lease(),
                verdict: words.pick(&[
                    Verdict::Accepted,
                    Verdict::Duplicate,
                    Verdict::Conflict,
                    Verdict::Refused,
                    Verdict::RefusedKeep,
                ]),
                reason: words.text(limits::REASON_BYTES),
            }),
            grants: self.list(limits::GRANTS, |words| Grant {
                lease: words.lease(),
                spec: PlanSpec {
                    board: Board::new(1 + u8::try_from(words.up_to(31)).unwrap()).unwrap(),
                    layout: words.pick(&[Layout::FirstRows, Layout::Border, Layout::Frames]),
                    task_cost: words.next().max(1),
                },
                orientation: words.orientation(),
            }),
            revoked: self.list(REVOCATIONS, |words| Revocation {
                lease: words.lease(),
                reason: words.text(REASON.len()),
            }),
            next_sync_ms: self.up_to(limits::INTERVAL_MS),
            lease_ms: self.up_to(limits::INTERVAL_MS),
            reason: self.text(limits::REASON_BYTES),
            all_runs_finished: self.next() > 1 << 63,
            drain: self.next() > 1 << 63,
            self_test_stored: self.next() > 1 << 63,
        }
    }
}

fn words() -> impl Strategy<Value = Vec<u64>> {
    vec(0..u64::MAX, 2_000)
}

proptest! {
    #[test]
    fn requests_round_trip(words in words()) {
        let request = Words(words.into_iter()).request();
        let bytes = v1::SyncRequest::from(request.clone()).encode_to_vec();
        let message = v1::SyncRequest::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(SyncRequest::try_from(message), Ok(request));
    }

    #[test]
    fn replies_round_trip(words in words()) {
        let reply = Words(words.into_iter()).reply();
        let bytes = v1::SyncResponse::from(reply.clone()).encode_to_vec();
        let message = v1::SyncResponse::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(SyncReply::try_from(message), Ok(reply));
    }

    #[test]
    fn damaged_requests_never_panic_and_stay_within_the_limits(
        words in words(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let request = Words(words.into_iter()).request();
        let mut bytes = v1::SyncRequest::from(request).encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let converted = v1::SyncRequest::decode(bytes.as_slice()).map(SyncRequest::try_from);
        if let Ok(Ok(request)) = converted {
            prop_assert!((0.0..=limits::SECONDS_WANTED).contains(&request.seconds_wanted));
            prop_assert!(is_name(&request.worker.name));
        }
    }
}

#[test]
fn full_messages_fit_the_limit() {
    let request = Words::largest().request();
    let full = (limits::HELD, limits::PARTIALS, NAME_BYTES, limits::THREADS);
    let worker = &request.worker;
    let sizes = (request.held.len(), request.partials.len(), worker.name.len(), worker.threads);
    assert_eq!(sizes, full);
    assert!(v1::SyncRequest::from(request).encoded_len() <= limits::MESSAGE_BYTES);
    let reply = Words::largest().reply();
    let full = (limits::PARTIALS, limits::GRANTS, REVOCATIONS, limits::REASON_BYTES);
    let reason = reply.acknowledgements[0].reason.len();
    assert_eq!(
        (reply.acknowledgements.len(), reply.grants.len(), reply.revoked.len(), reason),
        full
    );
    let size = v1::SyncResponse::from(reply).encoded_len();
    assert!(size <= limits::MESSAGE_BYTES, "{size}");
}

fn small_request() -> v1::SyncRequest {
    let mut request = Words::largest().request();
    request.held.truncate(3);
    request.partials.truncate(5);
    request.into()
}

#[test]
fn a_bad_field_is_named() {
    type Damage = (&'static str, fn(&mut v1::SyncRequest));
    let checks: [Damage; 12] = [
        ("partials[3].lease.task.plan_hash: a plan hash has 32 bytes, got 31", |r| {
            r.partials[3].lease.as_mut().unwrap().task.as_mut().unwrap().plan_hash.pop();
        }),
        ("held[1].lease.proof: a proof has 16 bytes, got 15", |r| {
            r.held[1].lease.as_mut().unwrap().proof.pop();
        }),
        ("worker: must be set", |r| r.worker = None),
        ("held[2].lease: must be set", |r| r.held[2].lease = None),
        ("partials[0].kernel: expected 1 scalar", |r| r.partials[0].kernel = 9),
        ("partials[4].orientation: expected 1 upright", |r| r.partials[4].orientation = 0),
        ("worker.name: invalid worker name ''", |r| r.worker.as_mut().unwrap().name.clear()),
        ("worker.name: invalid worker name 'two\\nlines': expected 1 to 64 letters", |r| {
            r.worker.as_mut().unwrap().name = "two\nlines".to_owned();
        }),
        ("worker.version: must not contain the invisible character '\\u{202e}'", |r| {
            r.worker.as_mut().unwrap().version = "1\u{202e}".to_owned();
        }),
        ("worker.threads: expected 1 to 4096, got 0", |r| r.worker.as_mut().unwrap().threads = 0),
        ("seconds_wanted: expected 0 to 86400, got NaN", |r| r.seconds_wanted = f64::NAN),
        ("partials: at most 4096 in one message, got 4097", |r| {
            r.partials = vec![r.partials[0].clone(); 4097];
        }),
    ];
    for (expected, damage) in checks {
        let mut message = small_request();
        damage(&mut message);
        let error = SyncRequest::try_from(message).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn another_protocol_is_rejected_with_both_versions() {
    let message = v1::SyncRequest { protocol: 7, ..small_request() };
    let error = SyncRequest::try_from(message).unwrap_err();
    assert_eq!(error, BadMessage::Protocol { theirs: 7, ours: 1 });
    assert!(error.to_string().contains("version 7") && error.to_string().contains("version 1"));
    assert_eq!(tonic::Status::from(error).code(), tonic::Code::FailedPrecondition);
    // Other fields of an unknown version may be invalid.
    let bare = v1::SyncRequest { protocol: 2, ..Default::default() };
    assert!(matches!(SyncRequest::try_from(bare), Err(BadMessage::Protocol { theirs: 2, .. })));
}

#[test]
fn reasons_are_sent_as_one_line_cut_at_a_character() {
    let reason = format!("\n\t{}", "é".repeat(limits::REASON_BYTES));
    let sent = v1::SyncResponse::from(SyncReply { reason, ..SyncReply::default() });
    assert_eq!(sent.reason.len(), limits::REASON_BYTES);
    assert!(SyncReply::try_from(sent).is_ok());
}

#[test]
fn every_name_has_one_number() {
    fn check<T: Field<i32> + Copy + PartialEq + std::fmt::Debug>(names: &[T]) {
        for (number, &name) in (1..).zip(names) {
            assert_eq!((name.encode(), T::decode("field", number)), (number, Ok(name)));
        }
        for bad in [-1, 0, 7, 99] {
            let error = T::decode("worker.kernel", bad).unwrap_err().to_string();
            assert!(error.starts_with("worker.kernel: expected 1 "), "{error}");
            assert!(error.ends_with(&format!(", got {bad}")), "{error}");
        }
    }
    check(&[
        KernelName::Scalar,
        KernelName::Avx2,
        KernelName::Avx512,
        KernelName::Neon,
        KernelName::OpenCl,
        KernelName::Simd128,
    ]);
    check(&[Layout::FirstRows, Layout::Border, Layout::Frames]);
    check(&[Orientation::Upright, Orientation::Rotated]);
}

#[test]
fn an_idempotency_key_is_short_plain_text_or_absent() {
    assert_eq!(submitted_key(""), Ok(None));
    let key = submitted_key("nightly-1").unwrap().unwrap();
    assert_eq!(key.as_str(), "nightly-1");
    let error = submitted_key("a b").unwrap_err().to_string();
    assert!(error.starts_with("idempotency_key: must be"), "{error}");
}

#[test]
fn a_recheck_is_auto_all_or_at_most_a_million_millionths() {
    use v1::recheck::Part;
    let parts = [Recheck::Auto, Recheck::All, Recheck::Millionths(0), Recheck::Millionths(7)];
    for recheck in parts {
        assert_eq!(requested_recheck(Some(recheck.into())), Ok(recheck));
    }
    assert_eq!(requested_recheck(None), Ok(Recheck::Auto));
    let read = |part| requested_recheck(Some(v1::Recheck { part }));
    assert_eq!(read(Some(Part::Millionths(1_000_000))), Ok(Recheck::All));
    for (part, problem) in [
        (None, "recheck.part: must be set"),
        (Some(Part::Level(0)), "recheck.level: expected 1 auto or 2 all, got 0"),
        (Some(Part::Level(3)), "recheck.level: expected 1 auto or 2 all, got 3"),
        (
            Some(Part::Millionths(1_000_001)),
            "recheck.millionths: expected 0 to 1000000, got 1000001",
        ),
    ] {
        assert_eq!(read(part).unwrap_err().to_string(), problem);
    }
}

#[test]
fn a_submitted_spec_without_a_task_cost_gets_the_default() {
    let sent =
        |n, task_cost| Some(v1::PlanSpec { n, layout: v1::Layout::FirstRows.into(), task_cost });
    let defaults = PlanSpec::new(Board::new(16).unwrap(), Layout::FirstRows);
    assert_eq!(submitted_spec(sent(16, 0)), Ok(defaults));
    assert_eq!(submitted_spec(sent(16, 77)).unwrap().task_cost, 77);
    for n in [0, 33, 256 + 16, u32::MAX] {
        let error = submitted_spec(sent(n, 0)).unwrap_err().to_string();
        assert_eq!(error, format!("spec.n: expected 1 to 32, got {n}"));
    }
    assert_eq!(submitted_spec(None).unwrap_err().to_string(), "spec: must be set");
}
