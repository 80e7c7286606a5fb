//! Browser sessions, the links that open them, and the login page.
//! Sessions and links are random secrets that stand for tokens; a session ends with its token.
//! Sessions are stored, so that they survive a restart; links are not.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use auth::{Access, CallerCredential, Peer, Role, Subject, parse_token};
use axum::{
    Form,
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, header, uri::Authority},
    response::{IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use maud::html;
use proto::connect::TokenId;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use store::{Clock, SecretStore, StoreError};
use tokio::task::spawn_blocking;

use super::{App, layout::page};

/// The cookie that holds a session.
const COOKIE: &str = "queens-session";

const SESSION_LIFETIME_MS: u64 = 24 * 60 * 60 * 1_000;
const LINK_LIFETIME_MS: u64 = 10 * 60 * 1_000;

/// Maximum number of sessions of a token, and of its links; the oldest is dropped.
const MAX_SECRETS: usize = 20;

/// The name of the stored sessions.
const STORED: &str = "sessions.json";

pub(crate) struct Sessions {
    pub(super) open: Secrets,
    /// Login links, each for one session.
    pub(crate) links: Secrets,
    /// Where the open sessions are stored, locked while they are written.
    store: Mutex<SecretStore>,
}

impl Sessions {
    /// Loads the open sessions.
    pub(super) fn load(store: SecretStore, clock: Clock) -> Result<Self, StoreError> {
        let [open, links] =
            [SESSION_LIFETIME_MS, LINK_LIFETIME_MS].map(|lifetime| Secrets::new(lifetime, clock));
        if let Some(text) = store.read(STORED)? {
            // Damage costs no more than a login.
            *open.lock() = serde_json::from_str(&text).unwrap_or_default();
        }
        Ok(Self { open, links, store: Mutex::new(store) })
    }

    /// Stores the open sessions; waits for the disk.
    fn save(&self) -> Result<(), StoreError> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let text = serde_json::to_string(&*self.open.lock()).expect("sessions serialize");
        store.write(STORED, &text)
    }
}

/// The time of expiry, in milliseconds since 1970, and the token of each secret, by the secret's hash:
/// a lookup by the secret would leak it by timing.
type Tokens = BTreeMap<String, (u64, u32)>;

pub(crate) struct Secrets {
    lifetime_ms: u64,
    clock: Clock,
    tokens: Mutex<Tokens>,
}

impl Secrets {
    fn new(lifetime_ms: u64, clock: Clock) -> Self {
        Self { lifetime_ms, clock, tokens: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new secret for a token.
    pub(crate) fn add(&self, TokenId(token): TokenId) -> String {
        let (mut tokens, now) = (self.lock(), self.clock.now());
        tokens.retain(|_, (until, _)| *until > now.0);
        let of_token = tokens.iter().filter(|(_, (_, other))| *other == token);
        if of_token.clone().count() >= MAX_SECRETS {
            let oldest =
                of_token.min_by_key(|(_, (until, _))| *until).map(|(hash, _)| hash.clone());
            oldest.and_then(|hash| tokens.remove(&hash));
        }
        let secret = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        tokens.insert(hash(&secret), (now.0.saturating_add(self.lifetime_ms), token));
        secret
    }

    pub(super) fn find(&self, secret: &str) -> Option<TokenId> {
        self.lock().get(&hash(secret)).and_then(|found| self.live(*found))
    }

    /// Returns the token of a secret and invalidates the secret.
    pub(super) fn take(&self, secret: &str) -> Option<TokenId> {
        self.lock().remove(&hash(secret)).and_then(|found| self.live(found))
    }

    fn live(&self, (until, token): (u64, u32)) -> Option<TokenId> {
        (until > self.clock.now().0).then_some(TokenId(token))
    }
}

fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}

/// Returns the login page, with an error unless `message` is empty.
pub(super) fn login_page(message: &str) -> Response {
    let body = html! {
        body {
            main.login {
                h1 { "queens" }
                p { "Log in with a viewer or operator token or join string, or open a link printed by "
                    code { "queensctl dashboard" } "." }
                @if !message.is_empty() { p.error role="alert" { (message) } }
                form method="post" action="/login" {
                    label { "Token or join string " input type="password" name="token" required autocomplete="current-password"; }
                    " " button type="submit" { "Log in" }
                }
            }
        }
    };
    page("queens: log in", &body).into_response()
}

#[derive(Deserialize)]
pub(super) struct Login {
    token: String,
}

pub(super) async fn login(
    State(app): State<App>,
    axum::Extension(peer): axum::Extension<Peer>,
    Form(login): Form<Login>,
) -> Response {
    let Some(token) = parse_token(login.token.trim()) else {
        return login_page("Invalid token or join string. Make sure you copied all of it.");
    };
    let shown = token.expose();
    let credential = Some(CallerCredential::Bearer(&shown));
    match app.authenticator.authenticate(Access::Viewer, Some(&peer), credential) {
        Ok(_) => start_session(&app, peer, token.id()).await,
        Err(status) => login_page(status.message()),
    }
}

/// Returns the page whose button opens the session of a link.
/// Only the button consumes the link: previews of chats and scanners of mails get every address they see.
pub(super) async fn confirm(State(app): State<App>, Path(link): Path<String>) -> Response {
    if app.sessions.links.find(&link).is_none() {
        return expired_link();
    }
    let body = html! {
        body {
            main.login {
                h1 { "queens" }
                form method="post" { button type="submit" { "Log in" } }
            }
        }
    };
    page("queens: log in", &body).into_response()
}

fn expired_link() -> Response {
    login_page(
        "This login link has expired or was already used. Run `queensctl dashboard` for a new one.",
    )
}

/// Opens the session of a link that `queensctl dashboard` printed.
pub(super) async fn follow(
    State(app): State<App>,
    axum::Extension(peer): axum::Extension<Peer>,
    Path(link): Path<String>,
) -> Response {
    match app.sessions.links.take(&link) {
        Some(token) => start_session(&app, peer, token).await,
        None => expired_link(),
    }
}

async fn start_session(app: &App, peer: Peer, token: TokenId) -> Response {
    let session = app.sessions.open.add(token);
    save(app).await;
    let secure = if peer.tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax{secure}");
    let mut response = Redirect::to("/").into_response();
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Stores the open sessions. A full disk must not keep an operator out.
async fn save(app: &App) {
    let sessions = app.sessions.clone();
    if let Ok(Err(error)) = spawn_blocking(move || sessions.save()).await {
        tracing::warn!("cannot store the dashboard's sessions: {error}");
    }
}

pub(super) async fn logout(State(app): State<App>, headers: HeaderMap) -> Response {
    if let Some(session) = session(&headers) {
        app.sessions.open.take(session);
        save(&app).await;
    }
    let mut response = Redirect::to("/login").into_response();
    let deletion =
        HeaderValue::from_static("queens-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    response.headers_mut().insert(header::SET_COOKIE, deletion);
    response
}

/// HTTP/2 may split the cookies into several fields (RFC 9113, section 8.2.3).
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
    let mut cookies = fields.flat_map(|field| field.split(';')).map(str::trim);
    cookies.find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='))
}

pub(super) struct Reader {
    /// Whether the reader may change runs.
    pub(super) operator: bool,
    /// Whether the reader has a session, and can log out.
    pub(super) logged_in: bool,
    /// Scheme and host that the reader uses.
    pub(super) origin: String,
}

impl Reader {
    pub(super) fn of(app: &App, request: &Request) -> Self {
        let session = session(request.headers());
        let logged_in = session.is_some_and(|session| app.sessions.open.find(session).is_some());
        let operator = match request.extensions().get::<Subject>() {
            Some(Subject::Token { role, .. } | Subject::Certificate { role, .. }) => {
                *role == Role::Operator
            }
            Some(Subject::Anonymous) => true,
            None => false,
        };
        let tls = request.extensions().get::<Peer>().is_some_and(|peer| peer.tls);
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
        let scheme = if tls { "https" } else { "http" };
        Self { operator, logged_in, origin: format!("{scheme}://{}", host.unwrap_or_default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_among_other_cookies() {
        for fields in [
            &["queens-session=abc"][..],
            &["grafana_session=1; queens-session=abc; x=y"],
            &["grafana_session=1", "queens-session=abc"],
        ] {
            let field = |value| (header::COOKIE, HeaderValue::from_static(value));
            let headers: HeaderMap = fields.iter().copied().map(field).collect();
            assert_eq!(session(&headers), Some("abc"), "{fields:?}");
        }
        assert_eq!(session(&HeaderMap::new()), None);
    }

    #[test]
    fn a_link_opens_one_session_and_a_session_ends_when_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let load =
            || Sessions::load(SecretStore::of_directory(dir.path()), Clock::start()).unwrap();
        let sessions = load();
        let link = sessions.links.add(TokenId(7));
        assert_eq!(sessions.open.find(&link), None, "a link is not a session");
        assert_eq!(sessions.links.take(&link), Some(TokenId(7)));
        assert_eq!(sessions.links.take(&link), None, "twice");
        let session = sessions.open.add(TokenId(7));
        assert_eq!(sessions.open.find(&session), Some(TokenId(7)));
        sessions.save().unwrap();
        let stored = SecretStore::of_directory(dir.path()).read(STORED).unwrap().unwrap();
        assert!(!stored.contains(&session), "only its hash is stored");
        let sessions = load();
        assert_eq!(sessions.open.take(&session), Some(TokenId(7)), "after a restart");
        assert_eq!(sessions.open.find(&session), None);
    }

    #[test]
    fn the_oldest_secrets_of_a_token_are_dropped_and_all_expire() {
        let secrets = Secrets::new(LINK_LIFETIME_MS, Clock::start());
        let (operator, first) = (secrets.add(TokenId(1)), secrets.add(TokenId(2)));
        for _ in 0..1_000 {
            secrets.add(TokenId(2));
        }
        assert_eq!(secrets.lock().len(), 1 + MAX_SECRETS);
        assert_eq!(secrets.find(&first), None);
        assert_eq!(secrets.find(&operator), Some(TokenId(1)), "of another token");
        let short = Secrets::new(0, Clock::start());
        let expired = short.add(TokenId(3));
        assert_eq!(short.find(&expired), None, "expired");
    }
}
