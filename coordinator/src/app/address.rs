//! Where to listen, and who can reach it.

use std::{io, net::SocketAddr};

use tokio::net::lookup_host;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BadAddress {
    /// It names no address of this host.
    #[error("'{given}' is no HOST:PORT to listen on: {why}")]
    Unknown {
        /// What was given.
        given: String,
        /// What is wrong with it.
        why: io::Error,
    },
    /// Other hosts reach it, and this version encrypts nothing.
    #[error(
        "{address} can be reached by other hosts, and this version speaks plain text only: anybody \
         there could read and send results; use 127.0.0.1, or --insecure in a network that you trust"
    )]
    PlainText {
        /// The address asked for.
        address: SocketAddr,
    },
}

/// The first address that `given` stands for; `insecure` allows one that other hosts reach.
pub(super) async fn resolve(given: &str, insecure: bool) -> Result<SocketAddr, BadAddress> {
    let unknown = |why| BadAddress::Unknown {
        given: given.to_owned(),
        why,
    };
    let mut addresses = lookup_host(given).await.map_err(unknown)?;
    let address = addresses.next().ok_or_else(|| {
        unknown(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        ))
    })?;
    if address.ip().is_loopback() || insecure {
        Ok(address)
    } else {
        Err(BadAddress::PlainText { address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_loopback_needs_no_permission() {
        for loopback in ["127.0.0.1:0", "[::1]:7171", "127.1.2.3:9"] {
            assert!(resolve(loopback, false).await.is_ok(), "{loopback}");
        }
        for open in ["0.0.0.0:7171", "[::]:7171", "192.0.2.1:7171"] {
            let refused = resolve(open, false).await.unwrap_err().to_string();
            assert!(refused.contains("--insecure"), "{refused}");
            assert!(resolve(open, true).await.is_ok(), "{open}");
        }
        for bad in ["", "127.0.0.1", "127.0.0.1:70000", ":7171x"] {
            let refused = resolve(bad, false).await.unwrap_err().to_string();
            assert!(refused.contains("HOST:PORT"), "{refused}");
        }
    }
}
