//! Certificates of an authority that others run, on both sides: who a caller is, is a name in the
//! certificate that it shows.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use proto::door::{BadTlsFile, Identity, TrustedCa, names_of};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::CryptoProvider,
        pki_types::CertificateDer,
        server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier},
        sign::CertifiedKey,
    },
};

use super::{Denied, Principal, Role};

/// Between two looks at the server's files: an authority of our days renews them daily.
const LOOK_AFTER: Duration = Duration::from_secs(60);

/// The most bytes of a caller's name, which stands in every record.
const MOST_NAME_BYTES: usize = 64;

/// The files of `--tls-cert`, `--tls-key` and `--client-ca`.
#[derive(Clone, Debug)]
pub struct PkiFiles {
    /// The server's certificate, with the chain to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs callers' certificates.
    pub client_ca: PathBuf,
}

/// Why the files do not make a door.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// One of them.
    #[error(transparent)]
    File(#[from] BadTlsFile),
    /// The authority of callers.
    #[error("--client-ca: {0}")]
    ClientCa(#[from] VerifierBuilderError),
}

/// A door whose certificates others make.
pub struct Pki {
    certificate: Arc<Renewed>,
    acceptor: TlsAcceptor,
}

impl Pki {
    /// Reads the files.
    pub fn open(files: PkiFiles) -> Result<Self, PkiError> {
        let client_ca = TrustedCa::read(&files.client_ca)?;
        let identity = Identity::read(&files.certificate, &files.key)?;
        let provider = CryptoProvider::get_default().map_or_else(
            || Arc::new(rustls::crypto::ring::default_provider()),
            Clone::clone,
        );
        // Callers without a certificate come as far as the gate, which says what is asked of them;
        // those with another authority's do not.
        let callers =
            WebPkiClientVerifier::builder_with_provider(Arc::new(client_ca.roots()), provider)
                .allow_unauthenticated()
                .build()?;
        let certificate = Arc::new(Renewed {
            files,
            now: Mutex::new((Instant::now(), identity)),
        });
        let mut config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_client_cert_verifier(callers)
            .with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            certificate,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// What shakes hands with clients; reads its files again when it is time.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.certificate.renew_after(LOOK_AFTER);
        self.acceptor.clone()
    }
}

/// The server's certificate as its files were when they were last good.
#[derive(Debug)]
struct Renewed {
    files: PkiFiles,
    now: Mutex<(Instant, Identity)>,
}

impl Renewed {
    /// Reads the files, if the last time was so long ago.
    fn renew_after(&self, age: Duration) {
        {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            if now.0.elapsed() < age {
                return;
            }
            now.0 = Instant::now();
        }
        match Identity::read(&self.files.certificate, &self.files.key) {
            Ok(read) => {
                let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
                if now.1 != read {
                    tracing::info!("the server's certificate was renewed");
                    now.1 = read;
                }
            }
            Err(error) => tracing::warn!("the server's certificate stays as it was: {error}"),
        }
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        Some(now.1.certified())
    }
}

/// Whose certificate it is; its chain and its dates were checked before.
pub(super) fn holder(certificate: &CertificateDer<'_>) -> Result<Principal, Denied> {
    let names = names_of(certificate);
    let mut holders: Vec<_> = names.iter().filter_map(|name| named(name)).collect();
    holders.dedup();
    match holders.as_slice() {
        [(role, name)] => Ok(Principal::Certificate {
            name: (*name).into(),
            role: *role,
        }),
        _ => Err(Denied::Nameless(names.join(", "))),
    }
}

/// The role and the name that one alternative name of a certificate stands for: a URI whose path
/// ends in `queens/ROLE/NAME`, or a DNS name that begins with `NAME.ROLE.queens`, followed by a dot
/// or nothing. Any other name says nothing.
pub(super) fn named(text: &str) -> Option<(Role, &str)> {
    let (role, name) = match text.split_once("://") {
        Some((_, rest)) => {
            let mut parts = rest.rsplit('/');
            let (name, role, queens) = (parts.next()?, parts.next()?, parts.next()?);
            // The first part is the host's.
            (queens == "queens" && parts.next().is_some()).then_some((role, name))?
        }
        None => {
            let mut parts = text.split('.');
            let (name, role, queens) = (parts.next()?, parts.next()?, parts.next()?);
            (queens == "queens").then_some((role, name))?
        }
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let fits = !name.is_empty() && name.len() <= MOST_NAME_BYTES && name.chars().all(plain);
    Some((role.parse().ok().filter(|_| fits)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_role_and_name_or_nothing() {
        for (text, expected) in [
            (
                "spiffe://lab.example/queens/worker/lab-a",
                Some((Role::Worker, "lab-a")),
            ),
            (
                "https://pki.example/x/queens/operator/anna",
                Some((Role::Operator, "anna")),
            ),
            (
                "lab-a.worker.queens.lab.example",
                Some((Role::Worker, "lab-a")),
            ),
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
            assert_eq!(named(text), expected, "{text}");
        }
        let long = format!("{}.worker.queens", "x".repeat(65));
        assert_eq!(named(&long), None);
    }

    /// A certificate of its own making, into the files.
    fn write(files: &PkiFiles) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        std::fs::write(&files.client_ca, made.cert.pem()).unwrap();
    }

    #[test]
    fn renewed_files_are_taken_and_bad_ones_are_not() {
        proto::door::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let files = PkiFiles {
            certificate: dir.path().join("server.pem"),
            key: dir.path().join("server.key"),
            client_ca: dir.path().join("ca.pem"),
        };
        write(&files);
        let pki = Pki::open(files.clone()).unwrap();
        let shown = || pki.certificate.now.lock().unwrap().1.clone();
        let first = shown();
        write(&files);
        pki.certificate.renew_after(LOOK_AFTER);
        assert!(shown() == first, "it is not time yet");
        pki.certificate.renew_after(Duration::ZERO);
        let second = shown();
        assert!(second != first);
        std::fs::write(&files.key, "half a key").unwrap();
        pki.certificate.renew_after(Duration::ZERO);
        assert!(shown() == second);
    }
}
