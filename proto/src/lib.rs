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

/// The generated code of package `queens.v1`: what `just proto` compiles the `.proto` files to. It is kept, since
/// compilers of `.proto` files take longer to build than this crate.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/queens.v1.rs");

    /// The compiled descriptors, for the reflection service.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/queens.v1.bin");
}

/// The version of the protocol between coordinator and worker.
pub const PROTOCOL_VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    #[test]
    fn generated_code_is_of_these_proto_files() {
        let files = [
            &include_bytes!("../queens/v1/work_queue.proto")[..],
            include_bytes!("../queens/v1/runs.proto"),
            include_bytes!("../queens/v1/tokens.proto"),
        ];
        let hash = Sha256::digest(files.concat());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let generated = include_str!("generated/sources.sha256").trim();
        assert_eq!(
            hash, generated,
            "a .proto file was changed: run `just proto`"
        );
    }
}
