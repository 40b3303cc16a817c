//! Lanes: how requests are spread over HTTP/2 connections.
//!
//! An API server takes about 100 streams per connection (`--http2-max-streams-per-connection`), and what goes beyond
//! waits inside of the HTTP client, unseen. A watch holds its stream for minutes; so watches would soon keep writes
//! waiting. Therefore each lane is a client with a connection of its own: requests on some, watches on others, and a
//! further lane is opened when those there are full. Writes that have passed the gate have lanes behind their fence, with
//! which their connections are cut.
//!
//! What a connection costs: rustls and h2 hold some 16 KiB buffers each and header tables of 4 KiB, about 100 KiB
//! together; a window of flow control costs nothing until data is left unread. So windows can be generous: they
//! bound throughput to window ÷ round trip, and memory to what readers are behind with. The connection's window is
//! never the limit, so that one reader that is behind holds up only its own stream. They are fixed, not adaptive:
//! that would cost a ping per burst of data to learn what is known, that big lists come from near.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tower::Service;

use super::connector::{Connector, Tasks};
use super::{KeepAlive, TransportError};
use crate::client::api::BoxError;
use crate::client::fence::{CutOff, Fence};
use crate::client::layers::{ApiRequest, ApiResponse, Hook, hook};
use crate::client::request::RequestIntent;

/// Requests that share a connection. Below the API server's limit, for some streams end later there than here.
pub(super) const REQUESTS_PER_LANE: usize = 80;
/// Watches that share a connection: few enough that the loss of one connection does not set all of them back.
pub(super) const WATCHES_PER_LANE: usize = 32;

/// 4 MiB, as Go's HTTP/2 client: a list of 100 MB in well under a second from 10 ms away.
const REQUEST_WINDOW: u32 = 4 << 20;
/// 2 MiB: a watch begins with the present state (KEP-3157), then trickles.
const WATCH_WINDOW: u32 = 2 << 20;
/// 1 GiB, as Go's: never the limit.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Idle HTTP/1.1 connections kept, as client-go does; with HTTP/2 there is one.
const IDLE_HTTP1: usize = 25;

/// The lanes to one server as one identity.
#[derive(Clone)]
pub(super) struct Lanes(Arc<Shared>);

struct Shared {
    server: Uri,
    connector: Connector,
    keep_alive: KeepAlive,
    tasks: Tasks,
    /// Whether the server speaks HTTP/2; `None` until it was asked.
    http2: Mutex<Option<bool>>,
    /// Held while the server is asked, so that it is asked once.
    asking: tokio::sync::Mutex<()>,
    requests: LaneSet,
    writes: LaneSet,
    watches: LaneSet,
}

struct LaneSet {
    limit: usize,
    window: u32,
    lanes: Mutex<Vec<Arc<Lane>>>,
}

struct Lane {
    client: Client<Connector, Full<Bytes>>,
    fence: Option<Arc<Fence>>,
    taken: AtomicUsize,
}

impl Lane {
    fn is_behind(&self, fence: Option<&Arc<Fence>>) -> bool {
        self.fence.as_ref().map(Arc::as_ptr) == fence.map(Arc::as_ptr)
    }

    fn is_cut(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.is_cut())
    }
}

/// A place on a lane, held from the request to the end of its response.
struct Seat(Arc<Lane>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hook for Seat {}

impl Lanes {
    pub(super) fn new(server: Uri, connector: Connector, keep_alive: KeepAlive, tasks: Tasks) -> Self {
        let set = |limit, window| LaneSet { limit, window, lanes: Mutex::new(Vec::new()) };
        Self(Arc::new(Shared {
            server,
            connector,
            keep_alive,
            tasks,
            http2: Mutex::new(None),
            asking: tokio::sync::Mutex::new(()),
            requests: set(REQUESTS_PER_LANE, REQUEST_WINDOW),
            writes: set(REQUESTS_PER_LANE, REQUEST_WINDOW),
            watches: set(WATCHES_PER_LANE, WATCH_WINDOW),
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.0.sets().iter().map(|set| set.lanes.lock().len()).sum()
    }
}

impl Shared {
    fn sets(&self) -> [&LaneSet; 3] {
        [&self.requests, &self.writes, &self.watches]
    }

    /// Whether the server speaks HTTP/2, asking it when that is not known.
    ///
    /// It has to be known beforehand: a client that is told to speak HTTP/2 only makes one connection however many
    /// requests come at once, one that is to find out makes a connection for each of them.
    async fn speaks_http2(&self, fence: Option<&Arc<Fence>>) -> Result<bool, BoxError> {
        if self.server.scheme_str() != Some("https") {
            return Ok(false);
        }
        if let Some(known) = *self.http2.lock() {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = *self.http2.lock() {
            return Ok(known);
        }
        let found = self.connector.probe(self.server.clone(), fence.is_none()).await?;
        *self.http2.lock() = Some(found);
        Ok(found)
    }

    /// Forgets what was known of the server: it has turned out wrong.
    fn forget(&self) {
        *self.http2.lock() = None;
        for set in self.sets() {
            set.lanes.lock().clear();
        }
    }

    fn seat(&self, set: &LaneSet, http2: bool, fence: Option<&Arc<Fence>>) -> Seat {
        let mut lanes = set.lanes.lock();
        // Lanes are filled from the first on, so that spare ones fall empty and are closed; the first one stays.
        let mut at = 0;
        lanes.retain(|lane| !lane.is_cut());
        lanes.retain(|lane| {
            at += 1;
            at == 1 || lane.taken.load(Ordering::Relaxed) > 0
        });
        let is_free =
            |lane: &&Arc<Lane>| lane.is_behind(fence) && lane.taken.load(Ordering::Relaxed) < set.limit;
        let lane = lanes.iter().find(is_free).cloned().unwrap_or_else(|| {
            let client = self.client(set.window, http2, fence.cloned());
            let lane = Arc::new(Lane { client, fence: fence.cloned(), taken: AtomicUsize::new(0) });
            lanes.push(Arc::clone(&lane));
            lane
        });
        lane.taken.fetch_add(1, Ordering::Relaxed);
        Seat(lane)
    }

    fn client(&self, window: u32, http2: bool, fence: Option<Arc<Fence>>) -> Client<Connector, Full<Bytes>> {
        let mut builder = Client::builder(self.tasks.clone());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            // A connection counts as idle for as long as no request begins on it, however many watches run; so it is
            // kept until it closes. Pings find out when it is dead.
            .pool_idle_timeout(None)
            .pool_max_idle_per_host(IDLE_HTTP1)
            // Not what is meant by a retry: a request goes to another connection only if none of it was sent.
            .retry_canceled_requests(true)
            .http2_only(http2)
            .http2_initial_stream_window_size(window)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(self.keep_alive.interval)
            .http2_keep_alive_timeout(self.keep_alive.timeout)
            .http2_keep_alive_while_idle(true);
        let connector = if http2 { self.connector.only_http2() } else { self.connector.clone() };
        builder.build(match fence {
            Some(fence) => connector.behind(fence),
            None => connector,
        })
    }

    async fn send(self: Arc<Self>, mut request: ApiRequest) -> Result<ApiResponse, BoxError> {
        let fence = request.extensions_mut().remove::<Arc<Fence>>();
        if fence.as_ref().is_some_and(|fence| fence.is_cut()) {
            return Err(TransportError::new(CutOff.into(), true).into());
        }
        let http2 =
            self.speaks_http2(fence.as_ref()).await.map_err(|error| TransportError::new(error, true))?;
        let set = match &fence {
            Some(_) => &self.writes,
            None if RequestIntent::of(&request).is_watch() => &self.watches,
            None => &self.requests,
        };
        let seat = self.seat(set, http2, fence.as_ref());
        match seat.0.client.request(request).await {
            Ok(response) => {
                let lost = |error: hyper::Error| BoxError::from(TransportError::new(error.into(), false));
                Ok(hook(response.map(|body| body.map_err(lost).boxed_unsync()), seat))
            }
            Err(error) => {
                if self.connector.take_downgraded() {
                    self.forget();
                }
                let not_sent = error.is_connect();
                Err(TransportError::new(error.into(), not_sent).into())
            }
        }
    }
}

impl Service<ApiRequest> for Lanes {
    type Response = ApiResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ApiResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ApiRequest) -> Self::Future {
        Box::pin(Arc::clone(&self.0).send(request))
    }
}
