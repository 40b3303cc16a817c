//! What all streams have in common: they hold a place, and they end when the process does.

use futures::stream::unfold;
use tokio_util::sync::CancellationToken;
use tonic::{Extensions, Status};

use super::places::StreamPlace;
use super::{Answers, Shared, shutting_down};

/// What makes the messages of a stream.
pub(super) trait Feed: Send + 'static {
    /// A message.
    type Message: Send + 'static;

    /// The next message; `None` at the end. May be dropped while it waits, and must not lose anything by it.
    fn next(&mut self) -> impl Future<Output = Option<Self::Message>> + Send;
}

struct Running<F> {
    feed: F,
    shutdown: CancellationToken,
    _place: StreamPlace,
}

/// A stream for a caller of what `feed` makes, until its end or that of the process.
pub(super) fn answers<F: Feed>(
    shared: &Shared,
    caller: &Extensions,
    feed: F,
) -> Result<Answers<F::Message>, Status> {
    let place = shared.places.take(caller)?;
    let running = Running { feed, shutdown: shared.shutdown.clone(), _place: place };
    let stream = unfold(Some(running), |running| async {
        let mut running = running?;
        let next = tokio::select! {
            biased;
            () = running.shutdown.cancelled() => Some(Err(shutting_down())),
            message = running.feed.next() => message.map(Ok),
        }?;
        // After an error there is nothing more.
        let rest = next.is_ok().then_some(running);
        Some((next, rest))
    });
    Ok(Box::pin(stream))
}
