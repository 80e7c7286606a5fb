//! The gate in front of every service: who calls, and may they.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use proto::door::{Token, TokenId};
use tokio_rustls::TlsAcceptor;
use tonic::{Status, body::Body, codegen::http};
use tower::{Layer, Service};

use super::{
    Access, Accounts, Denied, Keys, Limits, Peer, Pki, Role, access,
    accounts::Call,
    bodies::{Kept, Metered},
};

/// Whom a call is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Somebody on a network that the operator trusts: the coordinator asks nobody who they are.
    Anybody,
    /// Somebody on this machine.
    Loopback,
    /// The holder of a token.
    Token {
        /// The token's name.
        name: Arc<str>,
        /// What it may do.
        role: Role,
    },
    /// The holder of a certificate of an authority that others run.
    Certificate {
        /// The name in it.
        name: Arc<str>,
        /// What it may do.
        role: Role,
    },
}

impl Principal {
    /// The name of the token or the certificate, where one is asked for: who vouches for what is said.
    pub fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Anybody | Self::Loopback => None,
            Self::Token { name, .. } | Self::Certificate { name, .. } => Some(name),
        }
    }

    fn may(&self, access: Access) -> Result<(), Denied> {
        let (what, name, role) = match self {
            Self::Anybody | Self::Loopback => return Ok(()),
            Self::Token { name, role } => ("token", name, *role),
            Self::Certificate { name, role } => ("certificate", name, *role),
        };
        if access.allows(role) {
            return Ok(());
        }
        Err(Denied::Role {
            what,
            name: name.to_string(),
            role,
            wanted: match (access, what) {
                (Access::Worker, "token") => "a worker's join string",
                (Access::Viewer, "token") => "a viewer's or an operator's join string",
                (Access::Operator | Access::Open | Access::Any, "token") => {
                    "an operator's join string"
                }
                (Access::Worker, _) => "a worker's certificate",
                (Access::Viewer, _) => "a viewer's or an operator's certificate",
                (Access::Operator | Access::Open | Access::Any, _) => "an operator's certificate",
            },
        })
    }
}

/// What tells callers apart.
#[derive(Clone)]
pub enum Locks {
    /// Tokens, and the coordinator's own authority.
    Tokens(Arc<Keys>),
    /// Certificates, of an authority that others run.
    Certificates(Arc<Pki>),
}

impl Locks {
    /// What shakes hands with clients.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        match self {
            Self::Tokens(keys) => keys.acceptor(),
            Self::Certificates(pki) => pki.acceptor(),
        }
    }

    /// Who is called so by what came with the call.
    fn who(&self, peer: Option<&Peer>, proof: Option<Proof<'_>>) -> Result<Principal, Denied> {
        match self {
            Self::Tokens(keys) => match proof.ok_or(Denied::Missing)? {
                Proof::Bearer(text) => {
                    let token: Token = text.parse().map_err(|_| Denied::Malformed)?;
                    keys.check(&token)
                }
                Proof::Session(token) => keys.still(token),
            },
            Self::Certificates(_) => peer
                .and_then(|peer| peer.certificate.clone())
                .unwrap_or(Err(Denied::NoCertificate)),
        }
    }
}

/// What the gate asks of callers.
#[derive(Clone)]
pub enum Gate {
    /// Nothing: only loopback reaches this coordinator, or its operator trusts the network.
    Open(Principal),
    /// A token or a certificate over TLS; from loopback nothing, unless it is to be asked as well.
    Guarded {
        /// What tells callers apart.
        locks: Locks,
        /// Whether loopback is asked too.
        require_token: bool,
    },
}

impl Gate {
    /// What shakes hands with clients, where they are asked to.
    pub fn locks(&self) -> Option<Locks> {
        match self {
            Self::Open(_) => None,
            Self::Guarded { locks, .. } => Some(locks.clone()),
        }
    }

    /// The tokens, where they are what tells callers apart.
    pub fn keys(&self) -> Option<Arc<Keys>> {
        match self.locks()? {
            Locks::Tokens(keys) => Some(keys),
            Locks::Certificates(_) => None,
        }
    }

    /// Who makes this call, if they may.
    fn admit(
        &self,
        path: &str,
        peer: Option<&Peer>,
        bearer: Option<&str>,
    ) -> Result<Principal, Status> {
        let access = access(path)
            .ok_or_else(|| Status::unimplemented(format!("there is no call {path}")))?;
        self.enter(access, peer, bearer.map(Proof::Bearer))
    }

    /// Who asks for something that is open to callers of this kind, if they may have it.
    pub(crate) fn enter(
        &self,
        access: Access,
        peer: Option<&Peer>,
        proof: Option<Proof<'_>>,
    ) -> Result<Principal, Status> {
        let principal = match self {
            Self::Open(principal) => principal.clone(),
            Self::Guarded { .. } if access == Access::Open => Principal::Anybody,
            Self::Guarded {
                locks,
                require_token,
            } => {
                let local = peer.is_some_and(Peer::is_local);
                let tls = peer.is_some_and(|peer| peer.tls);
                let shown = peer.is_some_and(|peer| peer.certificate.is_some());
                if !tls && !local {
                    return Err(plain_text());
                }
                match proof.is_some() || shown || !local || *require_token {
                    true => locks
                        .who(peer, proof)
                        .map_err(|denied| unauthenticated(&denied))?,
                    false => Principal::Loopback,
                }
            }
        };
        principal
            .may(access)
            .map_err(|denied| Status::permission_denied(denied.to_string()))?;
        Ok(principal)
    }
}

/// By what a caller shows who it is.
#[derive(Clone, Copy)]
pub(crate) enum Proof<'a> {
    /// A token's text, as it came.
    Bearer(&'a str),
    /// The token with which a browser's session was opened.
    Session(TokenId),
}

fn unauthenticated(denied: &Denied) -> Status {
    Status::unauthenticated(denied.to_string())
}

fn plain_text() -> Status {
    Status::unauthenticated(
        "this coordinator speaks TLS to other machines: give the line that it printed at its start \
         (QUEENS_JOIN=queens1-…, or --join @FILE) instead of its address, or https:// with --tls-ca \
         where it has --client-ca",
    )
}

/// Puts a [`Gate`] in front of services.
#[derive(Clone)]
pub struct GateLayer {
    gate: Gate,
    accounts: Arc<Accounts>,
}

impl GateLayer {
    /// A layer with accounts of its own.
    pub fn new(gate: Gate, limits: Limits) -> Self {
        Self {
            gate,
            accounts: Accounts::new(limits),
        }
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            gate: self.gate.clone(),
            accounts: self.accounts.clone(),
            inner,
        }
    }
}

/// A service behind a [`Gate`]. The [`Principal`] of a call is among the request's extensions.
#[derive(Clone)]
pub struct Gated<S> {
    gate: Gate,
    accounts: Arc<Accounts>,
    inner: S,
}

impl<S> Gated<S> {
    /// Who makes this call and what it may use, if it is let in.
    fn enter(&self, request: &http::Request<Body>) -> Result<(Principal, Call), Status> {
        let bearer = request
            .headers()
            .get(http::header::AUTHORIZATION)
            .map(|value| value.to_str().unwrap_or_default())
            .map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
        let peer = request.extensions().get::<Peer>();
        let visit = peer.map(|peer| &peer.visit);
        let entered = self
            .gate
            .admit(request.uri().path(), peer, bearer)
            .and_then(|principal| {
                let call = self.accounts.enter(&principal, visit)?;
                Ok((principal, call))
            });
        if let (Err(_), Some(visit)) = (&entered, visit) {
            visit.refuses();
        }
        entered
    }
}

impl<S> Service<http::Request<Body>> for Gated<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        match self.enter(&request) {
            Ok((principal, call)) => {
                request.extensions_mut().insert(principal);
                // No service below wants the secret, and what is not there is not logged.
                request.headers_mut().remove(http::header::AUTHORIZATION);
                let call = Arc::new(call);
                let metered = call.clone();
                let request = request.map(|body| {
                    Body::new(Metered {
                        body,
                        call: metered,
                    })
                });
                let answer = self.inner.call(request);
                Box::pin(async move {
                    let answer = answer.await?;
                    Ok(answer.map(|body| Body::new(Kept { body, _call: call })))
                })
            }
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
