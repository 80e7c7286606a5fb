//! How large messages and their parts may be. A full [`SyncRequest`](crate::v1::SyncRequest) and a
//! full [`SyncResponse`](crate::v1::SyncResponse) both fit [`MESSAGE_BYTES`].

/// The most bytes of one message, encoded; to be set as tonic's limit on both sides.
pub const MESSAGE_BYTES: usize = 4 << 20;

/// The most partials in one request; a worker that has more sends several requests.
pub const PARTIALS: usize = 4096;

/// The most leases in one request, and so the most that a worker may hold.
pub const HELD: usize = 16_384;

/// The most grants in one reply.
pub const GRANTS: usize = 4096;

/// The most bytes of a worker's name.
pub const NAME_BYTES: usize = 128;

/// The most bytes of a program's version.
pub const VERSION_BYTES: usize = 64;

/// The most bytes of a reason for people; longer ones are cut before they are sent.
pub const REASON_BYTES: usize = 256;

/// The most bytes of one reply that revocations may take, with as many acknowledgements and grants as a
/// reply may hold beside them; [`REVOCATION_FRAME_BYTES`] and its reason each. The worker names what it
/// still holds in its next call, and is told of the rest then.
pub const REVOCATION_BYTES: usize = 2 << 20;

/// The most bytes of one revocation, without its reason.
pub const REVOCATION_FRAME_BYTES: usize = 80;

/// The most threads that one worker may count on.
pub const THREADS: u32 = 4096;

/// The most work that one request may ask for, in seconds of all the worker's threads.
pub const SECONDS_WANTED: f64 = 86_400.0;

/// The longest interval that a reply may name, in milliseconds: a day.
pub const INTERVAL_MS: u64 = 86_400_000;
