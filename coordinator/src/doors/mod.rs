//! Who gets in: a private certificate authority, tokens with roles, and what each role may call.
//!
//! The shape of it: [`Authority`] signs the server's certificate, a join string carries the
//! authority's hash, so that a client knows the coordinator before it sends its token;
//! [`TokenBook`] says whose token it is; the table in [`access`] says what every call asks for; the
//! gate in front of all services puts the two together. Keys and tokens are files of the data
//! directory ([`Vault`]), so that whoever serves the directory has them.

mod access;
mod accounts;
mod authority;
mod bodies;
mod connections;
#[doc(hidden)]
pub mod foreign;
mod gate;
mod incoming;
mod keys;
mod limits;
#[cfg(test)]
mod limits_tests;
mod pki;
#[cfg(test)]
mod tests;
mod tokens;
mod vault;

pub(crate) use access::http_access;
#[cfg(test)]
pub(crate) use access::http_routes;
pub use access::{Access, BadRole, Role, access, calls};
pub use accounts::Visit;
pub(crate) use accounts::{Accounts, Call};
pub use authority::{Authority, AuthorityError};
pub(crate) use bodies::Kept;
pub use connections::{Connection, Connections};
pub(crate) use gate::Proof;
pub use gate::{Gate, GateLayer, Gated, Locks, Principal};
pub use incoming::{Guest, Incoming, Peer};
pub use keys::{Keys, KeysError};
pub use limits::Limits;
pub use pki::{Pki, PkiError, PkiFiles};
pub use tokens::{BadTokenRequest, Denied, TokenBook, TokenEntry};
pub use vault::{Cabinet, CabinetError, Vault, VaultError};
