//! Places for streams: a number for callers who are known, and a small one for those who show no credentials.
//!
//! A stream costs memory for as long as its caller likes. So strangers have a pool of their own: they can fill it, and
//! nobody who is known notices.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::{Extensions, Status};

use super::AdminOptions;
use crate::admin::authorize::is_known;
use crate::admin::errors::{ErrorReply, Reason};
use crate::admin::metrics::{AdminMetrics, OpenStream};

/// When to come back if too many streams are open.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// A stream's place among those that may be open. It is given back when it is dropped.
pub(super) struct StreamPlace {
    _permit: OwnedSemaphorePermit,
    _open: OpenStream,
}

/// Who holds how many streams. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct StreamPlaces {
    known: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    metrics: AdminMetrics,
}

impl StreamPlaces {
    pub(super) fn new(options: &AdminOptions, metrics: AdminMetrics) -> Self {
        let pool = |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { known: pool(options.streams), strangers: pool(options.stranger_streams), metrics }
    }

    /// A place for a stream of this caller.
    pub(super) fn take(&self, extensions: &Extensions) -> Result<StreamPlace, Status> {
        let (pool, message) = if is_known(extensions) {
            (&self.known, "too many streams are open on this replica")
        } else {
            (&self.strangers, "too many streams without credentials are open on this replica")
        };
        let permit = Arc::clone(pool)
            .try_acquire_owned()
            .map_err(|_| Status::from(ErrorReply::new(Reason::TooManyStreams, message).retry_after(RETRY)))?;
        Ok(StreamPlace { _permit: permit, _open: self.metrics.stream() })
    }
}

/// The response, whose body holds a place until it is sent or given up.
pub(super) fn held(response: Response<Body>, place: StreamPlace) -> Response<Body> {
    response.map(|body| Body::new(HeldBody { body, _place: place }))
}

struct HeldBody {
    body: Body,
    _place: StreamPlace,
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
