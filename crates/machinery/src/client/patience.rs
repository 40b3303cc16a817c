//! Repeats a request that the API server refuses with a time to come back: 429, and 5xx with `Retry-After`.
//!
//! The controller that sent the request sees one slow request, as with kube-controller-manager's client: no failure, no event and
//! no condition. A request is repeated only if its effect is known: a write that is answered with 500, 502 or 504, or with the reason
//! `Timeout`, may have been carried out, so its caller decides. The wait lies above the rate limit and the write gate, so it holds no
//! token and no place, and a repeated write passes the gate again. A term that ends ends the wait.
//!
//! A wait holds up nobody else. A reconcile that waits takes a seat of its loop ([`WaitSeats`]), and its worker takes the next key. A namespace
//! has a share of the seats, so one namespace whose webhook always asks for more time leaves seats to the others.
//! Where there is no seat (loops that take one key at a time, tasks that are no reconciles, more reconciles than seats) the client's
//! credit bounds the time: an API server or a webhook that always asks for more time gets a quarter of it at most, and then the refusal
//! is the answer. Nothing of a refusal is kept over a wait.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::layers::{Term, WriteGate};
use super::repeat_budget::{ClientRate, RepeatBudget, Repetition};
use super::request::RequestIntent;
use crate::random::HashMap;
use crate::wire::Str;

/// Repetitions of one request at most, as by kube-controller-manager's client.
const MOST_REPEATS: u32 = 10;
/// The shortest wait. A server that answers `Retry-After: 0` would get all repetitions at once.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// How long requests without a seat may wait in a row. Waits that overlap count once. API priority and fairness asks for 32 seconds at most.
const CREDIT: Duration = Duration::from_secs(40);
/// Seconds in which one second of credit comes back.
const CREDIT_RETURNS: u32 = 4;
/// Reconciles of one loop that wait next to its workers.
const SEATS: usize = 32;

tokio::task_local! {
    /// The reconcile that requests are sent for.
    static SCOPE: Arc<WaitScope>;
}

/// Seats for reconciles that wait for the API server while their workers take other keys. One for each loop; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct WaitSeats {
    taken: Option<Arc<Mutex<TakenSeats>>>,
    closed: CancellationToken,
}

/// The seats that are taken, by namespace.
#[derive(Debug, Default)]
struct TakenSeats {
    all: usize,
    by_namespace: HashMap<Str, usize>,
}

impl TakenSeats {
    /// Takes a seat for an object of a namespace. A namespace gets no more seats than it leaves free: half of them when no other waits.
    /// Objects without a namespace may take all seats, because each of them is on its own.
    fn take(&mut self, namespace: &Str) -> bool {
        let free = SEATS.saturating_sub(self.all);
        let has_share = namespace.is_empty() || self.by_namespace.get(namespace).copied().unwrap_or(0) < free;
        if free == 0 || !has_share {
            return false;
        }
        self.all += 1;
        *self.by_namespace.entry(namespace.clone()).or_default() += 1;
        true
    }

    fn give_back(&mut self, namespace: &Str) {
        self.all -= 1;
        if let Some(taken) = self.by_namespace.get_mut(namespace) {
            *taken -= 1;
            if *taken == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

/// A seat, until it is dropped.
#[derive(Debug)]
struct Seat {
    of: Arc<Mutex<TakenSeats>>,
    namespace: Str,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.of.lock().give_back(&self.namespace);
    }
}

impl WaitSeats {
    /// Makes the seats of a loop. Without `beside`, a reconcile that waits keeps its worker, so the client's credit bounds the wait.
    pub(crate) fn new(beside: bool) -> Self {
        Self { taken: beside.then(Arc::default), closed: CancellationToken::new() }
    }

    /// Ends all waits; there are no further ones. The loop is being stopped.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Returns the scope of one reconcile of an object in a namespace; empty for an object without one.
    pub(crate) fn scope(&self, namespace: &Str) -> Arc<WaitScope> {
        let (seat, begun) = (Mutex::new(None), Notify::new());
        Arc::new(WaitScope { seats: self.clone(), namespace: namespace.clone(), seat, begun })
    }
}

/// One reconcile: its requests share a seat, from their first wait to the end of the reconcile.
#[derive(Debug)]
pub(crate) struct WaitScope {
    seats: WaitSeats,
    namespace: Str,
    seat: Mutex<Option<Seat>>,
    begun: Notify,
}

impl WaitScope {
    /// Runs a reconcile in this scope.
    pub(crate) fn run<F: Future>(self: &Arc<Self>, reconcile: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPE.scope(Arc::clone(self), reconcile)
    }

    /// Returns once the reconcile has a seat: its worker may take another key.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Takes a seat unless the reconcile has one, and returns whether it has one now.
    fn take_seat(&self) -> bool {
        let Some(taken) = &self.seats.taken else { return false };
        let mut seat = self.seat.lock();
        if seat.is_none() && taken.lock().take(&self.namespace) {
            *seat = Some(Seat { of: Arc::clone(taken), namespace: self.namespace.clone() });
            self.begun.notify_one();
        }
        seat.is_some()
    }
}

/// How a client waits. All clones of the client share it.
#[derive(Debug)]
pub(super) struct Patience {
    gate: WriteGate,
    limit: Duration,
    credit: Mutex<Credit>,
    budget: RepeatBudget,
}

/// A wait ended because leadership is lost, writes are cut off, or the controller is being stopped. The request was refused and is not
/// repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request not retried: leadership is lost or the controller is stopping")]
pub(super) struct WaitEnded;

impl Patience {
    /// Makes the patience of a client whose writes pass `gate`, and whose requests have this rate limit. No repetition of a request
    /// begins later than `limit` after its first refusal.
    pub(super) fn new(gate: WriteGate, limit: Duration, rate: Option<ClientRate>) -> Self {
        Self { gate, limit, credit: Mutex::default(), budget: RepeatBudget::new(rate) }
    }

    /// Begins a request. `shared` identifies a read that several callers share.
    pub(super) fn begin(&self, intent: RequestIntent, shared: Option<u64>) -> Repeats<'_> {
        let scope = SCOPE.try_with(Arc::clone).ok();
        Repeats { patience: self, term: self.gate.term(), scope, intent, shared, count: 0, until: None }
    }
}

/// The repetitions of one request.
pub(super) struct Repeats<'a> {
    patience: &'a Patience,
    term: Term,
    scope: Option<Arc<WaitScope>>,
    intent: RequestIntent,
    shared: Option<u64>,
    count: u32,
    until: Option<Instant>,
}

impl Repeats<'_> {
    /// Returns the term that the request belongs to.
    pub(super) fn term(&self) -> &Term {
        &self.term
    }

    /// Returns whether the refusal's reason decides if the write is repeated.
    pub(super) fn needs_reason(&self, code: StatusCode) -> bool {
        !is_read(self.intent) && may_be_repeated(self.intent, code)
    }

    /// Begins the next request of a read in several requests, in the same term.
    pub(super) fn begin_next(&mut self) {
        (self.count, self.until) = (0, None);
    }

    /// Returns how long to wait before the request that was answered with `code` is repeated; `None` if the answer stands.
    ///
    /// # Errors
    /// It would be repeated, but its term has ended, or its controller is being stopped.
    pub(super) fn next(
        &mut self,
        label: &str,
        code: StatusCode,
        retry_after: Option<Duration>,
    ) -> Result<Option<Duration>, WaitEnded> {
        let Some(wait) = retry_after.map(|wait| wait.max(SHORTEST_WAIT)) else { return Ok(None) };
        if !may_be_repeated(self.intent, code) || self.count == MOST_REPEATS {
            return Ok(None);
        }
        let now = Instant::now();
        let until = *self.until.get_or_insert(now + self.patience.limit);
        if now + wait >= until {
            return Ok(None);
        }
        let is_stopped = self.term.is_closed()
            || self.scope.as_ref().is_some_and(|scope| scope.seats.closed.is_cancelled());
        if is_stopped {
            return Err(WaitEnded);
        }
        let has_seat = || self.scope.as_ref().is_some_and(|scope| scope.take_seat());
        let has_credit = || self.patience.credit.lock().take(now, wait);
        let repetition = Repetition { label, shared: self.shared, now, wait };
        let is_granted = self.patience.budget.take(repetition, || has_seat() || has_credit());
        self.count += u32::from(is_granted);
        Ok(is_granted.then_some(wait))
    }

    /// Waits before a repetition.
    ///
    /// # Errors
    /// The term of the request has ended, or its controller is being stopped.
    pub(super) async fn wait(&self, wait: Duration) -> Result<(), WaitEnded> {
        let closed = async {
            match &self.scope {
                Some(scope) => scope.seats.closed.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.term.ended() => Err(WaitEnded),
            () = closed => Err(WaitEnded),
            () = sleep(wait) => Ok(()),
        }
    }
}

/// Whether a refusal with this code says that nothing was done, so that the same request does no harm. Opening a watch is repeated by its
/// reflector.
fn may_be_repeated(intent: RequestIntent, code: StatusCode) -> bool {
    let is_refusal = code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error();
    is_refusal && !intent.is_watch() && (is_read(intent) || !matches!(code.as_u16(), 500 | 502 | 504))
}

/// Returns whether a request with this intent changes no object.
pub(super) fn is_read(intent: RequestIntent) -> bool {
    matches!(
        intent,
        RequestIntent::Get
            | RequestIntent::List
            | RequestIntent::Find
            | RequestIntent::Watch
            | RequestIntent::Document
    )
}

/// The time that requests without a seat have waited.
#[derive(Debug, Default)]
struct Credit {
    used: Duration,
    at: Option<Instant>,
    /// Until when somebody waits; a wait that ends before costs nothing.
    covered: Option<Instant>,
}

impl Credit {
    /// Takes the credit for a wait if there is enough.
    fn take(&mut self, now: Instant, wait: Duration) -> bool {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.used = self.used.saturating_sub(since / CREDIT_RETURNS);
        self.at = Some(now);
        let from = self.covered.map_or(now, |covered| covered.max(now));
        let end = now + wait;
        let cost = end.saturating_duration_since(from);
        let is_enough = self.used + cost <= CREDIT;
        if is_enough {
            self.used += cost;
            self.covered = Some(from.max(end));
        }
        is_enough
    }
}
