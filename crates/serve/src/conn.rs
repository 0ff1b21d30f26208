//! Connections: how many, how patient, and their end.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};

use crate::limits::Limits;

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
            let connection =
                builder(&limits).serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => Some(ended),
                _ = stopped.wait_for(|&is_stopped| is_stopped) => None,
            };
            if ended.is_none() {
                connection.as_mut().graceful_shutdown();
                // How a connection ends is the client's business.
                let _ = connection.await;
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

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(limits.n_header)
        .max_buf_size(limits.head_bytes);
    builder
}
