//! Isolation of requests: a panic ends one request, never the process or another request.

use std::error::Error;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use prometheus_client::metrics::counter::Counter;
use tracing::error;

use crate::TextResponse;
use crate::activity::RequestInProgress;

type BodyFailure = Box<dyn Error + Send + Sync>;

/// Awaits a response; a panic becomes `internal_error` and is counted. The panic hook has already logged where it
/// happened.
pub(crate) async fn isolate<B>(
    request: &str,
    response: impl Future<Output = Response<B>>,
    internal_error: fn() -> TextResponse,
    panics: &PanicCounter,
    in_progress: RequestInProgress,
) -> Response<IsolatedBody<B>> {
    // Unwind safety: shared state behind a lock is either not poisoned by a panic or recovered by its users.
    if let Ok(response) = AssertUnwindSafe(response).catch_unwind().await {
        let panics = panics.clone();
        response.map(|body| IsolatedBody::Handler {
            body,
            panics,
            _in_progress: in_progress,
        })
    } else {
        panics.inc();
        error!("request {request} panicked and is answered with an internal error");
        internal_error().map(IsolatedBody::Fixed)
    }
}

/// Counts the panics of one listener, and as those of its component.
#[derive(Clone, Debug)]
pub(crate) struct PanicCounter {
    pub listener: Counter,
    pub component: &'static str,
}

impl PanicCounter {
    fn inc(&self) {
        self.listener.inc();
        mco_telemetry::count_panic(self.component);
    }
}

/// The body of a response: the handler's own, whose panics become errors, or a fixed text.
pub(crate) enum IsolatedBody<B> {
    Handler {
        body: B,
        panics: PanicCounter,
        _in_progress: RequestInProgress,
    },
    Fixed(Full<Bytes>),
}

impl<B> Body for IsolatedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BodyFailure>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyFailure;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        match self.get_mut() {
            Self::Handler { body, panics, .. } => {
                let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context)));
                let Ok(polled) = polled else {
                    panics.inc();
                    error!("a response body panicked; its connection is closed");
                    return Poll::Ready(Some(Err("the response body panicked".into())));
                };
                polled.map_err(Into::into)
            }
            Self::Fixed(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Handler { body, .. } => body.is_end_stream(),
            Self::Fixed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Handler { body, .. } => body.size_hint(),
            Self::Fixed(body) => body.size_hint(),
        }
    }
}
