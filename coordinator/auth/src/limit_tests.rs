//! Tests that reach every limit.

use std::{convert::Infallible, num::NonZeroU32, time::Duration};

use common::messages::{limits, run::WorkerId};
use http_body::Frame;
use http_body_util::StreamBody;
use proto::connect::CoordinatorEndpoint;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_stream::StreamExt as _;
use tonic::{
    Code, Request, Status,
    body::Body,
    codegen::{Bytes, http},
    metadata::MetadataValue,
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use tower::{Layer as _, Service as _, service_fn};

use super::{
    tests::{Fixture, list_services, reflect, reflect_on, serve_with},
    *,
};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

/// Returns limits whose timeouts never expire.
fn no_timeouts() -> Limits {
    Limits {
        handshake: LONG,
        unadmitted: LONG,
        idle: LONG,
        ping_interval: LONG,
        ping_timeout: LONG,
        ..Limits::default()
    }
}

#[test]
fn an_address_gets_some_identities_and_an_identity_some_calls() {
    let quotas = VisitorQuotas::default();
    let address = |text: &str| text.parse().unwrap();
    for _ in 0..64 {
        quotas.issue(address("2001:db8::1")).unwrap();
    }
    // A host can use all of a /64.
    let refused = quotas.issue(address("2001:db8::ffff:1")).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("64 visitors a day"), "{refused:?}");
    quotas.issue(address("2001:db8:0:1::1")).unwrap();
    quotas.issue(address("192.0.2.1")).unwrap();
    let calls = (0..1_000).take_while(|_| quotas.call(WorkerId(1)).is_ok()).count();
    assert!((240..1_000).contains(&calls), "{calls}");
    quotas.call(WorkerId(2)).unwrap();
}

async fn connect(server: &Fixture) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

/// Waits until the server has closed the connection.
async fn wait_until_closed(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    // A reset also closes the connection.
    let _ = stream.read_to_end(&mut bytes).await;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn connections_are_limited() {
    let server = serve_with(Limits { connections: 2, ..no_timeouts() }).await;
    let endpoint = server.operator();
    let mut held = Vec::new();
    for _ in 0..2 {
        let channel = endpoint.endpoints().remove(0).connect().await.unwrap();
        reflect_on(&endpoint, channel.clone()).await.unwrap();
        held.push(channel);
    }
    wait_until_closed(connect(&server).await).await;
}

#[tokio::test]
async fn the_oldest_of_too_many_connections_without_an_admitted_call_is_evicted() {
    // An address gets a quarter of the places.
    let server = serve_with(Limits { connections: 8, ..no_timeouts() }).await;
    let endpoint = server.operator();
    let admitted = endpoint.endpoints().remove(0).connect().await.unwrap();
    reflect_on(&endpoint, admitted.clone()).await.unwrap();
    for sent in [&[][..], &[0x16, 3, 1], PREFACE] {
        let mut oldest = connect(&server).await;
        oldest.write_all(sent).await.unwrap();
        let _second = connect(&server).await;
        let _third = connect(&server).await;
        wait_until_closed(oldest).await;
        // Others connect meanwhile, and an admitted connection stays.
        reflect(&endpoint).await.unwrap();
        reflect_on(&endpoint, admitted.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn stalled_connections_are_closed() {
    let settings = [PREFACE, SETTINGS].concat();
    for (limits, sent) in [
        (Limits { handshake: SHORT, ..no_timeouts() }, [].as_slice()),
        (Limits { handshake: SHORT, ..no_timeouts() }, &[0x16, 3, 1]),
        // No call is admitted, or no ping is answered.
        (Limits { unadmitted: SHORT, ..no_timeouts() }, PREFACE),
        (Limits { ping_interval: SHORT, ping_timeout: SHORT, ..no_timeouts() }, &settings),
    ] {
        let server = serve_with(limits).await;
        let mut stream = connect(&server).await;
        stream.write_all(sent).await.unwrap();
        wait_until_closed(stream).await;
    }
}

#[tokio::test]
async fn connections_per_token_are_limited() {
    let server = serve_with(Limits { connections_per_subject: 1, ..no_timeouts() }).await;
    let endpoint = server.operator();
    let held = endpoint.endpoints().remove(0).connect().await.unwrap();
    let mut holder = HealthClient::new(held.clone());
    holder.check(HealthCheckRequest::default()).await.unwrap();
    // Health requires no token, so this is the token's first connection.
    reflect_on(&endpoint, held.clone()).await.unwrap();
    let refused = reflect(&endpoint).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("1 connections open"), "{refused}");
    let other = server.tokens.create(NewToken::new(Role::Viewer, "screen")).unwrap();
    reflect(&CoordinatorEndpoint::Token(other)).await.unwrap();
    reflect_on(&endpoint, held).await.unwrap();
    // The server notices the closed connections with a delay.
    drop(holder);
    while reflect(&endpoint).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn calls_per_second_are_limited() {
    let server = serve_with(Limits { calls_per_second: NonZeroU32::MIN, ..no_timeouts() }).await;
    let endpoint = server.operator();
    let channel = endpoint.endpoints().remove(0).connect().await.unwrap();
    let mut calls = 0;
    // One call per second succeeds, so several may succeed on a slow machine.
    let refused = loop {
        match reflect_on(&endpoint, channel.clone()).await {
            Ok(()) => calls += 1,
            Err(refused) => break refused,
        }
        assert!(calls < 1000);
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("more than 1 calls per second"), "{refused}");
    assert!(calls >= 1);
}

/// Returns the status of a call to a service that decodes nothing and succeeds.
async fn status_of_call(layer: &AuthLayer, body: Body) -> Status {
    let answer = |_| async { Ok::<_, Infallible>(Status::ok("").into_http::<Body>()) };
    let call = http::Request::post("/queens.v1.WorkQueue/Sync").body(body).unwrap();
    let answer = layer.layer(service_fn(answer)).call(call).await.unwrap();
    Status::from_header_map(answer.headers()).expect("a gRPC status")
}

fn data(bytes: Vec<u8>) -> Result<Frame<Bytes>, Status> {
    Ok(Frame::data(Bytes::from(bytes)))
}

fn ended(frame: Result<Frame<Bytes>, Status>) -> Body {
    Body::new(StreamBody::new(tokio_stream::once(frame)))
}

#[tokio::test]
async fn bytes_per_call_and_in_total_are_limited() {
    for (limits, expected) in [
        (Limits { call_bytes: 1000, ..no_timeouts() }, "at most 1000 bytes"),
        (Limits { all_bytes: 1000, ..no_timeouts() }, "send it again later"),
    ] {
        let layer = AuthLayer::new(Authenticator::Open, limits);
        let refused = status_of_call(&layer, ended(data(vec![0; 2000]))).await;
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains(expected), "{refused}");
        for _ in 0..2 {
            // The end of each call has released its bytes.
            let passed = status_of_call(&layer, ended(data(vec![0; 600]))).await;
            assert_eq!(passed.code(), Code::Ok, "{passed}");
        }
    }
}

#[test]
fn the_calls_in_progress_of_a_token_are_limited() {
    let usage = UsageTable::new(Limits { calls_per_subject: 2, ..no_timeouts() });
    let [one, other] =
        ["one", "other"].map(|name| Subject::Certificate { name: name.into(), role: Role::Worker });
    let start = |subject| usage.start_call(subject, None);
    let held = [(); 2].map(|()| start(&one).unwrap());
    let refused = start(&one).err().expect("the third call is refused");
    assert!(refused.message().contains("2 calls in progress"), "{refused}");
    start(&other).unwrap();
    drop(held);
    // The refused call is not in progress.
    let _both = [(); 2].map(|()| start(&one).unwrap());
}

#[test]
fn the_calls_of_a_token_send_half_of_all_bytes() {
    let usage = UsageTable::new(Limits { all_bytes: 1000, ..no_timeouts() });
    let [one, other] =
        ["one", "other"].map(|name| Subject::Certificate { name: name.into(), role: Role::Worker });
    let calls = [&one, &one, &other].map(|subject| usage.start_call(subject, None).unwrap());
    calls[0].receive(400).unwrap();
    assert!(calls[1].receive(200).is_err());
    calls[2].receive(300).unwrap();
    drop(calls);
    usage.start_call(&one, None).unwrap().receive(500).unwrap();
}

#[tokio::test]
async fn headers_are_limited() {
    let server = serve_with(no_timeouts()).await;
    let endpoint = server.operator();
    let send = async |bytes: usize| {
        let channel = endpoint.endpoints().remove(0).connect_lazy();
        let mut client = ServerReflectionClient::new(endpoint.authenticate(channel));
        let mut request = Request::new(tokio_stream::once(list_services()));
        let long: MetadataValue<_> = "x".repeat(bytes).parse().unwrap();
        request.metadata_mut().insert("long", long);
        let answers = client.server_reflection_info(request).await?;
        answers.into_inner().message().await.map(drop)
    };
    send(4 << 10).await.unwrap();
    assert!(send(16 << 10).await.is_err());
}

/// Probes need no token, so they must not use up what others may send.
#[tokio::test]
async fn calls_without_a_token_are_small() {
    let server = serve_with(no_timeouts()).await;
    let mut client = HealthClient::new(server.operator().endpoints().remove(0).connect_lazy());
    let mut check = async |bytes| {
        client.check(HealthCheckRequest { service: "x".repeat(bytes) }).await.unwrap_err()
    };
    assert_eq!(check(200).await.code(), Code::NotFound);
    let refused = check(300).await;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("at most 256 bytes"), "{refused}");
}

/// A service decodes only requests that have arrived whole and have no more fields than a valid one.
#[tokio::test]
async fn a_request_is_checked_before_it_is_decoded() {
    let message = |fields: usize| data([&[0; 5][..], &[0x22, 0].repeat(fields)].concat());
    let open = |frame| {
        let frames = tokio_stream::once(frame).chain(tokio_stream::pending());
        Body::new(StreamBody::new(frames))
    };
    for (request, body, code) in [
        (LONG, ended(message(limits::FIELDS)), Code::Ok),
        (LONG, ended(data(Vec::new())), Code::Ok),
        (LONG, ended(message(limits::FIELDS + 1)), Code::InvalidArgument),
        (SHORT, open(message(1)), Code::DeadlineExceeded),
    ] {
        let layer = AuthLayer::new(Authenticator::Open, Limits { request, ..no_timeouts() });
        assert_eq!(status_of_call(&layer, body).await.code(), code);
    }
}

#[tokio::test]
async fn limits_are_announced_as_http2_settings() {
    let server = serve_with(no_timeouts()).await;
    let mut stream = connect(&server).await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(SETTINGS).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame is SETTINGS");
    let mut announced = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut announced).await.unwrap();
    let announced = |id: u16| {
        let setting = announced.chunks(6).find(|setting| setting[..2] == id.to_be_bytes());
        setting.map(|setting| u32::from_be_bytes(setting[2..].try_into().unwrap()))
    };
    let limits = Limits::default();
    assert_eq!(announced(3), Some(limits.calls_per_connection));
    assert_eq!(announced(4), Some(limits.stream_window_bytes));
    assert_eq!(announced(6), Some(limits.header_bytes));
}

#[test]
fn idle_and_refused_connections_end() {
    let limits = Limits { idle: Duration::ZERO, refusals: 2, ..no_timeouts() };
    let usage = UsageTable::new(limits);
    let activity = ConnectionActivity::new(true);
    let lab = Subject::Certificate { name: "lab".into(), role: Role::Worker };
    assert!(activity.remaining_idle_time(&limits).is_some(), "the first call has time");
    let call = usage.start_call(&lab, Some(&activity)).unwrap();
    assert!(activity.remaining_idle_time(&limits).is_some(), "a call is in progress");
    drop(call);
    assert_eq!(activity.remaining_idle_time(&limits), None);

    let activity = ConnectionActivity::new(true);
    activity.record_refusal();
    assert!(!activity.has_too_many_refusals(&limits));
    drop(usage.start_call(&lab, Some(&activity)));
    activity.record_refusal();
    assert!(!activity.has_too_many_refusals(&limits), "not consecutive");
    activity.record_refusal();
    assert!(activity.has_too_many_refusals(&limits));

    // A probe does not keep its connection open.
    let limits = Limits { unadmitted: Duration::ZERO, ..limits };
    let activity = ConnectionActivity::new(true);
    let _probe = usage.start_call(&Subject::Anonymous, Some(&activity)).unwrap();
    assert_eq!(activity.remaining_idle_time(&limits), None);
}

/// Blocks the writer of the new list by a named pipe until the pipe is read.
#[cfg(unix)]
#[test]
fn calls_proceed_while_a_change_of_tokens_waits_for_the_disk() {
    use std::{fs, process::Command, sync::Arc, thread};

    proto::connect::install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let secrets = store::SecretStore::of_directory(dir.path());
    let clock = store::Clock::start();
    let tokens = Arc::new(TokenAuth::open(secrets, vec!["lab:1".to_owned()], clock).unwrap());
    let join = tokens.join(Role::Worker).unwrap().unwrap();
    let pipe = dir.path().join("auth/tokens.tmp");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let changing = thread::spawn({
        let tokens = tokens.clone();
        move || tokens.revoke("worker")
    });
    while !tokens.is_changing() {
        thread::yield_now();
    }
    assert!(tokens.check(join.token()).is_ok());
    drop(fs::read(&pipe).unwrap());
    // A pipe cannot be synced: the change fails and has no effect.
    assert!(changing.join().unwrap().is_err());
    assert!(tokens.check(join.token()).is_ok());
}
