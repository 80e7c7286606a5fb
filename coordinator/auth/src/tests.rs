//! A real server behind an authenticator, called with every kind of credential.

use std::{net::SocketAddr, sync::Arc};

use proto::{
    connect::{
        CaHash, CoordinatorEndpoint, JoinString, Token, TokenId, explain_tls, install_crypto,
    },
    v1::FILE_DESCRIPTOR_SET,
};
use store::{Clock, SecretStore};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Status,
    metadata::MetadataValue,
    transport::{Channel, Server},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use super::*;

pub(super) struct Fixture {
    pub(super) tokens: Arc<TokenAuth>,
    pub(super) address: SocketAddr,
    _dir: tempfile::TempDir,
}

/// Serves health (open) and reflection (any token) behind an authenticator.
async fn serve() -> Fixture {
    serve_with(Limits::default()).await
}

pub(super) async fn serve_with(limits: Limits) -> Fixture {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let secrets = SecretStore::of_directory(dir.path());
    let tokens = TokenAuth::open(secrets, vec![address.to_string()], Clock::start()).unwrap();
    let tokens = Arc::new(tokens);
    let authenticator = Authenticator::Required(AuthMode::Tokens(tokens.clone()));
    let incoming = Incoming::new(listener, limits.connections, authenticator.mode(), limits);
    let (_, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .build_v1()
        .unwrap();
    let serve = limits
        .server()
        .layer(AuthLayer::new(authenticator, limits))
        .add_service(health)
        .add_service(reflection)
        .serve_with_incoming(incoming);
    tokio::spawn(serve);
    Fixture { tokens, address, _dir: dir }
}

impl Fixture {
    fn plain(&self) -> CoordinatorEndpoint {
        CoordinatorEndpoint::Plain(format!("http://{}", self.address).parse().unwrap())
    }

    fn with(&self, token: Token) -> CoordinatorEndpoint {
        join(self.address, self.tokens.join(Role::Worker).unwrap().unwrap().ca(), token)
    }

    /// Returns the first join string of operators.
    pub(super) fn operator(&self) -> CoordinatorEndpoint {
        CoordinatorEndpoint::Token(self.tokens.join(Role::Operator).unwrap().unwrap())
    }
}

/// Returns the endpoint of a join string.
fn join(address: SocketAddr, ca: CaHash, token: Token) -> CoordinatorEndpoint {
    CoordinatorEndpoint::Token(JoinString::new(vec![address.to_string()], ca, token).unwrap())
}

/// Makes a call that requires a token of any role, on a new connection.
pub(super) async fn reflect(way: &CoordinatorEndpoint) -> Result<(), Status> {
    reflect_on(way, way.endpoints().remove(0).connect_lazy()).await
}

pub(super) async fn reflect_on(way: &CoordinatorEndpoint, channel: Channel) -> Result<(), Status> {
    let mut client = ServerReflectionClient::new(way.authenticate(channel));
    let request = tokio_stream::once(list_services());
    let mut answers = client.server_reflection_info(request).await?.into_inner();
    answers.message().await?.expect("one answer");
    Ok(())
}

pub(super) fn list_services() -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    }
}

async fn check_health(way: &CoordinatorEndpoint) -> Result<(), Status> {
    let channel = way.endpoints().remove(0).connect_lazy();
    let mut client = HealthClient::new(way.authenticate(channel));
    client.check(HealthCheckRequest::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_join_string_is_valid_until_it_is_revoked() {
    let server = serve().await;
    let way = server.operator();
    reflect(&way).await.unwrap();
    assert_eq!(server.tokens.revoke("operator").unwrap(), 1);
    let refused = reflect(&way).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("revoked"), "{refused}");
    check_health(&way).await.unwrap();
}

#[tokio::test]
async fn callers_without_a_valid_token_are_refused() {
    let server = serve().await;
    let other = Token::new(TokenId(1), [1; 32]);
    for (way, word) in [(server.plain(), "token"), (server.with(other), "does not know the token")]
    {
        let refused = reflect(&way).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{way}");
        assert!(refused.message().contains(word), "{refused}");
    }
}

/// Clients without TLS, such as Prometheus, on the coordinator's own machine.
#[tokio::test]
async fn plain_text_is_accepted_on_loopback() {
    let server = serve().await;
    let channel = server.plain().endpoints().remove(0).connect_lazy();
    let join = server.tokens.join(Role::Viewer).unwrap();
    assert_eq!(join, None, "viewers get none by default");
    let join = server.tokens.join(Role::Worker).unwrap().unwrap();
    for shown in [join.token().expose(), join.expose()] {
        let bearer: MetadataValue<_> = format!("Bearer {shown}").parse().unwrap();
        let show = move |mut request: Request<()>| {
            request.metadata_mut().insert("authorization", bearer.clone());
            Ok::<_, Status>(request)
        };
        let mut client = ServerReflectionClient::with_interceptor(channel.clone(), show);
        let request = ServerReflectionRequest::default();
        client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_verifies_its_coordinator_before_it_sends_its_token() {
    let server = serve().await;
    let kept = server.tokens.join(Role::Worker).unwrap().unwrap();
    let imposter = join(server.address, CaHash([7; 32]), kept.token().clone());
    let refused = reflect(&imposter).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let why = explain_tls(&refused).expect("the causes name a certificate");
    assert!(why.contains("not the one that the join string names"), "{why}");
}

/// Connects to a server whose certificate was made then, and returns the error.
async fn refused_certificate_of(now_unix_ms: u64) -> &'static str {
    install_crypto();
    let authority = Authority::create(Clock::start().now().0).unwrap();
    let certificate = authority.certify(&[], now_unix_ms).unwrap();
    let resolver = tokio_rustls::rustls::sign::SingleCertAndKey::from(certificate);
    let mut config = tokio_rustls::rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        assert!(acceptor.accept(stream).await.is_err(), "the client goes");
    });
    let token = Token::new(TokenId(1), [1; 32]);
    let refused = check_health(&join(address, authority.hash(), token)).await.unwrap_err();
    explain_tls(&refused).expect("the causes name a certificate")
}

#[tokio::test]
async fn a_wrong_clock_is_explained() {
    let now = Clock::start().now().0;
    let year = 365 * 86_400_000;
    for then in [now - year, now + year] {
        let why = refused_certificate_of(then).await;
        assert!(why.contains("set this machine's clock"), "{why}");
    }
}

#[tokio::test]
async fn a_port_without_tls_is_explained() {
    let server = serve().await;
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = TcpListenerStream::new(plain);
    tokio::spawn(Server::builder().add_service(health).serve_with_incoming(incoming));
    let kept = server.tokens.join(Role::Worker).unwrap().unwrap();
    let other = join(address, kept.ca(), kept.token().clone());
    let refused = check_health(&other).await.unwrap_err();
    let why = explain_tls(&refused).expect("the causes name TLS");
    assert!(why.contains("does not speak TLS"), "{why}");
}

#[tokio::test]
async fn credentials_survive_restarts_and_are_private() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let secrets = SecretStore::of_directory(dir.path());
    let open = |address: &str| {
        TokenAuth::open(secrets.clone(), vec![address.to_owned()], Clock::start()).unwrap()
    };
    let tokens = open("lab-1:7171");
    let first = tokens.join(Role::Worker).unwrap().unwrap();
    let made = tokens.create(NewToken::new(Role::Viewer, "screen")).unwrap();
    drop(tokens);
    let tokens = open("lab-2:7171");
    let second = tokens.join(Role::Worker).unwrap().unwrap();
    assert_eq!((first.ca(), first.token()), (second.ca(), second.token()));
    assert_eq!(second.addresses(), ["lab-2:7171"]);
    assert!(tokens.check(made.token()).is_ok());
    #[cfg(unix)]
    for entry in std::fs::read_dir(dir.path().join("doors")).unwrap() {
        use std::os::unix::fs::PermissionsExt as _;
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
    tokens.revoke("worker").unwrap();
    drop(tokens);
    let tokens = open("lab-1:7171");
    assert_eq!(tokens.join(Role::Worker).unwrap(), None, "revoked for good");
}

/// Returns every call of every service, from the descriptors.
fn calls() -> Vec<String> {
    use prost::Message as _;
    let mut calls = Vec::new();
    for bytes in [
        FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ] {
        let set = prost_types::FileDescriptorSet::decode(bytes).unwrap();
        for file in set.file {
            let package = file.package().to_owned();
            for service in &file.service {
                let of_service = service.method.iter();
                let path = |name: &str| format!("/{package}.{}/{name}", service.name());
                calls.extend(of_service.map(|method| path(method.name())));
            }
        }
    }
    calls
}

#[test]
fn every_call_has_a_row() {
    let calls = calls();
    assert!(calls.len() > 10);
    for call in &calls {
        assert!(access(call).is_some(), "{call} has no row");
    }
    for (known, _) in super::calls() {
        assert!(calls.iter().any(|call| call == known), "{known} is not a call");
    }
    assert_eq!(access("/queens.v1.Runs/Nonsense"), None);
}
