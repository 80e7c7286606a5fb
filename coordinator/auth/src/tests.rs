//! A real server behind an authenticator, called with tokens and join strings.

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
    Request, Status,
    metadata::MetadataValue,
    transport::{Channel, Server},
};
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
pub(super) async fn serve_with(limits: Limits) -> Fixture {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let secrets = SecretStore::of_directory(dir.path());
    let tokens = TokenAuth::open(secrets, vec![address.to_string()], Clock::start()).unwrap();
    let tokens = Arc::new(tokens);
    let authenticator = Authenticator::Tokens(tokens.clone());
    let incoming = accept(listener, limits.connections, authenticator.clone(), limits);
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
    /// Returns an endpoint with the operators' first join string.
    pub(super) fn operator(&self) -> CoordinatorEndpoint {
        CoordinatorEndpoint::Token(self.tokens.join(Role::Operator).unwrap().unwrap())
    }
}

/// Connects to a server, expecting this authority; returns why TLS failed.
async fn tls_failure(address: SocketAddr, ca: CaHash) -> &'static str {
    let token = Token::new(TokenId(1), [1; 32]);
    let join = JoinString::new(vec![address.to_string()], ca, token).unwrap();
    let refused = reflect(&CoordinatorEndpoint::Token(join)).await.unwrap_err();
    explain_tls(&refused).expect("the causes name TLS")
}

/// Makes a call that requires a token of any role, on a new connection.
pub(super) async fn reflect(to: &CoordinatorEndpoint) -> Result<(), Status> {
    reflect_on(to, to.endpoints().remove(0).connect_lazy()).await
}

pub(super) async fn reflect_on(to: &CoordinatorEndpoint, channel: Channel) -> Result<(), Status> {
    let mut client = ServerReflectionClient::new(to.authenticate(channel));
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

/// Connects without TLS, like Prometheus on the coordinator's own machine.
#[tokio::test]
async fn plain_text_is_accepted_on_loopback() {
    let server = serve_with(Limits::default()).await;
    let plain = CoordinatorEndpoint::plain(&format!("http://{}", server.address), false).unwrap();
    let channel = plain.endpoints().remove(0).connect_lazy();
    let join = server.tokens.join(Role::Viewer).unwrap();
    assert_eq!(join, None, "viewers get none by default");
    let join = server.tokens.join(Role::Worker).unwrap().unwrap();
    for (scheme, credential) in
        [("Bearer", join.token().expose()), ("bearer", join.expose()), ("BEARER ", join.expose())]
    {
        let bearer: MetadataValue<_> = format!("{scheme} {credential}").parse().unwrap();
        let add_bearer = move |mut request: Request<()>| {
            request.metadata_mut().insert("authorization", bearer.clone());
            Ok::<_, Status>(request)
        };
        let mut client = ServerReflectionClient::with_interceptor(channel.clone(), add_bearer);
        let request = ServerReflectionRequest::default();
        client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    }
}

/// Connects to a server with a certificate of this time; returns why TLS failed.
async fn failure_with_certificate_of(now_unix_ms: u64) -> &'static str {
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
        assert!(acceptor.accept(stream).await.is_err(), "the client disconnects");
    });
    tls_failure(address, authority.hash()).await
}

#[tokio::test]
async fn a_wrong_clock_is_explained() {
    let now = Clock::start().now().0;
    let year = 365 * 86_400_000;
    for then in [now - year, now + year] {
        let why = failure_with_certificate_of(then).await;
        assert!(why.contains("set this machine's clock"), "{why}");
    }
}

#[tokio::test]
async fn a_port_without_tls_is_explained() {
    install_crypto();
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = TcpListenerStream::new(plain);
    tokio::spawn(Server::builder().add_service(health).serve_with_incoming(incoming));
    let why = tls_failure(address, CaHash([7; 32])).await;
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
    let screen = tokens.create(NewToken::new(Role::Viewer, "screen")).unwrap();
    let lab = NewToken { trusted: true, ..NewToken::new(Role::Worker, "lab") };
    let lab = format!("lab/{}", tokens.create(lab).unwrap().token().id());
    drop(tokens);
    let tokens = open("lab-2:7171");
    let second = tokens.join(Role::Worker).unwrap().unwrap();
    assert_eq!((first.ca(), first.token()), (second.ca(), second.token()));
    assert_eq!(second.addresses(), ["lab-2:7171"]);
    assert!(tokens.check(screen.token()).is_ok());
    #[cfg(unix)]
    for entry in std::fs::read_dir(dir.path().join("auth")).unwrap() {
        use std::os::unix::fs::PermissionsExt as _;
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
    tokens.revoke("worker").unwrap();
    drop(tokens);
    let tokens = open("lab-1:7171");
    assert_eq!(tokens.join(Role::Worker).unwrap(), None, "revoked for good");
    assert_eq!(Authenticator::Tokens(Arc::new(tokens)).trusted_tokens(), [lab.into()]);
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
                let path = format!("/{package}.{}/", service.name());
                calls.extend(service.method.iter().map(|method| path.clone() + method.name()));
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
    for (known, _) in CALLS {
        assert!(calls.iter().any(|call| call == known), "{known} is not a call");
    }
    assert_eq!(access("/queens.v1.Runs/Nonsense"), None);
}

#[test]
fn the_first_join_string_follows_the_renewal_of_its_token() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let secrets = SecretStore::of_directory(dir.path());
    let tokens = TokenAuth::open(secrets, vec!["lab:1".to_owned()], Clock::start()).unwrap();
    let first = tokens.join(Role::Worker).unwrap().expect("the first start creates it");
    let renewed = tokens.renew("worker").unwrap();
    assert_ne!(renewed.expose(), first.expose());
    let stored = tokens.join(Role::Worker).unwrap().expect("it follows");
    assert_eq!(stored.expose(), renewed.expose());
    // A removed one stays removed.
    std::fs::remove_file(dir.path().join("auth/worker.join")).unwrap();
    tokens.renew("worker").unwrap();
    assert_eq!(tokens.join(Role::Worker).unwrap(), None);
}
