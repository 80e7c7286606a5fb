//! A connection that trusts one private certificate authority, known by its hash alone.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// The name that every certificate of a coordinator's own authority bears. Clients of a join string
/// ask for it whatever address they dial: the authority signs nothing but its coordinator, so a
/// forwarded port, a second interface or another DNS name needs no new certificate.
pub const SERVER_NAME: &str = "coordinator.queens.internal";

/// SHA-256 of a certificate authority's certificate (DER).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CaHash(pub [u8; 32]);

impl CaHash {
    /// The hash of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaHash({self})")
    }
}

/// Chooses the cryptography of the whole program, once; to be called first in `main`.
pub fn install_crypto() {
    // A second call finds the same provider there.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Accepts a server whose chain ends in the authority of one hash, and whose certificate that
/// authority signed for the name asked for, in date.
#[derive(Debug)]
pub struct PinnedCa {
    ca: CaHash,
    provider: Arc<CryptoProvider>,
}

impl PinnedCa {
    /// A verifier for servers of this authority.
    pub fn new(ca: CaHash) -> Arc<Self> {
        Arc::new(Self {
            ca,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        })
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
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
