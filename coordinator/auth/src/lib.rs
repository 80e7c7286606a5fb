//! Authentication and authorization: certificates, tokens, roles, quotas.
//!
//! A join string carries the hash of the coordinator's certificate authority, so that a client
//! verifies the coordinator before it sends its token. [`TokenBook`] maps tokens to roles, the tables
//! of [`access()`] map calls to roles, and the [`Authenticator`] in front of all services applies both.
//! Keys and tokens are stored with the runs ([`store::SecretStore`]).

mod accept;
mod access;
mod authenticator;
mod certificates;
pub mod identity;
#[cfg(test)]
mod limit_tests;
mod quotas;
mod request_body;
#[cfg(test)]
mod tests;
mod token_auth;
mod tokens;

pub use accept::{AcceptedConnection, Peer, accept};
pub use access::{Access, BadRole, CALLS, HTTP_ROUTES, Role, access, http_access};
pub use authenticator::{
    AuthLayer, AuthService, Authenticator, CallerCredential, Subject, TrackedBody, bearer,
    parse_token,
};
pub use certificates::{Authority, CertificateError, Pki, PkiError, PkiFiles};
pub use quotas::{Call, ConnectionActivity, Limits, UsageTable, VisitorQuotas};
pub use token_auth::{TokenAuth, TokenAuthError};
pub use tokens::{AuthError, BadTokenRequest, NewToken, TokenBook, TokenEntry};

/// Parses a list of tokens and checks that it round-trips; for fuzzing.
#[doc(hidden)]
pub fn fuzz_token_book(bytes: &[u8]) {
    if let Ok(book) = serde_json::from_slice::<TokenBook>(bytes) {
        let text = serde_json::to_vec(&book).expect("tokens serialize");
        assert_eq!(serde_json::from_slice::<TokenBook>(&text).ok(), Some(book));
    }
}
