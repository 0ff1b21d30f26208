//! Connections: how many, how patient, and their end.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};

use crate::limits::Limits;
use crate::timed_writes::{TimedWrites, TookNothing};

/// After an error of `accept` (such as too many open files) that trying again at once would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets requests end for `grace`.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(limits.n_connection));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        let Ok((socket, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Small pieces of an answer must not wait for each other.
        let _ = socket.set_nodelay(true);
        let (router, mut stopped) = (router.clone(), stopped.clone());
        connections.spawn(async move {
            let ended = answer(socket, router, &limits, async {
                let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
            });
            // How else a connection ends is the client's business.
            if let Some(why) = ended.await.err().as_ref().and_then(TookNothing::of) {
                eprintln!("{why}");
            }
            drop(place);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(grace, all).await;
    Ok(())
}

/// Answers what comes on one connection. After `stop` no more requests are taken from it.
async fn answer(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: &Limits,
    stop: impl Future<Output = ()>,
) -> hyper::Result<()> {
    let socket = TokioIo::new(TimedWrites::new(socket, limits.write_time));
    let connection = builder(limits).serve_connection(socket, TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        () = stop => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(limits.n_header)
        .max_buf_size(limits.head_bytes);
    builder
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::routing::get;
    use tokio::io::ReadBuf;

    use super::*;

    /// A client that asks once and takes nothing.
    struct Asks(&'static [u8]);

    impl AsyncRead for Asks {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let request = std::mem::take(&mut self.0);
            if request.is_empty() {
                return Poll::Pending;
            }
            buffer.put_slice(request);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Asks {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A connection would be closed, or kept, and the log would not say that its client took nothing.
    #[tokio::test]
    async fn the_log_says_that_a_client_took_nothing() {
        let router = Router::new().route("/", get(async || "text"));
        let limits = Limits { write_time: Duration::from_secs(1), ..Limits::default() };
        let socket = Asks(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let ended = answer(socket, router, &limits, std::future::pending()).await;
        let why = TookNothing::of(&ended.unwrap_err()).map(|why| why.to_string());
        let line = "a client took nothing of its answer for 1 s: its connection was closed";
        assert_eq!(why.as_deref(), Some(line));
    }
}
