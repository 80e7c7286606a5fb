//! The messages of `types.proto`, and the identifiers that travel as bytes or decimal text.

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{PlanHash, PlanSpec, TaskId},
    run::{RunId, SubmitKey, TaskRef, WorkerId},
};

use super::BadMessage;
use crate::v1;

/// An enum field: numbers that this version does not know, and 0, are refused.
macro_rules! enumeration {
    ($domain:ident, $wire:ident, $from_raw:ident, $expected:literal, $($name:ident),+) => {
        impl From<$domain> for v1::$wire {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$name => Self::$name,)+
                }
            }
        }

        pub(super) fn $from_raw(field: &str, raw: i32) -> Result<$domain, BadMessage> {
            let bad = || {
                BadMessage::new(field, format!(concat!("expected ", $expected, ", got {}"), raw))
            };
            match v1::$wire::try_from(raw).map_err(|_| bad())? {
                v1::$wire::Unspecified => Err(bad()),
                $(v1::$wire::$name => Ok($domain::$name),)+
            }
        }
    };
}

enumeration!(
    Layout,
    Layout,
    layout,
    "1 first-rows, 2 border or 3 frames",
    FirstRows,
    Border,
    Frames
);
enumeration!(
    KernelName,
    Kernel,
    kernel,
    "1 scalar, 2 avx2, 3 avx512 or 4 neon",
    Scalar,
    Avx2,
    Avx512,
    Neon
);
enumeration!(
    Orientation,
    Orientation,
    orientation,
    "1 upright or 2 turned",
    Upright,
    Turned
);

fn board_and_layout(spec: v1::PlanSpec) -> Result<(Board, Layout), BadMessage> {
    let bad = || {
        let problem = format!("expected 1 to {}, got {}", Board::MAX, spec.n);
        BadMessage::new("n", problem)
    };
    let n = u8::try_from(spec.n).map_err(|_| bad())?;
    let board = Board::new(n).map_err(|_| bad())?;
    Ok((board, layout("layout", spec.layout)?))
}

impl TryFrom<v1::PlanSpec> for PlanSpec {
    type Error = BadMessage;

    fn try_from(spec: v1::PlanSpec) -> Result<Self, BadMessage> {
        let (board, layout) = board_and_layout(spec)?;
        if spec.task_cost == 0 {
            return Err(BadMessage::new("task_cost", "must be at least 1"));
        }
        Ok(Self {
            board,
            layout,
            task_cost: spec.task_cost,
        })
    }
}

impl From<PlanSpec> for v1::PlanSpec {
    fn from(spec: PlanSpec) -> Self {
        Self {
            n: u32::from(spec.board.n()),
            layout: v1::Layout::from(spec.layout).into(),
            task_cost: spec.task_cost,
        }
    }
}

/// The spec of a submitted run, where a task cost of 0 stands for the plan's usual one.
pub fn submitted_spec(spec: Option<v1::PlanSpec>) -> Result<PlanSpec, BadMessage> {
    let spec = spec.ok_or_else(|| BadMessage::new("spec", "must be set"))?;
    let (board, layout) = board_and_layout(spec).map_err(|bad| bad.inside("spec"))?;
    let usual = PlanSpec::new(board, layout);
    Ok(match spec.task_cost {
        0 => usual,
        task_cost => PlanSpec { task_cost, ..usual },
    })
}

/// The key of a request for a run; `None` where it has none.
pub fn submitted_key(key: &str) -> Result<Option<SubmitKey>, BadMessage> {
    match key {
        "" => Ok(None),
        key => match key.parse() {
            Ok(key) => Ok(Some(key)),
            Err(_) => {
                let problem = "must be 1 to 64 letters, digits, '-', '_', '.' or ':'";
                Err(BadMessage::new("idempotency_key", problem))
            }
        },
    }
}

pub(super) fn plan_hash(field: &str, bytes: &[u8]) -> Result<PlanHash, BadMessage> {
    PlanHash::try_from(bytes).map_err(|_| {
        let problem = format!("a plan hash has 32 bytes, got {}", bytes.len());
        BadMessage::new(field, problem)
    })
}

pub(super) fn worker_id(field: &str, bytes: &[u8]) -> Result<WorkerId, BadMessage> {
    <[u8; 16]>::try_from(bytes)
        .map(|bytes| WorkerId(u128::from_be_bytes(bytes)))
        .map_err(|_| {
            let problem = format!("a worker's id has 16 bytes, got {}", bytes.len());
            BadMessage::new(field, problem)
        })
}

pub(super) fn worker_id_bytes(id: WorkerId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

impl TryFrom<v1::TaskRef> for TaskRef {
    type Error = BadMessage;

    fn try_from(task: v1::TaskRef) -> Result<Self, BadMessage> {
        Ok(Self {
            run: RunId(task.run),
            plan: plan_hash("plan_hash", &task.plan_hash)?,
            task: TaskId(task.task),
        })
    }
}

impl From<TaskRef> for v1::TaskRef {
    fn from(task: TaskRef) -> Self {
        Self {
            run: task.run.0,
            plan_hash: task.plan.as_bytes().to_vec(),
            task: task.task.0,
        }
    }
}

/// The number in `field`: decimal digits alone, at most 128 bits.
pub fn decimal(field: &str, text: &str) -> Result<u128, BadMessage> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| BadMessage::new(field, format!("'{text}' is no decimal count")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_number() {
        for (number, kernel_name) in [
            (1, KernelName::Scalar),
            (2, KernelName::Avx2),
            (3, KernelName::Avx512),
            (4, KernelName::Neon),
        ] {
            assert_eq!(i32::from(v1::Kernel::from(kernel_name)), number);
            assert_eq!(kernel("kernel", number), Ok(kernel_name));
        }
        for (number, name) in [
            (1, Layout::FirstRows),
            (2, Layout::Border),
            (3, Layout::Frames),
        ] {
            assert_eq!(i32::from(v1::Layout::from(name)), number);
            assert_eq!(layout("layout", number), Ok(name));
        }
        for (number, name) in [(1, Orientation::Upright), (2, Orientation::Turned)] {
            assert_eq!(i32::from(v1::Orientation::from(name)), number);
            assert_eq!(orientation("orientation", number), Ok(name));
        }
        for bad in [-1, 0, 5, 99] {
            let error = kernel("worker.kernel", bad).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("worker.kernel: expected 1 scalar, 2 avx2, 3 avx512 or 4 neon, got {bad}")
            );
            assert!(layout("layout", bad).is_err());
            assert!(orientation("orientation", bad).is_err());
        }
    }

    #[test]
    fn a_key_is_short_plain_text_or_absent() {
        assert_eq!(submitted_key(""), Ok(None));
        let key = submitted_key("nightly-1").unwrap().unwrap();
        assert_eq!(key.as_str(), "nightly-1");
        let error = submitted_key("a b").unwrap_err().to_string();
        assert!(error.starts_with("idempotency_key: must be"), "{error}");
    }

    #[test]
    fn a_submitted_spec_without_a_task_cost_takes_the_usual_one() {
        let sent = |n, task_cost| {
            Some(v1::PlanSpec {
                n,
                layout: v1::Layout::FirstRows.into(),
                task_cost,
            })
        };
        let usual = PlanSpec::new(Board::new(16).unwrap(), Layout::FirstRows);
        assert_eq!(submitted_spec(sent(16, 0)), Ok(usual));
        assert_eq!(submitted_spec(sent(16, 77)).unwrap().task_cost, 77);
        for n in [0, 33, 256 + 16, u32::MAX] {
            let error = submitted_spec(sent(n, 0)).unwrap_err().to_string();
            assert_eq!(error, format!("spec.n: expected 1 to 32, got {n}"));
        }
        assert_eq!(
            submitted_spec(None).unwrap_err().to_string(),
            "spec: must be set"
        );
    }

    #[test]
    fn counts_are_decimal_text() {
        assert_eq!(decimal("solutions", "0"), Ok(0));
        assert_eq!(decimal("solutions", &u128::MAX.to_string()), Ok(u128::MAX));
        let too_large = format!("{}0", u128::MAX);
        for bad in ["", "+1", "-1", "1.5", " 1", "1e3", too_large.as_str()] {
            let error = decimal("solutions", bad).unwrap_err().to_string();
            assert!(
                error.starts_with("solutions: ") && error.contains(bad),
                "{error}"
            );
        }
    }
}
