//! Bodies of requests whose bytes are counted, and of answers that keep their call under way.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http_body::{Frame, SizeHint};
use tonic::{Status, body::Body};

use super::accounts::Call;

type Data = <Body as http_body::Body>::Data;

/// A request's body.
pub(super) struct Metered {
    pub(super) body: Body,
    pub(super) call: Arc<Call>,
}

impl http_body::Body for Metered {
    type Data = Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.call.takes(data.len())
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

/// An answer's body: its call is under way until it was read, or its reader has gone.
pub(crate) struct Kept<B> {
    pub(crate) body: B,
    pub(crate) _call: Arc<Call>,
}

impl<B: http_body::Body + Unpin> http_body::Body for Kept<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
