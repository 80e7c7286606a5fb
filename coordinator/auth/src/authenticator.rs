//! The authenticator in front of all services: identifies callers, checks roles.

use std::{
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use common::messages::sync::PackageLimits;
use http_body::{Frame, SizeHint};
use proto::connect::{JoinString, Token, TokenId};
use tokio_rustls::TlsAcceptor;
use tonic::{Status, body::Body, codegen::http};
use tower::{Layer, Service};

use crate::{
    Access, AuthError, Call, Limits, Peer, Pki, Role, TokenAuth, UsageTable, access,
    request_body::{Data, MeteredBody, read_whole},
};

/// The identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// An unauthenticated caller, with `--insecure` or in a call with [`Access::Open`].
    Anonymous,
    Token {
        id: TokenId,
        name: Arc<str>,
        role: Role,
        /// Whether the token's machines act as referees.
        trusted: bool,
        /// Maximum number of machines that may count with the token, if limited.
        machines: Option<NonZeroU32>,
        packages: PackageLimits,
    },
    /// The holder of a certificate of an external authority.
    Certificate { name: Arc<str>, role: Role },
}

impl Subject {
    /// Returns the holder of a token.
    pub(crate) fn of(entry: &crate::TokenEntry) -> Self {
        Self::Token {
            id: entry.id,
            name: entry.name.as_str().into(),
            role: entry.role,
            trusted: entry.trusted,
            machines: entry.machines,
            packages: entry.packages.unwrap_or_default(),
        }
    }

    /// Returns the name of the token or certificate.
    pub fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Anonymous => None,
            Self::Token { name, .. } | Self::Certificate { name, .. } => Some(name),
        }
    }

    /// Returns the name under which records refer to the token or certificate.
    /// The name of a revoked token can be reused, its ID cannot.
    pub fn token(&self) -> Option<Arc<str>> {
        match self {
            Self::Anonymous => None,
            Self::Token { id, name, .. } => Some(format!("{name}/{id}").into()),
            Self::Certificate { name, .. } => Some(format!("{name}/certificate").into()),
        }
    }

    fn authorize(&self, access: Access) -> Result<(), AuthError> {
        let (kind, name, role) = match self {
            Self::Anonymous => return Ok(()),
            Self::Token { name, role, .. } => ("token", name, *role),
            Self::Certificate { name, role } => ("certificate", name, *role),
        };
        if access.allows(role) {
            return Ok(());
        }
        let required = match access {
            Access::Worker => "a worker's",
            Access::Viewer => "a viewer's or an operator's",
            Access::Operator | Access::Open | Access::Any => "an operator's",
        };
        let name = name.to_string();
        Err(AuthError::Role { kind, name, role, required })
    }
}

#[derive(Clone, Copy)]
pub enum CallerCredential<'a> {
    /// The text of a token or join string.
    Bearer(&'a str),
    /// The token that opened the browser's session.
    Session(TokenId),
}

/// Parses a token, or the token in a join string.
pub fn parse_token(text: &str) -> Option<Token> {
    let join = || text.parse::<JoinString>().ok().map(|join| join.token().clone());
    text.parse().ok().or_else(join)
}

/// Required authentication. Unless `Open`, plain text is accepted on loopback only.
#[derive(Clone)]
pub enum Authenticator {
    /// None (`--insecure`).
    Open,
    /// Tokens; the coordinator has its own certificate authority.
    Tokens(Arc<TokenAuth>),
    /// Client certificates of an external authority.
    MutualTls(Arc<Pki>),
}

impl Authenticator {
    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        match self {
            Self::Open => None,
            Self::Tokens(tokens) => Some(tokens.acceptor()),
            Self::MutualTls(pki) => Some(pki.acceptor()),
        }
    }

    pub fn tokens(&self) -> Option<&Arc<TokenAuth>> {
        match self {
            Self::Tokens(tokens) => Some(tokens),
            Self::Open | Self::MutualTls(_) => None,
        }
    }

    /// Returns the names of the trusted tokens, see [`Subject::token`].
    pub fn trusted_tokens(&self) -> Vec<Arc<str>> {
        let entries = self.tokens().map(|tokens| tokens.list()).unwrap_or_default();
        let trusted = entries.iter().filter(|entry| entry.trusted);
        trusted.filter_map(|entry| Subject::of(entry).token()).collect()
    }

    fn identify(
        &self,
        peer: Option<&Peer>,
        credential: Option<CallerCredential<'_>>,
    ) -> Result<Subject, AuthError> {
        let is_private = peer.is_some_and(|peer| peer.tls || peer.is_local());
        match self {
            Self::Open => Ok(Subject::Anonymous),
            _ if !is_private => Err(AuthError::PlainText),
            Self::Tokens(tokens) => match credential.ok_or(AuthError::Missing)? {
                CallerCredential::Bearer(text) => {
                    tokens.check(&parse_token(text).ok_or(AuthError::Malformed)?)
                }
                CallerCredential::Session(token) => tokens.check_id(token),
            },
            Self::MutualTls(_) => peer
                .and_then(|peer| peer.certificate.clone())
                .unwrap_or(Err(AuthError::NoCertificate)),
        }
    }

    /// Authenticates the caller and checks that it has the required role.
    pub fn authenticate(
        &self,
        access: Access,
        peer: Option<&Peer>,
        credential: Option<CallerCredential<'_>>,
    ) -> Result<Subject, Status> {
        let subject = if access == Access::Open {
            Subject::Anonymous
        } else {
            self.identify(peer, credential).map_err(|error| unauthenticated(&error))?
        };
        let authorized = subject.authorize(access);
        authorized.map_err(|error| Status::permission_denied(error.to_string()))?;
        Ok(subject)
    }

    /// Returns a future that waits for the token's end; `None` without a token.
    pub fn until_ended(&self, subject: &Subject) -> Option<Ended> {
        let Subject::Token { id, .. } = *subject else { return None };
        let tokens = self.tokens()?.clone();
        Some(Box::pin(async move { tokens.ended(id).await }))
    }
}

fn unauthenticated(error: &AuthError) -> Status {
    Status::unauthenticated(error.to_string())
}

/// A layer that puts an [`Authenticator`] in front of services.
#[derive(Clone)]
pub struct AuthLayer {
    authenticator: Authenticator,
    usage: Arc<UsageTable>,
}

impl AuthLayer {
    pub fn new(authenticator: Authenticator, limits: Limits) -> Self {
        Self { authenticator, usage: UsageTable::new(limits) }
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, inner: S) -> AuthService<S> {
        AuthService { layer: self.clone(), inner }
    }
}

/// Returns the token of an `Authorization` header; schemes ignore case (RFC 9110).
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

/// A service that sees only authorized calls, with their [`Subject`] attached.
#[derive(Clone)]
pub struct AuthService<S> {
    layer: AuthLayer,
    inner: S,
}

impl<S> AuthService<S> {
    fn admit(&self, request: &http::Request<Body>) -> Result<(Subject, Call), Status> {
        let AuthLayer { authenticator, usage } = &self.layer;
        let bearer = request
            .headers()
            .get(http::header::AUTHORIZATION)
            .map(|value| value.to_str().unwrap_or_default())
            .map(|value| bearer(value).unwrap_or(value));
        let peer = request.extensions().get::<Peer>();
        let activity = peer.map(|peer| &peer.activity);
        let path = request.uri().path();
        let admitted = access(path)
            .ok_or_else(|| Status::unimplemented(format!("unknown call {path}")))
            .and_then(|access| {
                authenticator.authenticate(access, peer, bearer.map(CallerCredential::Bearer))
            })
            .and_then(|subject| {
                let call = usage.start_call(&subject, activity)?;
                Ok((subject, call))
            });
        if let (Err(_), Some(activity)) = (&admitted, activity) {
            activity.record_refusal();
        }
        admitted
    }
}

impl<S> Service<http::Request<Body>> for AuthService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        match self.admit(&request) {
            Ok((subject, call)) => {
                let ended = self.layer.authenticator.until_ended(&subject);
                request.extensions_mut().insert(subject);
                // Services do not need the secret, and must not log it.
                request.headers_mut().remove(http::header::AUTHORIZATION);
                let call = Arc::new(call);
                // The service that is ready stays with this call.
                let next = self.inner.clone();
                let mut inner = std::mem::replace(&mut self.inner, next);
                Box::pin(async move {
                    let metered = call.clone();
                    let request = if request.uri().path().starts_with(STREAMS) {
                        request.map(|body| Body::new(MeteredBody { body, call: metered }))
                    } else {
                        match read_whole(request, metered).await {
                            Ok(request) => request,
                            Err(status) => return Ok(status.into_http()),
                        }
                    };
                    let tracked = |body| TrackedBody::new(body, call, ended, last_trailers);
                    Ok(inner.call(request).await?.map(|body| Body::new(tracked(body))))
                })
            }
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}

/// The calls whose clients may send any number of messages, each after an answer.
const STREAMS: &str = "/grpc.reflection.";

/// Returns the trailers that end a gRPC stream whose caller's token has ended.
fn last_trailers(error: &AuthError) -> Frame<Data> {
    let mut trailers = http::HeaderMap::new();
    // The code is set even if the text is not a valid header.
    let _ = unauthenticated(error).add_header(&mut trailers);
    Frame::trailers(trailers)
}

/// A future that resolves with the reason when a token ends.
type Ended = Pin<Box<dyn Future<Output = AuthError> + Send>>;

/// A function that builds the last frame of a stream from the reason for its end.
type LastFrame<D> = fn(&AuthError) -> Frame<D>;

/// Number of frames of a unary response: its message and its trailers.
/// They are sent even if the token has just ended: the call itself may have revoked it.
const UNARY_FRAMES: u32 = 2;

/// A response body that keeps its call in progress and ends with the token.
pub struct TrackedBody<B: http_body::Body> {
    body: B,
    _call: Arc<Call>,
    /// `None` for responses that outlast the token.
    ended: Option<Ended>,
    last_frame: LastFrame<B::Data>,
    frames: u32,
    over: bool,
}

impl<B: http_body::Body> TrackedBody<B> {
    /// Wraps a body; once `ended` resolves, sends `last_frame` instead of the rest.
    pub fn new(
        body: B,
        call: Arc<Call>,
        ended: Option<Ended>,
        last_frame: LastFrame<B::Data>,
    ) -> Self {
        Self { body, _call: call, ended, last_frame, frames: 0, over: false }
    }
}

impl<B: http_body::Body + Unpin> http_body::Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.frames = self.frames.saturating_add(u32::from(frame.is_ready()));
        if (frame.is_pending() || self.frames > UNARY_FRAMES)
            && let Some(ended) = &mut self.ended
            && let Poll::Ready(error) = ended.as_mut().poll(context)
        {
            self.over = true;
            return Poll::Ready(Some(Ok((self.last_frame)(&error))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
