//! The coordinator's listeners, authentication and join commands.

use std::{
    io::{self, IsTerminal as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{self, PathBuf},
    sync::Arc,
};

use auth::{Authenticator, Pki, PkiFiles, Role, TokenAuth, TokenAuthError};
use axum::http::uri::Authority;
use cli::{exit::BadUsage, threads::host_name};
use proto::connect::{install_crypto, join_file};
use store::{Clock, SecretStore};
use tokio::net::{TcpListener, lookup_host};
use view::text::eprint_line;

use super::options::Options;
use crate::{
    http::{Dashboard, Http},
    listen::{BindError, bind},
};

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7171);
const DEFAULT_HTTP_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7172);

/// The bound ports, and the certificates for them.
pub(super) struct Listeners {
    /// The certificates of `--client-ca`, if given.
    pub(super) pki: Option<Arc<Pki>>,
    pub(super) grpc: TcpListener,
    /// The port of the dashboard, or the reason why there is none.
    pub(super) http: Result<TcpListener, NoDashboard>,
}

/// Reason why a coordinator has no dashboard.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoDashboard {
    #[error("it was started with {0}; give --http HOST:PORT")]
    Disabled(&'static str),
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Listeners {
    /// Reads the certificates and binds the ports of the command line.
    pub(super) async fn bind(options: &Options) -> anyhow::Result<Self> {
        Self::bind_at(options, DEFAULT_HTTP_ADDRESS).await
    }

    async fn bind_at(options: &Options, default_http: SocketAddr) -> anyhow::Result<Self> {
        install_crypto();
        // QUEENS_TLS_CERT and _KEY may be set for a worker: only --client-ca selects mutual TLS.
        let files =
            options.client_ca.as_ref().zip(options.tls_cert.as_ref().zip(options.tls_key.as_ref()));
        let pki = files.map(|(client_ca, (certificate, key))| {
            let [client_ca, certificate, key] = [client_ca, certificate, key].map(Clone::clone);
            Pki::open(PkiFiles { certificate, key, client_ca }).map(Arc::new).map_err(BadUsage::of)
        });
        let pki = pki.transpose()?;
        let grpc = Self::bind_grpc(options).await?;
        let http = match &options.http {
            Some(given) => Ok(Http::bind(resolve("--http", given).await?)?),
            None if options.no_http => Err(NoDashboard::Disabled("--no-http")),
            None if options.local => Err(NoDashboard::Disabled("--local")),
            // The dashboard is optional.
            None => Http::bind(default_http).map_err(NoDashboard::from),
        };
        Ok(Self { pki, grpc, http })
    }

    pub(super) async fn bind_grpc(options: &Options) -> anyhow::Result<TcpListener> {
        Ok(match &options.listen {
            Some(given) => bind(resolve("--listen", given).await?)?,
            // With --local, no other program needs to know the port.
            None if options.local => bind_or_free(DEFAULT_ADDRESS)?,
            None => bind(DEFAULT_ADDRESS)?,
        })
    }
}

/// Binds an address, or another port of the same IP if that one is in use.
fn bind_or_free(address: SocketAddr) -> Result<TcpListener, BindError> {
    match bind(address) {
        Err(BindError::InUse { .. }) => bind(SocketAddr::new(address.ip(), 0)),
        bound => bound,
    }
}

/// Returns the first address of `HOST:PORT`.
async fn resolve(flag: &'static str, given: &str) -> Result<SocketAddr, BadUsage> {
    let bad =
        |why: &str| BadUsage(format!("{flag} '{given}' is not HOST:PORT to listen on: {why}"));
    let (host, port) = host_and_port(given).map_err(|why| bad(&why))?;
    let ip = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    match lookup_host((ip, port)).await.map(|mut found| found.next()) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(bad("the host has no address")),
        Err(why) => Err(bad(&format!("{host} is not a name or an address of this machine: {why}"))),
    }
}

/// Splits `HOST:PORT`, or returns what to give instead.
fn host_and_port(given: &str) -> Result<(&str, u16), String> {
    if let Some((_, rest)) = given.split_once("://") {
        return Err(format!("give it without a scheme: {}", rest.trim_end_matches('/')));
    }
    let (host, port) = match given.rsplit_once(':') {
        // The last colon is part of the address.
        _ if given.parse::<Ipv6Addr>().is_ok() => {
            return Err(format!("an IPv6 address needs brackets: [{given}]:PORT"));
        }
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            return Err(format!("an IPv6 address needs brackets: [{host}]:{port}"));
        }
        Some(parts) => parts,
        None if given.bytes().all(|byte| byte.is_ascii_digit()) => ("", given),
        None => return Err(format!("the port is missing: give {given}:PORT")),
    };
    match (host, port.parse()) {
        (_, Err(_)) => Err(format!("'{port}' is not a port, a number up to 65535")),
        ("", Ok(port)) => Err(format!(
            "the host is missing: give 127.0.0.1:{port}, or 0.0.0.0:{port} for a network"
        )),
        (host, Ok(port)) => Ok((host, port)),
    }
}

/// The address under which clients reach a listener.
struct PublicAddress {
    host: String,
    port: u16,
    /// Whether other machines can reach it.
    is_remote: bool,
}

impl PublicAddress {
    fn new(listener: SocketAddr, host: Option<&str>, port: Option<u16>) -> Self {
        Self {
            host: match host {
                Some(host) => host.to_owned(),
                None if listener.ip().is_unspecified() => own_hosts(listener.ip()).swap_remove(0),
                None => bracketed(listener.ip()),
            },
            port: port.unwrap_or(listener.port()),
            is_remote: host.is_some() || !listener.ip().is_loopback(),
        }
    }

    /// Returns the address of the gRPC services.
    fn of_grpc(options: &Options, listener: SocketAddr) -> Self {
        let advertise = options.advertise.as_ref();
        Self::new(listener, advertise.map(Authority::host), advertise.and_then(Authority::port_u16))
    }

    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the command that starts a worker without a token.
    fn worker_command(&self) -> String {
        let insecure = if self.is_remote { " --insecure" } else { "" };
        format!("worker --coordinator http://{}{insecure}", self.authority())
    }
}

/// Returns the hosts under which a listener on all addresses is reachable, at least one: the local addresses
/// of the default routes, IPv4 first; the host name if there are none.
fn own_hosts(any: IpAddr) -> Vec<String> {
    // Documentation addresses: connecting a UDP socket only selects a route and sends nothing.
    let probes: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    // A listener on [::] accepts both families.
    let accepted = probes.into_iter().filter(|(of, _)| of.is_ipv4() || any.is_ipv6());
    let routed = accepted.filter_map(|(of, far)| {
        let socket = UdpSocket::bind((of, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        let own = socket.local_addr().ok()?.ip();
        (!own.is_unspecified() && !own.is_loopback()).then(|| bracketed(own))
    });
    let mut hosts: Vec<_> = routed.collect();
    if hosts.is_empty() {
        hosts.push(match host_name().trim() {
            "" => "localhost".to_owned(),
            name => name.to_owned(),
        });
    }
    hosts
}

/// Formats an address for a URL.
fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

pub(super) struct Endpoints {
    pub(super) authenticator: Authenticator,
    /// Commands for the operator to copy; may be empty.
    pub(super) join_commands: String,
    /// The dashboard, or the reason why there is none.
    pub(super) dashboard: Result<Dashboard, String>,
    /// Host names under which browsers reach the dashboard.
    pub(super) http_hosts: Vec<String>,
}

impl Endpoints {
    pub(super) fn open(
        options: &Options,
        listeners: &Listeners,
        (secrets, clock): (SecretStore, Clock),
    ) -> anyhow::Result<Self> {
        let advertise = options.advertise.as_ref();
        let address = listeners.grpc.local_addr()?;
        let public = PublicAddress::of_grpc(options, address);
        let authenticator =
            authenticator(options, (address, listeners.pki.as_ref()), |addresses| {
                TokenAuth::open(secrets.clone(), addresses, clock)
            })?;
        if options.store.is_some()
            && let Some(tokens) = authenticator.tokens()
            && let Err(why) = tokens.write_joins(&SecretStore::of_directory(&options.data_dir))
        {
            eprint_line(&format!("warning: no join string for programs on this machine: {why}"));
        }
        let join_commands = join_commands(options, &authenticator, &public)?;
        let mut http_hosts = options.http_host.clone();
        let dashboard = match &listeners.http {
            Ok(http) => {
                let address = http.local_addr()?;
                // The advertised name does not resolve to loopback.
                let host = advertise.filter(|_| !address.ip().is_loopback()).map(Authority::host);
                let public = PublicAddress::new(address, host, None);
                let scheme = match (&authenticator, public.is_remote) {
                    (Authenticator::Open, _) | (_, false) => "http",
                    (Authenticator::Tokens(_) | Authenticator::MutualTls(_), true) => "https",
                };
                let url = format!("{scheme}://{}", public.authority());
                http_hosts.push(public.host);
                Ok(Dashboard::load(url, !public.is_remote, secrets, clock)?)
            }
            Err(why) => {
                if let NoDashboard::Bind(why) = why {
                    tracing::warn!("no dashboard: {why}");
                }
                Err(why.to_string())
            }
        };
        Ok(Self { authenticator, join_commands, dashboard, http_hosts })
    }

    /// Returns the dashboard's URL and, if tokens are required, how to log in.
    pub(super) fn dashboard_text(
        &self,
        options: &Options,
    ) -> Result<Option<String>, TokenAuthError> {
        let Ok(Dashboard { url, sessions, .. }) = &self.dashboard else { return Ok(None) };
        let join = match self.authenticator.tokens() {
            Some(tokens) => tokens.join(Role::Operator)?,
            None => None,
        };
        let login = join.map_or_else(String::new, |join| match prints_secrets() {
            true => format!(
                "\n  log in once, within 10 minutes, with\n    {url}/login/{link}\n  later: queensctl \
                 dashboard",
                link = sessions.links.add(join.token().id())
            ),
            false => format!(
                "\n  log in with a link of `queensctl dashboard`, or the join string in\n    {}",
                join_path(options, Role::Operator).display()
            ),
        });
        Ok(Some(format!("  dashboard at {url}{login}")))
    }
}

/// Returns whether the output may contain secrets: other output is kept in logs.
fn prints_secrets() -> bool {
    io::stderr().is_terminal()
}

/// Returns the path of a role's first join string on this machine.
fn join_path(options: &Options, role: Role) -> PathBuf {
    let path = SecretStore::of_directory(&options.data_dir).path(&join_file(role.as_str()));
    path::absolute(&path).unwrap_or(path)
}

/// Opens the authentication of a coordinator that listens on `address`.
/// `tokens` opens tokens for these addresses.
pub(super) fn authenticator(
    options: &Options,
    (address, pki): (SocketAddr, Option<&Arc<Pki>>),
    tokens: impl FnOnce(Vec<String>) -> Result<TokenAuth, TokenAuthError>,
) -> anyhow::Result<Authenticator> {
    if options.insecure {
        return Ok(Authenticator::Open);
    }
    if let Some(pki) = pki {
        return Ok(Authenticator::MutualTls(pki.clone()));
    }
    // Programs on this machine can use the local address, even if another one is advertised.
    let own = match address.ip().is_unspecified() {
        true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        false => address,
    };
    let mut addresses = vec![PublicAddress::of_grpc(options, address).authority()];
    if options.advertise.is_none() && address.ip().is_unspecified() {
        let hosts = own_hosts(address.ip());
        addresses.extend(hosts.iter().map(|host| format!("{host}:{}", address.port())));
    }
    addresses.push(own.to_string());
    addresses.dedup();
    addresses.extend(options.peer.iter().cloned());
    Ok(Authenticator::Tokens(Arc::new(tokens(addresses)?)))
}

/// Returns the commands with which clients join, one per role.
fn join_commands(
    options: &Options,
    authenticator: &Authenticator,
    public: &PublicAddress,
) -> Result<String, TokenAuthError> {
    let authority = public.authority();
    if let Authenticator::MutualTls(_) = authenticator {
        return Ok(format!(
            "To start a worker on any machine that has a certificate:\n  worker --coordinator \
             https://{authority} --tls-ca CA --tls-cert CERTIFICATE --tls-key KEY"
        ));
    }
    let Some(tokens) = authenticator.tokens() else {
        return Ok(format!(
            "WARNING: --insecure: anyone who can reach {authority} can submit results and cancel runs\n\
             To start a worker:\n  {}",
            public.worker_command()
        ));
    };
    if !public.is_remote {
        return Ok(match options.local {
            true => String::new(),
            false => format!(
                "To start a worker on this machine:\n  worker --data-dir {}\nTo accept workers from \
                 other machines, restart with `--listen 0.0.0.0:7171`.",
                path::absolute(&options.data_dir).as_ref().unwrap_or(&options.data_dir).display()
            ),
        });
    }
    let mut lines = Vec::new();
    for (what, role, program) in [
        ("To start a worker on any machine", Role::Worker, "worker"),
        ("To manage it from another machine", Role::Operator, "queensctl status"),
    ] {
        lines.push(match tokens.join(role)? {
            Some(join) if prints_secrets() => format!(
                "{what} (contains a secret):\n  QUEENS_JOIN={} {program}\n  stored in {}",
                join.expose(),
                join_path(options, role).display(),
            ),
            Some(_) => format!(
                "{what}, with a copy of this file (a secret):\n  QUEENS_JOIN=@{} {program}",
                join_path(options, role).display(),
            ),
            None => format!(
                "{what}: the first join string was revoked or removed; create another with `queensctl \
                 token create --role {role} --name NAME`"
            ),
        });
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use proto::connect::CoordinatorEndpoint;

    use super::{super::options::advertised, *};

    #[test]
    fn a_workers_command_names_the_public_address() {
        let command = |listener: &str, advertise: Option<&str>| {
            let advertise = advertise.map(|text| advertised(text).unwrap());
            let host = advertise.as_ref().map(Authority::host);
            let port = advertise.as_ref().and_then(Authority::port_u16);
            PublicAddress::new(listener.parse().unwrap(), host, port).worker_command()
        };
        for (listener, advertise, expected) in [
            ("127.0.0.1:7171", None, "http://127.0.0.1:7171"),
            ("[::1]:9", None, "http://[::1]:9"),
            ("10.0.0.7:7171", None, "http://10.0.0.7:7171 --insecure"),
            ("[fd00::7]:7171", None, "http://[fd00::7]:7171 --insecure"),
            ("0.0.0.0:7171", Some("node7"), "http://node7:7171 --insecure"),
            ("127.0.0.1:7171", Some("tunnel.example:80"), "http://tunnel.example:80 --insecure"),
            ("[::]:7171", Some("[fd00::7]:80"), "http://[fd00::7]:80 --insecure"),
        ] {
            let expected = format!("worker --coordinator {expected}");
            assert_eq!(command(listener, advertise), expected);
        }
        // Such a listener is reachable at any address of this machine.
        for unspecified in ["0.0.0.0:7171", "[::]:7171"] {
            let command = command(unspecified, None);
            let url = command.split(' ').nth(2).unwrap();
            assert!(url.ends_with(":7171") && !url.contains("0.0.0.0") && !url.contains("[::]"));
            assert!(CoordinatorEndpoint::plain(url, true).is_ok(), "{command}");
        }
    }

    #[test]
    fn addresses_to_listen_on_are_refused_with_what_to_give() {
        for (given, expected) in [
            ("7171", "give 127.0.0.1:7171, or 0.0.0.0:7171 "),
            (":7171", "give 127.0.0.1:7171, or 0.0.0.0:7171 "),
            ("", "not a port"),
            (":", "not a port"),
            ("localhost:", "not a port"),
            ("localhost", "give localhost:PORT"),
            ("localhost:99999", "not a port"),
            ("::1", "[::1]:PORT"),
            ("fe80::1:7171", "[fe80::1:7171]:PORT"),
            ("1:2:7171", "[1:2]:7171"),
            ("[::1]", "not a port"),
            ("http://localhost:7171/", "without a scheme: localhost:7171"),
        ] {
            let error = host_and_port(given).unwrap_err();
            assert!(error.contains(expected), "{given}: {error}");
        }
        assert_eq!(host_and_port("[::1]:7171"), Ok(("[::1]", 7171)));
        assert_eq!(host_and_port("node7:0"), Ok(("node7", 0)));
    }

    #[tokio::test]
    async fn a_taken_default_port_costs_only_the_dashboard() {
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = taken.local_addr().unwrap();
        let options = Options::parse_from(["coordinator", "--listen", "127.0.0.1:0"]);
        let listeners = Listeners::bind_at(&options, address).await.unwrap();
        let why = listeners.http.unwrap_err().to_string();
        assert!(why.contains(&format!("{address} is in use by another program")), "{why}");
    }

    #[test]
    fn a_local_coordinator_takes_a_free_port_if_the_default_one_is_in_use() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _within = runtime.enter();
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = taken.local_addr().unwrap();
        assert!(matches!(bind(address), Err(BindError::InUse { .. })));
        assert_ne!(bind_or_free(address).unwrap().local_addr().unwrap(), address);
    }
}
