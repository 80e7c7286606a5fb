//! Who gets in, by the command line: nobody asks on this machine, join strings do beyond it.

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::anyhow;
use proto::door::install_crypto;
use tokio::net::TcpListener;
use worker::config::Address;

use super::{
    Options,
    address::{Advertised, Listen, ListenHttp, Reached},
    data::shown,
};
use crate::{
    doors::{Gate, Keys, KeysError, Locks, Pki, PkiError, PkiFiles, Principal, Role, Vault},
    driver::Clock,
    http::Dashboard,
};

/// The ports, taken.
pub(super) struct Ports {
    pub(super) grpc: TcpListener,
    pub(super) http: Option<TcpListener>,
}

impl Ports {
    pub(super) fn take(listen: Listen, http: Option<ListenHttp>) -> anyhow::Result<Self> {
        Ok(Self {
            grpc: listen.bind()?,
            http: http.map(ListenHttp::bind).transpose()?.flatten(),
        })
    }
}

/// How a coordinator is reached, and who is let in.
pub(super) struct Entrance {
    pub(super) gate: Gate,
    /// The lines to paste on other machines; empty where there is nothing to say.
    pub(super) paste: String,
    /// How a worker in this process calls.
    pub(super) own: Address,
    pub(super) web: Option<Web>,
}

/// How browsers reach it.
pub(super) struct Web {
    reached: Reached,
    pub(super) dashboard: Dashboard,
}

impl Web {
    /// And by what names it is known.
    pub(super) fn dashboard_and_names(&self) -> (&Dashboard, Vec<String>) {
        (&self.dashboard, vec![self.reached.host().to_owned()])
    }
}

impl Entrance {
    pub(super) fn open(
        options: &Options,
        ports: &Ports,
        (vault, clock): (Vault, Clock),
    ) -> anyhow::Result<Self> {
        let address = ports.grpc.local_addr()?;
        let reached = Reached::new(address, options.advertise.as_ref());
        let http = ports.http.as_ref();
        let http = http.map(|http| http_reached(options, http)).transpose()?;
        let gate = gate(options, address, (&reached, http.as_ref()), (vault, clock))?;
        let web = http.map(|reached| Web {
            dashboard: dashboard(&gate, &reached),
            reached,
        });
        Ok(Self {
            paste: lines(options, &gate, &reached)?,
            own: own_address(address, &gate, options.local)?,
            gate,
            web,
        })
    }

    pub(super) fn dashboard(&self) -> Option<&Dashboard> {
        self.web.as_ref().map(|web| &web.dashboard)
    }
}

/// How the worker in this process calls its coordinator. Within a process nothing needs to be
/// encrypted; where loopback is asked for a token as well, it has one.
fn own_address(address: SocketAddr, gate: &Gate, local: bool) -> anyhow::Result<Address> {
    match gate {
        Gate::Guarded {
            locks: Locks::Tokens(keys),
            require_token: true,
        } => match keys.join(Role::Worker)? {
            Some(join) => Ok(Address::joined(join)),
            None => Err(anyhow!(
                "--local under --require-token counts with the join string in {}, which is gone",
                keys.join_path(Role::Worker).display()
            )),
        },
        Gate::Guarded {
            locks: Locks::Certificates(_),
            require_token: true,
        } if local => Err(anyhow!(
            "--local has no certificate to show: leave --require-token out, or start a worker with \
             --tls-cert"
        )),
        Gate::Guarded { .. } | Gate::Open(_) => {
            Ok(Address::new(&format!("http://{address}"), true)?)
        }
    }
}

/// The gate of a coordinator that listens on `address`, and that clients reach as `reached`.
fn gate(
    options: &Options,
    address: SocketAddr,
    (reached, http): (&Reached, Option<&Reached>),
    (vault, clock): (Vault, Clock),
) -> Result<Gate, DoorError> {
    if options.insecure {
        return Ok(Gate::Open(Principal::Anybody));
    }
    if let Some(files) = files(options) {
        install_crypto();
        return Ok(Gate::Guarded {
            locks: Locks::Certificates(Arc::new(Pki::open(files)?)),
            require_token: options.require_token,
        });
    }
    let by_others = reached.by_others || http.is_some_and(|http| http.by_others);
    if !by_others && !options.require_token {
        return Ok(Gate::Open(Principal::Loopback));
    }
    install_crypto();
    let mut addresses = vec![reached.authority()];
    // On the coordinator's own machine its own address works whatever others see.
    let own = match address.ip().is_unspecified() {
        true => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
        false => address,
    };
    if !addresses.contains(&own.to_string()) {
        addresses.push(own.to_string());
    }
    addresses.extend(options.peer.iter().cloned());
    let keys = Keys::open(vault, addresses, clock)?;
    Ok(Gate::Guarded {
        locks: Locks::Tokens(Arc::new(keys)),
        require_token: options.require_token,
    })
}

/// How browsers reach what serves HTTP on `listener`: by the advertised name, unless it is on loopback,
/// which that name does not lead to.
fn http_reached(options: &Options, listener: &TcpListener) -> io::Result<Reached> {
    let address = listener.local_addr()?;
    let advertised = options.advertise.as_ref();
    let advertised = advertised.filter(|_| !address.ip().is_loopback());
    let advertised = advertised.map(Advertised::without_port);
    Ok(Reached::new(address, advertised.as_ref()))
}

/// Where people look.
fn dashboard(gate: &Gate, http: &Reached) -> Dashboard {
    let scheme = match (gate, http.by_others) {
        (Gate::Guarded { .. }, true) => "https",
        (Gate::Guarded { .. } | Gate::Open(_), _) => "http",
    };
    let url = format!("{scheme}://{}", http.authority());
    Dashboard::new(url, !http.by_others)
}

/// What the command line names of an authority that others run.
fn files(options: &Options) -> Option<PkiFiles> {
    let client_ca = options.client_ca.clone()?;
    // In the environment the other two may be a worker's.
    Some(PkiFiles {
        certificate: options.tls_cert.clone()?,
        key: options.tls_key.clone()?,
        client_ca,
    })
}

/// Why nobody can be let in.
#[derive(Debug, thiserror::Error)]
enum DoorError {
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// The lines to paste, one a role.
fn lines(options: &Options, gate: &Gate, reached: &Reached) -> Result<String, KeysError> {
    if let Some(Locks::Certificates(_)) = gate.locks() {
        return Ok(format!(
            "to count on any machine that has a worker's certificate:\n  worker --coordinator \
             https://{} --tls-ca CA --tls-cert CERTIFICATE --tls-key KEY",
            reached.authority()
        ));
    }
    let Some(keys) = gate.keys() else {
        return Ok(match options.insecure && reached.by_others {
            true => format!(
                "WARNING: --insecure: whoever reaches {} can report counts and cancel runs\n\
                 to count on any machine:\n  {reached}",
                reached.authority()
            ),
            false if options.local => String::new(),
            false => format!(
                "to count on this machine:\n  {reached}\nfor other machines: start with --listen \
                 0.0.0.0:7171"
            ),
        });
    };
    let mut lines = Vec::new();
    for (what, role, program) in [
        ("to count on any machine", Role::Worker, "worker"),
        (
            "to look after it from any machine",
            Role::Operator,
            "queensctl status",
        ),
    ] {
        match keys.join(role)? {
            Some(join) => lines.push(format!(
                "{what}, paste (a secret):\n  QUEENS_JOIN={} {program}\n  kept in {}",
                join.expose(),
                shown(&keys.join_path(role)),
            )),
            None => lines.push(format!(
                "{what}: the first join string is gone; queensctl token create --role {role}"
            )),
        }
    }
    Ok(lines.join("\n"))
}
