//! Discovery: which resources the API server has, cached, and forgotten every so often.
//!
//! What is there changes while the manager runs (CRDs, aggregated API servers), so the cache is emptied every 30
//! seconds, as the original does, and filled again by the next who asks. With entity tags that mostly costs two
//! answers without a body.

mod fetch;
mod mapper;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ApiClient, ApiError, RequestPath};
use crate::api::{Kind, dynamic};
use crate::latest;
use crate::wire::Str;

pub use mapper::RestMapper;

/// How often the cache is emptied.
const RESET_EVERY: Duration = Duration::from_secs(30);
/// How often a server that is not ready is asked again.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// One resource of the API, in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiResource {
    /// API group; empty for core.
    pub group: Str,
    /// API version.
    pub version: Str,
    /// Plural name, as in a path.
    pub resource: Str,
    /// Singular name; may be empty.
    pub singular: Str,
    /// Kind of its objects.
    pub kind: Str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it: `get`, `list`, `watch`, `delete` …
    pub verbs: Vec<Str>,
    /// Names of its subresources: `status`, `scale` …
    pub subresources: Vec<Str>,
}

impl ApiResource {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The row by which the metadata of its objects is read; the same one whenever it is asked for.
    pub fn metadata_kind(&self) -> &'static Kind {
        dynamic::kind(&self.group, &self.version, &self.kind, &self.resource, self.namespaced)
    }

    /// Whether it is the resource of this row.
    pub fn is(&self, kind: &Kind) -> bool {
        self.group == kind.group && self.version == kind.version && self.resource == kind.resource
    }

    /// Whether all of these can be done with it.
    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|held| held == verb))
    }
}

/// Resources of one version of a group, or why they are not known.
#[derive(Debug)]
struct GroupVersion {
    group: Str,
    version: Str,
    resources: Result<Vec<ApiResource>, DiscoveryError>,
}

/// Why the resources of one group and version are not known; those of the others are all the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// They cannot be read.
    #[error("resources of {group_version} cannot be read: {source}")]
    Unreadable {
        /// `v1` or `group/version`.
        group_version: String,
        /// Why.
        source: ApiError,
    },
    /// The API server could not ask the aggregated server that has them; what it says of them is out of date.
    #[error("resources of {group_version} are out of date: its API server does not answer")]
    Stale {
        /// `group/version`.
        group_version: String,
    },
}

impl DiscoveryError {
    /// `v1` or `group/version`.
    pub fn group_version(&self) -> &str {
        match self {
            Self::Unreadable { group_version, .. } | Self::Stale { group_version } => group_version,
        }
    }

    /// Why, in the words in which Kubernetes' own clients say it.
    pub fn why(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => source.message(),
            Self::Stale { group_version } => format!("stale GroupVersion discovery: {group_version}"),
        }
    }
}

/// All resources of the API at one time.
#[derive(Debug, Default)]
pub struct ApiResources {
    /// Groups in the server's order, the versions of each in the order of its preference; first those of `/api`,
    /// then those of `/apis`.
    documents: [Arc<[GroupVersion]>; 2],
}

impl ApiResources {
    /// These resources, and group versions that are not known: for tests of rooms.
    pub fn of(known: Vec<ApiResource>, unknown: Vec<DiscoveryError>) -> Self {
        let version = |resources| GroupVersion { group: Str::EMPTY, version: Str::EMPTY, resources };
        let failed = unknown.into_iter().map(|error| version(Err(error)));
        let mut versions: Vec<GroupVersion> = Vec::new();
        for resource in known {
            match versions.last_mut() {
                Some(GroupVersion { group, version, resources: Ok(held) })
                    if *group == resource.group && *version == resource.version =>
                {
                    held.push(resource);
                }
                _ => versions.push(GroupVersion {
                    group: resource.group.clone(),
                    version: resource.version.clone(),
                    resources: Ok(vec![resource]),
                }),
            }
        }
        Self { documents: [versions.into(), failed.collect()] }
    }

    /// Every resource in every version.
    pub fn all(&self) -> impl Iterator<Item = &ApiResource> {
        self.versions().filter_map(|version| version.resources.as_ref().ok()).flatten()
    }

    /// Every resource of a group, in every version.
    pub fn of_group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a ApiResource> {
        let versions = self.versions().filter(move |held| held.group == group);
        versions.filter_map(|version| version.resources.as_ref().ok()).flatten()
    }

    /// Every resource in the version that the server prefers, among those that have it.
    pub fn preferred(&self) -> Vec<&ApiResource> {
        let mut seen = crate::random::HashSet::default();
        self.all().filter(|held| seen.insert((held.group.clone(), held.resource.clone()))).collect()
    }

    /// What could not be found out. Deleting by what is *not* in here would be wrong while this is not empty.
    pub fn failures(&self) -> impl Iterator<Item = &DiscoveryError> {
        self.versions().filter_map(|version| version.resources.as_ref().err())
    }

    /// Whether the resources of this group and version could not be found out.
    pub fn has_failed(&self, group: &str, version: &str) -> bool {
        self.versions().any(|held| held.group == group && held.version == version && held.resources.is_err())
    }

    /// Whether the resources of some version of this group could not be found out.
    pub fn has_failed_group(&self, group: &str) -> bool {
        self.versions().any(|held| held.group == group && held.resources.is_err())
    }

    /// The versions of a group in the order of the server's preference, those included whose resources are not known.
    pub fn versions_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Str> {
        self.versions().filter(move |held| held.group == group).map(|held| &held.version)
    }

    fn versions(&self) -> impl Iterator<Item = &GroupVersion> {
        self.documents.iter().flat_map(|document| document.iter())
    }
}

/// Discovery with a cache, to be shared.
#[derive(Debug)]
pub struct Discovery {
    client: ApiClient,
    cache: Mutex<Cache>,
    /// Held while the server is asked: it is asked once for all who want to know.
    asking: tokio::sync::Mutex<()>,
    resets: latest::Sender<()>,
}

#[derive(Debug, Default)]
struct Cache {
    /// Counts invalidations.
    epoch: u64,
    /// What is known, and the epoch in which it was asked for; it holds in that epoch.
    known: Option<(u64, fetch::Known)>,
}

impl Discovery {
    /// Discovery through `client`; asks nothing yet.
    pub fn new(client: ApiClient) -> Self {
        // All who ask wait for one answer: nobody may wait for a server in the place of all.
        Self {
            client: client.impatient(),
            cache: Mutex::default(),
            asking: tokio::sync::Mutex::new(()),
            resets: latest::Sender::new(()),
        }
    }

    /// The API's resources, from the cache or, if that was emptied, from the server. An error means that nothing
    /// could be found out; single groups that fail are among [`ApiResources::failures`].
    pub async fn resources(&self) -> Result<Arc<ApiResources>, ApiError> {
        if let Some(cached) = self.cached() {
            return Ok(cached);
        }
        let _asking = self.asking.lock().await;
        if let Some(cached) = self.cached() {
            return Ok(cached);
        }
        // What is invalidated while the server is asked is asked again by the next.
        let (epoch, old) = {
            let cache = self.cache.lock();
            (cache.epoch, cache.known.as_ref().map(|(_, known)| known.clone()))
        };
        let known = fetch::known(&self.client, old).await?;
        let resources = Arc::clone(&known.resources);
        self.cache.lock().known = Some((epoch, known));
        Ok(resources)
    }

    /// The API's resources as the server has them now: for decisions that must not rest on what was true a moment ago.
    pub async fn latest(&self) -> Result<Arc<ApiResources>, ApiError> {
        self.cache.lock().epoch += 1;
        self.resources().await
    }

    /// A mapper over [`Self::resources`].
    pub async fn mapper(&self) -> Result<RestMapper, ApiError> {
        self.resources().await.map(RestMapper::new)
    }

    /// Empties the cache: the next who asks gets the server's present state.
    pub fn invalidate(&self) {
        self.cache.lock().epoch += 1;
        self.resets.send_replace(());
    }

    /// Changes whenever the cache has been emptied: time to look whether resources have come or gone.
    pub fn resets(&self) -> latest::Receiver<()> {
        self.resets.subscribe()
    }

    /// Empties the cache every 30 seconds, for ever.
    pub async fn reset_periodically(&self) {
        let mut ticks = tokio::time::interval_at(Instant::now() + RESET_EVERY, RESET_EVERY);
        loop {
            ticks.tick().await;
            self.invalidate();
        }
    }

    fn cached(&self) -> Option<Arc<ApiResources>> {
        let cache = self.cache.lock();
        let (epoch, known) = cache.known.as_ref()?;
        (*epoch == cache.epoch).then(|| Arc::clone(&known.resources))
    }
}

/// The API server did not become ready in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the API server was not ready within {within:?}: {last}")]
pub struct NotReady {
    /// How long it was given.
    pub within: Duration,
    /// What came of the last attempt.
    pub last: ApiError,
}

/// Returns once the API server answers its `/healthz` with success; asks every second.
pub async fn wait_for_api_server(client: &ApiClient, within: Duration) -> Result<(), NotReady> {
    let deadline = Instant::now() + within;
    let mut last = None;
    let client = client.clone().impatient();
    loop {
        let attempt = tokio::time::timeout_at(deadline, client.text(RequestPath::HEALTHZ)).await;
        let unanswered = || ApiError::Timeout { request: "GET /healthz".to_owned(), after: within };
        match attempt {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => last = Some(error),
            Err(_) => return Err(NotReady { within, last: last.unwrap_or_else(unanswered) }),
        }
        if Instant::now() + POLL_EVERY >= deadline {
            return Err(NotReady { within, last: last.unwrap_or_else(unanswered) });
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
