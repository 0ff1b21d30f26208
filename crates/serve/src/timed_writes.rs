//! A socket whose other end must take what is written to it.

use std::error::Error;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The other end took nothing for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a client took nothing of its answer for {} s: its connection was closed", .0.as_secs())]
pub(crate) struct TookNothing(Duration);

impl TookNothing {
    /// Is this why a connection ended?
    pub(crate) fn of(error: &hyper::Error) -> Option<Self> {
        error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref().copied()
    }
}

/// Reads as the socket does; a write that waits longer than `limit` for the other end is an error.
pub(crate) struct TimedWrites<S> {
    socket: S,
    limit: Duration,
    /// Runs while the other end takes nothing.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedWrites<S> {
    pub(crate) fn new(socket: S, limit: Duration) -> Self {
        Self { socket, limit, deadline: None }
    }

    /// What a write came to, or that it waits too long already.
    fn in_time<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        let is_over = deadline.as_mut().poll(context);
        is_over.map(|()| Err(io::Error::new(ErrorKind::TimedOut, TookNothing(limit))))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.in_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.in_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        self.in_time(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.socket).poll_shutdown(context);
        self.in_time(ended, context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Takes so many bytes, and then no more.
    struct Full(usize);

    impl AsyncWrite for Full {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let n_taken = self.0.min(bytes.len());
            self.0 -= n_taken;
            if n_taken == 0 { Poll::Pending } else { Poll::Ready(Ok(n_taken)) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A client that reads slowly, but reads, would lose its answer after as long as one that does not.
    #[tokio::test]
    async fn the_time_begins_anew_with_every_byte_that_is_taken() {
        let mut context = Context::from_waker(Waker::noop());
        let mut socket = TimedWrites::new(Full(3), Duration::from_secs(3600));
        let mut write = |socket: &mut TimedWrites<Full>| Pin::new(socket).poll_write(&mut context, b"ab");
        assert!(matches!(write(&mut socket), Poll::Ready(Ok(2))));
        assert!(matches!(write(&mut socket), Poll::Ready(Ok(1))));
        assert!(write(&mut socket).is_pending() && socket.deadline.is_some());
        socket.socket.0 = 1;
        assert!(matches!(write(&mut socket), Poll::Ready(Ok(1))));
        assert!(socket.deadline.is_none(), "a byte was taken");
    }
}
