//! The wire format: generated messages and services of `queens.v1`, and conversions to and from domain
//! types.
//!
//! Inbound conversions (`TryFrom`) validate messages, and name the invalid field in a [`BadMessage`]. They do
//! not check whether a run, a plan or a task exists.

mod convert;
#[doc(hidden)]
pub mod fuzz_targets;

/// Connections to coordinators: endpoints, join strings, tokens and certificates.
pub mod connect {
    mod endpoint;
    mod join;
    mod options;
    mod tls;

    pub use endpoint::{
        AuthChannel, BadAddress, CoordinatorEndpoint, Credentials, MutualTls, explain_tls,
    };
    pub use join::{
        BadJoin, BadToken, BadWorkerSecret, FOLDER, JoinError, JoinString, Token, TokenId,
        WorkerSecret, join_file,
    };
    pub use options::ConnectionOptions;
    pub use tls::{
        BadTlsFile, CaHash, Identity, PinnedCa, SERVER_NAME, TrustedCa, install_crypto, names_of,
    };

    pub(crate) use join::{JOIN_PREFIX, TOKEN_PREFIX, armour};
}

use std::{fmt, str::FromStr};

use common::run::BadId;
use tonic::metadata::{MetadataMap, MetadataValue};

pub use convert::{BadMessage, decimal, issued_secret, sent_secret, submitted_key, submitted_spec};

/// Generated code of package `queens.v1`, by `just proto`. It is committed, since compilers of `.proto` files
/// take longer to build than this crate.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/queens.v1.rs");

    /// The compiled descriptors, for the reflection service.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/queens.v1.bin");
}

/// Encodes a message as a gRPC frame.
///
/// # Panics
/// If it takes 4 GiB or more.
pub fn framed(message: &impl prost::Message) -> prost::bytes::Bytes {
    use prost::bytes::{BufMut as _, BytesMut};

    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + length);
    // Not compressed.
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("a message of less than 4 GiB"));
    message.encode(&mut bytes).expect("there is room");
    bytes.freeze()
}

/// The version of the protocol between coordinator and worker.
pub const PROTOCOL_VERSION: u32 = 1;

/// The metadata key of a call's identifier.
const KEY: &str = "x-queens-call";

/// The random identifier of a call, chosen by the client; as text 16 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(pub u64);

impl CallId {
    /// Reads the identifier of a call; `None` if it has none, like calls of other clients.
    pub fn read(metadata: &MetadataMap) -> Option<Self> {
        metadata.get(KEY)?.to_str().ok()?.parse().ok()
    }

    /// Adds the identifier to a call.
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
        // Run identifiers have the same form.
        text.parse().map(|common::run::RunId(number)| Self(number))
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn call_identifiers_round_trip() {
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

    #[test]
    fn generated_code_is_of_these_proto_files() {
        let files = [
            &include_bytes!("../queens/v1/types.proto")[..],
            include_bytes!("../queens/v1/work_queue.proto"),
            include_bytes!("../queens/v1/runs.proto"),
            include_bytes!("../queens/v1/tokens.proto"),
        ];
        let hash = Sha256::digest(files.concat());
        let hash = common::hex::encode(&hash);
        let generated = include_str!("generated/sources.sha256").trim();
        assert_eq!(hash, generated, "a .proto file was changed: run `just proto`");
    }
}
