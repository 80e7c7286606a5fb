//! Tests that reach every limit.

use std::{num::NonZeroU32, time::Duration};

use common::messages::run::WorkerId;
use proto::connect::CoordinatorEndpoint;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, Request, metadata::MetadataValue};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

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
    let _first = connect(&server).await;
    let _second = connect(&server).await;
    wait_until_closed(connect(&server).await).await;
}

#[tokio::test]
async fn the_oldest_of_too_many_handshakes_is_evicted() {
    let server = serve_with(Limits { handshakes_per_address: 2, ..no_timeouts() }).await;
    let oldest = connect(&server).await;
    let _second = connect(&server).await;
    let _third = connect(&server).await;
    wait_until_closed(oldest).await;
    // A complete handshake succeeds meanwhile.
    reflect(&server.operator()).await.unwrap();
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

#[tokio::test]
async fn bytes_per_call_and_in_total_are_limited() {
    for (limits, expected) in [
        (Limits { call_bytes: 1000, ..no_timeouts() }, "at most 1000 bytes"),
        (Limits { all_bytes: 1000, ..no_timeouts() }, "send it again later"),
    ] {
        let server = serve_with(limits).await;
        let endpoint = server.operator();
        reflect(&endpoint).await.unwrap();
        let channel = endpoint.endpoints().remove(0).connect_lazy();
        let mut client = HealthClient::new(endpoint.authenticate(channel));
        let request = HealthCheckRequest { service: "x".repeat(2000) };
        let refused = client.check(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains(expected), "{refused}");
        // The end of the call has released its bytes.
        reflect(&endpoint).await.unwrap();
    }
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
    send(8 << 10).await.unwrap();
    assert!(send(32 << 10).await.is_err());
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
    assert!(!activity.is_evicted(&limits));
    drop(usage.start_call(&lab, Some(&activity)));
    activity.record_refusal();
    assert!(!activity.is_evicted(&limits), "not consecutive");
    activity.record_refusal();
    assert!(activity.is_evicted(&limits));

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
