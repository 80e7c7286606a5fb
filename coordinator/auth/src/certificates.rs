//! Certificates of the coordinator's own authority and of external ones.

use std::{
    fmt::Display,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, UNIX_EPOCH},
};

use common::text::{Escaped, is_name};
use proto::connect::{BadTlsFile, CaHash, Identity, SERVER_NAME, TlsFile, TrustedCa, names_of};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring::{self, sign::any_supported_type},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{
            ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
            danger::ClientCertVerifier,
        },
        sign::CertifiedKey,
    },
};

use crate::{AuthError, Role, Subject};

/// Tolerance for slow clocks: certificates are valid from this long before now.
const BACKDATED: Duration = Duration::from_hours(2 * 24);

/// The lifetime of an authority, longer than any run.
const AUTHORITY_LIFETIME: Duration = Duration::from_hours(20 * 365 * 24);

/// The lifetime of a server certificate; see [`RENEW_INTERVAL`].
const CERTIFICATE_LIFETIME: Duration = Duration::from_hours(90 * 24);

/// About the year 9900, before which clocks are believed.
const LAST_DATE: Duration = Duration::from_hours(7_930 * 365 * 24);

/// The interval after which a serving coordinator renews its own certificate.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_hours(30 * 24);

/// The interval between reads of PKI files; also the pause after a failed renewal.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("not a certificate authority of this program: {0}")]
    Damaged(String),
    #[error("cannot create a certificate: {0}")]
    Create(#[from] rcgen::Error),
    #[error("cannot use a certificate: {0}")]
    Use(#[from] rustls::Error),
}

/// The coordinator's own certificate authority.
pub struct Authority {
    key: KeyPair,
    certificate_pem: String,
    certificate: CertificateDer<'static>,
}

impl Authority {
    /// Creates an authority with a new key.
    pub fn create(now_unix_ms: u64) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params(now_unix_ms).self_signed(&key)?;
        Ok(Self { certificate_pem: certificate.pem(), certificate: certificate.der().clone(), key })
    }

    /// Loads the authority of [`Self::key_pem`] and [`Self::certificate_pem`].
    pub fn load(key_pem: &str, certificate_pem: &str) -> Result<Self, CertificateError> {
        let damaged = |why: &dyn Display| CertificateError::Damaged(why.to_string());
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| damaged(&error))?;
        Ok(Self {
            key: KeyPair::from_pem(key_pem).map_err(|error| damaged(&error))?,
            certificate_pem: certificate_pem.to_owned(),
            certificate,
        })
    }

    /// Returns the private key, a secret.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns the hash by which join strings identify the authority.
    pub fn hash(&self) -> CaHash {
        CaHash::of(&self.certificate)
    }

    /// Issues a server certificate for these names and addresses, with its chain.
    pub fn certify(
        &self,
        names: &[String],
        now_unix_ms: u64,
    ) -> Result<Arc<CertifiedKey>, CertificateError> {
        let mut alt_names = vec![SERVER_NAME.to_owned()];
        alt_names.extend_from_slice(names);
        let mut params = CertificateParams::new(alt_names)?;
        params.distinguished_name.push(DnType::CommonName, "queens coordinator");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now_unix_ms, CERTIFICATE_LIFETIME);
        let key = KeyPair::generate()?;
        // A signature depends only on the issuer's name and key.
        let issuer = Issuer::new(authority_params(now_unix_ms), &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| CertificateError::Damaged(error.to_owned()))?;
        Ok(Arc::new(CertifiedKey::new(
            vec![certificate.der().clone(), self.certificate.clone()],
            any_supported_type(&private)?,
        )))
    }
}

fn authority_params(now_unix_ms: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "queens coordinator's own authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now_unix_ms, AUTHORITY_LIFETIME);
    params
}

fn set_validity(params: &mut CertificateParams, now_unix_ms: u64, lifetime: Duration) {
    // A certificate cannot name a year after 9999. With such a clock, it is dated 1970 and clients reject it.
    let now = Duration::from_millis(now_unix_ms);
    let now = if now < LAST_DATE { UNIX_EPOCH + now } else { UNIX_EPOCH };
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + lifetime).into();
}

/// The certificate that handshakes present, until a newer one replaces it.
#[derive(Debug)]
pub(crate) struct ServerCertificate {
    state: Mutex<Renewable>,
    interval: Duration,
}

#[derive(Debug)]
struct Renewable {
    key: Arc<CertifiedKey>,
    due: Instant,
}

impl ServerCertificate {
    pub(crate) fn new(key: Arc<CertifiedKey>, interval: Duration) -> Arc<Self> {
        let due = Instant::now() + interval;
        Arc::new(Self { state: Mutex::new(Renewable { key, due }), interval })
    }

    /// Renews the certificate if it is due; keeps the old one after a failure.
    pub(crate) fn renew_if_due<E: Display>(
        &self,
        issue: impl FnOnce() -> Result<Arc<CertifiedKey>, E>,
    ) {
        {
            let mut state = self.state();
            if Instant::now() < state.due {
                return;
            }
            state.due = Instant::now() + RELOAD_INTERVAL;
        }
        match issue() {
            Ok(key) => {
                let mut state = self.state();
                if state.key.cert != key.cert {
                    tracing::info!("the server certificate was renewed");
                }
                *state = Renewable { key, due: Instant::now() + self.interval };
            }
            Err(error) => tracing::warn!("cannot renew the server certificate: {error}"),
        }
    }

    fn state(&self) -> MutexGuard<'_, Renewable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an acceptor with this certificate that verifies clients with `verifier`.
    pub(crate) fn acceptor(self: &Arc<Self>, verifier: Arc<dyn ClientCertVerifier>) -> TlsAcceptor {
        let mut config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.clone());
        // gRPC is HTTP/2; browsers and JSON clients may use either.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.state().key.clone())
    }
}

/// The files of `--tls-cert`, `--tls-key` and `--client-ca`.
#[derive(Clone, Debug)]
pub struct PkiFiles {
    /// The server's certificate with its chain.
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error(transparent)]
    File(#[from] BadTlsFile),
    #[error("--client-ca: {0}")]
    ClientCa(#[from] VerifierBuilderError),
}

/// Mutual TLS with certificates of an external authority.
pub struct Pki {
    files: PkiFiles,
    certificate: Arc<ServerCertificate>,
    acceptor: TlsAcceptor,
}

impl Pki {
    /// Reads the files.
    pub fn open(files: PkiFiles) -> Result<Self, PkiError> {
        let client_ca = TrustedCa::read(TlsFile { option: "--client-ca", path: &files.client_ca })?;
        let provider = Arc::new(ring::default_provider());
        // Clients without a certificate are refused by the authenticator, with a readable reason.
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(client_ca.roots()), provider)
                .allow_unauthenticated()
                .build()?;
        let certificate = ServerCertificate::new(read_key(&files)?, RELOAD_INTERVAL);
        Ok(Self { acceptor: certificate.acceptor(verifier), certificate, files })
    }

    /// Returns the TLS acceptor, after rereading the certificate's files if due.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.certificate.renew_if_due(|| read_key(&self.files));
        self.acceptor.clone()
    }
}

fn read_key(files: &PkiFiles) -> Result<Arc<CertifiedKey>, BadTlsFile> {
    Identity::read(&files.certificate, &files.key).map(|identity| identity.certified())
}

/// Returns the holder of a certificate whose chain and dates were verified.
pub(crate) fn holder(certificate: &CertificateDer<'_>) -> Result<Subject, AuthError> {
    let names = names_of(certificate);
    let mut holders: Vec<_> = names.iter().filter_map(|name| parse_holder(name)).collect();
    holders.dedup();
    match holders.as_slice() {
        [(role, name)] => Ok(Subject::Certificate { name: (*name).into(), role: *role }),
        _ => Err(AuthError::NoRole(Escaped(&names.join(", ")).to_string())),
    }
}

/// Parses a subject alternative name into role and name.
/// It is a URI whose path ends in `queens/ROLE/NAME`, or a DNS name that begins with `NAME.ROLE.queens`.
fn parse_holder(text: &str) -> Option<(Role, &str)> {
    let (role, name) = match text.split_once("://") {
        Some((_, rest)) => {
            let mut parts = rest.rsplit('/');
            let (name, role, queens) = (parts.next()?, parts.next()?, parts.next()?);
            // The first part is the host.
            (queens == "queens" && parts.next().is_some()).then_some((role, name))?
        }
        None => {
            let mut parts = text.split('.');
            let (name, role, queens) = (parts.next()?, parts.next()?, parts.next()?);
            (queens == "queens").then_some((role, name))?
        }
    };
    Some((role.parse().ok().filter(|_| is_name(name))?, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenAuth;

    #[test]
    fn only_well_formed_names_give_a_role() {
        for (text, expected) in [
            ("spiffe://lab.example/queens/worker/lab-a", Some((Role::Worker, "lab-a"))),
            ("https://pki.example/x/queens/operator/anna", Some((Role::Operator, "anna"))),
            ("lab-a.worker.queens.lab.example", Some((Role::Worker, "lab-a"))),
            ("screen.viewer.queens", Some((Role::Viewer, "screen"))),
            ("queens://worker/lab-a", None),
            ("spiffe://queens/worker/lab-a", None),
            ("spiffe://lab.example/queens/root/lab-a", None),
            ("spiffe://lab.example/queens/worker/", None),
            ("spiffe://lab.example/queens/worker/a b", None),
            ("spiffe://lab.example/queens/worker/a/b", None),
            ("lab-a.worker.kings.example", None),
            ("worker.queens", None),
            ("lab-a.worker.queensland.example", None),
            ("*.worker.queens.lab.example", None),
            ("", None),
        ] {
            assert_eq!(parse_holder(text), expected, "{text}");
        }
        let long = format!("{}.worker.queens", "x".repeat(65));
        assert_eq!(parse_holder(&long), None);
    }

    #[test]
    fn a_due_certificate_is_renewed_and_stays_after_a_failure() {
        proto::connect::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key, client_ca] =
            ["server.pem", "server.key", "ca.pem"].map(|name| dir.path().join(name));
        let files = PkiFiles { certificate, key, client_ca };
        let write = || {
            let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
            std::fs::write(&files.certificate, issued.cert.pem()).unwrap();
            std::fs::write(&files.key, issued.signing_key.serialize_pem()).unwrap();
            std::fs::write(&files.client_ca, issued.cert.pem()).unwrap();
        };
        write();
        let pki = Pki::open(files.clone()).unwrap();
        let secrets = store::SecretStore::of_directory(dir.path());
        let addresses = vec!["lab:1".to_owned()];
        let tokens = TokenAuth::open(secrets, addresses, store::Clock::start()).unwrap();
        let renewals: [(_, &dyn Fn() -> TlsAcceptor); 2] =
            [(&pki.certificate, &|| pki.acceptor()), (&tokens.certificate, &|| tokens.acceptor())];
        for (certificate, accept) in renewals {
            let chain = || certificate.state().key.cert.clone();
            let expire = || certificate.state().due = Instant::now();
            let first = chain();
            write();
            accept();
            assert_eq!(chain(), first, "not due yet");
            expire();
            accept();
            let second = chain();
            assert_ne!(second[0], first[0]);
            assert_eq!(second[1..], first[1..], "of the same authority");
            std::fs::write(&files.key, "half a key").unwrap();
            expire();
            certificate.renew_if_due(|| read_key(&files));
            assert_eq!(chain(), second);
        }
    }
}
