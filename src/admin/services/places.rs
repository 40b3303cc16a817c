//! Places for streams: a number for callers who are known, and a small one for those who show no credentials; and each known
//! user's share of them, and of calls.
//!
//! A stream costs memory for as long as its caller likes. So strangers have a pool of their own: they can fill it, and
//! nobody who is known notices. And no user takes the places of the others.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::{Extensions, Status};

use super::AdminOptions;
use crate::admin::authorize::caller;
use crate::admin::errors::{ErrorReply, Reason};
use crate::admin::metrics::{AdminMetrics, OpenStream};
use coxswain_machinery::serve::UserInfo;

/// When to come back if too many streams are open.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// A stream's place among those that may be open. It is given back when it is dropped.
pub(super) struct StreamPlace {
    _share: Option<Share>,
    _permit: OwnedSemaphorePermit,
    _open: OpenStream,
}

/// How many of something each user holds. Users who hold none are forgotten.
#[derive(Clone, Debug, Default)]
struct Shares(Arc<Mutex<BTreeMap<String, usize>>>);

impl Shares {
    /// One more for a user, unless the user holds `most`.
    fn take(&self, user: &str, most: usize) -> Option<Share> {
        let mut held = self.0.lock();
        let count = held.get(user).copied().unwrap_or_default();
        if count >= most {
            return None;
        }
        held.insert(user.to_owned(), count + 1);
        Some(Share { shares: self.clone(), user: user.to_owned() })
    }
}

/// One of what a user may hold. It is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    user: String,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.0.lock();
        if let Some(count) = held.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.user);
            }
        }
    }
}

/// The streams, calls and mutations that each user holds. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct StreamPlaces {
    known: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    user_streams: (Shares, usize),
    user_calls: (Shares, usize),
    user_records: (Shares, usize),
    orders: MutationPool,
    syncs: MutationPool,
    metrics: AdminMetrics,
}

impl StreamPlaces {
    pub(super) fn new(options: &AdminOptions, metrics: AdminMetrics) -> Self {
        let pool = |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self {
            known: pool(options.streams),
            strangers: pool(options.stranger_streams),
            user_streams: (Shares::default(), options.user_streams),
            user_calls: (Shares::default(), options.user_calls),
            user_records: (Shares::default(), options.user_records),
            orders: MutationPool {
                kind: "mutations",
                users: Shares::default(),
                most: options.user_mutations,
                all: pool(options.mutations),
            },
            syncs: MutationPool {
                kind: "syncs",
                users: Shares::default(),
                most: options.user_syncs,
                all: pool(options.syncs),
            },
            metrics,
        }
    }

    /// A place for a stream of this caller.
    pub(super) fn take(&self, extensions: &Extensions) -> Result<StreamPlace, Status> {
        let refused =
            |message: &str| Status::from(ErrorReply::new(Reason::TooManyStreams, message).retry_after(RETRY));
        let (share, pool, message) = match caller(extensions) {
            Ok(user) => {
                let (shares, most) = &self.user_streams;
                let share = shares.take(&user.name, *most).ok_or_else(|| {
                    refused(&format!(
                        "user {:?} has {most} open streams on this replica, which is the maximum",
                        user.name
                    ))
                })?;
                (Some(share), &self.known, "too many open streams on this replica")
            }
            Err(_) => (None, &self.strangers, "too many open unauthenticated streams on this replica"),
        };
        let permit = Arc::clone(pool).try_acquire_owned().map_err(|_| refused(message))?;
        Ok(StreamPlace { _share: share, _permit: permit, _open: self.metrics.stream() })
    }

    /// A place for a call of this caller, until it is answered; `None` for a caller without credentials, whose calls the
    /// port limits.
    pub(super) fn call(&self, extensions: &Extensions) -> Result<Option<Share>, Status> {
        let Ok(user) = caller(extensions) else { return Ok(None) };
        let (shares, most) = &self.user_calls;
        shares.take(&user.name, *most).map(Some).ok_or_else(|| {
            let message = format!(
                "user {:?} has {most} calls in progress on this replica, which is the maximum",
                user.name
            );
            ErrorReply::new(Reason::TooManyCalls, message).retry_after(RETRY).into()
        })
    }
}

/// The places that a mutation takes. A sync lasts as long as a reconcile, so syncs have places apart from the orders that
/// an operator needs in an emergency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MutationClass {
    /// Orders about controllers.
    Order,
    /// `StepDown`, in the places of orders. Each ends a term, so unwritten Events keep out none.
    StepDown,
    /// `SyncObject`.
    Sync,
}

/// The places of one class of mutations.
#[derive(Clone, Debug)]
struct MutationPool {
    /// The plural in messages.
    kind: &'static str,
    users: Shares,
    most: usize,
    all: Arc<Semaphore>,
}

/// A mutation's place among those that may be under way, until its caller is answered.
pub(super) struct MutationPlace {
    _share: Share,
    _permit: OwnedSemaphorePermit,
}

/// A user's share of the mutations whose Events are not written yet. Users share nothing here: nobody's unwritten Events
/// keep out another user.
pub(super) struct RecordPlace {
    _share: Share,
}

impl StreamPlaces {
    /// A place for a mutation of a user until it has ended, and one until its Event is written; `None` where no number of
    /// unwritten Events counts.
    pub(super) fn mutation(
        &self,
        user: &UserInfo,
        class: MutationClass,
    ) -> Result<(MutationPlace, Option<RecordPlace>), Status> {
        let refused =
            |message: String| Status::from(ErrorReply::new(Reason::TooManyCalls, message).retry_after(RETRY));
        let pool = match class {
            MutationClass::Order | MutationClass::StepDown => &self.orders,
            MutationClass::Sync => &self.syncs,
        };
        let (kind, most) = (pool.kind, pool.most);
        let share = pool.users.take(&user.name, most).ok_or_else(|| {
            refused(format!(
                "user {:?} has {most} {kind} in progress on this replica, which is the maximum",
                user.name
            ))
        })?;
        let record = (class == MutationClass::Order).then(|| self.record(user, refused)).transpose()?;
        let permit = Arc::clone(&pool.all).try_acquire_owned();
        let permit = permit.map_err(|_| refused(format!("too many {kind} in progress on this replica")))?;
        Ok((MutationPlace { _share: share, _permit: permit }, record))
    }

    fn record(&self, user: &UserInfo, refused: impl Fn(String) -> Status) -> Result<RecordPlace, Status> {
        let (records, most) = &self.user_records;
        let share = records.take(&user.name, *most).ok_or_else(|| {
            refused(format!(
                "user {:?} has {most} changes whose Kubernetes Events are not written yet, which is the maximum",
                user.name
            ))
        })?;
        Ok(RecordPlace { _share: share })
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
