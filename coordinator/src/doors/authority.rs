//! A private certificate authority, and the server certificates that it signs.

use std::sync::Arc;

use proto::door::{CaHash, SERVER_NAME};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

/// Clocks of a lab differ: a certificate is good this long before it is made.
const BACKDATED: Duration = Duration::days(2);

/// An authority outlives any run; its key never leaves the data directory.
const AUTHORITY_LIFETIME: Duration = Duration::days(20 * 365);

/// How long a server certificate is good; it is made anew at every start and every
/// [`RENEW_AFTER`].
const CERTIFICATE_LIFETIME: Duration = Duration::days(90);

/// After this long a serving coordinator makes itself a new certificate.
pub(super) const RENEW_AFTER: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The kept key or certificate is none.
    #[error("it holds no certificate authority of this program: {0}")]
    Damaged(String),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The cryptography refuses a key.
    #[error("cannot use a certificate: {0}")]
    Use(#[from] tokio_rustls::rustls::Error),
}

/// The authority of one data directory.
pub struct Authority {
    key: KeyPair,
    certificate_pem: String,
    certificate: CertificateDer<'static>,
}

impl Authority {
    /// A new authority.
    pub fn create(now_unix_ms: u64) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params(now_unix_ms).self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key,
        })
    }

    /// The authority of [`Self::key_pem`] and [`Self::certificate_pem`].
    pub fn load(key_pem: &str, certificate_pem: &str) -> Result<Self, AuthorityError> {
        let damaged = |why: String| AuthorityError::Damaged(why);
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| damaged(error.to_string()))?;
        Ok(Self {
            key: KeyPair::from_pem(key_pem).map_err(|error| damaged(error.to_string()))?,
            certificate_pem: certificate_pem.to_owned(),
            certificate,
        })
    }

    /// Its private key, a secret.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Its certificate, which anybody may have (`grpcurl -cacert`).
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// What join strings name it by.
    pub fn hash(&self) -> CaHash {
        CaHash::of(&self.certificate)
    }

    /// A new server certificate for these names and addresses, with the chain that a client of a
    /// join string looks through.
    pub fn serve_as(
        &self,
        names: &[String],
        now_unix_ms: u64,
    ) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let mut all = vec![SERVER_NAME.to_owned()];
        all.extend_from_slice(names);
        let mut params = CertificateParams::new(all)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "queens coordinator");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = validity(now_unix_ms, CERTIFICATE_LIFETIME);
        let key = KeyPair::generate()?;
        // The issuer's name and key are all that a signature takes of its parameters.
        let issuer = Issuer::new(authority_params(now_unix_ms), &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| AuthorityError::Damaged(error.to_owned()))?;
        Ok(Arc::new(CertifiedKey::new(
            vec![certificate.der().clone(), self.certificate.clone()],
            any_supported_type(&private)?,
        )))
    }
}

fn authority_params(now_unix_ms: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "queens coordinator's own authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = validity(now_unix_ms, AUTHORITY_LIFETIME);
    params
}

fn validity(now_unix_ms: u64, lifetime: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let seconds = i64::try_from(now_unix_ms / 1000).unwrap_or(0);
    // A clock so wrong that the calendar ends makes certificates of 1970, which clients refuse.
    let now = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    (now - BACKDATED, now + lifetime)
}
