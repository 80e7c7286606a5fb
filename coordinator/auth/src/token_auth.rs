//! Authentication by tokens: the certificate, tokens and join strings.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use proto::connect::{BadJoin, JoinString, Token, TokenId, join_file};
use store::{Clock, SecretStore, StoreError};
use tokio::{sync::watch, time::sleep};
use tokio_rustls::{TlsAcceptor, rustls::server::WebPkiClientVerifier};

use crate::{
    AuthError, Authority, BadTokenRequest, CertificateError, NewToken, Role, Subject, TokenBook,
    TokenEntry,
    certificates::{RENEW_INTERVAL, ServerCertificate},
};

const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY_CERTIFICATE: &str = "ca.pem";
const TOKENS: &str = "tokens.json";

/// The roles that get a join string at the first start.
const FIRST_ROLES: [Role; 2] = [Role::Worker, Role::Operator];

/// The interval between checks of a token that will expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A failure to load, create or store a credential.
#[derive(Debug, thiserror::Error)]
pub enum TokenAuthError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{folder}: {why}; restore {AUTHORITY_KEY} and {AUTHORITY_CERTIFICATE} from a backup, or remove both \
         and give every worker a new join string",
        folder = folder.display()
    )]
    Authority { folder: PathBuf, why: CertificateError },
    #[error(
        "{path} is damaged ({why}): restore it from a backup, or remove it and give every worker a \
         new join string",
        path = path.display()
    )]
    Tokens { path: PathBuf, why: serde_json::Error },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Request(#[from] BadTokenRequest),
    #[error(transparent)]
    Join(#[from] BadJoin),
}

/// The certificate and the tokens of one coordinator.
/// A change of tokens is durable before it is acknowledged, and applies from the next call on.
pub struct TokenAuth {
    secrets: SecretStore,
    clock: Clock,
    authority: Authority,
    /// The addresses at which clients reach this coordinator, each `HOST:PORT`.
    addresses: Vec<String>,
    /// The tokens, borrowed only briefly and never while the disk is written.
    tokens: watch::Sender<TokenBook>,
    /// The lock of a change, held until the change is durable.
    changing: Mutex<()>,
    pub(crate) certificate: Arc<ServerCertificate>,
    acceptor: TlsAcceptor,
}

impl TokenAuth {
    /// Opens the credentials of a coordinator that clients reach at `addresses`.
    /// Each address is `HOST:PORT`. The first start creates the authority and the first join strings.
    pub fn open(
        secrets: SecretStore,
        addresses: Vec<String>,
        clock: Clock,
    ) -> Result<Self, TokenAuthError> {
        let tokens = Self::load(secrets, addresses, clock)?;
        for role in FIRST_ROLES {
            tokens.first_join(role)?;
        }
        Ok(tokens)
    }

    /// Opens existing credentials, as a standby does.
    pub fn load(
        secrets: SecretStore,
        addresses: Vec<String>,
        clock: Clock,
    ) -> Result<Self, TokenAuthError> {
        let now = clock.now().0;
        let authority = load_authority(&secrets, now)?;
        let key = authority.certify(&hosts(&addresses), now)?;
        let certificate = ServerCertificate::new(key, RENEW_INTERVAL);
        Ok(Self {
            tokens: watch::Sender::new(load_tokens(&secrets)?),
            changing: Mutex::default(),
            secrets,
            clock,
            authority,
            addresses,
            acceptor: certificate.acceptor(WebPkiClientVerifier::no_client_auth()),
            certificate,
        })
    }

    /// Returns the first join string of a role; `None` once it is revoked or removed.
    pub fn join(&self, role: Role) -> Result<Option<JoinString>, TokenAuthError> {
        let stored = self.secrets.read(&join_file(role.as_str()))?;
        let join = stored.and_then(|text| text.parse::<JoinString>().ok());
        Ok(join.filter(|join| self.check(join.token()).is_ok()))
    }

    /// Copies the first join strings to another folder, for programs on this machine.
    pub fn write_joins(&self, folder: &SecretStore) -> Result<(), TokenAuthError> {
        for role in FIRST_ROLES {
            if let Some(join) = self.join(role)? {
                write_join(folder, role, &join)?;
            }
        }
        Ok(())
    }

    /// Creates a token and returns its join string.
    pub fn create(&self, new: NewToken<'_>) -> Result<JoinString, TokenAuthError> {
        let now = self.clock.now().0;
        let token = self.change(|tokens| tokens.create(new, now, rand::random()))??;
        self.join_string(token)
    }

    /// Replaces the secret of a token and returns its new join string.
    pub fn renew(&self, name: &str) -> Result<JoinString, TokenAuthError> {
        let now = self.clock.now().0;
        let token = self.change(|tokens| tokens.renew(name, now, rand::random()))??;
        let join = self.join_string(token)?;
        if name == Role::Worker.as_str()
            && self.secrets.read(&join_file(name))?.is_some()
            && let Err(error) = write_join(&self.secrets, Role::Worker, &join)
        {
            // The caller needs the new secret: the old one has ended.
            tracing::warn!("cannot store the new first join string: {error}");
        }
        Ok(join)
    }

    /// Revokes all tokens of this name or ID; returns how many were not revoked before.
    pub fn revoke(&self, name_or_id: &str) -> Result<usize, TokenAuthError> {
        let now = self.clock.now().0;
        self.change(|tokens| tokens.revoke(name_or_id, now))
    }

    pub fn list(&self) -> Vec<TokenEntry> {
        self.tokens.borrow().entries().to_vec()
    }

    /// Returns the holder of a token.
    pub(crate) fn check(&self, token: &Token) -> Result<Subject, AuthError> {
        Ok(Subject::of(self.tokens.borrow().check(token, self.clock.now().0)?))
    }

    /// Returns the holder of a token whose secret was checked before, if still valid.
    pub(crate) fn check_id(&self, token: TokenId) -> Result<Subject, AuthError> {
        self.live(token).map(|entry| Subject::of(&entry))
    }

    /// Waits until the token is no longer valid, and returns why.
    pub(crate) async fn ended(&self, token: TokenId) -> AuthError {
        let mut tokens = self.tokens.subscribe();
        loop {
            let expires_unix_ms = match self.live(token) {
                Ok(entry) => entry.expires_unix_ms,
                Err(error) => return error,
            };
            let expires = async {
                let Some(at) = expires_unix_ms else { return std::future::pending().await };
                let remaining = Duration::from_millis(at.saturating_sub(self.clock.now().0));
                // The timer stands still while the machine is suspended.
                sleep(remaining.min(CHECK_INTERVAL)).await;
            };
            tokio::select! {
                // Never an error: the sender is a field of `self`.
                _ = tokens.changed() => {}
                () = expires => {}
            }
        }
    }

    fn live(&self, token: TokenId) -> Result<TokenEntry, AuthError> {
        let tokens = self.tokens.borrow();
        let entry = tokens.find(token).ok_or(AuthError::Unknown)?;
        entry.refusal(self.clock.now().0).map_or_else(|| Ok(entry.clone()), Err)
    }

    /// Returns the TLS acceptor, after renewing its certificate if that is due.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.certificate
            .renew_if_due(|| self.authority.certify(&hosts(&self.addresses), self.clock.now().0));
        self.acceptor.clone()
    }

    #[cfg(test)]
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.try_lock().is_err()
    }

    /// Stores a change, and applies it once it is durable.
    fn change<T>(&self, change: impl FnOnce(&mut TokenBook) -> T) -> Result<T, TokenAuthError> {
        let _guard = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.tokens.borrow().clone();
        let before = changed.clone();
        let result = change(&mut changed);
        if changed != before {
            let text = serde_json::to_string_pretty(&changed).expect("tokens serialize");
            self.secrets.write(TOKENS, &text)?;
            self.tokens.send_replace(changed);
        }
        Ok(result)
    }

    fn join_string(&self, token: Token) -> Result<JoinString, TokenAuthError> {
        Ok(JoinString::new(self.addresses.clone(), self.authority.hash(), token)?)
    }

    /// Creates a role's first join string; later starts update its addresses.
    /// A revoked one is not replaced.
    fn first_join(&self, role: Role) -> Result<(), TokenAuthError> {
        let exists = self.list().iter().any(|entry| entry.name == role.as_str());
        if !exists {
            let now = self.clock.now().0;
            // The string is stored before its token is valid: after a crash, the next start replaces it.
            return self.change(|tokens| {
                let mut changed = tokens.clone();
                let token =
                    changed.create(NewToken::new(role, role.as_str()), now, rand::random())?;
                write_join(&self.secrets, role, &self.join_string(token)?)?;
                *tokens = changed;
                Ok(())
            })?;
        }
        match self.join(role)? {
            Some(join) => write_join(&self.secrets, role, &self.join_string(join.token().clone())?),
            None => Ok(()),
        }
    }
}

fn write_join(to: &SecretStore, role: Role, join: &JoinString) -> Result<(), TokenAuthError> {
    Ok(to.write(&join_file(role.as_str()), &format!("{}\n", join.expose()))?)
}

fn load_authority(secrets: &SecretStore, now_unix_ms: u64) -> Result<Authority, TokenAuthError> {
    secrets.claim()?;
    let bad = |why| TokenAuthError::Authority { folder: secrets.path(""), why };
    let key = secrets.read(AUTHORITY_KEY)?;
    let certificate = secrets.read(AUTHORITY_CERTIFICATE)?;
    match (key, certificate) {
        (Some(key), Some(certificate)) => Authority::load(&key, &certificate).map_err(bad),
        // The certificate is written last: without it the key was never used.
        (_, None) => {
            let authority = Authority::create(now_unix_ms).map_err(bad)?;
            secrets.write(AUTHORITY_KEY, &authority.key_pem())?;
            secrets.write(AUTHORITY_CERTIFICATE, authority.certificate_pem())?;
            Ok(authority)
        }
        (None, Some(_)) => {
            Err(bad(CertificateError::Damaged(format!("{AUTHORITY_KEY} is missing"))))
        }
    }
}

fn load_tokens(secrets: &SecretStore) -> Result<TokenBook, TokenAuthError> {
    let Some(text) = secrets.read(TOKENS)? else {
        return Ok(TokenBook::default());
    };
    serde_json::from_str(&text)
        .map_err(|why| TokenAuthError::Tokens { path: secrets.path(TOKENS), why })
}

/// Returns the host names of addresses, which some clients verify (`grpcurl`).
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
