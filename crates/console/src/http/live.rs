//! Server-sent events that notify a page of changes, upon which it fetches itself again.
//!
//! The events have no content, so the cost of a stream does not depend on the page, and pages look the same without
//! JavaScript.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;

/// Proxies may close connections that are idle for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The delay before a browser reconnects.
const RETRY: &str = "retry: 2000\n\n";
const CHANGE: &str = "event: change\ndata: \n\n";
const COMMENT: &str = ": \n\n";

/// Returns the event stream of one tab. It ends when the console stops; the browser reconnects.
pub fn events(
    hub: Arc<Hub>,
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
) -> UnsyncBoxBody<Bytes, Infallible> {
    // The follower has not seen the current state either, so the first event is sent at once: the state may have
    // changed after the page was rendered.
    let follower = hub.follower();
    // The hub and the slot are held as long as the stream.
    let state = (hub, slot, follower, stop, true);
    let stream = stream::unfold(state, |(hub, slot, mut follower, stop, first)| async move {
        let text = if first {
            RETRY
        } else {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = hub.changed(&mut follower) => CHANGE,
                () = tokio::time::sleep(KEEP_ALIVE) => COMMENT,
            }
        };
        let frame = Frame::data(Bytes::from_static(text.as_bytes()));
        Some((Ok(frame), (hub, slot, follower, stop, false)))
    });
    StreamBody::new(stream).boxed_unsync()
}
