//! The lines of the spool file.
//!
//! One sealed JSON object a line (`common::sealed`):
//!
//! ```text
//! {"finished":{"run":"…","plan":"…","task":7,"epoch":3,"count":"…","kernel":"avx512",
//!              "orientation":"upright","duration_us":12},"crc":"0a1b2c3d"}
//! {"acknowledged":{"run":"…","plan":"…","task":7,"epoch":3},"crc":"…"}
//! ```
//! (each on one line). The bytes are frozen by a test.

use common::{
    count::Orientation,
    plan::TaskId,
    run::{Epoch, Partial, TaskRef},
    sealed,
};
use serde::{Deserialize, Serialize};

use crate::machine::LeaseKey;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpoolLine {
    /// A task was counted.
    Finished(Partial),
    /// The coordinator answered for a partial: it need not be kept.
    Acknowledged(LeaseKey),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Stored {
    Finished(StoredPartial),
    Acknowledged(StoredLease),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLease {
    run: String,
    plan: String,
    task: u64,
    epoch: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPartial {
    run: String,
    plan: String,
    task: u64,
    epoch: u64,
    /// Decimal: other readers of JSON lose digits beyond 2^53.
    count: String,
    kernel: String,
    orientation: StoredOrientation,
    duration_us: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredOrientation {
    Upright,
    Turned,
}

impl SpoolLine {
    /// Appends the line, with its line end.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let start = to.len();
        let stored = match self {
            Self::Finished(partial) => Stored::Finished(StoredPartial {
                run: partial.task.run.to_string(),
                plan: partial.task.plan.to_string(),
                task: partial.task.task.0,
                epoch: partial.epoch.0,
                count: partial.count.to_string(),
                kernel: partial.kernel.to_string(),
                orientation: match partial.orientation {
                    Orientation::Upright => StoredOrientation::Upright,
                    Orientation::Turned => StoredOrientation::Turned,
                },
                duration_us: partial.duration_us,
            }),
            Self::Acknowledged(lease) => Stored::Acknowledged(StoredLease {
                run: lease.task.run.to_string(),
                plan: lease.task.plan.to_string(),
                task: lease.task.task.0,
                epoch: lease.epoch.0,
            }),
        };
        serde_json::to_writer(&mut *to, &stored).expect("strings and numbers into memory");
        sealed::seal(to, start);
        to.push(b'\n');
    }

    /// Reads a line given without its line end; `None` unless every byte of it is right.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let stored = serde_json::from_slice(&sealed::open(line).ok()?).ok()?;
        Some(match stored {
            Stored::Finished(partial) => Self::Finished(Partial {
                task: task_ref(&partial.run, &partial.plan, partial.task)?,
                epoch: Epoch(partial.epoch),
                count: partial.count.parse().ok()?,
                kernel: partial.kernel.parse().ok()?,
                orientation: match partial.orientation {
                    StoredOrientation::Upright => Orientation::Upright,
                    StoredOrientation::Turned => Orientation::Turned,
                },
                duration_us: partial.duration_us,
            }),
            Stored::Acknowledged(lease) => Self::Acknowledged(LeaseKey {
                task: task_ref(&lease.run, &lease.plan, lease.task)?,
                epoch: Epoch(lease.epoch),
            }),
        })
    }
}

fn task_ref(run: &str, plan: &str, task: u64) -> Option<TaskRef> {
    Some(TaskRef {
        run: run.parse().ok()?,
        plan: plan.parse().ok()?,
        task: TaskId(task),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_partial;

    #[test]
    fn the_bytes_are_frozen() {
        let mut bytes = Vec::new();
        let partial = sample_partial(7, 3);
        SpoolLine::Finished(partial).write(&mut bytes);
        SpoolLine::Acknowledged(LeaseKey::of(&partial)).write(&mut bytes);
        let plan = partial.task.plan;
        let head =
            format!("{{\"run\":\"00000000000000a1\",\"plan\":\"{plan}\",\"task\":7,\"epoch\":3");
        let finished = format!(
            "{{\"finished\":{head},\"count\":\"18446744073709551615\",\"kernel\":\"scalar\",\
             \"orientation\":\"turned\",\"duration_us\":12}}"
        );
        let acknowledged = format!("{{\"acknowledged\":{head}}}");
        let line = |body: &str| {
            let crc = crc32fast::hash(body.as_bytes());
            format!("{body},\"crc\":\"{crc:08x}\"}}\n")
        };
        let expected = line(&finished) + &line(&acknowledged);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn every_damaged_byte_and_every_torn_end_is_seen() {
        let mut bytes = Vec::new();
        let line = SpoolLine::Finished(sample_partial(7, 3));
        line.write(&mut bytes);
        bytes.pop();
        assert_eq!(SpoolLine::read(&bytes), Some(line));
        for at in 0..bytes.len() {
            assert_eq!(SpoolLine::read(&bytes[..at]), None, "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(
                SpoolLine::read(&damaged),
                None,
                "bit 0 of byte {at} flipped"
            );
        }
    }
}
