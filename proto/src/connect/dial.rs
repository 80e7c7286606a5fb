//! The choice among a coordinator's addresses: attempts overlap, so an address that drops packets costs little.

use std::{error::Error, io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tonic::transport::{self, Uri};

use super::{explain_io, explain_tls, io_error};

/// Time after which the next attempt begins while the previous ones continue (RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Reason why none of a coordinator's addresses accepted a connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(#[source] Box<dyn Error + Send + Sync>);

impl ConnectError {
    /// Returns the advice for a failed TLS handshake, or the error of the system with advice.
    pub fn explain(&self) -> String {
        match (explain_tls(self), io_error(self)) {
            (Some(why), _) => why.to_owned(),
            (None, Some(error)) => explain_io(error),
            (None, None) => self.to_string(),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self(error.into())
    }
}

impl From<transport::Error> for ConnectError {
    fn from(error: transport::Error) -> Self {
        Self(error.into())
    }
}

/// Opens a TCP connection to the first address of a URL's host that answers.
pub async fn dial(uri: &Uri) -> Result<TcpStream, ConnectError> {
    first_address(uri, |address| async move { Ok(tcp(address).await?) }).await
}

pub(super) async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the host of a URL without the brackets of an IPv6 address.
pub(super) fn host_of(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// Returns what the first address of a URL's host yields that does not fail.
pub(super) async fn first_address<T, F>(
    uri: &Uri,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, ConnectError>>,
{
    let port = uri.port_u16().unwrap_or_default();
    first_success(lookup_host((host_of(uri), port)).await?, attempt).await
}

/// Attempts the items in order, and returns the first success.
///
/// An attempt begins when the previous one failed, or [`ATTEMPT_DELAY`] after it began. If all fail,
/// the error is that of the first server whose TLS handshake failed, or else of the first item.
pub(super) async fn first_success<I, T, F>(
    items: impl IntoIterator<Item = I>,
    attempt: impl Fn(I) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, ConnectError>>,
{
    let mut waiting = items.into_iter().enumerate().fuse();
    let mut attempts = FuturesUnordered::new();
    let mut errors = Vec::new();
    loop {
        let next = waiting.next();
        let is_last = next.is_none();
        if let Some((place, item)) = next {
            let attempt = attempt(item);
            attempts.push(async move { (place, attempt.await) });
        }
        let ended = match is_last {
            true => attempts.next().await,
            false => match timeout(ATTEMPT_DELAY, attempts.next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            },
        };
        match ended {
            Some((_, Ok(success))) => return Ok(success),
            Some((place, Err(error))) => errors.push((explain_tls(&error).is_none(), place, error)),
            None => break,
        }
    }
    let first = errors.into_iter().min_by_key(|(is_other, place, _)| (*is_other, *place));
    let none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    Err(first.map_or_else(|| none().into(), |(_, _, error)| error))
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Mutex};

    use super::*;

    /// Attempts these items: `Some` succeeds or fails at once, `None` never ends.
    async fn attempted(items: &[Option<Result<u8, &'static str>>]) -> (Result<u8, String>, usize) {
        let begun = Mutex::new(0);
        let attempt = |item: &Option<Result<u8, &'static str>>| {
            *begun.lock().unwrap() += 1;
            let item = *item;
            async move {
                match item {
                    Some(result) => Ok(result.map_err(io::Error::other)?),
                    None => pending().await,
                }
            }
        };
        let result = first_success(items, attempt).await.map_err(|error| error.to_string());
        (result, begun.into_inner().unwrap())
    }

    #[tokio::test]
    async fn the_first_address_that_answers_is_used() {
        let refused = Some(Err("refused"));
        assert_eq!(attempted(&[Some(Ok(1)), Some(Ok(2))]).await, (Ok(1), 1));
        assert_eq!(attempted(&[None, None, Some(Ok(3)), Some(Ok(4))]).await, (Ok(3), 3));
        assert_eq!(attempted(&[refused, None, refused, Some(Ok(4))]).await, (Ok(4), 4));
        let errors = [Some(Err("first")), Some(Err("second"))];
        assert_eq!(attempted(&errors).await, (Err("first".to_owned()), 2));
        assert_eq!(attempted(&[]).await, (Err("the host has no address".to_owned()), 0));
    }
}
