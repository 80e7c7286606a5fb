//! What a call is called in the logs of both its sides.

use std::{fmt, str::FromStr};

use common::run::BadId;
use tonic::metadata::{MetadataMap, MetadataValue};

/// Where it stands in a call's metadata.
const KEY: &str = "x-queens-call";

/// Names one call: drawn by who calls, 16 lower-case hexadecimal digits as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(pub u64);

impl CallId {
    /// Of a call with this metadata; `None` where it has no such name, as calls of other clients.
    pub fn read(metadata: &MetadataMap) -> Option<Self> {
        metadata.get(KEY)?.to_str().ok()?.parse().ok()
    }

    /// Names the call of this metadata.
    pub fn write(self, metadata: &mut MetadataMap) {
        let value = MetadataValue::try_from(self.to_string());
        metadata.insert(KEY, value.expect("digits are ASCII"));
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for CallId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        // Of the same form.
        text.parse().map(|common::run::RunId(number)| Self(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let mut metadata = MetadataMap::new();
        assert_eq!(CallId::read(&metadata), None);
        for id in [0, 7, u64::MAX].map(CallId) {
            id.write(&mut metadata);
            assert_eq!(CallId::read(&metadata), Some(id));
        }
        for foreign in ["", "7", "0123456789abcdeg", "0123456789abcdef0"] {
            metadata.insert(KEY, foreign.parse().unwrap());
            assert_eq!(CallId::read(&metadata), None, "'{foreign}'");
        }
    }
}
