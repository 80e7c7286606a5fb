//! The gate in front of every service: who calls, and may they.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use proto::door::Token;
use tonic::{Status, body::Body, codegen::http};
use tower::{Layer, Service};

use super::{Access, Denied, Keys, Peer, Role, access};

/// Whom a call is of.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Principal {
    /// The name of the token, if the call bears one: who vouches for what is said.
    pub fn token(&self) -> Option<&Arc<str>> {
        match self {
            Self::Token { name, .. } => Some(name),
            Self::Anybody | Self::Loopback => None,
        }
    }

    fn may(&self, access: Access) -> Result<(), Denied> {
        let Self::Token { name, role } = self else {
            return Ok(());
        };
        if access.allows(*role) {
            return Ok(());
        }
        Err(Denied::Role {
            name: name.to_string(),
            role: *role,
            wanted: match access {
                Access::Worker => "a worker's",
                Access::Viewer => "a viewer's or an operator's",
                Access::Operator | Access::Open | Access::Any => "an operator's",
            },
        })
    }
}

/// What the gate asks of callers.
#[derive(Clone)]
pub enum Gate {
    /// Nothing: only loopback reaches this coordinator, or its operator trusts the network.
    Open(Principal),
    /// A token over TLS; from loopback nothing, unless it is to be asked as well.
    Guarded {
        /// The tokens.
        keys: Arc<Keys>,
        /// Whether loopback is asked too.
        require_token: bool,
    },
}

impl Gate {
    /// What shakes hands with clients, where they are asked to.
    pub fn keys(&self) -> Option<Arc<Keys>> {
        match self {
            Self::Open(_) => None,
            Self::Guarded { keys, .. } => Some(keys.clone()),
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
                keys,
                require_token,
            } => {
                let local = peer.is_some_and(Peer::is_local);
                let tls = peer.is_some_and(|peer| peer.tls);
                let known = match proof {
                    Some(_) | None if !tls && !local => return Err(plain_text()),
                    Some(Proof::Bearer(text)) => text
                        .parse::<Token>()
                        .map_err(|_| Denied::Malformed)
                        .and_then(|token| keys.check(&token)),
                    None if local && !require_token => Ok(Principal::Loopback),
                    None => Err(Denied::Missing),
                };
                known.map_err(|denied| unauthenticated(&denied))?
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
}

fn unauthenticated(denied: &Denied) -> Status {
    Status::unauthenticated(denied.to_string())
}

fn plain_text() -> Status {
    Status::unauthenticated(
        "this coordinator speaks TLS to other machines: give the line that it printed at its start \
         (QUEENS_JOIN=queens1-…, or --join @FILE) instead of its address",
    )
}

/// Puts a [`Gate`] in front of services.
#[derive(Clone)]
pub struct GateLayer(pub Gate);

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            gate: self.0.clone(),
            inner,
        }
    }
}

/// A service behind a [`Gate`]. The [`Principal`] of a call is among the request's extensions.
#[derive(Clone)]
pub struct Gated<S> {
    gate: Gate,
    inner: S,
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
        let bearer = request
            .headers()
            .get(http::header::AUTHORIZATION)
            .map(|value| value.to_str().unwrap_or_default())
            .map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
        let peer = request.extensions().get::<Peer>();
        match self.gate.admit(request.uri().path(), peer, bearer) {
            Ok(principal) => {
                request.extensions_mut().insert(principal);
                // No service below wants the secret, and what is not there is not logged.
                request.headers_mut().remove(http::header::AUTHORIZATION);
                Box::pin(self.inner.call(request))
            }
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
