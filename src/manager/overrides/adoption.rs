//! The Lease of overrides of a group other than the default one: the first leader of this version creates it. A group that led with an
//! older version takes over the overrides in force of the Lease that all groups shared. A group that has nothing to take over is marked
//! at its election Lease, because its own Lease may not be created for a long time: an order for another group is never its own.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::{FIRST_LOOK, Overrides, REFUSED_FOR};
use crate::admin::overrides::{Entry, OverrideSet, OverrideStore, StoreError};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::backoff::ExponentialBackoff;

/// Annotation of the Lease by which a group leads: the group inherits no overrides of the Lease that all groups shared.
const OWN_OVERRIDES: &str = "coxswain.dev/own-overrides";
/// Pauses between attempts to create the Lease while the controllers run.
const WHILE_LEADING: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(10), Duration::from_mins(5));

/// Returns whether a group whose election Lease has this metadata inherits the overrides that all groups shared: its Lease is older than
/// this process, so the group led before, and no leader of this version has marked it.
pub(in super::super) fn inherits(election: Option<&ObjectMeta>, started: Timestamp) -> bool {
    election.is_some_and(|meta| {
        let created = meta.creation_timestamp.map(Timestamp::from);
        created.is_some_and(|created| created < started) && !meta.annotations.contains_key(OWN_OVERRIDES)
    })
}

/// How the wait for the Lease of overrides has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Adoption {
    /// The group has its Lease, or needs none.
    Complete,
    /// The controllers can start without the Lease. [`Overrides::adopt_while_leading`] goes on.
    Pending {
        /// Whether the group still inherits what is in force of the shared Lease.
        inherits: bool,
    },
}

/// Failure to adopt the overrides of older versions.
enum AdoptError {
    /// A read of the shared Lease or of the group's Lease failed.
    Unread(StoreError),
    /// The group's Lease with this number of overrides could not be created.
    Unwritten { error: StoreError, overrides: usize },
}

impl AdoptError {
    /// Whether the controllers can start although this goes on.
    fn is_ignorable(&self) -> bool {
        match self {
            Self::Unread(error) => matches!(error, StoreError::Unreadable(_)),
            // Without overrides to adopt, the controllers can start without the Lease.
            Self::Unwritten { overrides, .. } => *overrides == 0,
        }
    }

    fn error(&self) -> &StoreError {
        match self {
            Self::Unread(error) | Self::Unwritten { error, .. } => error,
        }
    }
}

impl Overrides {
    /// Creates the Lease of a group other than the default one. A group that `inherits` takes over the overrides in force of the Lease
    /// that all groups shared. No controller may start before this returns. `election` is the Lease by which this replica leads.
    pub(in super::super) async fn adopt_shared(&self, inherits: bool, election: Option<&Key>) -> Adoption {
        let Some(shared) = &self.shared else { return Adoption::Complete };
        let mut failures = 0;
        let mut refused_since = None;
        loop {
            let Err(failure) = self.try_to_adopt(inherits.then_some(shared)).await else {
                return Adoption::Complete;
            };
            let error = failure.error();
            if !failure.is_ignorable() {
                refused_since = None;
            } else if refused_since.get_or_insert_with(Instant::now).elapsed() >= REFUSED_FOR {
                // Reads that are refused show nothing of what there is to inherit.
                let inherits = inherits && matches!(failure, AdoptError::Unread(_));
                let marked = if inherits { Ok(()) } else { self.mark(election).await };
                match marked {
                    Ok(()) => {
                        let lease = self.store.key();
                        tracing::error!(%error, %lease, "Failed to create the overrides' Lease; only the flags select controllers");
                        return Adoption::Pending { inherits };
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Failed to set the annotation {OWN_OVERRIDES} on the leader-election Lease");
                    }
                }
            }
            let pause = FIRST_LOOK.next(&mut failures);
            tracing::warn!(%error, again_in = ?pause, "Failed to create the overrides' Lease; delaying the start of controllers");
            sleep(pause).await;
        }
    }

    /// Goes on with [`Overrides::adopt_shared`] while the controllers run, until the Lease exists.
    pub(in super::super) async fn adopt_while_leading(&self, inherits: bool) {
        let Some(shared) = &self.shared else { return };
        let mut failures = 0;
        loop {
            sleep(WHILE_LEADING.next(&mut failures)).await;
            match self.try_to_adopt(inherits.then_some(shared)).await {
                Ok(()) => return tracing::info!(lease = %self.store.key(), "Created the overrides' Lease"),
                Err(failure) => {
                    let error = failure.error();
                    tracing::warn!(%error, lease = %self.store.key(), "Failed to create the overrides' Lease");
                }
            }
        }
    }

    /// Marks the election Lease of a group that inherits nothing. From then on an order may create the Lease of overrides.
    async fn mark(&self, election: Option<&Key>) -> Result<(), StoreError> {
        // A group without elections has no older leader.
        if let Some(election) = election {
            self.store.annotate(election, OWN_OVERRIDES, "true").await?;
        }
        self.adopted.store(true, Ordering::Release);
        Ok(())
    }

    async fn try_to_adopt(&self, shared: Option<&OverrideStore>) -> Result<(), AdoptError> {
        let held = self.store.read().await.map_err(AdoptError::Unread)?;
        if !held.raw.is_empty() {
            self.adopted.store(true, Ordering::Release);
            return Ok(());
        }
        let now = self.event_logger.now();
        let set = match shared {
            Some(shared) => shared.read().await.map_err(AdoptError::Unread)?.set,
            None => OverrideSet::default(),
        };
        let in_force = set.entries().filter(|(_, entry)| entry.is_in_force(now));
        let changes: Vec<(String, Entry)> =
            in_force.map(|(name, entry)| (name.to_owned(), entry.clone())).collect();
        for (name, entry) in &changes {
            tracing::warn!(
                controller = name,
                user = entry.user,
                "Copied an override from the Lease in which an earlier version kept the overrides of all leader-election Leases"
            );
        }
        let written = self.write(&held, &changes).await.map(drop);
        written.map_err(|error| AdoptError::Unwritten { error, overrides: changes.len() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use jiff::SignedDuration;
    use parking_lot::Mutex;

    use super::super::tests::{NAME, lease, no_lease, status};
    use super::*;
    use crate::admin::Group;
    use crate::admin::overrides::{ANNOTATION_PREFIX, LEASE_NAME, OverrideStore};
    use crate::manager::event_logger::EventLogger;
    use bytes::Bytes;
    use coxswain_machinery::api::coordination::Lease;
    use coxswain_machinery::client::{ApiClient, BoxError, HttpService};
    use coxswain_machinery::model::clock::SystemClock;
    use coxswain_machinery::wire::{Message as _, Time, unwrap_envelope, wrap_envelope};

    const OWN: &str = "coxswain-overrides-b";

    /// Status code and body.
    type Answer = (u16, Vec<u8>);

    /// Leases by name, on an API server that takes them as they are written. It refuses to create Leases, or to update them, with these
    /// answers.
    #[derive(Clone, Default)]
    struct Server {
        leases: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
        creates: Arc<Mutex<Option<Answer>>>,
        updates: Arc<Mutex<Option<Answer>>>,
    }

    impl Server {
        /// A server with the Lease of the default group, and with that by which the group leads.
        fn new(shared: bool) -> Self {
            let server = Self::default();
            let metadata = ObjectMeta {
                name: "b".into(),
                namespace: "kube-system".into(),
                resource_version: "3".into(),
                creation_timestamp: Time::from_seconds(1_000),
                ..ObjectMeta::default()
            };
            let election = Lease { metadata, ..Lease::default() }.to_bytes();
            let election = wrap_envelope("coordination.k8s.io/v1", "Lease", &election);
            server.leases.lock().insert("b".to_owned(), election);
            if shared {
                server.disable_in_the_default_group();
            }
            server
        }

        fn disable_in_the_default_group(&self) {
            self.leases.lock().insert(LEASE_NAME.to_owned(), lease());
        }

        fn forbid_creates(self) -> Self {
            *self.creates.lock() = Some(status(403, "Forbidden"));
            self
        }

        /// A process of the group, which may lead.
        fn process(&self) -> Overrides {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let (code, answer) = server.answer(&parts.method, parts.uri.path(), &body)?;
                    let body = Full::new(Bytes::from(answer)).map_err(|never| match never {}).boxed_unsync();
                    Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
                }
            });
            let client = ApiClient::new(HttpService::new(service), "test");
            let store = OverrideStore::new(client, Arc::new(|name| name == NAME));
            let logger = Arc::new(EventLogger::new(Arc::new(SystemClock)));
            Overrides::new(store, &Group::new("kube-system", "b"), logger)
        }

        fn answer(&self, method: &http::Method, path: &str, body: &[u8]) -> Result<Answer, BoxError> {
            let refusal = match *method {
                http::Method::POST => self.creates.lock().clone(),
                http::Method::PUT => self.updates.lock().clone(),
                _ => None,
            };
            if let Some(refusal) = refusal {
                return Ok(refusal);
            }
            if *method == http::Method::GET {
                let name = path.rsplit('/').next().unwrap_or_default();
                let found = self.leases.lock().get(name).cloned();
                return Ok(found.map_or_else(|| no_lease(name), |lease| (200, lease)));
            }
            let lease = Lease::decode(&unwrap_envelope(&Bytes::copy_from_slice(body))?)?;
            self.leases.lock().insert(lease.metadata.name.to_string(), body.to_vec());
            Ok((if *method == http::Method::POST { 201 } else { 200 }, body.to_vec()))
        }

        fn lease(&self, name: &str) -> Option<Lease> {
            let raw = self.leases.lock().get(name).cloned()?;
            Some(Lease::decode(&unwrap_envelope(&Bytes::from(raw)).unwrap()).unwrap())
        }

        /// Whether a process inherits that starts this many seconds after the election Lease was created.
        fn inherits(&self, seconds: i64) -> bool {
            let meta = self.lease("b").unwrap().metadata;
            let created = Timestamp::from(meta.creation_timestamp.unwrap());
            inherits(Some(&meta), created + SignedDuration::from_secs(seconds))
        }
    }

    fn election() -> Key {
        Key::new("kube-system", "b")
    }

    /// Returns how the wait ends within five minutes; `None` if it goes on.
    async fn start(overrides: &Overrides, inherits: bool) -> Option<Adoption> {
        overrides.first_look().await;
        let election = election();
        let adopted = overrides.adopt_shared(inherits, Some(&election));
        tokio::time::timeout(Duration::from_mins(5), adopted).await.ok()
    }

    fn disables(overrides: &Overrides) -> bool {
        overrides.set().entry(NAME).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_led_before_keeps_the_shared_overrides_and_a_new_one_inherits_none() {
        let server = Server::new(true);
        let upgraded = server.process();
        upgraded.first_look().await;
        assert!(!disables(&upgraded));
        // A standby takes no order under a leader of an older version, which acts on the shared Lease.
        assert!(
            matches!(upgraded.read().await, Err(StoreError::Unavailable(why)) if why.contains("call the leader"))
        );
        assert_eq!(start(&upgraded, server.inherits(1)).await, Some(Adoption::Complete));
        assert!(disables(&upgraded), "what is disabled stays disabled");
        assert!(upgraded.read().await.unwrap().set.entry(NAME).is_some());
        let expected = ["b", "coxswain-overrides", "coxswain-overrides-b"];
        assert_eq!(server.leases.lock().keys().collect::<Vec<_>>(), expected);
        assert_eq!(server.leases.lock()[LEASE_NAME], lease(), "the other group keeps its overrides");

        let server = Server::new(true);
        let fresh = server.process();
        assert_eq!(start(&fresh, server.inherits(-1)).await, Some(Adoption::Complete));
        assert!(!disables(&fresh));
        // Its Lease exists, so its next process inherits nothing either.
        let restarted = server.process();
        assert_eq!(start(&restarted, server.inherits(1)).await, Some(Adoption::Complete));
        assert!(!disables(&restarted));
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_may_not_create_its_lease_starts_where_it_loses_no_override() {
        for refusal in [status(403, "Forbidden"), status(500, "InternalError")] {
            for (led_before, has_shared, starts) in
                [(false, true, true), (true, true, false), (true, false, true), (false, false, true)]
            {
                let server = Server::new(has_shared);
                *server.creates.lock() = Some(refusal.clone());
                let ended = start(&server.process(), led_before).await;
                let expected = starts.then_some(Adoption::Pending { inherits: false });
                assert_eq!(ended, expected, "led before: {led_before}");
                assert_eq!(server.inherits(1), !starts, "it is marked when its controllers start");
            }
        }
    }

    /// Without the Lease nothing else shows that the group began with this version.
    #[tokio::test(start_paused = true)]
    async fn a_group_that_started_without_its_lease_never_inherits_an_order_for_another_group() {
        for may_create_later in [true, false] {
            let server = Server::new(false).forbid_creates();
            let first = server.process();
            assert_eq!(start(&first, server.inherits(-1)).await, Some(Adoption::Pending { inherits: false }));
            // The default group disables a controller for itself. Then a process of this group starts, and leads.
            server.disable_in_the_default_group();
            if may_create_later {
                *server.creates.lock() = None;
            }
            let second = server.process();
            let ended = start(&second, server.inherits(60)).await;
            let pending = Adoption::Pending { inherits: false };
            assert_eq!(ended, Some(if may_create_later { Adoption::Complete } else { pending }));
            assert!(!disables(&second), "{may_create_later}");
            let own = server.lease(OWN);
            assert_eq!(own.is_some(), may_create_later);
            assert!(own.is_none_or(|own| own.metadata.annotations.iter().count() == 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_its_lease_takes_orders_and_creates_it_as_soon_as_it_may() {
        // By an order.
        let server = Server::new(true).forbid_creates();
        let leader = server.process();
        start(&leader, false).await.unwrap();
        let held = leader.read().await.unwrap();
        let entry = leader.shared.as_ref().unwrap().read().await.unwrap();
        let order = [(NAME.to_owned(), entry.set.entry(NAME).unwrap().clone())];
        assert!(
            matches!(leader.write(&held, &order).await, Err(StoreError::Unavailable(why)) if why.contains("403"))
        );
        *server.creates.lock() = None;
        leader.write(&held, &order).await.unwrap();
        assert!(disables(&leader));
        assert!(
            server
                .lease(OWN)
                .unwrap()
                .metadata
                .annotations
                .contains_key(&format!("{ANNOTATION_PREFIX}{NAME}"))
        );

        // By itself.
        let server = Server::new(true).forbid_creates();
        let leader = server.process();
        start(&leader, false).await.unwrap();
        let adopting = leader.adopt_while_leading(false);
        let creatable = async {
            sleep(Duration::from_mins(20)).await;
            *server.creates.lock() = None;
        };
        let both = async { tokio::join!(adopting, creatable) };
        assert!(tokio::time::timeout(Duration::from_mins(25), both).await.is_ok());
        assert!(server.lease(OWN).is_some() && !disables(&leader));
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_cannot_be_marked_does_not_start_without_its_lease() {
        let server = Server::new(true).forbid_creates();
        *server.updates.lock() = Some(status(503, "ServiceUnavailable"));
        let leader = server.process();
        assert_eq!(start(&leader, false).await, None);
        *server.updates.lock() = None;
        assert_eq!(start(&leader, false).await, Some(Adoption::Pending { inherits: false }));
        let marked = server.lease("b").unwrap().metadata;
        assert_eq!((marked.resource_version.as_str(), marked.annotations.iter().count()), ("3", 1));
    }
}
