//! Limits of messages and their parts.
//!
//! A full [`SyncRequest`](super::sync::SyncRequest) and a full [`SyncReply`](super::sync::SyncReply)
//! both fit [`MESSAGE_BYTES`] when they are encoded.

/// Maximum bytes of an encoded message: tonic's limit on both sides.
pub const MESSAGE_BYTES: usize = 4 << 20;

/// Maximum partials per request; a worker with more sends several requests.
pub const PARTIALS: usize = 4096;

/// Maximum leases per request, and so per worker.
pub const HELD: usize = 16_384;

/// Maximum fields of a request: every element of a list is one.
pub const FIELDS: usize = PARTIALS + HELD + 64;

/// Maximum grants per reply.
pub const GRANTS: usize = 4096;

/// Maximum bytes of a program's version.
pub const VERSION_BYTES: usize = 64;

/// Maximum bytes of a reason; longer reasons are truncated before they are sent.
pub const REASON_BYTES: usize = 256;

/// Maximum bytes of all revocations in a reply.
///
/// Each revocation takes [`REVOCATION_FRAME_BYTES`] and its reason. The rest of a message has room
/// for the maximum acknowledgements and grants of a reply. Remaining leases are revoked in the reply
/// to the worker's next call.
pub const REVOCATION_BYTES: usize = 2 << 20;

/// Maximum bytes of a revocation, without its reason.
pub const REVOCATION_FRAME_BYTES: usize = 112;

/// Maximum threads per worker.
pub const THREADS: u32 = 4096;

/// Maximum requested work, in seconds of all the worker's threads.
pub const SECONDS_WANTED: f64 = 86_400.0;

/// Maximum interval in a reply, in milliseconds: a day.
pub const INTERVAL_MS: u64 = 86_400_000;
