//! An authority as a laboratory may run one: it signs for servers, workers and people.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

/// An authority, and the folder that it writes into.
pub struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate's file and its key's.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate's.
    pub certificate: PathBuf,
    /// The key's.
    pub key: PathBuf,
}

impl Pki {
    /// A new authority, whose certificate is `ca.pem` in the folder.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.join("ca.pem"), certificate.pem()).expect("a file");
        Self {
            folder: folder.to_owned(),
            issuer: Issuer::new(params, key),
        }
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A server's certificate for these names and addresses.
    pub fn server(&self, names: &[&str]) -> Files {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("server", params)
    }

    /// A caller's certificate with this URI in it, good from so many days ago for so long.
    pub fn caller(&self, file: &str, uri: &str, days: std::ops::Range<i64>) -> Files {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("ASCII"))];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = OffsetDateTime::now_utc();
        params.not_before = now + Duration::days(days.start);
        params.not_after = now + Duration::days(days.end);
        self.sign(file, params)
    }

    fn sign(&self, file: &str, params: CertificateParams) -> Files {
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = Files {
            certificate: self.folder.join(format!("{file}.pem")),
            key: self.folder.join(format!("{file}.key")),
        };
        fs::write(&files.certificate, signed.pem()).expect("a file");
        fs::write(&files.key, key.serialize_pem()).expect("a file");
        files
    }
}
