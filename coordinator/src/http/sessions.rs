//! Browsers' sessions, and the links that open them: both are random names for a token, kept in
//! memory. A session lives as long as its token does, and no longer than a day.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use proto::door::TokenId;
use sha2::{Digest as _, Sha256};

/// A browser logs in again after this long.
const SESSION: Duration = Duration::from_secs(24 * 60 * 60);

/// A link that nobody has followed by then leads nowhere.
const LINK: Duration = Duration::from_secs(10 * 60);

/// Sessions or links at the same time; the oldest give way.
const MOST: usize = 1_000;

/// The sessions and links of one coordinator.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<Names>,
    links: Mutex<Names>,
}

impl Sessions {
    /// Opens a session for the holder of a token: what the browser shows from now on.
    pub(super) fn open(&self, token: TokenId) -> Option<String> {
        lock(&self.open).add(token, SESSION)
    }

    /// Whose session this is.
    pub(super) fn find(&self, secret: &str) -> Option<TokenId> {
        lock(&self.open).find(secret)
    }

    /// Ends a session.
    pub(super) fn close(&self, secret: &str) {
        lock(&self.open).take(secret);
    }

    /// A link that opens one session, once.
    pub(crate) fn link(&self, token: TokenId) -> Option<String> {
        lock(&self.links).add(token, LINK)
    }

    /// Whose link this is; it is used up.
    pub(super) fn follow(&self, secret: &str) -> Option<TokenId> {
        lock(&self.links).take(secret)
    }
}

fn lock(names: &Mutex<Names>) -> std::sync::MutexGuard<'_, Names> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By the hash of a random secret: a look-up by the secret itself would take a time that tells of it.
#[derive(Debug, Default)]
struct Names(BTreeMap<[u8; 32], (Instant, TokenId)>);

impl Names {
    fn add(&mut self, token: TokenId, lifetime: Duration) -> Option<String> {
        let now = Instant::now();
        self.0.retain(|_, (until, _)| *until > now);
        if self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(_, (until, _))| *until);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| self.0.remove(&hash));
        }
        let mut random = [0; 32];
        // Without randomness there are no secrets, and nobody gets in.
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
    fn there_is_an_end_to_them_and_the_oldest_go_first() {
        let mut names = Names::default();
        let first = names.add(TokenId(1), LINK).unwrap();
        for _ in 0..MOST {
            names.add(TokenId(2), SESSION).unwrap();
        }
        assert_eq!((names.0.len(), names.find(&first)), (MOST, None));
        let over = names.add(TokenId(3), Duration::ZERO).unwrap();
        assert_eq!(names.find(&over), None, "its time is over");
    }
}
