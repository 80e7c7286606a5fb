//! Accepting connections, as many as there are descriptors for.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tokio_stream::Stream;

use crate::descriptors;

/// After an error of the system: it lasts, and asking again at once would only burn a core.
const PAUSE: Duration = Duration::from_millis(200);

/// Between two log lines about refused connections.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Every connection that there is a place for; others are closed as soon as they are made.
pub struct Connections {
    listener: TcpListener,
    most: usize,
    places: Arc<Semaphore>,
    pause: Option<Pin<Box<Sleep>>>,
    said: Option<Instant>,
}

impl Connections {
    /// Accepts from `listener`; at most `most` at the same time.
    pub fn new(listener: TcpListener, most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self {
            listener,
            most,
            places: Arc::new(Semaphore::new(most)),
            pause: None,
            said: None,
        }
    }

    fn say(&mut self, what: &str) {
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.said = Some(Instant::now());
            tracing::warn!("{what}");
        }
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, peer)) => {
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        let what = format!(
                            "a connection from {peer} was refused: all {} that the limit of open \
                             files ({}) leaves room for are taken; raise the limit (ulimit -n, or \
                             LimitNOFILE of the service) and start again",
                            self.most,
                            descriptors::limit(),
                        );
                        self.say(&what);
                        continue;
                    };
                    // Without it small messages wait for one another; they arrive all the same.
                    let _ = stream.set_nodelay(true);
                    return Poll::Ready(Some(Ok(Connection {
                        stream,
                        _place: place,
                    })));
                }
                Err(error) => {
                    self.say(&format!("a connection cannot be accepted: {error}"));
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

/// A connection with its place among those that may be.
pub struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// Whose it is.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// The first byte that the client sends, which stays to be read; `None` if it sends none.
    pub(super) async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let read = self.stream.peek(&mut first).await?;
        Ok((read == 1).then_some(first[0]))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
