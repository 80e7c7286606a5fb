//! Certificates: pinned by join strings, or in files of an external authority.

use std::{fmt, fs, io, path::Path, sync::Arc, time::SystemTime};

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{DateTime, Decode as _},
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// The name in every certificate of a coordinator's own authority.
///
/// Clients with a join string expect it whatever address they dial: the authority signs only its
/// coordinator, so a forwarded port or another DNS name needs no new certificate.
pub const SERVER_NAME: &str = "coordinator.queens.internal";

/// SHA-256 of a certificate authority's certificate (DER).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CaHash(pub [u8; 32]);

impl CaHash {
    /// Hashes a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", common::messages::hex::display(&self.0))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaHash({self})")
    }
}

/// Installs the process's cryptography provider; call this first in `main`.
pub fn install_crypto() {
    // A second call fails: the same provider is already installed.
    let _ = ring::default_provider().install_default();
}

/// A verifier that accepts only the authority with one hash, for the expected name.
#[derive(Debug)]
pub struct PinnedCa {
    ca: CaHash,
    provider: Arc<CryptoProvider>,
}

impl PinnedCa {
    pub fn new(ca: CaHash) -> Arc<Self> {
        Arc::new(Self { ca, provider: Arc::new(ring::default_provider()) })
    }
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = |ca: &&CertificateDer<'_>| CaHash::of(ca) == self.ca;
        let Some(ca) = intermediates.iter().find(pinned) else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A file given with an option.
#[derive(Clone, Copy, Debug)]
pub struct TlsFile<'a> {
    pub option: &'static str,
    pub path: &'a Path,
}

impl fmt::Display for TlsFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.option, self.path.display())
    }
}

/// A certificate or key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTlsFile {
    #[error("{file}: {why}")]
    Unreadable { file: String, why: io::Error },
    #[error("{file} contains no {what} in PEM form{hint}")]
    Form { file: String, what: &'static str, hint: &'static str },
    #[error(
        "{file}: the certificate is not valid now ({now}); it is valid from {from} to {until}: renew \
         it, or set the clock"
    )]
    Date { file: String, from: String, until: String, now: String },
    #[error("{key} is not the key of the certificate in {certificate}: give a matching pair")]
    Mismatch { certificate: String, key: String },
}

/// A certificate with its chain and key.
#[derive(Clone)]
pub struct Identity {
    pub(super) chain_pem: String,
    pub(super) key_pem: String,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Reads a certificate that is valid now, and its key; fails if they do not match.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, BadTlsFile> {
        let certificate = TlsFile { option: "--tls-cert", path: certificate };
        let key = TlsFile { option: "--tls-key", path: key };
        let chain_pem = read(certificate)?;
        let chain = certificates(certificate, &chain_pem)?;
        let key_pem = read(key)?;
        let not_a_key =
            |hint| BadTlsFile::Form { file: key.to_string(), what: "private key", hint };
        let private = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|_| not_a_key(" (an encrypted key has to be decrypted first)"))?;
        check_date(certificate, &chain[0])?;
        let certified =
            CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| {
                use rustls::{Error, InconsistentKeys};
                match error {
                    Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                        BadTlsFile::Mismatch {
                            certificate: certificate.to_string(),
                            key: key.to_string(),
                        }
                    }
                    _ => not_a_key(" of a supported kind (ECDSA P-256 or P-384, Ed25519, RSA)"),
                }
            })?;
        Ok(Self { chain_pem, key_pem, certified: Arc::new(certified) })
    }

    pub fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

/// Certificates of authorities.
#[derive(Clone)]
pub struct TrustedCa {
    pub(super) pem: String,
    certificates: Vec<CertificateDer<'static>>,
}

impl TrustedCa {
    /// Reads a file of one or more certificates.
    pub fn read(file: TlsFile<'_>) -> Result<Self, BadTlsFile> {
        let pem = read(file)?;
        let certificates = certificates(file, &pem)?;
        for certificate in &certificates {
            check_date(file, certificate)?;
        }
        let trusted = Self { pem, certificates };
        if trusted.roots().is_empty() {
            return Err(no_certificate(file, "certificate of an authority"));
        }
        Ok(trusted)
    }

    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().cloned());
        roots
    }
}

fn read(file: TlsFile<'_>) -> Result<String, BadTlsFile> {
    fs::read_to_string(file.path)
        .map_err(|why| BadTlsFile::Unreadable { file: file.to_string(), why })
}

/// Parses the certificates of a file, at least one.
fn certificates(file: TlsFile<'_>, pem: &str) -> Result<Vec<CertificateDer<'static>>, BadTlsFile> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(no_certificate(file, "certificate")),
    }
}

fn no_certificate(file: TlsFile<'_>, what: &'static str) -> BadTlsFile {
    BadTlsFile::Form { file: file.to_string(), what, hint: "" }
}

fn check_date(file: TlsFile<'_>, certificate: &CertificateDer<'_>) -> Result<(), BadTlsFile> {
    let parsed = CertificateInner::<Raw>::from_der(certificate)
        .map_err(|_| no_certificate(file, "certificate"))?;
    let validity = parsed.tbs_certificate().validity();
    let (from, until) = (validity.not_before, validity.not_after);
    let now = SystemTime::now();
    if (from.to_system_time()..=until.to_system_time()).contains(&now) {
        return Ok(());
    }
    Err(BadTlsFile::Date {
        file: file.to_string(),
        from: from.to_string(),
        until: until.to_string(),
        now: DateTime::from_system_time(now)
            .map_or_else(|_| "a time outside of 1970 to 9999".to_owned(), |now| now.to_string()),
    })
}

/// Returns the DNS names and URIs of a certificate (subject alternative names).
/// A malformed certificate has none.
pub fn names_of(certificate: &[u8]) -> Vec<String> {
    let Ok(parsed) = CertificateInner::<Raw>::from_der(certificate) else {
        return Vec::new();
    };
    let names = parsed.tbs_certificate().get_extension::<SubjectAltName>();
    let Ok(Some((_, SubjectAltName(names)))) = names else {
        return Vec::new();
    };
    let name = |name| match name {
        GeneralName::DnsName(text) | GeneralName::UniformResourceIdentifier(text) => {
            Some(text.to_string())
        }
        _ => None,
    };
    names.into_iter().filter_map(name).collect()
}
