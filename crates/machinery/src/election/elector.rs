//! The elector: acquires, renews, loses and releases leadership.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::lock::{LeaseApi, ObservedLease};
use super::record::Record;
use crate::api::coordination::Lease;
use crate::api::kinds::LEASES;
use crate::api::meta::ObjectMeta;
use crate::client::ApiError;
use crate::informer::{CONFIRM_AFTER, Epoch, Epochs};
use crate::latest;
use crate::model::clock::SharedClock;
use crate::serve::HealthCheck;
use crate::telemetry::tracing::{child, set_failed};
use crate::wire::Message;

/// A standby polls after the retry period and up to this fraction of it more, so that candidates spread out.
const JITTER: f64 = 1.2;

/// The three durations of an election; `lease > renew_deadline > retry * 1.2`, which the flags' validation ensures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For how long the others wait after a leader's last sign of life.
    pub lease: Duration,
    /// A leader that could not renew for this long stops leading.
    pub renew_deadline: Duration,
    /// Time between tries.
    pub retry: Duration,
}

/// What an elector knows about leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Whether this replica leads.
    pub leading: bool,
    /// The Lease's record as it was last seen.
    pub record: Option<Record>,
}

/// A Lease that could not be given up: it expires by itself, unless its holder takes it up again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("release Lease: not released within {within:?}: {why}")]
pub struct NotReleased {
    /// For how long it was tried.
    pub within: Duration,
    /// The last error.
    pub why: String,
}

/// One candidate for one Lease.
pub struct Elector<L> {
    lock: L,
    identity: String,
    timing: Timing,
    clock: SharedClock,
    state: latest::Sender<Leadership>,
    /// Until when the Lease is ours for sure; set by each of our own writes.
    ours_until: latest::Sender<Option<Instant>>,
    seen: Mutex<Seen>,
    /// Whether the API server chooses who has the Lease.
    coordinated: bool,
    /// Whether the Lease is ours and the API server wants another to have it.
    asked_to_give_way: latest::Sender<bool>,
    epochs: Option<Arc<Epochs>>,
}

#[derive(Default)]
struct Seen {
    observed: Option<ObservedLease>,
    /// The epoch in which it was observed.
    epoch: Epoch,
    /// When the record was last seen to change.
    at: Option<Instant>,
    /// A term that we have handed over, and until when we leave the Lease to others.
    handed_over: Option<HandedOver>,
}

struct HandedOver {
    transitions: i32,
    until: Instant,
}

impl<L: LeaseApi> Elector<L> {
    /// A candidate called `identity`.
    pub fn new(lock: L, identity: impl Into<String>, timing: Timing, clock: SharedClock) -> Self {
        Self {
            lock,
            identity: identity.into(),
            timing,
            clock,
            state: latest::Sender::default(),
            ours_until: latest::Sender::default(),
            seen: Mutex::default(),
            coordinated: false,
            asked_to_give_way: latest::Sender::default(),
            epochs: None,
        }
    }

    /// Leaves it to the API server who has the Lease (see [`super::Contender`]): waits to be named its holder, and
    /// takes it in no other way.
    #[must_use]
    pub fn coordinated(self) -> Self {
        Self { coordinated: true, ..self }
    }

    /// Ends the present epoch of these when the version of the Lease goes back. A restored API server sends nothing to a watch from a later
    /// version, so that informers alone would not notice the restore.
    #[must_use]
    pub fn noticing_restores(self, epochs: Arc<Epochs>) -> Self {
        Self { epochs: Some(epochs), ..self }
    }

    /// This candidate's name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Follows the leadership.
    pub fn leadership(&self) -> latest::Receiver<Leadership> {
        self.state.subscribe()
    }

    /// Returns once this replica leads, or `false` when `stop` came first.
    ///
    /// The Lease is watched meanwhile, so that its end is counted from the leader's last sign of life, not from when a
    /// poll found it; polling goes on, for a watch may fail or fall behind without a word.
    pub async fn acquire(&self, stop: &CancellationToken) -> bool {
        let seen = |observed| self.see(observed);
        let mut watched = self.lock.watch(&seen);
        let mut last_told = None;
        loop {
            let mut attempt = std::pin::pin!(self.try_once());
            let acquired = tokio::select! {
                biased;
                acquired = &mut attempt => acquired,
                // Cut short at once it might take the Lease without our knowing, and nobody would release it.
                () = stop.cancelled() => timeout(self.timing.retry, attempt).await == Ok(true),
            };
            if acquired {
                return true;
            }
            let mut pause = std::pin::pin!(self.pause());
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                () = &mut pause => {}
                ended = &mut watched => {
                    watched = self.lock.watch(&seen);
                    let told = self.seen.lock().observed.as_ref().map(|observed| observed.version);
                    let again = matches!(ended, Ok(true)) && told != last_told && !self.holds_back();
                    last_told = told;
                    if let Err(error) = ended {
                        tracing::debug!(%error, "Failed to watch the Lease; falling back to polling");
                    }
                    // While it is free and not for us, or cannot be taken, the watch would only say so again and again.
                    if !again {
                        tokio::select! {
                            biased;
                            () = stop.cancelled() => return false,
                            () = pause => {}
                        }
                    }
                }
            }
        }
    }

    /// Returns once the API server wants another to have the Lease that is ours. Until it is given up it is renewed.
    pub async fn until_asked_to_give_way(&self) {
        // The sender is this elector's own.
        let _asked = self.asked_to_give_way.subscribe().wait_for(|asked| *asked).await;
    }

    /// Takes note of the Lease as a watch shows it; whether it is for us to take.
    fn see(&self, observed: ObservedLease) -> bool {
        let is_news = {
            let seen = self.seen.lock();
            seen.observed.as_ref().is_none_or(|held| held.version < observed.version)
        };
        let is_for_us =
            if self.coordinated { self.is_named(&observed) } else { observed.record.holder.is_empty() };
        if is_news {
            self.observe(observed);
        }
        is_for_us
    }

    /// Until it is time to try again: the retry period and some more, but no longer than the Lease is good for.
    async fn pause(&self) {
        let poll = self.timing.retry.mul_f64(1.0 + crate::random::fraction() * JITTER);
        let until = Instant::now() + poll;
        loop {
            let end = self.valid_until().filter(|end| *end > Instant::now());
            sleep_until(end.map_or(until, |end| end.min(until))).await;
            // It may have been renewed meanwhile.
            if Instant::now() >= until || !self.is_valid() {
                return;
            }
        }
    }

    /// Renews until it fails for the renew deadline (`false`) or `stop` comes (`true`).
    pub async fn hold(&self, stop: &CancellationToken) -> bool {
        loop {
            let deadline = Instant::now() + self.timing.renew_deadline;
            let renewed = timeout_at(deadline, async {
                while !self.try_once().await {
                    if self.is_lost() {
                        return false;
                    }
                    sleep(self.timing.retry).await;
                }
                true
            });
            tokio::select! {
                biased;
                renewed = renewed => if renewed != Ok(true) {
                    self.stop_leading();
                    return false;
                },
                () = stop.cancelled() => return true,
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return true,
                () = sleep(self.timing.retry) => {}
            }
        }
    }

    /// Gives the Lease up, if it is ours, so that another candidate can take it at once. For a process that is about to
    /// end: it is tried once, bounded by the renew deadline.
    pub async fn release(&self) {
        let Some(held) = self.held() else { return };
        self.stop_leading();
        match timeout(self.timing.renew_deadline, self.give_up(held, None)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "Failed to release the Lease; it will expire"),
            Err(_) => tracing::warn!("Timed out releasing the Lease; it will expire"),
        }
    }

    /// Gives the Lease up, if it is ours, to `successor` or whoever comes first, and leaves it to the others: a later
    /// [`Elector::acquire`] holds back until another candidate has had it, or for the Lease's duration. Tried again and
    /// again for the renew deadline.
    pub async fn hand_over(&self, successor: Option<&str>) -> Result<(), NotReleased> {
        let Some(held) = self.held() else { return Ok(()) };
        self.stop_leading();
        let Timing { lease, renew_deadline, retry } = self.timing;
        let transitions = held.record.transitions;
        let mut why = "no response".to_owned();
        let given_up = timeout(renew_deadline, async {
            while let Err(error) = self.give_up(held.clone(), successor).await {
                tracing::warn!(%error, "Failed to release the Lease; retrying");
                why = error.to_string();
                sleep(retry).await;
            }
        });
        if given_up.await.is_err() {
            return Err(NotReleased { within: renew_deadline, why });
        }
        self.seen.lock().handed_over = Some(HandedOver { transitions, until: Instant::now() + lease });
        Ok(())
    }

    /// The Lease as it was last seen, if it is ours.
    fn held(&self) -> Option<ObservedLease> {
        let held = self.seen.lock().observed.clone();
        held.filter(|held| held.record.holder == self.identity)
    }

    async fn give_up(&self, mut held: ObservedLease, successor: Option<&str>) -> Result<(), ApiError> {
        loop {
            let record = held.record.released(successor, self.clock.now());
            match self.lock.update(&held, &record).await {
                Ok(observed) => {
                    self.observe(observed);
                    return Ok(());
                }
                // A renewal that the stop cut short may have been carried out all the same.
                Err(error) if error.is_conflict() => match self.read().await? {
                    Some(found) if found.record.holder == self.identity => held = found,
                    Some(found) => {
                        self.observe(found);
                        return Ok(());
                    }
                    None => return Ok(()),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// One try to take or renew the Lease; whether it is ours afterwards.
    async fn try_once(&self) -> bool {
        let attempt = if self.is_leading() { "renew" } else { "acquire" };
        let span = child(|| {
            tracing::debug_span!(
                "election",
                otel.name = %format_args!("leader election {attempt}"),
                coxswain.leader_election.identity = &*self.identity,
                coxswain.leading = tracing::field::Empty,
            )
        });
        match self.take_or_renew().instrument(span.clone()).await {
            Ok(leading) => {
                span.record("coxswain.leading", leading);
                self.set_leading(leading);
                leading
            }
            Err(error) => {
                set_failed(&span, error.to_string());
                tracing::warn!(identity = self.identity, %error, "Leader election request failed");
                false
            }
        }
    }

    pub(super) async fn take_or_renew(&self) -> Result<bool, ApiError> {
        let duration = i32::try_from(self.timing.lease.as_secs()).unwrap_or(i32::MAX);
        // The others wait from when they see our write, which is after this.
        let asked = Instant::now();
        // A leader renews what it wrote last, without reading first: half the requests.
        let held = self.seen.lock().observed.clone();
        if let Some(held) = held.filter(|held| held.record.holder == self.identity && self.is_leading()) {
            let record = Record::next(Some(&held.record), &self.identity, duration, self.clock.now());
            match self.lock.update(&held, &record).await {
                Ok(observed) => {
                    self.observe_ours(observed, asked);
                    return Ok(true);
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let before = self.last_version();
        let Some(found) = self.read().await? else {
            if self.coordinated {
                self.seen.lock().observed = None;
                return Ok(false);
            }
            let record = Record::next(None, &self.identity, duration, self.clock.now());
            return match self.lock.create(&record).await {
                Ok(observed) => {
                    let _found = self.notice_restore(&before, observed.clone()).await?;
                    self.observe_ours(observed, asked);
                    Ok(true)
                }
                // Another candidate was first.
                Err(error) if error.is_already_exists() => Ok(false),
                Err(error) => Err(error),
            };
        };
        self.observe(found.clone());
        if !self.may_take(&found) {
            return Ok(false);
        }
        let record = Record::next(Some(&found.record), &self.identity, duration, self.clock.now());
        match self.lock.update(&found, &record).await {
            Ok(observed) => {
                self.observe_ours(observed, asked);
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the version of the Lease that was seen last, 0 if it has none, and the epoch in which it was seen.
    fn last_version(&self) -> (u64, Epoch) {
        let seen = self.seen.lock();
        (seen.observed.as_ref().map_or(0, |observed| observed.version), seen.epoch.clone())
    }

    /// Reads the Lease from etcd, and ends the epoch if its version went back.
    async fn read(&self) -> Result<Option<ObservedLease>, ApiError> {
        let before = self.last_version();
        match self.lock.get().await? {
            Some(found) => self.notice_restore(&before, found).await.map(Some),
            None => Ok(None),
        }
    }

    /// Compares `first`, the answer to a request that was sent when the version `before` was known. Reads again if it is older, and
    /// ends the epoch if that answer is older, too. Returns the last answer. If the second read fails, nothing was observed: the next
    /// try compares with the same version.
    async fn notice_restore(
        &self,
        (before, epoch): &(u64, Epoch),
        first: ObservedLease,
    ) -> Result<ObservedLease, ApiError> {
        if !epoch.suspects(*before, first.version) {
            return Ok(first);
        }
        // A renew deadline may be shorter than the usual delay.
        sleep(CONFIRM_AFTER.min(self.timing.retry)).await;
        let Some(second) = self.lock.get().await? else { return Ok(first) };
        let _begun = epoch.compare(&LEASES, *before, second.version);
        Ok(second)
    }

    /// Whether the Lease, as it was `found` just now, may be taken or renewed.
    fn may_take(&self, found: &ObservedLease) -> bool {
        let holder = &found.record.holder;
        if self.coordinated {
            return self.is_named(found);
        }
        let is_held_by_another = !holder.is_empty() && *holder != *self.identity && self.is_valid();
        !is_held_by_another && !self.holds_back()
    }

    /// Whether the API server has named us the holder, and has not thought better of it before we led.
    fn is_named(&self, observed: &ObservedLease) -> bool {
        observed.record.holder == *self.identity && (self.is_leading() || !self.is_for_another(observed))
    }

    fn is_for_another(&self, observed: &ObservedLease) -> bool {
        self.coordinated && !observed.preferred.is_empty() && observed.preferred != *self.identity
    }

    /// Whether this replica leads.
    pub fn is_leading(&self) -> bool {
        self.state.borrow().leading
    }

    /// Whether no other replica can lead by now: this one has the Lease, and its last renewal still protects it. Unlike
    /// [`Elector::is_leading`], this turns false by itself, at the time at which the elector would give up, even if the
    /// process was frozen meanwhile. (Suspending the whole machine stops the clock that it goes by.)
    pub fn is_protected(&self) -> bool {
        self.ours_until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Calls `unprotected` at each moment at which [`Elector::is_protected`] turns false, for ever. A renewal that comes
    /// too late but in time to keep the Lease protects anew.
    pub async fn at_ends_of_protection(&self, unprotected: impl Fn()) -> Infallible {
        let mut changes = self.ours_until.subscribe();
        let mut was_protected = false;
        loop {
            let until = (*changes.borrow_and_update()).filter(|until| Instant::now() < *until);
            if was_protected && until.is_none() {
                unprotected();
            }
            was_protected = until.is_some();
            tokio::select! {
                biased;
                // The sender is this elector's own.
                _ = changes.changed() => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if was_protected => {}
            }
        }
    }

    /// Metadata of the Lease as it was last seen; `None` before the first answer.
    pub fn lease_meta(&self) -> Option<ObjectMeta> {
        let seen = self.seen.lock();
        seen.observed
            .as_ref()
            .and_then(|observed| Lease::decode(&observed.raw).ok())
            .map(|lease| lease.metadata)
    }

    /// Whether the Lease that was ours cannot be ours again by a further try: it is another's, or it is nobody's and for
    /// the API server to give away.
    fn is_lost(&self) -> bool {
        let seen = self.seen.lock();
        match seen.observed.as_ref().map(|observed| &observed.record.holder) {
            Some(holder) if !holder.is_empty() => *holder != *self.identity,
            _ => self.coordinated,
        }
    }

    /// Whether the record seen last still protects its holder, by this machine's clock.
    fn is_valid(&self) -> bool {
        self.valid_until().is_some_and(|end| Instant::now() < end)
    }

    /// Until when the record seen last protects its holder; `None` if nothing was seen yet, or nobody holds it.
    fn valid_until(&self) -> Option<Instant> {
        let seen = self.seen.lock();
        let record = &seen.observed.as_ref()?.record;
        let lifetime = Duration::from_secs(u64::from(record.duration_seconds.max(0).unsigned_abs()));
        Some(seen.at? + lifetime).filter(|_| !record.holder.is_empty())
    }

    /// Whether the Lease, as it was last seen, is free and to be left to others for now.
    fn holds_back(&self) -> bool {
        let seen = self.seen.lock();
        let Some(record) = seen.observed.as_ref().map(|observed| &observed.record) else { return false };
        if !record.holder.is_empty() {
            return false;
        }
        let for_another = !record.successor.is_empty() && record.successor != *self.identity;
        let still_for_another = for_another && seen.at.is_some_and(|at| at.elapsed() < self.timing.lease);
        // A term of somebody else's in between, seen or not, ends it.
        let given_up_by_us = seen
            .handed_over
            .as_ref()
            .is_some_and(|ours| ours.transitions == record.transitions && Instant::now() < ours.until);
        still_for_another || given_up_by_us
    }

    /// Takes note of our own write, which was sent after `asked`.
    ///
    /// The others count from when they saw it, which is after the server had it, which is after `asked`: so this is the
    /// earliest moment from which any of them counts. They count what the record says, whole seconds.
    fn observe_ours(&self, observed: ObservedLease, asked: Instant) {
        let Timing { lease, renew_deadline, retry } = self.timing;
        let others_wait = Duration::from_secs(lease.as_secs());
        self.ours_until.send_replace(Some(asked + others_wait.min(renew_deadline + retry)));
        self.observe(observed);
    }

    fn observe(&self, observed: ObservedLease) {
        let mut seen = self.seen.lock();
        let changed = seen.observed.as_ref().is_none_or(|held| held.record != observed.record);
        if changed {
            seen.at = Some(Instant::now());
        }
        let record = observed.record.clone();
        let asked = record.holder == *self.identity && self.is_for_another(&observed);
        seen.observed = Some(observed);
        seen.epoch = self.epochs.as_ref().map(Epochs::present).unwrap_or_default();
        drop(seen);
        self.asked_to_give_way.send_if_modified(|was| std::mem::replace(was, asked) != asked);
        if changed {
            self.state.send_modify(|state| state.record = Some(record));
        }
    }

    fn stop_leading(&self) {
        self.ours_until.send_replace(None);
        self.set_leading(false);
    }

    fn set_leading(&self, leading: bool) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.leading, leading) != leading);
    }

    /// Since when the record has not changed.
    fn unchanged_for(&self) -> Option<Duration> {
        self.seen.lock().at.map(|at| at.elapsed())
    }
}

/// The health check `leaderElection`: a leader that has not renewed for the lease's duration and a grace period has
/// hung, and should be restarted. A standby is always healthy.
pub struct ElectorHealth<L> {
    /// Electors, each with the name of its Lease.
    electors: Vec<(String, Arc<Elector<L>>)>,
    grace: Duration,
}

impl<L: LeaseApi> ElectorHealth<L> {
    /// Watches over electors, each with the name of its Lease, with `grace` beyond a lease's duration.
    pub fn new(electors: Vec<(String, Arc<Elector<L>>)>, grace: Duration) -> Self {
        Self { electors, grace }
    }
}

impl<L: LeaseApi> HealthCheck for ElectorHealth<L> {
    fn name(&self) -> &'static str {
        "leaderElection"
    }

    fn check(&self) -> Result<(), String> {
        let is_hung = |elector: &Elector<L>| {
            let limit = elector.timing.lease + self.grace;
            elector.is_leading() && elector.unchanged_for().is_some_and(|unchanged| unchanged > limit)
        };
        match self.electors.iter().find(|(_, elector)| is_hung(elector)) {
            Some((lease, _)) => Err(format!("failed election to renew leadership on lease {lease}")),
            None => Ok(()),
        }
    }
}
