//! A coordinator until it leads: it prints who does, and serves its HTTP port.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
};

use auth::{Pki, TokenAuth};
use store::{Clock, Observed, PgStore};
use tokio::{net::TcpListener, runtime::Handle, sync::watch};
use view::text::{eprint_line, moment};

use super::{
    Options,
    endpoints::{Listeners, authenticator},
};
use crate::http::serve_standby;

pub(super) struct Standby {
    options: Options,
    clock: Clock,
    /// The address of the gRPC services of a leader.
    grpc: SocketAddr,
    /// The HTTP port, until it is served.
    http: Option<StdListener>,
    pki: Option<Arc<Pki>>,
    runtime: Handle,
    /// Its end ends the HTTP service.
    seen: watch::Sender<Option<Observed>>,
}

impl Standby {
    /// Creates a standby that shares the HTTP port with the leader that it becomes.
    pub(super) fn new(
        options: &Options,
        listeners: &Listeners,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            options: options.clone(),
            clock,
            grpc: listeners.grpc.local_addr()?,
            http: listeners.http.as_ref().ok().map(shared).transpose()?,
            pki: listeners.pki.clone(),
            runtime: Handle::current(),
            seen: watch::Sender::new(None),
        })
    }

    /// Notes the leader of the database; prints a new one. May block.
    pub(super) fn observe(&mut self, url: &str, seen: &Observed) {
        let before = self.seen.send_replace(Some(seen.clone()));
        if before.is_none_or(|before| before.leader != seen.leader) {
            eprint_line(&format!(
                "Standby: {} has led {} since {} (term {}); will take over if its heartbeat stops",
                seen.leader.name,
                self.options.storage_name(),
                moment(seen.leader.since_unix_ms),
                seen.leader.term
            ));
            #[cfg(unix)]
            super::systemd::stands_by(&seen.leader.name);
        }
        if let Some(listener) = &self.http {
            // A leader that has just begun may have no keys yet.
            match self.serve(url, listener) {
                Ok(()) => self.http = None,
                Err(why) => tracing::debug!("no HTTP service yet: {why}"),
            }
        }
    }

    fn serve(&self, url: &str, listener: &StdListener) -> anyhow::Result<()> {
        let _inside = self.runtime.enter();
        let secrets = PgStore::secrets_of_leader(url)?;
        let auth = authenticator(&self.options, (self.grpc, self.pki.as_ref()), |addresses| {
            TokenAuth::load(secrets, addresses, self.clock)
        })?;
        let listener = TcpListener::from_std(listener.try_clone()?)?;
        eprint_line(&format!("  probes and metrics on {}", listener.local_addr()?));
        self.runtime.spawn(serve_standby(listener, auth, self.seen.subscribe()));
        Ok(())
    }
}

fn shared(listener: &TcpListener) -> io::Result<StdListener> {
    #[cfg(unix)]
    let handle = std::os::fd::AsFd::as_fd(listener).try_clone_to_owned();
    #[cfg(windows)]
    let handle = std::os::windows::io::AsSocket::as_socket(listener).try_clone_to_owned();
    handle.map(StdListener::from)
}
