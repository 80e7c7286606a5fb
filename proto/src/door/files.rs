//! Certificates and keys from files, of an authority that others run. What cannot be used is said in
//! one line, before any connection is made.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use tokio_rustls::rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{DateTime, Decode as _},
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// A file that is not what the command line says it is.
#[derive(Debug, thiserror::Error)]
pub enum BadTlsFile {
    /// It cannot be read.
    #[error("{path}: {why}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        why: io::Error,
    },
    /// It holds something else.
    #[error("{path} holds no {what} in PEM form{hint}", path = path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What to look at.
        hint: &'static str,
    },
    /// The certificate is out of date.
    #[error(
        "{path}: the certificate is good from {from} to {until}, and now is {now}: renew it, or set \
         the clock", path = path.display()
    )]
    Date {
        /// The file.
        path: PathBuf,
        /// Its first moment.
        from: String,
        /// Its last.
        until: String,
        /// This machine's clock.
        now: String,
    },
    /// The key is another certificate's.
    #[error(
        "{key} is not the key of the certificate in {certificate}: give the two that belong together",
        key = key.display(), certificate = certificate.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// A certificate with the chain to its authority, and its key.
#[derive(Clone)]
pub struct Identity {
    pub(super) chain_pem: String,
    pub(super) key_pem: String,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Reads both files, and checks that they belong together and are of today.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, BadTlsFile> {
        let chain_pem = read(certificate)?;
        let chain = certificates(certificate, &chain_pem)?;
        let key_pem = read(key)?;
        let not_a_key = |hint| BadTlsFile::Form {
            path: key.to_owned(),
            what: "private key",
            hint,
        };
        let private = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|_| not_a_key(" (an encrypted key has to be decrypted first)"))?;
        check_date(certificate, &chain[0])?;
        let provider = CryptoProvider::get_default().map_or_else(
            || Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()),
            Clone::clone,
        );
        let certified = CertifiedKey::from_der(chain, private, &provider).map_err(|error| {
            use tokio_rustls::rustls::{Error, InconsistentKeys};
            match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => BadTlsFile::Mismatch {
                    certificate: certificate.to_owned(),
                    key: key.to_owned(),
                },
                _ => not_a_key(" of a kind that is known (ECDSA P-256 or P-384, Ed25519, RSA)"),
            }
        })?;
        Ok(Self {
            chain_pem,
            key_pem,
            certified: Arc::new(certified),
        })
    }

    /// For rustls.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

/// Without the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.chain_pem == other.chain_pem && self.key_pem == other.key_pem
    }
}

impl Eq for Identity {}

/// An authority's certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustedCa {
    pub(super) pem: String,
    certificates: Vec<CertificateDer<'static>>,
}

impl TrustedCa {
    /// Reads a file of one or several certificates of authorities.
    pub fn read(path: &Path) -> Result<Self, BadTlsFile> {
        let pem = read(path)?;
        let certificates = certificates(path, &pem)?;
        for certificate in &certificates {
            check_date(path, certificate)?;
        }
        let trusted = Self { pem, certificates };
        if trusted.roots().is_empty() {
            return Err(BadTlsFile::Form {
                path: path.to_owned(),
                what: "certificate of an authority",
                hint: "",
            });
        }
        Ok(trusted)
    }

    /// For rustls.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().cloned());
        roots
    }
}

fn read(path: &Path) -> Result<String, BadTlsFile> {
    fs::read_to_string(path).map_err(|why| BadTlsFile::Unreadable {
        path: path.to_owned(),
        why,
    })
}

/// The certificates of a file, at least one.
fn certificates(path: &Path, pem: &str) -> Result<Vec<CertificateDer<'static>>, BadTlsFile> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let form = || BadTlsFile::Form {
        path: path.to_owned(),
        what: "certificate",
        hint: "",
    };
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(form()),
    }
}

fn check_date(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), BadTlsFile> {
    let parsed = CertificateInner::<Raw>::from_der(certificate).map_err(|_| BadTlsFile::Form {
        path: path.to_owned(),
        what: "certificate",
        hint: "",
    })?;
    let validity = parsed.tbs_certificate().validity();
    let (from, until) = (validity.not_before, validity.not_after);
    let now = SystemTime::now();
    if (from.to_system_time()..=until.to_system_time()).contains(&now) {
        return Ok(());
    }
    Err(BadTlsFile::Date {
        path: path.to_owned(),
        from: from.to_string(),
        until: until.to_string(),
        now: DateTime::from_system_time(now).map_or_else(
            |_| "a moment outside of 1970 to 9999".to_owned(),
            |now| now.to_string(),
        ),
    })
}

/// What a certificate calls its holder: DNS names and URIs among its subject's alternative names.
/// Nothing of bytes that are no certificate.
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
