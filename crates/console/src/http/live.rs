//! Server-sent events that say "there is news"; the page then fetches itself again.
//!
//! No content travels here, so a stream costs the same whatever page it serves, and a page without JavaScript shows
//! exactly what one with it does.

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

/// Something in between may close what is silent for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How soon a browser comes back after a break.
const HELLO: &str = "retry: 2000\n\n";
const NEWS: &str = "event: change\ndata: \n\n";
const STILL_THERE: &str = ": \n\n";

/// A stream for one tab. It ends with the console; the browser tries again.
pub fn events(
    hub: Arc<Hub>,
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
) -> UnsyncBoxBody<Bytes, Infallible> {
    // Has not seen even the present state: a tab hears of news at once, in case something changed after its page was made.
    let follower = hub.follower();
    // The hub and the slot live as long as the stream.
    let state = (hub, slot, follower, stop, true);
    let stream = stream::unfold(state, |(hub, slot, mut follower, stop, first)| async move {
        let text = if first {
            HELLO
        } else {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = hub.news(&mut follower) => NEWS,
                () = tokio::time::sleep(KEEP_ALIVE) => STILL_THERE,
            }
        };
        let frame = Frame::data(Bytes::from_static(text.as_bytes()));
        Some((Ok(frame), (hub, slot, follower, stop, false)))
    });
    StreamBody::new(stream).boxed_unsync()
}
