//! Bodies of gRPC requests, metered and read whole.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use common::messages::limits;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tokio::time::timeout;
use tonic::{
    Status,
    body::Body,
    codegen::{Bytes, http},
};

use crate::Call;

pub(crate) type Data = <Body as http_body::Body>::Data;

/// The bytes before a gRPC message: its length, and whether it is compressed.
const MESSAGE_HEAD: usize = 5;

/// Returns the request with its whole body; fails if that is too large, too slow or not worth decoding.
///
/// A service decodes a message as soon as it is complete, and then waits for the end of the stream.
/// A client that never ends the stream would keep a decoded message in memory, which can be much larger.
pub(crate) async fn read_whole(
    request: http::Request<Body>,
    call: Arc<Call>,
) -> Result<http::Request<Body>, Status> {
    let (head, body) = request.into_parts();
    let time = call.limits().request;
    let mut body = MeteredBody { body, call };
    let read = async {
        // One buffer: a list of frames of one byte each would take much more.
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        Ok::<_, Status>(bytes)
    };
    let late = |_| {
        let seconds = time.as_secs();
        Status::deadline_exceeded(format!("the request did not arrive within {seconds} s"))
    };
    let bytes = timeout(time, read).await.map_err(late)??;
    if has_too_many_fields(bytes.get(MESSAGE_HEAD..).unwrap_or_default()) {
        let text = format!("a message has at most {} fields", limits::FIELDS);
        return Err(Status::invalid_argument(text));
    }
    Ok(http::Request::from_parts(head, Body::new(Full::new(Bytes::from(bytes)))))
}

/// Returns whether a message has more fields than any valid one.
/// An empty element of a list takes two bytes, and fifty times as many when it is decoded.
fn has_too_many_fields(mut message: &[u8]) -> bool {
    let mut fields = 0;
    while let Ok((tag, wire_type)) = decode_key(&mut message)
        && skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_ok()
    {
        fields += 1;
        if fields > limits::FIELDS {
            return true;
        }
    }
    // A malformed message fails to decode.
    false
}

/// A request body whose bytes count toward the call's quota.
pub(crate) struct MeteredBody {
    pub(crate) body: Body,
    pub(crate) call: Arc<Call>,
}

impl http_body::Body for MeteredBody {
    type Data = Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.call.receive(data.len())
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
