//! A real server behind a real door, tried with every kind of key.

use std::sync::Arc;

use proto::{
    door::{CaHash, JoinString, Token, TokenId, Way, explain_tls, install_crypto},
    v1::FILE_DESCRIPTOR_SET,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Status, transport::Server};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use super::*;
use crate::driver::Clock;

pub(super) struct House {
    pub(super) keys: Arc<Keys>,
    pub(super) address: std::net::SocketAddr,
    _dir: tempfile::TempDir,
}

/// Health (open) and reflection (any token) behind a gate that asks loopback as well.
async fn house(require_token: bool) -> House {
    house_with(require_token, Limits::default()).await
}

pub(super) async fn house_with(require_token: bool, limits: Limits) -> House {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let vault = Vault::of(dir.path());
    let keys = Keys::open(vault, vec![address.to_string()], Clock::start()).unwrap();
    let keys = Arc::new(keys);
    let gate = Gate::Guarded {
        locks: Locks::Tokens(keys.clone()),
        require_token,
    };
    let connections = Connections::new(listener, limits.connections);
    let incoming = Incoming::new(connections, gate.locks(), limits);
    let (_, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .build_v1()
        .unwrap();
    let serve = limits
        .server()
        .layer(GateLayer::new(gate, limits))
        .add_service(health)
        .add_service(reflection)
        .serve_with_incoming(incoming);
    tokio::spawn(serve);
    House {
        keys,
        address,
        _dir: dir,
    }
}

impl House {
    pub(super) fn plain(&self) -> Way {
        Way::Plain(format!("http://{}", self.address).parse().unwrap())
    }

    fn with(&self, token: Token) -> Way {
        let ca = self.keys.join(Role::Worker).unwrap().unwrap().ca();
        let addresses = vec![self.address.to_string()];
        Way::Joined(JoinString::new(addresses, ca, token).unwrap())
    }
}

/// A call that asks for a token of any role.
pub(super) async fn reflect(way: &Way) -> Result<(), Status> {
    let channel = way.endpoints().remove(0).connect_lazy();
    let mut client = ServerReflectionClient::new(way.door(channel));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await?;
    answers.into_inner().message().await?.expect("one answer");
    Ok(())
}

async fn check_health(way: &Way) -> Result<(), Status> {
    let channel = way.endpoints().remove(0).connect_lazy();
    let mut client = HealthClient::new(way.door(channel));
    client.check(HealthCheckRequest::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_join_string_opens_the_door_until_it_is_revoked() {
    let house = house(true).await;
    let join = house.keys.join(Role::Operator).unwrap().unwrap();
    assert_eq!(join.expose().parse(), Ok(join.clone()));
    let way = Way::Joined(join);
    reflect(&way).await.unwrap();
    assert_eq!(house.keys.revoke("operator").unwrap(), 1);
    let refused = reflect(&way).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("revoked"), "{refused}");
    check_health(&way).await.unwrap();
}

#[tokio::test]
async fn whoever_has_no_key_stays_outside() {
    let house = house(true).await;
    let other = Token::new(TokenId(1), [1; 32]);
    for (way, word) in [
        (house.plain(), "token"),
        (house.with(other), "does not know the token"),
    ] {
        let refused = reflect(&way).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{way}");
        assert!(refused.message().contains(word), "{refused}");
    }
}

#[tokio::test]
async fn loopback_needs_nothing_unless_it_is_asked() {
    reflect(&house(false).await.plain()).await.unwrap();
    assert!(reflect(&house(true).await.plain()).await.is_err());
}

#[tokio::test]
async fn a_client_knows_its_coordinator_before_it_sends_its_token() {
    let house = house(true).await;
    let join = house.keys.join(Role::Worker).unwrap().unwrap();
    let imposter = JoinString::new(
        vec![house.address.to_string()],
        CaHash([7; 32]),
        join.token().clone(),
    );
    let refused = reflect(&Way::Joined(imposter.unwrap())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let why = explain_tls(&refused).expect("the causes name a certificate");
    assert!(
        why.contains("not the one that the join string names"),
        "{why}"
    );
}

/// A server whose certificate was made so long ago, or is to be good only in so long.
async fn told_by_a_server_of(now_unix_ms: u64) -> &'static str {
    install_crypto();
    let authority = Authority::create(Clock::start().now().0).unwrap();
    let certificate = authority.serve_as(&[], now_unix_ms).unwrap();
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
    let join = JoinString::new(vec![address.to_string()], authority.hash(), token);
    let refused = check_health(&Way::Joined(join.unwrap())).await.unwrap_err();
    explain_tls(&refused).expect("the causes name a certificate")
}

#[tokio::test]
async fn a_wrong_clock_is_told() {
    let now = Clock::start().now().0;
    let year = 365 * 86_400_000;
    for then in [now - year, now + year] {
        let why = told_by_a_server_of(then).await;
        assert!(why.contains("set this machine's clock"), "{why}");
    }
}

#[tokio::test]
async fn a_tls_client_at_a_plain_port_is_told() {
    let house = house(true).await;
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = TcpListenerStream::new(plain);
    tokio::spawn(
        Server::builder()
            .add_service(health)
            .serve_with_incoming(incoming),
    );
    let join = house.keys.join(Role::Worker).unwrap().unwrap();
    let join = JoinString::new(vec![address.to_string()], join.ca(), join.token().clone());
    let refused = check_health(&Way::Joined(join.unwrap())).await.unwrap_err();
    let why = explain_tls(&refused).expect("the causes name TLS");
    assert!(why.contains("does not speak TLS"), "{why}");
}

#[tokio::test]
async fn keys_are_kept_and_for_their_owner_alone() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::of(dir.path());
    let open = |address: &str| {
        Keys::open(vault.clone(), vec![address.to_owned()], Clock::start()).unwrap()
    };
    let keys = open("lab-1:7171");
    let first = keys.join(Role::Worker).unwrap().unwrap();
    let made = keys.create((Role::Viewer, "screen"), None).unwrap();
    drop(keys);
    let keys = open("lab-2:7171");
    let second = keys.join(Role::Worker).unwrap().unwrap();
    assert_eq!((first.ca(), first.token()), (second.ca(), second.token()));
    assert_eq!(second.addresses(), ["lab-2:7171"]);
    assert!(keys.check(made.token()).is_ok());
    #[cfg(unix)]
    for entry in std::fs::read_dir(dir.path().join("doors")).unwrap() {
        use std::os::unix::fs::PermissionsExt as _;
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
    keys.revoke("worker").unwrap();
    drop(keys);
    let keys = open("lab-1:7171");
    let revoked = keys.join(Role::Worker).unwrap().unwrap();
    assert!(keys.check(revoked.token()).is_err(), "revoked for good");
}

/// Every call of every service that is served, by its descriptors.
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
fn every_call_has_its_line_in_the_table() {
    let calls = calls();
    assert!(calls.len() > 10);
    for call in &calls {
        assert!(
            access(call).is_some(),
            "{call} asks for nothing: give it a line"
        );
    }
    for (known, _) in super::calls() {
        assert!(calls.iter().any(|call| call == known), "{known} is no call");
    }
    assert_eq!(access("/queens.v1.Runs/Nonsense"), None);
}

#[test]
fn a_role_may_what_its_name_says() {
    let may = |role| {
        let allowed = |(_, access): &&(_, Access)| access.allows(role);
        let paths = super::calls().iter().filter(allowed).map(|(path, _)| *path);
        paths.collect::<Vec<_>>()
    };
    let ours = |path: &&&str| path.contains("queens.v1");
    let worker = may(Role::Worker);
    assert_eq!(worker.iter().filter(ours).count(), 1);
    let changes = |path: &&&str| {
        ["Submit", "Pause", "Resume", "Cancel"]
            .iter()
            .any(|change| path.ends_with(change))
    };
    assert_eq!(may(Role::Viewer).iter().filter(changes).count(), 0);
    assert_eq!(may(Role::Operator).iter().filter(changes).count(), 4);
    assert!(!may(Role::Operator).contains(&"/queens.v1.WorkQueue/Sync"));
}
