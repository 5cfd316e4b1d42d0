//! A deadline for writes that make no progress, and a record of what was written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::activity::ConnectionActivity;

/// A stream whose writes fail when the peer does not read for some time. It records when everything was written. Reads
/// pass through.
#[derive(Debug)]
pub(crate) struct StallTimeout<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
    limit: Option<Duration>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> StallTimeout<S> {
    pub fn new(stream: S, limit: Option<Duration>, activity: Arc<ConnectionActivity>) -> Self {
        Self {
            stream,
            activity,
            limit,
            waiting: None,
        }
    }

    fn check<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let Some(limit) = self.limit else {
            return result;
        };
        let deadline = Instant::now() + limit;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.check(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        if result.is_ready() {
            self.activity.flushed();
        }
        self.check(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check(context, result)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_fails_and_a_slow_one_does_not() {
        let limit = Duration::from_secs(20);
        let (mut peer, stream) = tokio::io::duplex(16);
        let mut stream = StallTimeout::new(stream, Some(limit), Arc::default());
        let writing = tokio::spawn(async move {
            let result = stream.write_all(&[0; 64]).await;
            (stream, result)
        });
        for _ in 0..3 {
            tokio::time::sleep(limit / 2).await;
            peer.read_exact(&mut [0; 16]).await.unwrap();
        }
        let (mut stream, result) = writing.await.unwrap();
        result.unwrap();
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
