//! A Lease, followed from one moment to another without a gap.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchEvent, WatchParams};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{Cluster, until};

/// What one version of a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Its resource version.
    pub(crate) version: u64,
    /// Who has it; empty when nobody has.
    pub(crate) holder: String,
    /// For how long the others wait.
    pub(crate) duration: SignedDuration,
    /// When the holder took it, by the holder's clock, which here is everyone's.
    pub(crate) acquired: Timestamp,
    /// When the holder renewed it.
    pub(crate) renewed: Timestamp,
    /// How often it changed hands.
    pub(crate) transitions: i32,
}

/// Every version of a Lease in `kube-system` from the first on.
pub(crate) struct LeaseHistory {
    api: Api<Lease>,
    name: &'static str,
    seen: Arc<Mutex<Vec<Held>>>,
    follower: JoinSet<()>,
}

impl LeaseHistory {
    /// Begins to follow a Lease, which need not be there yet.
    pub(crate) async fn follow(cluster: &Cluster, name: &'static str) -> Self {
        let api: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-system");
        let from = api.list(&kube::api::ListParams::default()).await.expect("leases");
        assert!(
            from.items.iter().all(|lease| lease.metadata.name.as_deref() != Some(name)),
            "{name} is there"
        );
        let version = from.metadata.resource_version.expect("a version");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut follower = JoinSet::new();
        follower.spawn(follow(api.clone(), name, version, Arc::clone(&seen)));
        Self { api, name, seen, follower }
    }

    /// What was seen so far.
    pub(crate) fn seen(&self) -> Vec<Held> {
        self.seen.lock().clone()
    }

    /// The latest version seen.
    pub(crate) fn last(&self) -> Option<Held> {
        self.seen.lock().last().cloned()
    }

    /// Everything up to now.
    pub(crate) async fn finish(mut self) -> Vec<Held> {
        let now = held(&self.api.get(self.name).await.expect("the lease"));
        until(
            "the watch of the lease to catch up",
            Duration::from_secs(30),
            || async { self.last().map_or(0, |last| last.version) },
            |seen| *seen >= now.version,
        )
        .await;
        if let Some(ended) = self.follower.try_join_next() {
            ended.expect("the watch of the lease");
        }
        self.follower.shutdown().await;
        self.seen()
    }
}

/// Watches for ever, beginning anew behind the last version seen whenever a watch ends.
async fn follow(api: Api<Lease>, name: &'static str, mut version: String, seen: Arc<Mutex<Vec<Held>>>) {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    loop {
        let Ok(events) = api.watch(&params, &version).await else {
            // The server is away; that is what some tests are about.
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    version = lease.metadata.resource_version.clone().expect("a version");
                    seen.lock().push(held(&lease));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Deleted(_) => panic!("the lease {name} was deleted"),
                WatchEvent::Error(status) => panic!("a gap in the history of {name}: {status:?}"),
            }
        }
    }
}

fn held(lease: &Lease) -> Held {
    let spec = lease.spec.clone().unwrap_or_default();
    let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
    Held {
        version: version.parse().expect("a number"),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into()),
        acquired: spec.acquire_time.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        renewed: spec.renew_time.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}
