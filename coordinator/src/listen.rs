//! Listening ports.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Maximum number of pending connections: all workers reconnect after a restart.
const BACKLOG: u32 = 4096;

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{address} is in use by another program; stop it or {advice}")]
    InUse { address: SocketAddr, advice: &'static str },
    #[error("cannot listen on {address}: {why}; {advice}")]
    Other { address: SocketAddr, why: io::Error, advice: &'static str },
}

/// Binds the port of the gRPC services.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    bind_port(address, "give another --listen address")
}

/// Binds a port, or returns an error with advice.
pub(crate) fn bind_port(
    address: SocketAddr,
    advice: &'static str,
) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted coordinator can bind while old connections linger.
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|why| match why.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address, advice },
        _ => BindError::Other { address, why, advice },
    })
}
