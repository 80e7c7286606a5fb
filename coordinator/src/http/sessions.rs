//! Sessions of browsers, the links that open them, and the login page. Sessions and links are random
//! secrets in memory that stand for a token. A session ends with its token.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use auth::{Access, CallerCredential, Peer, parse_token};
use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use maud::html;
use proto::connect::TokenId;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{App, page::page};

/// The cookie that holds a session.
const COOKIE: &str = "queens-session";

const SESSION_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Sessions, and links, at the same time; the oldest are dropped.
const MAX_SECRETS: usize = 1_000;

/// The sessions and links of one coordinator.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<Secrets>,
    links: Mutex<Secrets>,
}

impl Sessions {
    /// Opens a session and returns the browser's secret; `None` without random numbers.
    pub(super) fn open(&self, token: TokenId) -> Option<String> {
        lock(&self.open).add(token, SESSION_LIFETIME)
    }

    /// Returns the token of a session.
    pub(super) fn find(&self, secret: &str) -> Option<TokenId> {
        lock(&self.open).find(secret)
    }

    /// Ends a session.
    pub(super) fn close(&self, secret: &str) {
        lock(&self.open).take(secret);
    }

    /// Returns a link that opens one session.
    pub(crate) fn link(&self, token: TokenId) -> Option<String> {
        lock(&self.links).add(token, LINK_LIFETIME)
    }

    /// Returns the token of a link, which is used up.
    pub(super) fn follow(&self, secret: &str) -> Option<TokenId> {
        lock(&self.links).take(secret)
    }
}

fn lock(secrets: &Mutex<Secrets>) -> std::sync::MutexGuard<'_, Secrets> {
    secrets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tokens by the hash of a secret: a lookup by the secret itself would leak it through timing.
#[derive(Debug, Default)]
struct Secrets(BTreeMap<[u8; 32], (Instant, TokenId)>);

impl Secrets {
    fn add(&mut self, token: TokenId, lifetime: Duration) -> Option<String> {
        let now = Instant::now();
        self.0.retain(|_, (until, _)| *until > now);
        if self.0.len() >= MAX_SECRETS {
            let oldest = self.0.iter().min_by_key(|(_, (until, _))| *until);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| self.0.remove(&hash));
        }
        let mut random = [0; 32];
        rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut random).ok()?;
        let secret = URL_SAFE_NO_PAD.encode(random);
        self.0.insert(hash(&secret), (now + lifetime, token));
        Some(secret)
    }

    fn find(&self, secret: &str) -> Option<TokenId> {
        let (until, token) = self.0.get(&hash(secret))?;
        (*until > Instant::now()).then_some(*token)
    }

    fn take(&mut self, secret: &str) -> Option<TokenId> {
        let (until, token) = self.0.remove(&hash(secret))?;
        (until > Instant::now()).then_some(token)
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

fn login_page(message: &str) -> Response {
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

pub(super) async fn login_form() -> Response {
    login_page("")
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
        Ok(_) => start_session(&app, peer, token.id()),
        Err(status) => login_page(status.message()),
    }
}

/// Opens the session of a link that `queensctl dashboard` printed.
pub(super) async fn follow(
    State(app): State<App>,
    axum::Extension(peer): axum::Extension<Peer>,
    Path(link): Path<String>,
) -> Response {
    match app.sessions.follow(&link) {
        Some(token) => start_session(&app, peer, token),
        None => login_page(
            "This login link has expired or was already used. Run `queensctl dashboard` for a new one.",
        ),
    }
}

fn start_session(app: &App, peer: Peer, token: TokenId) -> Response {
    let Some(session) = app.sessions.open(token) else {
        return login_page(
            "Cannot open a session: the operating system returned no random numbers.",
        );
    };
    let secure = if peer.tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax{secure}");
    let mut response = Redirect::to("/").into_response();
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

pub(super) async fn logout(State(app): State<App>, headers: HeaderMap) -> Response {
    if let Some(session) = session(&headers) {
        app.sessions.close(session);
    }
    let mut response = Redirect::to("/login").into_response();
    let gone =
        HeaderValue::from_static("queens-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    response.headers_mut().insert(header::SET_COOKIE, gone);
    response
}

/// Returns the session of a browser.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    let mut cookies = cookies.split(';').map(str::trim);
    cookies.find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_one_session_and_a_session_ends_when_it_is_closed() {
        let sessions = Sessions::default();
        let token = TokenId(7);
        let link = sessions.link(token).unwrap();
        assert_eq!(sessions.find(&link), None, "a link is no session");
        assert_eq!(sessions.follow(&link), Some(token));
        assert_eq!(sessions.follow(&link), None, "twice");
        let session = sessions.open(token).unwrap();
        assert_eq!(sessions.find(&session), Some(token));
        sessions.close(&session);
        assert_eq!(sessions.find(&session), None);
    }

    #[test]
    fn the_oldest_secrets_are_dropped_and_all_expire() {
        let mut secrets = Secrets::default();
        let first = secrets.add(TokenId(1), LINK_LIFETIME).unwrap();
        for _ in 0..MAX_SECRETS {
            secrets.add(TokenId(2), SESSION_LIFETIME).unwrap();
        }
        assert_eq!((secrets.0.len(), secrets.find(&first)), (MAX_SECRETS, None));
        let over = secrets.add(TokenId(3), Duration::ZERO).unwrap();
        assert_eq!(secrets.find(&over), None, "expired");
    }
}
