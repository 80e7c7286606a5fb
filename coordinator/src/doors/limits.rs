//! What one door bears of the hostile and the broken. Whoever goes beyond is refused or sent away;
//! the others do not notice.

use std::{num::NonZeroU32, time::Duration};

/// The limits of a door; `docs/operations.md` has the table of the defaults.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all, if there are descriptors for so many.
    pub connections: usize,
    /// Connections of one token or certificate: fewer than in all, so that operators get in while
    /// workers' connections leak.
    pub connections_per_principal: usize,
    /// Handshakes under way from one address (from one /64 of IPv6). A whole laboratory may sit
    /// behind one, so the newest goes on, and the oldest is sent away for it.
    pub handshakes_per_address: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// A connection without a call that was let in ends after this time.
    pub unadmitted: Duration,
    /// A connection on which nothing is under way any more ends after this time.
    pub idle: Duration,
    /// So many calls in a row that are not let in end their connection.
    pub refusals: u32,
    /// Calls under way on one connection.
    pub calls_per_connection: u32,
    /// Calls a second of one token or certificate, and as many at once.
    pub calls_a_second: NonZeroU32,
    /// All headers of a call together, in bytes.
    pub header_bytes: u32,
    /// Everything that one call sends, in bytes; a message alone is at most
    /// [`proto::limits::MESSAGE_BYTES`].
    pub call_bytes: usize,
    /// What all calls under way have sent, in bytes.
    pub all_bytes: usize,
    /// What a client may send of one call before it is read, in bytes.
    pub stream_window_bytes: u32,
    /// What a client may send of all its calls before it is read, in bytes.
    pub connection_window_bytes: u32,
    /// Between two pings to a silent client.
    pub ping_every: Duration,
    /// How long the answer to a ping may take.
    pub ping_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_principal: 12_288,
            handshakes_per_address: 1024,
            handshake: Duration::from_secs(10),
            unadmitted: Duration::from_secs(30),
            idle: Duration::from_secs(15 * 60),
            refusals: 256,
            calls_per_connection: 64,
            calls_a_second: NonZeroU32::new(10_000).expect("not zero"),
            header_bytes: 16 << 10,
            call_bytes: 8 << 20,
            all_bytes: 256 << 20,
            stream_window_bytes: 128 << 10,
            connection_window_bytes: 256 << 10,
            ping_every: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// A server of these limits, without services yet.
    pub fn server(&self) -> tonic::transport::Server {
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(self.ping_every))
            .http2_keepalive_timeout(Some(self.ping_timeout))
            .http2_max_header_list_size(self.header_bytes)
            .max_concurrent_streams(self.calls_per_connection)
            .initial_stream_window_size(self.stream_window_bytes)
            .initial_connection_window_size(self.connection_window_bytes)
    }
}
