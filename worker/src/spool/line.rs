//! The lines of the spool file.
//!
//! One sealed JSON object per line (`common::messages::sealed`):
//!
//! ```text
//! {"finished":{"run":"…","plan":"…","task":7,"epoch":3,"granted_unix_ms":1700000000000,"proof":"…",
//!              "count":"…","kernel":"avx512","orientation":"upright","duration_us":12},"crc":"0a1b2c3d"}
//! {"acknowledged":{"run":"…","plan":"…","task":7,"epoch":3,"granted_unix_ms":1700000000000,"proof":"…"},
//!  "crc":"…"}
//! ```
//! Lines are not wrapped as shown here. A test freezes the bytes.

use std::fmt::Debug;

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::{
        run::{Epoch, LeaseKey, Partial, Proof, RunId, TaskRef},
        sealed::{self, as_text},
    },
    plan::{PlanHash, TaskId},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum SpoolLine {
    /// A task was counted.
    Finished {
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        run: RunId,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        plan: PlanHash,
        task: u64,
        epoch: u64,
        granted_unix_ms: u64,
        /// Promised return of a package.
        #[serde(default, skip_serializing_if = "is_zero")]
        return_unix_ms: u64,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        proof: Proof,
        /// Decimal: other readers of JSON lose digits beyond 2^53.
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        count: u64,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        kernel: KernelName,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        orientation: Orientation,
        duration_us: u64,
    },
    /// The coordinator acknowledged the result, which is no longer needed.
    Acknowledged {
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        run: RunId,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        plan: PlanHash,
        task: u64,
        epoch: u64,
        granted_unix_ms: u64,
        /// Promised return of a package.
        #[serde(default, skip_serializing_if = "is_zero")]
        return_unix_ms: u64,
        #[serde(with = "as_text")]
        #[cfg_attr(test, schemars(with = "String"))]
        proof: Proof,
    },
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl SpoolLine {
    pub(crate) fn finished(partial: &Partial) -> Self {
        let Partial { lease, count, kernel, orientation, duration_us } = *partial;
        let LeaseKey { task: TaskRef { run, plan, task }, epoch, proof, .. } = lease;
        let LeaseKey { granted_unix_ms, return_unix_ms, .. } = lease;
        let (task, epoch) = (task.0, epoch.0);
        Self::Finished {
            run,
            plan,
            task,
            epoch,
            granted_unix_ms,
            return_unix_ms,
            proof,
            count,
            kernel,
            orientation,
            duration_us,
        }
    }

    pub(super) fn acknowledged(lease: LeaseKey) -> Self {
        let LeaseKey { task: TaskRef { run, plan, task }, epoch, proof, .. } = lease;
        let LeaseKey { granted_unix_ms, return_unix_ms, .. } = lease;
        let (task, epoch) = (task.0, epoch.0);
        Self::Acknowledged { run, plan, task, epoch, granted_unix_ms, return_unix_ms, proof }
    }

    /// Returns the lease, and its result if that is still needed.
    pub(crate) fn content(self) -> (LeaseKey, Option<Partial>) {
        let (Self::Finished {
            run, plan, task, epoch, granted_unix_ms, return_unix_ms, proof, ..
        }
        | Self::Acknowledged { run, plan, task, epoch, granted_unix_ms, return_unix_ms, proof }) =
            self;
        let (task, epoch) = (TaskRef { run, plan, task: TaskId(task) }, Epoch(epoch));
        let lease = LeaseKey { task, epoch, granted_unix_ms, return_unix_ms, proof };
        let partial = match self {
            Self::Finished { count, kernel, orientation, duration_us, .. } => {
                Some(Partial { lease, count, kernel, orientation, duration_us })
            }
            Self::Acknowledged { .. } => None,
        };
        (lease, partial)
    }
}

/// A line of JSON with a checksum in a file of the worker.
pub(crate) trait SealedLine: Serialize + DeserializeOwned {
    /// Appends the line, with its line end.
    fn write(&self, to: &mut Vec<u8>) {
        let start = to.len();
        serde_json::to_writer(&mut *to, self).expect("strings and numbers into memory");
        sealed::seal(to, start);
        to.push(b'\n');
    }

    /// Reads a line without its line end; `None` unless every byte is valid.
    fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(&sealed::open(line).ok()?).ok()
    }
}

impl SealedLine for SpoolLine {}

/// Checks that bytes are either rejected or survive a round trip.
pub(crate) fn round_trip<L: SealedLine + PartialEq + Debug>(text: &[u8]) {
    if let Some(line) = L::read(text) {
        let mut written = Vec::new();
        line.write(&mut written);
        assert_eq!(written.pop(), Some(b'\n'));
        assert_eq!(L::read(&written), Some(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_partial;

    #[test]
    fn the_bytes_are_frozen() {
        let mut bytes = Vec::new();
        let partial = sample_partial(7, 3);
        SpoolLine::finished(&partial).write(&mut bytes);
        SpoolLine::acknowledged(partial.lease).write(&mut bytes);
        let plan = partial.lease.task.plan;
        let head = format!(
            "{{\"run\":\"00000000000000a1\",\"plan\":\"{plan}\",\"task\":7,\"epoch\":3,\
             \"granted_unix_ms\":1700000000000,\"proof\":\"000000000000000000000000000000ef\""
        );
        let finished = format!(
            "{{\"finished\":{head},\"count\":\"18446744073709551615\",\"kernel\":\"scalar\",\
             \"orientation\":\"rotated\",\"duration_us\":12}}"
        );
        let acknowledged = format!("{{\"acknowledged\":{head}}}");
        let line = |body: &str| {
            let crc = crc32fast::hash(body.as_bytes());
            format!("{body},\"crc\":\"{crc:08x}\"}}\n")
        };
        let expected = line(&finished) + &line(&acknowledged);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_rejected_if_damaged() {
        let mut bytes = Vec::new();
        let partial = sample_partial(7, 3);
        SpoolLine::finished(&partial).write(&mut bytes);
        bytes.pop();
        let line = SpoolLine::read(&bytes).unwrap();
        assert_eq!(line.content(), (partial.lease, Some(partial)));
        bytes[20] ^= 1;
        assert_eq!(SpoolLine::read(&bytes), None);
    }
}
