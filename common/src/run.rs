//! The words that coordinator and worker share about a run: who, which task, which lease, how many.

use std::{fmt, str::FromStr};

use crate::{
    count::Orientation,
    kernel::KernelName,
    plan::{PlanHash, TaskId},
};

/// Names one run of one coordinator: 8 bytes, 16 lower-case hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// Names one worker for as long as its spool directory lives, across restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u128);

/// Names one life of a worker process: drawn anew at every start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Orders the leases of one task: every new lease of a task has a higher epoch than all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Names one wish for a run: asking twice with the same key gives one run.
///
/// 1 to 64 letters, digits, `-`, `_`, `.` or `:`, all ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitKey(String);

/// Text that is no [`SubmitKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no key: give 1 to 64 letters, digits, '-', '_', '.' or ':'")]
pub struct BadSubmitKey(String);

impl SubmitKey {
    /// The most bytes of a key.
    const MOST: usize = 64;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SubmitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SubmitKey {
    type Err = BadSubmitKey;

    fn from_str(text: &str) -> Result<Self, BadSubmitKey> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        if (1..=Self::MOST).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            // What is shown of it has an end.
            Err(BadSubmitKey(text.chars().take(Self::MOST).collect()))
        }
    }
}

/// One task of one run, with the plan that gives the number its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    /// The run.
    pub run: RunId,
    /// The plan that the run and its workers must agree on.
    pub plan: PlanHash,
    /// The task's place in the plan's natural order.
    pub task: TaskId,
}

/// A task's weighted count, as a worker reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// What was counted.
    pub task: TaskRef,
    /// The lease under which it was counted.
    pub epoch: Epoch,
    /// The weighted number of solutions in the task's units.
    pub count: u64,
    /// The instruction set that counted.
    pub kernel: KernelName,
    /// Through which data.
    pub orientation: Orientation,
    /// Time of one core spent on it, in microseconds.
    pub duration_us: u64,
}

/// Text that is no identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {digits} lower-case hexadecimal digits")]
pub struct BadId {
    given: String,
    digits: usize,
}

fn digits<const N: usize>(text: &str) -> Result<u128, BadId> {
    let bad = || BadId {
        given: text.to_owned(),
        digits: N,
    };
    let plain = text.len() == N && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !plain {
        return Err(bad());
    }
    u128::from_str_radix(text, 16).map_err(|_| bad())
}

macro_rules! hexadecimal_id {
    ($name:ident, $inner:ty, $digits:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:0width$x}", self.0, width = $digits)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let value = digits::<$digits>(text)?;
                Ok(Self(
                    <$inner>::try_from(value).expect("as many digits as the type has"),
                ))
            }
        }
    };
}

hexadecimal_id!(RunId, u64, 16);
hexadecimal_id!(WorkerId, u128, 32);
hexadecimal_id!(SessionId, u64, 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_short_plain_text() {
        for good in ["a", "nightly-2026.11:22_x", &"k".repeat(64)] {
            assert_eq!(good.parse::<SubmitKey>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\n", "é", "a/b", &"k".repeat(65)] {
            let refused = bad.parse::<SubmitKey>().unwrap_err();
            assert!(refused.to_string().contains("1 to 64"), "{bad}");
        }
    }

    #[test]
    fn identifiers_round_trip_as_text() {
        for value in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(RunId(value).to_string().parse(), Ok(RunId(value)));
            assert_eq!(SessionId(value).to_string().parse(), Ok(SessionId(value)));
        }
        let worker = WorkerId(u128::MAX - 5);
        assert_eq!(worker.to_string().parse(), Ok(worker));
        for bad in [
            "",
            "12",
            "ABCDEF0123456789",
            "+123456789abcdef",
            "0123456789abcdeg",
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }
}
