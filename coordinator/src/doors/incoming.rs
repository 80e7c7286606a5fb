//! Connections as they come in: plain text or TLS, told apart by their first byte.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{mpsc, oneshot},
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::Connected;

use super::{Connections, Denied, Limits, Locks, Principal, Visit, connections::Connection, pki};

/// The first byte of every TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// Connections ready to be served.
pub struct Incoming {
    ready: mpsc::Receiver<io::Result<Guest>>,
}

impl Incoming {
    /// Serves the connections as they come without locks, shaking hands first with them.
    pub fn new(mut connections: Connections, locks: Option<Locks>, limits: Limits) -> Self {
        let (send, ready) = mpsc::channel(64);
        tokio::spawn(async move {
            let under_way = Arc::new(UnderWay::new(limits.handshakes_per_address));
            while let Some(Ok(connection)) = connections.next().await {
                // Whoever has gone already needs no answer.
                let Ok(address) = connection.address() else {
                    continue;
                };
                let Some(locks) = locks.clone() else {
                    let visit = Visit::new(false);
                    let guest = Guest::plain(connection, (address, visit), limits);
                    if send.send(Ok(guest)).await.is_err() {
                        return;
                    }
                    continue;
                };
                let (place, sent_away) = under_way.enter(address.ip());
                let send = send.clone();
                tokio::spawn(async move {
                    let greeted = greet(connection, address, (&locks, limits));
                    let greeted = tokio::select! {
                        greeted = timeout(limits.handshake, greeted) => greeted,
                        _ = sent_away => {
                            tracing::debug!("{address}: too many handshakes under way from there");
                            return;
                        }
                    };
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

async fn greet(
    connection: Connection,
    address: SocketAddr,
    (locks, limits): (&Locks, Limits),
) -> io::Result<Guest> {
    if connection.first_byte().await? != Some(TLS_HANDSHAKE) {
        // Who may speak plain text is the gate's to say, which can tell the client why not.
        return Ok(Guest::plain(
            connection,
            (address, Visit::new(true)),
            limits,
        ));
    }
    let stream = locks.acceptor().accept(connection).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = shown.and_then(<[_]>::first).map(pki::holder);
    let peer = Peer {
        address,
        tls: true,
        certificate,
        visit: Visit::new(true),
    };
    Ok(Guest::new(peer, Io::Tls(Box::new(stream)), limits))
}

impl Stream for Incoming {
    type Item = io::Result<Guest>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.ready.poll_recv(context)
    }
}

/// The handshakes from one address, the oldest first: their numbers, and what keeps them.
type Places = VecDeque<(u64, oneshot::Sender<()>)>;

/// The handshakes under way, by address.
#[derive(Debug)]
struct UnderWay {
    most: usize,
    by_address: Mutex<HashMap<IpAddr, Places>>,
    number: AtomicU64,
}

impl UnderWay {
    fn new(most: usize) -> Self {
        Self {
            most,
            by_address: Mutex::default(),
            number: AtomicU64::new(0),
        }
    }

    /// A place for one more; where there are too many from there, the oldest loses its own. What is
    /// returned with it resolves when this one does.
    fn enter(self: &Arc<Self>, address: IpAddr) -> (Place, oneshot::Receiver<()>) {
        let address = network(address);
        let number = self.number.fetch_add(1, Relaxed);
        let (keep, sent_away) = oneshot::channel();
        let mut by_address = self
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let places = by_address.entry(address).or_default();
        if places.len() >= self.most {
            places.pop_front();
        }
        places.push_back((number, keep));
        let place = Place {
            under_way: self.clone(),
            address,
            number,
        };
        (place, sent_away)
    }
}

/// Whose address it is: a host of IPv6 has as many as it likes.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// One handshake's place, given back when it ends.
struct Place {
    under_way: Arc<UnderWay>,
    address: IpAddr,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self
            .under_way
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = by_address.get_mut(&self.address) {
            places.retain(|(number, _)| *number != self.number);
            if places.is_empty() {
                by_address.remove(&self.address);
            }
        }
    }
}

/// The other end of a connection; among the extensions of its requests.
#[derive(Clone, Debug)]
pub struct Peer {
    /// From where.
    pub address: SocketAddr,
    /// Whether what it says is encrypted.
    pub tls: bool,
    /// Whose certificate it showed, if it did: one of an authority that is trusted here.
    pub certificate: Option<Result<Principal, Denied>>,
    /// What happens on the connection.
    pub visit: Arc<Visit>,
}

impl Peer {
    /// Whether it is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// A connection that can be served. It ends by itself when nothing happens on it any more.
pub struct Guest {
    peer: Peer,
    io: Io,
    limits: Limits,
    /// When to look whether it may stay.
    look: Pin<Box<Sleep>>,
}

impl Guest {
    fn new(peer: Peer, io: Io, limits: Limits) -> Self {
        Self {
            peer,
            io,
            limits,
            look: Box::pin(sleep(limits.unadmitted)),
        }
    }

    fn plain(
        connection: Connection,
        (address, visit): (SocketAddr, Arc<Visit>),
        limits: Limits,
    ) -> Self {
        let peer = Peer {
            address,
            tls: false,
            certificate: None,
            visit,
        };
        Self::new(peer, Io::Plain(connection), limits)
    }

    /// Whether the connection is over for want of anything on it.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        if self.peer.visit.is_sent_away(&self.limits) {
            return true;
        }
        while self.look.as_mut().poll(context).is_ready() {
            match self.peer.visit.may_stay(&self.limits) {
                Some(left) => self.look.as_mut().reset(Instant::now() + left),
                None => return true,
            }
        }
        false
    }
}

enum Io {
    Plain(Connection),
    Tls(Box<TlsStream<Connection>>),
}

impl Connected for Guest {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            // As if the client had closed it.
            return Poll::Ready(Ok(()));
        }
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
