//! Endpoints of coordinators: URL or join string, with the caller's credentials.

use std::{
    error::Error,
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::{io::AsyncReadExt as _, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, AlertDescription as Alert, CertificateError, ClientConfig, crypto::ring,
        pki_types::ServerName, sign::SingleCertAndKey, version::TLS13,
    },
};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{self, Channel, ClientTlsConfig, Endpoint, Uri},
};
use tower::service_fn;

use super::{
    BadTlsFile, ConnectError, FOLDER, Identity, JoinError, JoinString, PinnedCa, SERVER_NAME,
    TlsFile, TrustedCa, dial,
    dial::{first_address, first_success, host_of, tcp},
    join_file,
};

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Default data directory of a coordinator.
const DEFAULT_DATA_DIR: &str = "queens-data";

/// A channel that sends its caller's token with every call.
pub type AuthChannel = InterceptedService<Channel, Credentials>;

/// A coordinator's address, transport and authentication.
#[derive(Clone)]
pub enum CoordinatorEndpoint {
    /// Plain text, on loopback or over a trusted network.
    Plain(Uri),
    /// TLS to a coordinator identified by the hash of its authority, with a token.
    Token(JoinString),
    /// Mutual TLS, with certificates of an authority that the operator runs.
    MutualTls(Box<MutualTls>),
}

/// The `https` URL of a coordinator, its authority, and the caller's certificate.
#[derive(Clone)]
pub struct MutualTls {
    pub uri: Uri,
    pub ca: TrustedCa,
    pub identity: Identity,
}

/// Options that give no usable address.
#[derive(Debug, thiserror::Error)]
pub enum BadAddress {
    #[error(
        "--coordinator: invalid URL '{0}': expected http://HOST:PORT, such as http://127.0.0.1:7171"
    )]
    Form(String),
    #[error(
        "--coordinator '{0}': TLS needs a join string, which identifies the coordinator: give the one \
         in its folder {FOLDER} (QUEENS_JOIN=queens1-…, or --join @FILE) instead of \
         --coordinator; or --tls-ca, --tls-cert and --tls-key if it was started with --client-ca"
    )]
    Tls(String),
    #[error("--coordinator '{0}' is an http:// URL, but --tls-ca needs an https:// one")]
    NoTls(String),
    #[error(transparent)]
    TlsFile(#[from] BadTlsFile),
    #[error(
        "--coordinator '{0}' is another machine, and plain text can be read and changed in transit: \
         give the coordinator's join string (QUEENS_JOIN=queens1-…, or --join @FILE), or \
         add --insecure if the coordinator has it and you trust the network"
    )]
    Plaintext(String),
    /// The text is not printed: it may be a mistyped secret.
    #[error("--join: {0}")]
    Join(JoinError),
    #[error(
        "--data-dir {dir}: no join string for this program found ({dir}/{FOLDER}/{file} is missing); \
         give the directory that the coordinator was started with",
        dir = dir.display(), file = join_file(role)
    )]
    NotInDirectory { dir: PathBuf, role: String },
    #[error(
        "no coordinator given, and none found in ./{DEFAULT_DATA_DIR}: on the coordinator's machine give \
         its --data-dir, elsewhere the join string that it printed (QUEENS_JOIN=queens1-…, or --join \
         @FILE)"
    )]
    NotInDefaultDirectory,
    #[error(transparent)]
    JoinFile(#[from] JoinError),
}

impl CoordinatorEndpoint {
    /// Parses an `http` URL. A host other than loopback requires `insecure`.
    pub fn plain(url: &str, insecure: bool) -> Result<Self, BadAddress> {
        let (uri, tls) = read_url(url)?;
        if tls {
            return Err(BadAddress::Tls(url.to_owned()));
        }
        if !insecure && !uri.host().is_some_and(is_loopback) {
            return Err(BadAddress::Plaintext(url.to_owned()));
        }
        Ok(Self::Plain(uri))
    }

    /// Parses an `https` URL and reads the files for mutual TLS.
    /// They are the authority of the coordinator's certificate, and the caller's certificate and key.
    pub fn mutual_tls(
        url: &str,
        ca: &Path,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, BadAddress> {
        let (uri, tls) = read_url(url)?;
        if !tls {
            return Err(BadAddress::NoTls(url.to_owned()));
        }
        let (ca, identity) = (
            TrustedCa::read(TlsFile { option: "--tls-ca", path: ca })?,
            Identity::read(certificate, key)?,
        );
        Ok(Self::MutualTls(Box::new(MutualTls { uri, ca, identity })))
    }

    /// Reads a role's join string from the data directory of a local coordinator.
    /// The default is `queens-data` in the current directory.
    pub fn local(dir: Option<&Path>, role: &str) -> Result<Self, BadAddress> {
        let join = JoinString::find(dir.unwrap_or(Path::new(DEFAULT_DATA_DIR)), role)?;
        let join = join.ok_or_else(|| match dir {
            Some(dir) => BadAddress::NotInDirectory { dir: dir.to_owned(), role: role.to_owned() },
            None => BadAddress::NotInDefaultDirectory,
        })?;
        // Loopback first: it works on this machine, whichever address other machines use.
        let is_local =
            |address: &&String| address.rsplit_once(':').is_some_and(|(host, _)| is_loopback(host));
        let (local, remote): (Vec<_>, Vec<_>) = join.addresses().iter().partition(is_local);
        let addresses = local.into_iter().chain(remote).cloned().collect();
        let join = JoinString::new(addresses, join.ca(), join.token().clone());
        Ok(Self::Token(join.expect("the same addresses in another order")))
    }

    /// Returns whether traffic can be read and changed in transit.
    pub fn is_unprotected(&self) -> bool {
        match self {
            Self::Plain(uri) => !uri.host().is_some_and(is_loopback),
            Self::Token(_) | Self::MutualTls(_) => false,
        }
    }

    /// Returns an endpoint for each host of the coordinator, in the order of preference.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let endpoints = match self {
            Self::Plain(uri) => vec![Endpoint::from(uri.clone())],
            Self::Token(join) => {
                let secured = |address: &String| {
                    let tls =
                        ClientTlsConfig::new().domain_name(SERVER_NAME).timeout(HANDSHAKE_TIMEOUT);
                    Endpoint::from_shared(format!("https://{address}"))
                        .expect("a join string's addresses make URLs")
                        .tls_config_with_verifier(tls, PinnedCa::new(join.ca()))
                        .expect("the server name is a DNS name")
                };
                join.addresses().iter().map(secured).collect()
            }
            Self::MutualTls(tls) => {
                let MutualTls { uri, ca, identity } = &**tls;
                let identity =
                    transport::Identity::from_pem(&identity.chain_pem, &identity.key_pem);
                let tls = ClientTlsConfig::new()
                    .ca_certificate(transport::Certificate::from_pem(&ca.pem))
                    .identity(identity)
                    .timeout(HANDSHAKE_TIMEOUT);
                let endpoint = Endpoint::from(uri.clone()).tls_config(tls);
                vec![endpoint.expect("the files were read before")]
            }
        };
        let kept_alive = |endpoint: Endpoint| {
            endpoint
                .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
        };
        endpoints.into_iter().map(kept_alive).collect()
    }

    /// Connects to the first address that answers, among all addresses of all hosts.
    pub async fn connect(&self) -> Result<AuthChannel, ConnectError> {
        let to_host = |endpoint: Endpoint| async move {
            let to_address = |address| {
                let endpoint = endpoint.clone();
                async move {
                    let connector =
                        service_fn(move |_| async move { tcp(address).await.map(TokioIo::new) });
                    Ok(endpoint.connect_with_connector(connector).await?)
                }
            };
            first_address(endpoint.uri(), to_address).await
        };
        let channel = first_success(self.endpoints(), to_host).await?;
        Ok(self.authenticate(channel))
    }

    /// Returns the token to send with every call.
    pub fn credentials(&self) -> Credentials {
        Credentials(match self {
            Self::Plain(_) | Self::MutualTls(_) => None,
            Self::Token(join) => {
                let mut bearer: MetadataValue<Ascii> = format!("Bearer {}", join.token().expose())
                    .parse()
                    .expect("letters, digits, '-' and '_' make a header");
                bearer.set_sensitive(true);
                Some(bearer)
            }
        })
    }

    /// Adds the credentials to a channel.
    pub fn authenticate(&self, channel: Channel) -> AuthChannel {
        InterceptedService::new(channel, self.credentials())
    }

    /// Connects again to learn whether and why the server rejects the certificate.
    ///
    /// When a call fails, the operating system may discard the server's alert together with the
    /// connection, because the client is still writing. This connection only reads.
    pub async fn rejection_reason(&self) -> Option<&'static str> {
        let Self::MutualTls(tls) = self else {
            return None;
        };
        let refused = timeout(HANDSHAKE_TIMEOUT, probe(tls)).await.ok()?;
        explain_tls(&refused.err()?)
    }
}

/// Formats the address without the token.
impl fmt::Display for CoordinatorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = match self {
            Self::Token(join) => return f.write_str(&join.addresses().join(", ")),
            Self::Plain(uri) => uri,
            Self::MutualTls(tls) => &tls.uri,
        };
        f.write_str(uri.to_string().trim_end_matches('/'))
    }
}

impl fmt::Debug for CoordinatorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoordinatorEndpoint({self})")
    }
}

/// An interceptor that adds a token to calls.
#[derive(Clone)]
pub struct Credentials(Option<MetadataValue<Ascii>>);

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.0 {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        Ok(request)
    }
}

/// Parses a coordinator's URL; returns whether its scheme is `https`.
fn read_url(url: &str) -> Result<(Uri, bool), BadAddress> {
    let form = || BadAddress::Form(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| form())?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(form()),
    };
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let has_port = uri.port_u16().is_some_and(|port| port != 0);
    if !has_host || !has_port || uri.path() != "/" || uri.query().is_some() {
        return Err(form());
    }
    Ok((uri, tls))
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Connects and waits for the server to send something.
/// With TLS 1.3, the server can reject a client's certificate only after the handshake.
async fn probe(MutualTls { uri, ca, identity }: &MutualTls) -> io::Result<()> {
    let name = ServerName::try_from(host_of(uri).to_owned()).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(ca.roots())
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    let tcp = dial(uri).await.map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await?;
    stream.read_u8().await.map(drop)
}

/// Returns the error of the operating system among the causes of a failed call or connection.
pub fn io_error<'a>(mut cause: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    loop {
        match cause.downcast_ref::<io::Error>() {
            // Invalid data from the server is not an error of the operating system.
            Some(error) if error.kind() == io::ErrorKind::InvalidData => return None,
            Some(error) => return Some(error),
            None => cause = cause.source()?,
        }
    }
}

/// Formats an error of the system with advice.
pub fn explain_io(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        // The text of rustls is for programmers.
        return "the connection was closed".to_owned();
    }
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            ": nothing listens there; is the coordinator running, and is this its --listen address?"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
            ": check the address, and whether a firewall is in between"
        }
        // A failed name lookup has no specific kind.
        _ if error.to_string().contains("lookup address") => {
            ": unknown host; check the name, or give the address"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

/// Explains a failed handshake, if the error or one of its causes is a TLS error.
pub fn explain_tls(error: &(dyn Error + 'static)) -> Option<&'static str> {
    /// The prefix of rustls' errors for received alerts.
    const ALERT: &str = "received fatal alert: ";
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(tls) = inner.or_else(|| error.downcast_ref()) {
            return Some(explain(tls));
        }
        // HTTP/2 reports a connection's error only as text.
        if let Some((_, alert)) = error.to_string().split_once(ALERT) {
            let alert = match alert {
                _ if alert.starts_with("UnknownCA") => Alert::UnknownCA,
                _ if alert.starts_with("CertificateExpired") => Alert::CertificateExpired,
                _ => Alert::BadCertificate,
            };
            return Some(explain(&rustls::Error::AlertReceived(alert)));
        }
        cause = error.source();
    }
    None
}

fn explain(error: &rustls::Error) -> &'static str {
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(
            Bad::UnknownIssuer
            | Bad::BadSignature
            | Bad::NotValidForName
            | Bad::NotValidForNameContext { .. },
        ) => {
            "this coordinator is not the one that the join string names (or --tls-ca and the URL's host): \
             it has another or a new data directory, or another program answers in its place; use the \
             join string that the coordinator has now"
        }
        rustls::Error::InvalidCertificate(
            Bad::Expired
            | Bad::ExpiredContext { .. }
            | Bad::NotValidYet
            | Bad::NotValidYetContext { .. },
        ) => {
            "the coordinator's certificate is not valid now: set this machine's clock or the \
             coordinator's, or renew the certificate"
        }
        rustls::Error::InvalidMessage(_) => {
            "the server does not speak TLS: it is an --insecure coordinator or another program; an \
             --insecure one needs --coordinator http://HOST:PORT --insecure"
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA | Alert::BadCertificate | Alert::DecryptError,
        ) => {
            "the coordinator rejected the certificate of --tls-cert: it is not signed by an authority \
             of the coordinator's --client-ca"
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            "the coordinator rejected the certificate of --tls-cert: it is not valid now; renew it, or \
             set the clocks"
        }
        _ => "the TLS handshake failed: check that the server is a coordinator of this release",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_beyond_loopback_requires_insecure() {
        for url in [
            "http://127.0.0.1:7171",
            "http://localhost:7171",
            "http://LOCALHOST:1",
            "http://[::1]:7171",
            "http://127.9.9.9:7171/",
        ] {
            assert!(!CoordinatorEndpoint::plain(url, false).unwrap().is_unprotected());
        }
        for url in ["http://10.0.0.7:7171", "http://node7:7171", "http://[fe80::1]:7171"] {
            let error = CoordinatorEndpoint::plain(url, false).unwrap_err();
            assert!(matches!(error, BadAddress::Plaintext(_)), "{error}");
            assert!(error.to_string().contains("--insecure"), "{error}");
            let open = CoordinatorEndpoint::plain(url, true).unwrap();
            assert_eq!(open.to_string(), url);
            assert!(open.is_unprotected());
        }
        let error = CoordinatorEndpoint::plain("https://127.0.0.1:7171", true).unwrap_err();
        assert!(error.to_string().contains("TLS"), "{error}");
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for url in [
            "",
            "127.0.0.1:7171",
            "localhost",
            "http://",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "ftp://127.0.0.1:7171",
            "http://127.0.0.1:7171/path",
            "http://127.0.0.1:7171?x=1",
            "one two",
        ] {
            let error = CoordinatorEndpoint::plain(url, true).unwrap_err();
            assert!(matches!(error, BadAddress::Form(_)), "{error}");
        }
    }
}
