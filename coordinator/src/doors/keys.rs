//! What a serving coordinator's door is made of: its certificate, its tokens, its join strings.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use proto::door::{BadJoin, JoinString, Token, TokenId};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};

use super::{
    Authority, AuthorityError, Denied, Principal, Role, TokenBook, TokenEntry, Vault, VaultError,
    authority::RENEW_AFTER, tokens::BadTokenRequest,
};
use crate::driver::Clock;

/// The roles that a first start makes a join string for.
const FIRST_ROLES: [Role; 2] = [Role::Worker, Role::Operator];

/// Why the door cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The files.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// Certificates.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The request.
    #[error(transparent)]
    Request(#[from] BadTokenRequest),
    /// An address that no client could dial.
    #[error(transparent)]
    Join(#[from] BadJoin),
    /// No randomness, no secrets.
    #[error("the operating system gives no random numbers: {0}")]
    Random(String),
}

/// The open door of one coordinator. Changes of tokens are on disk before they are told, and hold
/// from the next call on.
pub struct Keys {
    vault: Vault,
    clock: Clock,
    authority: Authority,
    /// Where clients reach this coordinator, each `HOST:PORT`.
    addresses: Vec<String>,
    /// What calls read: held for a moment, never while the disk is waited for.
    tokens: RwLock<TokenBook>,
    /// Held by whoever changes them, until the change is on the disk.
    changing: Mutex<()>,
    certificate: Arc<Certificate>,
    acceptor: TlsAcceptor,
}

impl Keys {
    /// The door of a data directory, for a coordinator that clients reach at `addresses`
    /// (`HOST:PORT` each). A first start makes the authority and a join string a role.
    pub fn open(vault: Vault, addresses: Vec<String>, clock: Clock) -> Result<Self, KeysError> {
        let now = clock.now().0;
        let authority = vault.authority(now)?;
        let certificate = Arc::new(Certificate::new(&authority, &addresses, now)?);
        let mut config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_no_client_auth()
            .with_cert_resolver(certificate.clone());
        // gRPC is HTTP/2; pages and programs that ask for JSON may speak either.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let keys = Self {
            tokens: RwLock::new(vault.tokens()?),
            changing: Mutex::default(),
            vault,
            clock,
            authority,
            addresses,
            certificate,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        };
        for role in FIRST_ROLES {
            keys.first_join(role)?;
        }
        Ok(keys)
    }

    /// The join string of a role that the first start made; `None` once it was revoked or removed.
    pub fn join(&self, role: Role) -> Result<Option<JoinString>, KeysError> {
        let kept = self.vault.read(&join_file(role))?;
        Ok(kept.and_then(|text| text.parse().ok()))
    }

    /// Where that join string is kept.
    pub fn join_path(&self, role: Role) -> PathBuf {
        self.vault.path(&join_file(role))
    }

    /// Where the authority's certificate is kept.
    pub fn certificate_path(&self) -> PathBuf {
        self.vault.certificate_path()
    }

    /// Makes a token, and the join string around it.
    pub fn create(
        &self,
        (role, name): (Role, &str),
        lifetime: Option<Duration>,
    ) -> Result<JoinString, KeysError> {
        let random = random()?;
        let now = self.clock.now().0;
        let token = self.change(|tokens| tokens.create((role, name), lifetime, now, random))??;
        self.around(token)
    }

    /// Takes back every token of this name or id; how many were live.
    pub fn revoke(&self, name_or_id: &str) -> Result<usize, KeysError> {
        let now = self.clock.now().0;
        Ok(self.change(|tokens| tokens.revoke(name_or_id, now))?)
    }

    /// Every token there is, without its secret.
    pub fn list(&self) -> Vec<TokenEntry> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.entries().to_vec()
    }

    /// Who holds a token.
    pub(super) fn check(&self, token: &Token) -> Result<Principal, Denied> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let entry = tokens.check(token, self.clock.now().0)?;
        Ok(Principal::Token {
            name: entry.name.as_str().into(),
            role: entry.role,
        })
    }

    /// The holder of this token, while it is good.
    pub(super) fn still(&self, token: TokenId) -> Result<Principal, Denied> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let mut entries = tokens.entries().iter();
        let entry = entries.find(|entry| entry.id == token);
        let entry = entry.ok_or(Denied::Unknown)?;
        match entry.refusal(self.clock.now().0) {
            Some(denied) => Err(denied),
            None => Ok(Principal::Token {
                name: entry.name.as_str().into(),
                role: entry.role,
            }),
        }
    }

    /// Which live token has this name.
    pub(crate) fn named(&self, name: &str) -> Option<TokenId> {
        let now = self.clock.now().0;
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let mut entries = tokens.entries().iter();
        let live = |entry: &&TokenEntry| entry.name == name && entry.refusal(now).is_none();
        entries.find(live).map(|entry| entry.id)
    }

    /// What shakes hands with clients; renews its certificate when it is time.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.renew_after(RENEW_AFTER);
        self.acceptor.clone()
    }

    /// Makes a new certificate if this one is as old as that.
    fn renew_after(&self, age: Duration) {
        let now = self.clock.now().0;
        self.certificate.renew_after(age, || {
            self.authority.serve_as(&hosts(&self.addresses), now)
        });
    }

    /// Whether somebody is at it.
    #[cfg(test)]
    pub(super) fn is_changing(&self) -> bool {
        self.changing.try_lock().is_err()
    }

    /// Keeps a change, and shows it only once it is kept.
    fn change<T>(&self, change: impl FnOnce(&mut TokenBook) -> T) -> Result<T, VaultError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self
            .tokens
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let before = changed.clone();
        let result = change(&mut changed);
        if changed != before {
            self.vault.keep_tokens(&changed)?;
            *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = changed;
        }
        Ok(result)
    }

    fn around(&self, token: Token) -> Result<JoinString, KeysError> {
        Ok(JoinString::new(
            self.addresses.clone(),
            self.authority.hash(),
            token,
        )?)
    }

    /// The join string of a role: made at the first start, kept up to date with the addresses,
    /// never made again once its token was revoked.
    fn first_join(&self, role: Role) -> Result<(), KeysError> {
        let kept = self.join(role)?;
        let named = self.list().iter().any(|entry| entry.name == role.as_str());
        let join = match kept {
            Some(kept) => match self.check(kept.token()) {
                Ok(_) => self.around(kept.token().clone())?,
                Err(_) => return Ok(()),
            },
            None if named => return Ok(()),
            None => self.create((role, role.as_str()), None)?,
        };
        Ok(self
            .vault
            .write(&join_file(role), &format!("{}\n", join.expose()))?)
    }
}

fn random() -> Result<[u8; 36], KeysError> {
    let mut random = [0; 36];
    rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut random)
        .map_err(|error| KeysError::Random(error.to_string()))?;
    Ok(random)
}

fn join_file(role: Role) -> String {
    format!("{role}.join")
}

/// The server's certificate of the hour.
#[derive(Debug)]
struct Certificate {
    now: Mutex<(Instant, Arc<CertifiedKey>)>,
}

impl Certificate {
    fn new(
        authority: &Authority,
        addresses: &[String],
        now_unix_ms: u64,
    ) -> Result<Self, AuthorityError> {
        let made = authority.serve_as(&hosts(addresses), now_unix_ms)?;
        Ok(Self {
            now: Mutex::new((Instant::now(), made)),
        })
    }

    fn renew_after(
        &self,
        age: Duration,
        make: impl FnOnce() -> Result<Arc<CertifiedKey>, AuthorityError>,
    ) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.0.elapsed() < age {
            return;
        }
        match make() {
            Ok(made) => *now = (Instant::now(), made),
            // The one there is good for weeks more; every handshake tries again.
            Err(error) => tracing::warn!("the server certificate was not renewed: {error}"),
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        Some(now.1.clone())
    }
}

/// The names behind addresses, for clients that check the name they dialled (`grpcurl`).
fn hosts(addresses: &[String]) -> Vec<String> {
    let mut hosts: Vec<_> = addresses
        .iter()
        .filter_map(|address| address.rsplit_once(':'))
        .map(|(host, _)| host.trim_matches(['[', ']']).to_owned())
        .collect();
    hosts.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_when_it_is_time_and_stays_where_that_fails() {
        proto::door::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::of(dir.path());
        let keys = Keys::open(vault, vec!["lab:1".to_owned()], Clock::start()).unwrap();
        let shown = || keys.certificate.now.lock().unwrap().1.cert.clone();
        let first = shown();
        keys.renew_after(RENEW_AFTER);
        assert_eq!(shown(), first);
        keys.renew_after(Duration::ZERO);
        let second = shown();
        assert_ne!(second[0], first[0]);
        assert_eq!(second[1], first[1], "by the same authority");
        let fails = || Err(AuthorityError::Damaged("for a test".to_owned()));
        keys.certificate.renew_after(Duration::ZERO, fails);
        assert_eq!(shown(), second);
    }
}
