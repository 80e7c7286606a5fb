//! Where to listen, who can reach it, and what they have to type.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    str::FromStr,
};

use tokio::net::{TcpListener, lookup_host};
use tonic::transport::Uri;
use worker::config::host_name;

use super::Options;
use crate::{
    grpc::{ServeError, bind},
    http::{Http, HttpError},
    text::tell,
};

/// Where a coordinator is looked for when nobody says.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7171);

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BadAddress {
    /// It names no address of this host.
    #[error("{flag} '{given}' is no HOST:PORT to listen on: {why}")]
    Unknown {
        /// The option.
        flag: &'static str,
        /// What was given.
        given: String,
        /// What is wrong with it.
        why: io::Error,
    },
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listen {
    address: SocketAddr,
    /// Whether a free port will do where this one is taken.
    or_free: bool,
}

impl Listen {
    /// The address that the command line stands for.
    pub(super) async fn choose(options: &Options) -> Result<Self, BadAddress> {
        let Some(given) = &options.listen else {
            // Who counts on this machine alone does not care which port nobody else calls.
            let or_free = options.local;
            return Ok(Self {
                address: USUAL,
                or_free,
            });
        };
        let address = resolve("--listen", given).await?;
        Ok(Self {
            address,
            or_free: false,
        })
    }

    /// Takes the port.
    pub(super) fn bind(self) -> Result<TcpListener, ServeError> {
        match bind(self.address) {
            Err(ServeError::InUse { .. }) if self.or_free => {
                bind(SocketAddr::new(self.address.ip(), 0))
            }
            bound => bound,
        }
    }
}

/// Where the dashboard is looked for when nobody says.
const USUAL_HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7172);

/// Where to serve HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListenHttp {
    address: SocketAddr,
    /// Somebody asked for it, and had better be told that it cannot be had before anything begins.
    asked: bool,
}

impl ListenHttp {
    /// The address that the command line stands for; `None` for none.
    pub(super) async fn choose(options: &Options) -> Result<Option<Self>, BadAddress> {
        Ok(match &options.http {
            Some(given) => Some(Self {
                address: resolve("--http", given).await?,
                asked: true,
            }),
            None if options.no_http || options.local => None,
            None => Some(Self {
                address: USUAL_HTTP,
                asked: false,
            }),
        })
    }

    /// Takes the port. Where nobody asked for it, counting goes on without, and that is said.
    pub(super) fn bind(self) -> Result<Option<TcpListener>, HttpError> {
        match Http::bind(self.address) {
            Ok(listener) => Ok(Some(listener)),
            Err(why) if self.asked => Err(why),
            Err(why) => {
                tell(&format!("no dashboard: {why}"));
                Ok(None)
            }
        }
    }
}

/// The first address that `given` stands for.
async fn resolve(flag: &'static str, given: &str) -> Result<SocketAddr, BadAddress> {
    let unknown = |why| BadAddress::Unknown {
        flag,
        given: given.to_owned(),
        why,
    };
    let mut addresses = lookup_host(given).await.map_err(unknown)?;
    addresses.next().ok_or_else(|| {
        unknown(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        ))
    })
}

/// By what name or address other machines reach this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// As it stands in a URL.
    host: String,
    /// By default the one that is listened on.
    port: Option<u16>,
}

impl Advertised {
    /// The name alone: the port is that of gRPC.
    pub(super) fn without_port(&self) -> Self {
        Self {
            host: self.host.clone(),
            port: None,
        }
    }
}

/// Text that is no name or address with or without a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no HOST or HOST:PORT: give a name or an address of this machine, such as node7, \
     10.0.0.7:7171 or [fe80::1]"
)]
pub struct BadAdvertised(String);

impl FromStr for Advertised {
    type Err = BadAdvertised;

    fn from_str(text: &str) -> Result<Self, BadAdvertised> {
        let bad = || BadAdvertised(text.to_owned());
        let uri: Uri = format!("http://{text}").parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let host = authority.host();
        let port = authority.port_u16();
        // What the parser took for something else than a host and a port.
        let whole = match port {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        if host.is_empty() || whole != text || port == Some(0) {
            return Err(bad());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

/// How workers reach a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    host: String,
    port: u16,
    /// Not from this machine alone.
    pub(super) by_others: bool,
}

impl Reached {
    /// How workers reach a coordinator that listens on `address`.
    pub(super) fn new(address: SocketAddr, advertised: Option<&Advertised>) -> Self {
        let by_others = !address.ip().is_loopback() || advertised.is_some();
        let host = match advertised {
            Some(advertised) => advertised.host.clone(),
            None if address.ip().is_unspecified() => own_host(),
            None => bracketed(address.ip()),
        };
        let port = advertised.and_then(|advertised| advertised.port);
        Self {
            host,
            port: port.unwrap_or(address.port()),
            by_others,
        }
    }
}

impl Reached {
    /// The name or address alone.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// `HOST:PORT`.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Reached {
    /// The worker's command, where nobody is asked for a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            by_others,
        } = self;
        let insecure = if *by_others { " --insecure" } else { "" };
        write!(f, "worker --coordinator http://{host}:{port}{insecure}")
    }
}

/// The address that the default route leaves this machine from; its name where there is none.
fn own_host() -> String {
    // Addresses for documentation, which nobody has. Connecting a UDP socket sends nothing: it only
    // asks the kernel for the route.
    let probes: [(IpAddr, IpAddr); 2] = [
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        ),
        (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ),
    ];
    let routed = probes.into_iter().find_map(|(any, far)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        let own = socket.local_addr().ok()?.ip();
        (!own.is_unspecified() && !own.is_loopback()).then(|| bracketed(own))
    });
    routed.unwrap_or_else(|| match host_name().trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    })
}

/// An address as it stands in a URL.
fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:0", "[::1]:7171", "0.0.0.0:7171"] {
            assert!(resolve("--listen", good).await.is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1", "127.0.0.1:70000", ":7171x"] {
            let refused = resolve("--listen", bad).await.unwrap_err().to_string();
            assert!(refused.contains("HOST:PORT"), "{refused}");
        }
    }

    #[test]
    fn the_line_to_paste_names_what_others_reach() {
        let line = |address: &str, advertised: Option<&str>| {
            let advertised = advertised.map(|text| text.parse().unwrap());
            Reached::new(address.parse().unwrap(), advertised.as_ref()).to_string()
        };
        for (address, advertised, expected) in [
            ("127.0.0.1:7171", None, "http://127.0.0.1:7171"),
            ("[::1]:9", None, "http://[::1]:9"),
            ("10.0.0.7:7171", None, "http://10.0.0.7:7171 --insecure"),
            ("[fd00::7]:7171", None, "http://[fd00::7]:7171 --insecure"),
            (
                "0.0.0.0:7171",
                Some("node7"),
                "http://node7:7171 --insecure",
            ),
            (
                "127.0.0.1:7171",
                Some("tunnel.example:80"),
                "http://tunnel.example:80 --insecure",
            ),
            (
                "[::]:7171",
                Some("[fd00::7]:80"),
                "http://[fd00::7]:80 --insecure",
            ),
        ] {
            let expected = format!("worker --coordinator {expected}");
            assert_eq!(line(address, advertised), expected);
        }
        // An address of this machine's own, whatever it is.
        for all in ["0.0.0.0:7171", "[::]:7171"] {
            let line = line(all, None);
            let url = line.split(' ').nth(2).unwrap();
            assert!(url.ends_with(":7171") && !url.contains("0.0.0.0") && !url.contains("[::]"));
            assert!(worker::config::Address::new(url, true).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_is_no_host_is_not_advertised() {
        for bad in [
            "",
            "http://node7",
            "node7:",
            "node7:0",
            "node7:x",
            "a b",
            "a/b",
            "me@node7",
            "fe80::1",
        ] {
            let refused = bad.parse::<Advertised>().unwrap_err();
            assert_eq!(refused, BadAdvertised(bad.to_owned()), "{bad}");
        }
    }

    #[test]
    fn counting_on_this_machine_alone_takes_a_free_port_where_the_usual_one_is_taken() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _within = runtime.enter();
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = taken.local_addr().unwrap();
        let listen = |or_free| Listen { address, or_free }.bind();
        assert!(matches!(listen(false), Err(ServeError::InUse { .. })));
        assert_ne!(listen(true).unwrap().local_addr().unwrap(), address);
    }
}
