//! From an address or a join string to a connection.

use std::{error::Error, fmt, time::Duration};

use tokio_rustls::rustls::{self, AlertDescription as Alert, CertificateError};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{self, Channel, ClientTlsConfig, Endpoint, Uri},
};

use super::{Identity, JoinString, PinnedCa, SERVER_NAME, TrustedCa};

/// How long a TLS handshake may take.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A channel that sends its caller's token with every call.
pub type Door = InterceptedService<Channel, Credentials>;

/// How a client reaches its coordinator.
#[derive(Clone, PartialEq, Eq)]
pub enum Way {
    /// Plain text, on this machine or through a network that its user trusts.
    Plain(Uri),
    /// TLS to a coordinator known by its authority's hash, with a token.
    Joined(JoinString),
    /// TLS to a coordinator whose certificate, for the URL's host, another authority signed; the
    /// caller shows a certificate too.
    Certified(Box<Certified>),
}

/// How the holder of a certificate reaches its coordinator.
#[derive(Clone, PartialEq, Eq)]
pub struct Certified {
    /// `https://HOST:PORT`.
    pub uri: Uri,
    /// Whom the coordinator's certificate is by.
    pub ca: TrustedCa,
    /// What the caller shows.
    pub identity: Identity,
}

impl Way {
    /// The endpoints to try, in order; each is the same coordinator by another address.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        match self {
            Self::Plain(uri) => vec![Endpoint::from(uri.clone())],
            Self::Joined(join) => {
                let secured = |address: &String| {
                    let tls = ClientTlsConfig::new()
                        .domain_name(SERVER_NAME)
                        .timeout(HANDSHAKE_TIMEOUT);
                    Endpoint::from_shared(format!("https://{address}"))
                        .expect("a join string's addresses make URLs")
                        .tls_config_with_verifier(tls, PinnedCa::new(join.ca()))
                        .expect("the name asked for is a DNS name")
                };
                join.addresses().iter().map(secured).collect()
            }
            Self::Certified(certified) => {
                let Certified { uri, ca, identity } = &**certified;
                let shown = transport::Identity::from_pem(&identity.chain_pem, &identity.key_pem);
                let tls = ClientTlsConfig::new()
                    .ca_certificate(transport::Certificate::from_pem(&ca.pem))
                    .identity(shown)
                    .timeout(HANDSHAKE_TIMEOUT);
                let endpoint = Endpoint::from(uri.clone()).tls_config(tls);
                vec![endpoint.expect("the files were read before")]
            }
        }
    }

    /// What to send with every call.
    pub fn credentials(&self) -> Credentials {
        Credentials(match self {
            Self::Plain(_) | Self::Certified(_) => None,
            Self::Joined(join) => {
                let mut bearer: MetadataValue<Ascii> = format!("Bearer {}", join.token().expose())
                    .parse()
                    .expect("letters, digits, '-' and '_' make a header");
                bearer.set_sensitive(true);
                Some(bearer)
            }
        })
    }

    /// The channel with the credentials.
    pub fn door(&self, channel: Channel) -> Door {
        InterceptedService::new(channel, self.credentials())
    }
}

/// For people: the address, never the token.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without the path "/", which people did not write.
            Self::Plain(uri) => f.write_str(uri.to_string().trim_end_matches('/')),
            Self::Joined(join) => f.write_str(&join.addresses().join(", ")),
            Self::Certified(certified) => {
                f.write_str(certified.uri.to_string().trim_end_matches('/'))
            }
        }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Way({self})")
    }
}

/// Adds a token to calls.
#[derive(Clone)]
pub struct Credentials(Option<MetadataValue<Ascii>>);

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", bearer.clone());
        }
        Ok(request)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// What a failed handshake means and what to do, where the causes of an error name one.
pub fn explain_tls(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(tls) = inner.or_else(|| error.downcast_ref()) {
            return Some(explained(tls));
        }
        // HTTP/2 keeps an error of the connection as text.
        if let Some((_, alert)) = error.to_string().split_once(ALERT) {
            return match alert {
                _ if alert.starts_with("UnknownCA") => Some(explained(&alerted(Alert::UnknownCA))),
                _ if alert.starts_with("CertificateExpired") => {
                    Some(explained(&alerted(Alert::CertificateExpired)))
                }
                _ => Some(explained(&alerted(Alert::BadCertificate))),
            };
        }
        cause = error.source();
    }
    None
}

/// How rustls begins when it was told why the other side does not go on.
const ALERT: &str = "received fatal alert: ";

fn alerted(alert: Alert) -> rustls::Error {
    rustls::Error::AlertReceived(alert)
}

fn explained(error: &rustls::Error) -> &'static str {
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(
            Bad::UnknownIssuer
            | Bad::BadSignature
            | Bad::NotValidForName
            | Bad::NotValidForNameContext { .. },
        ) => {
            "this coordinator is not the one that the join string names (or that --tls-ca and the \
             URL's host do): its data directory is another or new, or somebody answers in its place; \
             take the line that it prints at its start, from its own screen"
        }
        rustls::Error::InvalidCertificate(
            Bad::Expired
            | Bad::ExpiredContext { .. }
            | Bad::NotValidYet
            | Bad::NotValidYetContext { .. },
        ) => {
            "the coordinator's certificate is not of today: set this machine's clock, or the \
             coordinator's, or renew the certificate"
        }
        rustls::Error::InvalidMessage(_) => {
            "what answers there does not speak TLS: an old or --insecure coordinator, or another \
             program; an --insecure one wants --coordinator http://HOST:PORT --insecure"
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA | Alert::BadCertificate | Alert::DecryptError,
        ) => {
            "the coordinator refused the certificate of --tls-cert: an authority signed it that the \
             coordinator's --client-ca does not name"
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            "the coordinator refused the certificate of --tls-cert: it is not of today; renew it, or \
             set the clocks"
        }
        _ => "the TLS handshake failed: is it a coordinator of this release?",
    }
}
