//! Fuzz targets for the parsers of messages, join strings and tokens.
//! Each takes any bytes and panics if parsed input does not round-trip.

use common::messages::sync::{SyncReply, SyncRequest};
use prost::Message;

use crate::{
    connect::{self, CoordinatorEndpoint, JoinString, Token},
    convert, v1,
};

/// Parses a worker's request and a coordinator's reply.
pub fn sync_messages(bytes: &[u8]) {
    if let Ok(message) = v1::SyncRequest::decode(bytes)
        && let Ok(request) = SyncRequest::try_from(message)
    {
        let message = v1::SyncRequest::from(request.clone());
        assert_eq!(SyncRequest::try_from(message).as_ref(), Ok(&request));
    }
    if let Ok(message) = v1::SyncResponse::decode(bytes)
        && let Ok(reply) = SyncReply::try_from(message)
    {
        let message = v1::SyncResponse::from(reply.clone());
        assert_eq!(SyncReply::try_from(message).as_ref(), Ok(&reply));
    }
}

/// Parses any message of the operators' services; the first byte selects its type.
pub fn operator_messages(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 16 {
        0 => {
            if let Ok(message) = v1::SubmitRequest::decode(bytes) {
                let _ = convert::submitted_spec(message.spec);
                let _ = convert::submitted_key(&message.idempotency_key);
                let _ = convert::requested_recheck(message.recheck);
            }
        }
        1 => round_trip::<v1::SetRequest>(bytes),
        2 => round_trip::<v1::TrustRequest>(bytes),
        3 => round_trip::<v1::RunRequest>(bytes),
        4 => round_trip::<v1::GetStatusRequest>(bytes),
        5 => round_trip::<v1::WatchStatusRequest>(bytes),
        6 => round_trip::<v1::CreateTokenRequest>(bytes),
        7 => round_trip::<v1::RevokeTokenRequest>(bytes),
        // Replies, which `queensctl` parses.
        8 => round_trip::<v1::Run>(bytes),
        9 => round_trip::<v1::ListResponse>(bytes),
        10 => round_trip::<v1::Status>(bytes),
        11 => round_trip::<v1::WorkersResponse>(bytes),
        12 => round_trip::<v1::Record>(bytes),
        13 => round_trip::<v1::CreateTokenResponse>(bytes),
        14 => round_trip::<v1::ListTokensResponse>(bytes),
        _ => {}
    }
}

/// Round-trips a message; compares bytes, because NaN is not equal to itself.
fn round_trip<M: Message + Default>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        let encoded = message.encode_to_vec();
        let decoded = M::decode(encoded.as_slice()).expect("an encoded message decodes");
        assert_eq!(decoded.encode_to_vec(), encoded);
    }
}

/// Parses a join string: as text, and as the encoded bytes.
pub fn join_string(bytes: &[u8]) {
    let round_trip = |text: &str| {
        if let Ok(join) = text.parse::<JoinString>() {
            assert_eq!(join.expose().parse(), Ok(join.clone()));
            // The addresses become URLs, and the token a header.
            let endpoint = CoordinatorEndpoint::Token(join);
            let _ = (endpoint.endpoints(), endpoint.credentials());
        }
    };
    if let Ok(text) = std::str::from_utf8(bytes) {
        round_trip(text);
    }
    round_trip(&connect::armor(connect::JOIN_PREFIX, bytes));
}

/// Parses a token: as text, and as the encoded bytes.
pub fn token(bytes: &[u8]) {
    let round_trip = |text: &str| {
        if let Ok(token) = text.parse::<Token>() {
            assert_eq!(token.expose().parse(), Ok(token));
        }
    };
    if let Ok(text) = std::str::from_utf8(bytes) {
        round_trip(text);
    }
    round_trip(&connect::armor(connect::TOKEN_PREFIX, bytes));
}
