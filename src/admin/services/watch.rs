//! What all streams have in common: they hold a place, and they end with the process, with their caller's role, and after
//! 30 minutes at most. A token or a certificate that is no longer valid opens no stream again.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::unfold;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Extensions, Status};

use super::places::StreamPlace;
use super::{Answers, Shared, shutting_down};
use crate::admin::authorize::{Authorize, Method, caller, check_in};
use crate::admin::errors::{ErrorReply, Reason};
use coxswain_machinery::serve::{Lines, UserInfo};

/// The longest that a stream lasts. Some end up to three minutes earlier, so that not all end at once.
const LIFETIME: Duration = Duration::from_mins(30);
/// How often the authorization is asked again.
const REVIEW: Duration = Duration::from_mins(1);
/// When to open a stream again that has expired.
const REOPEN: Duration = Duration::from_millis(100);

/// What makes the messages of a stream.
pub(super) trait Feed: Send + 'static {
    /// A message.
    type Message: Send + 'static;

    /// The next message; `None` at the end. May be dropped while it waits, and must not lose anything by it.
    fn next(&mut self) -> impl Future<Output = Option<Self::Message>> + Send;
}

/// Whether a stream's caller may still have opened it.
struct Reviewed {
    authorizer: Arc<dyn Authorize>,
    refusals: Arc<Lines>,
    method: Method,
    /// The namespaces of which the stream shows objects; without one, all.
    namespaces: Vec<String>,
    user: Arc<UserInfo>,
}

impl Reviewed {
    /// Why the stream has to end. An API server that gives no answer ends no stream.
    async fn refusal(&self) -> Option<Status> {
        let mut extensions = Extensions::new();
        extensions.insert(Arc::clone(&self.user));
        let outcome =
            check_in(&*self.authorizer, &self.refusals, &extensions, self.method, &self.namespaces).await;
        outcome.err().filter(|status| status.code() == Code::PermissionDenied)
    }
}

struct Running<F> {
    feed: F,
    shutdown: CancellationToken,
    review: Option<Arc<Reviewed>>,
    review_at: Instant,
    /// A review under way, which holds up no message.
    reviewing: Option<BoxFuture<'static, Option<Status>>>,
    end: Instant,
    _place: StreamPlace,
}

impl<F: Feed> Running<F> {
    async fn next(&mut self) -> Option<Result<F::Message, Status>> {
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Some(Err(shutting_down())),
                () = sleep_until(self.end) => return Some(Err(expired())),
                refusal = under_way(&mut self.reviewing) => {
                    self.reviewing = None;
                    self.review_at = Instant::now() + REVIEW;
                    if let Some(refusal) = refusal {
                        return Some(Err(refusal));
                    }
                }
                () = sleep_until(self.review_at), if self.reviewing.is_none() && self.review.is_some() => {
                    self.reviewing = self.review.clone().map(|review| -> BoxFuture<'static, Option<Status>> {
                        Box::pin(async move { review.refusal().await })
                    });
                }
                message = self.feed.next() => return message.map(Ok),
            }
        }
    }
}

/// The outcome of a review under way; never without one.
async fn under_way(reviewing: &mut Option<BoxFuture<'static, Option<Status>>>) -> Option<Status> {
    match reviewing {
        Some(reviewing) => reviewing.await,
        None => std::future::pending().await,
    }
}

/// A stream for a caller of what `feed` makes, until its end. `method` is what the caller was authorized for; `None` for a
/// stream that needs no authorization.
pub(super) fn answers<F: Feed>(
    shared: &Shared,
    extensions: &Extensions,
    method: Option<Method>,
    feed: F,
) -> Result<Answers<F::Message>, Status> {
    answers_in(shared, extensions, (method, Vec::new()), feed)
}

/// The same for a stream that shows objects of these namespaces only.
pub(super) fn answers_in<F: Feed>(
    shared: &Shared,
    extensions: &Extensions,
    (method, namespaces): (Option<Method>, Vec<String>),
    feed: F,
) -> Result<Answers<F::Message>, Status> {
    let place = shared.places.take(extensions)?;
    let review = match method {
        Some(method) => Some(Arc::new(Reviewed {
            authorizer: Arc::clone(&shared.authorizer),
            refusals: Arc::clone(&shared.refusals),
            method,
            namespaces,
            user: caller(extensions)?,
        })),
        None => None,
    };
    let now = Instant::now();
    let lifetime = LIFETIME.mul_f64(coxswain_machinery::random::within(0.9..1.0));
    let shutdown = shared.shutdown.clone();
    let running = Running {
        feed,
        shutdown,
        review,
        review_at: now + REVIEW,
        reviewing: None,
        end: now + lifetime,
        _place: place,
    };
    let stream = unfold(Some(running), |running| async {
        let mut running = running?;
        let next = running.next().await?;
        // After an error there is nothing more.
        let rest = next.is_ok().then_some(running);
        Some((next, rest))
    });
    Ok(Box::pin(stream))
}

fn expired() -> Status {
    let message =
        "the stream reached its maximum age (at most 30 minutes); open it again with current credentials";
    ErrorReply::new(Reason::StreamExpired, message).retry_after(REOPEN).into()
}
