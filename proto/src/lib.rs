//! The wire: generated messages and services of `queens.v1`, and conversions to and from the
//! domain's types that validate and name the bad field.
//!
//! Inbound is `TryFrom` with [`BadMessage`], outbound is `From`. What passes is well-formed; whether
//! a run, a plan or a task exists is for the receiver to say.

mod call;
mod convert;
pub mod door;
#[doc(hidden)]
pub mod foreign;
pub mod limits;

pub use call::CallId;
pub use convert::{BadMessage, decimal, submitted_key, submitted_spec};

/// The generated code of package `queens.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("queens.v1");

    /// The compiled descriptors, for the reflection service.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("queens.v1");
}

/// The version of the protocol between coordinator and worker.
pub const PROTOCOL_VERSION: u32 = 1;
