//! Asking a coordinator why it does not take a certificate.

use std::{io, sync::Arc};

use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, crypto::ring, pki_types::ServerName, sign::SingleCertAndKey, version::TLS13,
    },
};

use super::{
    Certified, Way,
    way::{HANDSHAKE_TIMEOUT, explain_tls},
};

impl Way {
    /// What is wrong with the caller's certificate, where that is why a call had no answer: an
    /// operating system may throw a server's reason away with a connection on which the client
    /// still writes, so this makes one more, and only listens.
    pub async fn why_refused(&self) -> Option<&'static str> {
        let Self::Certified(certified) = self else {
            return None;
        };
        let refused = timeout(HANDSHAKE_TIMEOUT, knock(certified)).await.ok()?;
        explain_tls(&refused.err()?)
    }
}

/// Whether a server takes the certificate, which TLS 1.3 lets it say after the handshake only: one
/// that does begins to speak.
async fn knock(Certified { uri, ca, identity }: &Certified) -> io::Result<()> {
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(ca.roots())
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or_default())).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await?;
    stream.read_u8().await.map(drop)
}
