//! Connections as they come in: plain text or TLS, told apart by their first byte.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::server::TlsStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::Connected;

use super::{Connections, Keys, connections::Connection};

/// A client that has not shaken hands by then is gone.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes under way from one address: a whole laboratory may sit behind one.
const HANDSHAKES_PER_ADDRESS: usize = 1024;

/// The first byte of every TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// Connections ready to be served.
pub struct Incoming {
    ready: mpsc::Receiver<io::Result<Guest>>,
}

impl Incoming {
    /// Serves the connections as they come without keys, shaking hands first with them.
    pub fn new(mut connections: Connections, keys: Option<Arc<Keys>>) -> Self {
        let (send, ready) = mpsc::channel(64);
        tokio::spawn(async move {
            let under_way = Arc::new(UnderWay::default());
            while let Some(Ok(connection)) = connections.next().await {
                // Whoever has gone already needs no answer.
                let Ok(address) = connection.address() else {
                    continue;
                };
                let Some(keys) = keys.clone() else {
                    if send
                        .send(Ok(Guest::plain(connection, address)))
                        .await
                        .is_err()
                    {
                        return;
                    }
                    continue;
                };
                let Some(place) = under_way.enter(address.ip()) else {
                    tracing::debug!("{address}: too many handshakes under way from there");
                    continue;
                };
                let send = send.clone();
                tokio::spawn(async move {
                    let greeted = timeout(HANDSHAKE_TIMEOUT, greet(connection, address, &keys));
                    let greeted = greeted.await;
                    drop(place);
                    match greeted {
                        // A server that ended takes nobody in.
                        Ok(Ok(guest)) => drop(send.send(Ok(guest)).await),
                        Ok(Err(error)) => tracing::debug!("{address}: no TLS: {error}"),
                        Err(_) => tracing::debug!("{address}: no TLS handshake in time"),
                    }
                });
            }
        });
        Self { ready }
    }
}

async fn greet(connection: Connection, address: SocketAddr, keys: &Keys) -> io::Result<Guest> {
    if connection.first_byte().await? != Some(TLS_HANDSHAKE) {
        // Who may speak plain text is the gate's to say, which can tell the client why not.
        return Ok(Guest::plain(connection, address));
    }
    let stream = keys.acceptor().accept(connection).await?;
    Ok(Guest {
        peer: Peer { address, tls: true },
        io: Io::Tls(Box::new(stream)),
    })
}

impl Stream for Incoming {
    type Item = io::Result<Guest>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.ready.poll_recv(context)
    }
}

/// The handshakes under way, by address.
#[derive(Debug, Default)]
struct UnderWay {
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl UnderWay {
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut by_address = self
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let number = by_address.entry(address).or_default();
        if *number >= HANDSHAKES_PER_ADDRESS {
            return None;
        }
        *number += 1;
        Some(Place {
            under_way: self.clone(),
            address,
        })
    }
}

/// One handshake's place, given back when it ends.
struct Place {
    under_way: Arc<UnderWay>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self
            .under_way
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = by_address.get_mut(&self.address) {
            *number -= 1;
            if *number == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// The other end of a connection; among the extensions of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// From where.
    pub address: SocketAddr,
    /// Whether what it says is encrypted.
    pub tls: bool,
}

impl Peer {
    /// Whether it is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// A connection that can be served.
pub struct Guest {
    peer: Peer,
    io: Io,
}

impl Guest {
    fn plain(connection: Connection, address: SocketAddr) -> Self {
        Self {
            peer: Peer {
                address,
                tls: false,
            },
            io: Io::Plain(connection),
        }
    }
}

enum Io {
    Plain(Connection),
    Tls(Box<TlsStream<Connection>>),
}

impl Connected for Guest {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_read(context, buffer),
            Io::Tls(io) => Pin::new(io).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write(context, bytes),
            Io::Tls(io) => Pin::new(io).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(context, parts),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_flush(context),
            Io::Tls(io) => Pin::new(io).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(context),
            Io::Tls(io) => Pin::new(io).poll_shutdown(context),
        }
    }
}
