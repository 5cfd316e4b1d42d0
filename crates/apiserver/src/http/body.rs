//! Request bodies, read within limits, and response bodies, sent without needless copies.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::error::ApiError;

/// The body of every response.
pub struct ApiBody(BodyKind);

enum BodyKind {
    Pieces(VecDeque<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl ApiBody {
    pub fn empty() -> Self {
        Self(BodyKind::Pieces(VecDeque::new()))
    }

    pub fn from_pieces(pieces: Vec<Bytes>) -> Self {
        Self(BodyKind::Pieces(pieces.into()))
    }

    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(BodyKind::Stream(Box::pin(stream)))
    }
}

impl From<Bytes> for ApiBody {
    fn from(bytes: Bytes) -> Self {
        Self(BodyKind::Pieces(VecDeque::from([bytes])))
    }
}

impl std::fmt::Debug for ApiBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.0 {
            BodyKind::Pieces(_) => "Pieces",
            BodyKind::Stream(_) => "Stream",
        };
        formatter.debug_tuple("ApiBody").field(&kind).finish()
    }
}

impl Body for ApiBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().0 {
            BodyKind::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            BodyKind::Stream(stream) => stream
                .as_mut()
                .poll_next(context)
                .map(|next| next.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, BodyKind::Pieces(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.remaining() as u64).sum())
            }
            BodyKind::Stream(_) => SizeHint::default(),
        }
    }
}

/// How many times the limit is read and discarded, so that the client gets the response instead of a broken pipe.
const DRAINED: usize = 8;

/// Reads a whole request body, within a size and a time.
pub(super) async fn read<B>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match tokio::time::timeout(timeout, collect(body, limit)).await {
        Err(_) => Err(ApiError::timeout("the request's body did not arrive in time")),
        Ok(outcome) => outcome,
    }
}

async fn collect<B>(body: B, limit: usize) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let (mut kept, mut arrived) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("reading the request's body: {}", error.into()))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        arrived += data.len();
        if arrived <= limit {
            kept.extend_from_slice(&data);
        } else if arrived > limit * DRAINED {
            break;
        }
    }
    if arrived > limit {
        return Err(ApiError::too_large(limit));
    }
    Ok(kept.freeze())
}
