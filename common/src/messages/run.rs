//! Identifiers and results of a run that the coordinator and workers share.

use std::{fmt, str::FromStr};

use crate::{
    compute::kernel::KernelName,
    count::Orientation,
    plan::{PlanHash, TaskId},
};

/// Identifier of a coordinator's run: 16 lower-case hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// Identifier of a worker across restarts, as long as its spool directory exists.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u128);

/// Identifier of one process of a worker; random at every start.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl RunId {
    /// Returns the first eight digits, which tell runs apart in lists.
    pub fn short(self) -> String {
        format!("{:08x}", self.0 >> 32)
    }

    /// Returns the first four digits, which confirm a command: text does not contain them by chance.
    pub fn confirmation(self) -> String {
        format!("{:04x}", self.0 >> 48)
    }
}

/// Order of the leases of a task: each new lease has a higher epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Idempotency key of a submission: the same key gives the same run.
///
/// Valid keys have 1 to 64 ASCII letters, digits, `-`, `_`, `.` or `:`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitKey(String);

/// A text that is not a valid [`SubmitKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid key '{0}': expected 1 to 64 letters, digits, '-', '_', '.' or ':'")]
pub struct BadSubmitKey(String);

impl SubmitKey {
    const MAX_BYTES: usize = 64;

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
        if (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            // Limits the length of the message.
            Err(BadSubmitKey(text.chars().take(Self::MAX_BYTES).collect()))
        }
    }
}

/// Proof that the coordinator granted a lease to a worker: a keyed hash that only the coordinator can make.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proof(pub u128);

/// A task of a run, with the plan that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    pub run: RunId,
    /// Plan that the run and its workers agree on.
    pub plan: PlanHash,
    pub task: TaskId,
}

/// A lease, as the coordinator grants it and as its worker names it afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    pub task: TaskRef,
    pub epoch: Epoch,
    /// Time of the grant by the coordinator's clock.
    pub granted_unix_ms: u64,
    /// Promised return of a package; 0 for the lease of a connected worker.
    pub return_unix_ms: u64,
    pub proof: Proof,
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskRef { run, task, .. } = self.task;
        write!(f, "task {task} of run {run} (epoch {})", self.epoch.0)
    }
}

/// Weighted count of a task, as a worker submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Lease under which the task was counted.
    pub lease: LeaseKey,
    /// Weighted number of solutions in the task's units.
    pub count: u64,
    pub kernel: KernelName,
    pub orientation: Orientation,
    /// Core time in microseconds.
    pub duration_us: u64,
}

/// Text that is not a valid identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid id '{given}': expected {digits} lower-case hexadecimal digits")]
pub struct BadId {
    given: String,
    digits: usize,
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
                crate::messages::hex::decode(text)
                    .map(|bytes| Self(<$inner>::from_be_bytes(bytes)))
                    .ok_or_else(|| BadId { given: text.to_owned(), digits: $digits })
            }
        }
    };
}

hexadecimal_id!(RunId, u64, 16);
hexadecimal_id!(WorkerId, u128, 32);
hexadecimal_id!(SessionId, u64, 16);
hexadecimal_id!(Proof, u128, 32);

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
        for bad in ["", "12", "ABCDEF0123456789", "+123456789abcdef", "0123456789abcdeg"] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }
}
