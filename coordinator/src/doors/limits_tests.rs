//! Every limit of a door, reached.

use std::{num::NonZeroU32, time::Duration};

use proto::door::Way;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, Request, metadata::MetadataValue};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use super::{
    accounts::Visit,
    tests::{House, house_with, reflect},
    *,
};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

/// No limit of time is in the way of another one.
fn patient() -> Limits {
    Limits {
        handshake: LONG,
        unadmitted: LONG,
        idle: LONG,
        ping_every: LONG,
        ping_timeout: LONG,
        ..Limits::default()
    }
}

async fn connect(house: &House) -> TcpStream {
    TcpStream::connect(house.address).await.unwrap()
}

/// Waits until the server has closed the connection.
async fn closed(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = stream.read_to_end(&mut bytes).await;
}

/// The way of the operator's string.
fn operator(house: &House) -> Way {
    Way::Joined(house.keys.join(Role::Operator).unwrap().unwrap())
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty frame of settings.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn connections_in_all() {
    let house = house_with(
        true,
        Limits {
            connections: 2,
            ..patient()
        },
    )
    .await;
    let _first = connect(&house).await;
    let _second = connect(&house).await;
    closed(connect(&house).await).await;
}

#[tokio::test]
async fn of_too_many_handshakes_from_one_address_the_oldest_goes() {
    let house = house_with(
        true,
        Limits {
            handshakes_per_address: 2,
            ..patient()
        },
    )
    .await;
    let oldest = connect(&house).await;
    let _second = connect(&house).await;
    let _third = connect(&house).await;
    closed(oldest).await;
    // Whoever shakes hands gets in between them.
    reflect(&operator(&house)).await.unwrap();
}

#[tokio::test]
async fn a_handshake_has_a_time_limit() {
    let house = house_with(
        true,
        Limits {
            handshake: SHORT,
            ..patient()
        },
    )
    .await;
    closed(connect(&house).await).await;
    let mut begun = connect(&house).await;
    begun.write_all(&[0x16, 3, 1]).await.unwrap();
    closed(begun).await;
}

#[tokio::test]
async fn connections_of_one_token() {
    let house = house_with(
        true,
        Limits {
            connections_per_principal: 1,
            ..patient()
        },
    )
    .await;
    let way = operator(&house);
    let held = way.endpoints().remove(0).connect().await.unwrap();
    let mut holder = HealthClient::new(held.clone());
    holder.check(HealthCheckRequest::default()).await.unwrap();
    // Health asks for no token, so that this one's connection is the first.
    reflect_on(&way, held.clone()).await.unwrap();
    let refused = reflect(&way).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("1 connections open"),
        "{refused}"
    );
    let other = house.keys.create((Role::Viewer, "screen"), None).unwrap();
    reflect(&Way::Joined(other)).await.unwrap();
    reflect_on(&way, held).await.unwrap();
    // Once they are gone there is room again; the server notices when it does.
    drop(holder);
    while reflect(&way).await.is_err() {
        tokio::task::yield_now().await;
    }
}

async fn reflect_on(way: &Way, channel: tonic::transport::Channel) -> Result<(), tonic::Status> {
    let mut client = ServerReflectionClient::new(way.door(channel));
    let request = tokio_stream::once(list_services(""));
    let mut answers = client.server_reflection_info(request).await?.into_inner();
    answers.message().await?;
    Ok(())
}

fn list_services(host: &str) -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: host.to_owned(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    }
}

#[tokio::test]
async fn calls_a_second_of_one_token() {
    let house = house_with(
        true,
        Limits {
            calls_a_second: NonZeroU32::MIN,
            ..patient()
        },
    )
    .await;
    let way = operator(&house);
    let channel = way.endpoints().remove(0).connect().await.unwrap();
    let mut calls = 0;
    // One a second goes through, however long the machine takes for one.
    let refused = loop {
        match reflect_on(&way, channel.clone()).await {
            Ok(()) => calls += 1,
            Err(refused) => break refused,
        }
        assert!(calls < 1000);
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("more than 1 calls a second"),
        "{refused}"
    );
    assert!(calls >= 1);
}

#[tokio::test]
async fn bytes_of_a_call_and_of_all() {
    for (limits, words) in [
        (
            Limits {
                call_bytes: 1000,
                ..patient()
            },
            "at most 1000 bytes",
        ),
        (
            Limits {
                all_bytes: 1000,
                ..patient()
            },
            "send it again later",
        ),
    ] {
        let house = house_with(true, limits).await;
        let way = operator(&house);
        reflect(&way).await.unwrap();
        let channel = way.endpoints().remove(0).connect_lazy();
        let mut client = HealthClient::new(way.door(channel));
        let request = HealthCheckRequest {
            service: "x".repeat(2000),
        };
        let refused = client.check(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
        // What a call held is given back with it.
        reflect(&way).await.unwrap();
    }
}

#[tokio::test]
async fn headers_have_an_end() {
    let house = house_with(true, patient()).await;
    let way = operator(&house);
    let send = async |bytes: usize| {
        let channel = way.endpoints().remove(0).connect_lazy();
        let mut client = ServerReflectionClient::new(way.door(channel));
        let mut request = Request::new(tokio_stream::once(list_services("")));
        let long: MetadataValue<_> = "x".repeat(bytes).parse().unwrap();
        request.metadata_mut().insert("long", long);
        let answers = client.server_reflection_info(request).await?;
        answers.into_inner().message().await.map(drop)
    };
    send(8 << 10).await.unwrap();
    assert!(send(32 << 10).await.is_err());
}

#[tokio::test]
async fn what_a_connection_may_do_is_told_at_its_start() {
    let house = house_with(false, patient()).await;
    let mut stream = connect(&house).await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(SETTINGS).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame is one of settings");
    let mut told = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut told).await.unwrap();
    let told = |id: u16| {
        let setting = told
            .chunks(6)
            .find(|setting| setting[..2] == id.to_be_bytes());
        setting.map(|setting| u32::from_be_bytes(setting[2..].try_into().unwrap()))
    };
    let limits = Limits::default();
    assert_eq!(told(3), Some(limits.calls_per_connection));
    assert_eq!(told(4), Some(limits.stream_window_bytes));
    assert_eq!(told(6), Some(limits.header_bytes));
}

#[tokio::test]
async fn a_connection_that_answers_no_ping_ends() {
    let house = house_with(
        false,
        Limits {
            ping_every: SHORT,
            ping_timeout: SHORT,
            ..patient()
        },
    )
    .await;
    let mut stream = connect(&house).await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(SETTINGS).await.unwrap();
    closed(stream).await;
}

#[tokio::test]
async fn a_connection_without_a_call_that_was_let_in_ends() {
    let house = house_with(
        false,
        Limits {
            unadmitted: SHORT,
            ..patient()
        },
    )
    .await;
    let mut stream = connect(&house).await;
    stream.write_all(PREFACE).await.unwrap();
    closed(stream).await;
}

#[test]
fn a_visit_ends_when_nothing_is_under_way_any_more() {
    let limits = Limits {
        idle: Duration::ZERO,
        refusals: 2,
        ..patient()
    };
    let accounts = Accounts::new(limits);
    let visit = Visit::new(true);
    assert!(visit.may_stay(&limits).is_some(), "nobody was let in yet");
    let call = accounts.enter(&Principal::Loopback, Some(&visit)).unwrap();
    assert!(visit.may_stay(&limits).is_some(), "a call is under way");
    drop(call);
    assert_eq!(visit.may_stay(&limits), None);

    let visit = Visit::new(true);
    visit.refuses();
    assert!(!visit.is_sent_away(&limits));
    drop(accounts.enter(&Principal::Loopback, Some(&visit)));
    visit.refuses();
    assert!(!visit.is_sent_away(&limits), "not in a row");
    visit.refuses();
    assert!(visit.is_sent_away(&limits));

    // A probe does not keep its connection.
    let limits = Limits {
        unadmitted: Duration::ZERO,
        ..limits
    };
    let visit = Visit::new(true);
    let _probe = accounts.enter(&Principal::Anybody, Some(&visit)).unwrap();
    assert_eq!(visit.may_stay(&limits), None);
}

/// A pipe in the place of the new list holds its writer up as long as nobody reads it.
#[cfg(unix)]
#[test]
fn calls_go_on_while_a_change_of_tokens_waits_for_the_disk() {
    use std::{fs, process::Command, sync::Arc, thread};

    proto::door::install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::of(dir.path());
    let clock = crate::driver::Clock::start();
    let keys = Arc::new(Keys::open(vault, vec!["lab:1".to_owned()], clock).unwrap());
    let join = keys.join(Role::Worker).unwrap().unwrap();
    let pipe = dir.path().join("doors/tokens.new");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let changing = thread::spawn({
        let keys = keys.clone();
        move || keys.revoke("worker")
    });
    while !keys.is_changing() {
        thread::yield_now();
    }
    assert!(keys.check(join.token()).is_ok());
    drop(fs::read(&pipe).unwrap());
    // A pipe cannot be made durable: the change is refused, and nothing of it shows.
    assert!(changing.join().unwrap().is_err());
    assert!(keys.check(join.token()).is_ok());
}
