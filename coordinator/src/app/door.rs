//! Who gets in, by the command line: nobody asks on this machine, join strings do beyond it.

use std::{io, net::SocketAddr, sync::Arc};

use proto::door::install_crypto;
use tokio::net::TcpListener;

use super::{
    Options,
    address::{Advertised, Reached},
    data::shown,
};
use crate::{
    doors::{Gate, Keys, KeysError, Locks, Pki, PkiError, PkiFiles, Principal, Role, Vault},
    driver::Clock,
    http::Dashboard,
};

/// The gate of a coordinator that listens on `address`, and that clients reach as `reached`.
pub(super) fn gate(
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
pub(super) fn http_reached(options: &Options, listener: &TcpListener) -> io::Result<Reached> {
    let address = listener.local_addr()?;
    let advertised = options.advertise.as_ref();
    let advertised = advertised.filter(|_| !address.ip().is_loopback());
    let advertised = advertised.map(Advertised::without_port);
    Ok(Reached::new(address, advertised.as_ref()))
}

/// Where people look.
pub(super) fn dashboard(gate: &Gate, http: &Reached) -> Dashboard {
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
pub(super) enum DoorError {
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// The lines to paste, one a role.
pub(super) fn lines(
    options: &Options,
    gate: &Gate,
    reached: &Reached,
) -> Result<String, KeysError> {
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
                "{what}, paste (a secret; kept in {}):\n  QUEENS_JOIN={} {program}",
                shown(&keys.join_path(role)),
                join.expose()
            )),
            None => lines.push(format!(
                "{what}: the first join string is gone; queensctl token create --role {role}"
            )),
        }
    }
    Ok(lines.join("\n"))
}
