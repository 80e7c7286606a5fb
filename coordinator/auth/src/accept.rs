//! Accepted connections, TLS or plain text, distinguished by their first byte.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use store::descriptors;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::{AuthError, Authenticator, ConnectionActivity, Limits, Subject, certificates};

/// The first byte of every TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// The pause after an error of `accept`, which is unlikely to vanish immediately.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The time for which a closed connection discards what its client still sends.
const LINGER: Duration = Duration::from_secs(2);

/// The interval between two log lines about refused connections.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The number of connections between two removals of all ended ones.
/// It exceeds the number of open connections, so a removal costs little per connection.
const CLEANUP_INTERVAL: usize = 20_000;

/// Accepts up to `max` connections at a time; returns them once their TLS handshakes are complete.
pub fn accept(
    listener: TcpListener,
    max: usize,
    auth: Authenticator,
    limits: Limits,
) -> ReceiverStream<Result<AcceptedConnection, Infallible>> {
    let (send, ready) = mpsc::channel(64);
    let mut acceptor = Acceptor::new(listener, max);
    tokio::spawn(async move {
        let mut unadmitted = Unadmitted::new(max);
        loop {
            let (stream, address, permit) = tokio::select! {
                accepted = acceptor.accept() => accepted,
                () = send.closed() => return,
            };
            let send = send.clone();
            let mut evicted = unadmitted.add(address.ip());
            let connection = move |(peer, io), evicted| {
                let check = Box::pin(sleep(limits.unadmitted));
                let evicted = Some(evicted);
                AcceptedConnection {
                    peer,
                    io,
                    limits,
                    check,
                    evicted,
                    is_shut_down: false,
                    _permit: permit,
                }
            };
            if let Authenticator::Open = auth {
                let opened: (_, Box<dyn Io>) = (Peer::plain(address, false), Box::new(stream));
                // This fails only after the server's end.
                let _ = send.send(Ok(connection(opened, evicted))).await;
                continue;
            }
            let auth = auth.clone();
            tokio::spawn(async move {
                let opened = tokio::select! {
                    opened = timeout(limits.handshake, open(stream, address, &auth)) => opened,
                    _ = &mut evicted => {
                        tracing::debug!("{address}: too many connections without an admitted call");
                        return;
                    }
                };
                match opened {
                    Ok(Ok(opened)) => {
                        let _ = send.send(Ok(connection(opened, evicted))).await;
                    }
                    Ok(Err(error)) => tracing::debug!("{address}: TLS failed: {error}"),
                    Err(_) => tracing::debug!("{address}: TLS handshake timed out"),
                }
            });
        }
    });
    ReceiverStream::new(ready)
}

async fn open(
    stream: TcpStream,
    address: SocketAddr,
    auth: &Authenticator,
) -> io::Result<(Peer, Box<dyn Io>)> {
    let mut first = [0];
    let is_tls = stream.peek(&mut first).await? == 1 && first[0] == TLS_HANDSHAKE;
    let Some(acceptor) = is_tls.then(|| auth.acceptor()).flatten() else {
        // The authenticator refuses plain text from other machines, with a reason the client can read.
        return Ok((Peer::plain(address, true), Box::new(stream)));
    };
    let stream = acceptor.accept(stream).await?;
    let chain = stream.get_ref().1.peer_certificates();
    let certificate = chain.and_then(<[_]>::first).map(certificates::holder);
    let peer = Peer { tls: true, certificate, ..Peer::plain(address, true) };
    Ok((peer, Box::new(stream)))
}

/// A listener that closes connections beyond a maximum.
struct Acceptor {
    listener: TcpListener,
    max: usize,
    permits: Arc<Semaphore>,
    warned: Option<Instant>,
}

impl Acceptor {
    fn new(listener: TcpListener, max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { listener, max, permits: Arc::new(Semaphore::new(max)), warned: None }
    }

    async fn accept(&mut self) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                        // Nagle's algorithm would delay small messages.
                        let _ = stream.set_nodelay(true);
                        return (stream, address, permit);
                    }
                    self.warn_rate_limited(&format!(
                        "refused a connection from {address}: all {} connections that the limit of \
                         open files ({}) allows are in use; raise the limit (ulimit -n, or \
                         LimitNOFILE of the service) and restart",
                        self.max,
                        descriptors::limit(),
                    ));
                }
                Err(error) => {
                    self.warn_rate_limited(&format!("cannot accept a connection: {error}"));
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn warn_rate_limited(&mut self, message: &str) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!("{message}");
        }
    }
}

/// The share of all connections that may come from one address, or /64 of IPv6, and have no admitted call.
const PER_ADDRESS: usize = 4;

/// Connections without an admitted call by address, oldest first; an admission or the end drops its receiver.
///
/// Many machines may share an address, so the newest connection evicts the oldest.
struct Unadmitted {
    /// Maximum per address.
    max: usize,
    by_address: HashMap<IpAddr, VecDeque<oneshot::Sender<()>>>,
    /// Connections added since the last removal of all ended ones.
    added: usize,
}

impl Unadmitted {
    fn new(connections: usize) -> Self {
        Self { max: (connections / PER_ADDRESS).max(1), by_address: HashMap::new(), added: 0 }
    }

    /// Adds a connection, evicting the address's oldest one if there are too many.
    /// The returned receiver resolves when this connection is evicted.
    fn add(&mut self, address: IpAddr) -> oneshot::Receiver<()> {
        self.added += 1;
        if self.added >= CLEANUP_INTERVAL {
            self.added = 0;
            self.by_address.retain(|_, connections| {
                connections.retain(|connection| !connection.is_closed());
                !connections.is_empty()
            });
        }
        let connections = self.by_address.entry(network(address)).or_default();
        connections.retain(|connection| !connection.is_closed());
        if connections.len() >= self.max {
            connections.pop_front();
        }
        let (connection, evicted) = oneshot::channel();
        connections.push_back(connection);
        evicted
    }
}

/// Returns an IPv4 address, or the /64 of an IPv6 one: a host can use all of it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// The client end of a connection, attached to its requests as an extension.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    pub tls: bool,
    /// The holder of the client's certificate, if it presented a trusted one.
    pub certificate: Option<Result<Subject, AuthError>>,
    pub activity: Arc<ConnectionActivity>,
}

impl Peer {
    fn plain(address: SocketAddr, authenticates: bool) -> Self {
        let activity = ConnectionActivity::new(authenticates);
        Self { address, tls: false, certificate: None, activity }
    }

    /// Returns whether the client is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection ready to be served, closed after long idle time or many refusals.
pub struct AcceptedConnection {
    peer: Peer,
    io: Box<dyn Io>,
    limits: Limits,
    /// The next check of the idle time; after `poll_shutdown`, the end of the wait for the client.
    check: Pin<Box<Sleep>>,
    /// Resolves if newer connections of the address take its place; `None` once a call was admitted.
    evicted: Option<oneshot::Receiver<()>>,
    is_shut_down: bool,
    _permit: OwnedSemaphorePermit,
}

impl AcceptedConnection {
    fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        if self.peer.activity.has_too_many_refusals(&self.limits) {
            return true;
        }
        if let Some(evicted) = &mut self.evicted {
            if self.peer.activity.is_admitted() {
                self.evicted = None;
            } else if evicted.is_terminated() || Pin::new(evicted).poll(context).is_ready() {
                return true;
            }
        }
        while self.check.as_mut().poll(context).is_ready() {
            match self.peer.activity.remaining_idle_time(&self.limits) {
                Some(remaining) => self.check.as_mut().reset(Instant::now() + remaining),
                None => return true,
            }
        }
        false
    }
}

impl Connected for AcceptedConnection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for AcceptedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_ended(context) {
            // The server sees a connection closed by the client.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for AcceptedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// Ends the sent data, then discards what the client still sends, for a limited time.
    ///
    /// A socket that is closed with unread data resets the connection, and the client may lose a
    /// response that was sent before the request was read.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
            self.is_shut_down = true;
            self.check.as_mut().reset(Instant::now() + LINGER);
        }
        let mut discarded = [0; 4096];
        while self.check.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            match ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn an_evicted_connection_stays_closed() {
        let (io, _client) = tokio::io::duplex(8);
        let (_, evicted) = oneshot::channel();
        let limits = Limits::default();
        let mut connection = AcceptedConnection {
            peer: Peer::plain(([127, 0, 0, 1], 1).into(), true),
            io: Box::new(io),
            limits,
            check: Box::pin(sleep(limits.unadmitted)),
            evicted: Some(evicted),
            is_shut_down: false,
            _permit: Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(),
        };
        // A server may read again after the end.
        for _ in 0..2 {
            assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
        }
    }

    #[test]
    fn ended_connections_are_removed() {
        let mut unadmitted = Unadmitted::new(8);
        for address in (0_u32..).take(3 * CLEANUP_INTERVAL) {
            drop(unadmitted.add(IpAddr::V4(address.into())));
            assert!(unadmitted.by_address.len() <= CLEANUP_INTERVAL);
        }
        let address = IpAddr::V4(7.into());
        let [mut first, mut second, _third] = [(); 3].map(|()| unadmitted.add(address));
        assert!(first.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        assert!(second.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
    }
}
