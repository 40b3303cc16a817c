//! Discovery: which resources the API server has, cached, and forgotten every so often.
//!
//! What is there changes while the manager runs (CRDs, aggregated API servers), so the cache is emptied every 30
//! seconds, as the original does, and filled again by the next who asks. With entity tags that mostly costs two
//! answers without a body.

mod fetch;
mod mapper;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ApiClient, ApiError, RequestPath};
use crate::api::{Kind, dynamic};
use crate::latest;
use crate::random::{HashMap, HashSet};
use crate::wire::Str;

pub use mapper::RestMapper;

/// How often the cache is emptied.
const RESET_EVERY: Duration = Duration::from_secs(30);
/// How often resources are fetched at most because a caller did not find a name among them.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
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
    #[error("discover resources of {group_version}: {source}")]
    Unreadable {
        /// `v1` or `group/version`.
        group_version: String,
        /// Why.
        source: ApiError,
    },
    /// The API server could not ask the aggregated server that has them; what it says of them is out of date.
    #[error("resources of {group_version} are stale: the aggregated API server does not respond")]
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
    /// Where the resources of a kind are: document, version, resource. Made by the first who asks: a cluster has thousands of kinds, and the
    /// garbage collector looks one up for each owner reference.
    by_kind: OnceLock<HashMap<Str, Vec<[usize; 3]>>>,
}

impl ApiResources {
    fn new(documents: [Arc<[GroupVersion]>; 2]) -> Self {
        Self { documents, by_kind: OnceLock::new() }
    }

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
        Self::new([versions.into(), failed.collect()])
    }

    /// Every resource in every version.
    pub fn all(&self) -> impl Iterator<Item = &ApiResource> {
        self.versions().filter_map(|version| version.resources.as_ref().ok()).flatten()
    }

    /// Every resource whose objects are of a kind, in every group and version, in the order of [`all`](Self::all).
    pub fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a ApiResource> + use<'a> {
        let places = self.by_kind.get_or_init(|| self.places_by_kind()).get(kind).map(Vec::as_slice);
        places.unwrap_or_default().iter().filter_map(move |[document, version, resource]| {
            self.documents.get(*document)?.get(*version)?.resources.as_ref().ok()?.get(*resource)
        })
    }

    fn places_by_kind(&self) -> HashMap<Str, Vec<[usize; 3]>> {
        let mut places: HashMap<Str, Vec<[usize; 3]>> = HashMap::default();
        for (document, versions) in self.documents.iter().enumerate() {
            for (version, held) in versions.iter().enumerate() {
                for (resource, held) in held.resources.iter().flatten().enumerate() {
                    places.entry(held.kind.clone()).or_default().push([document, version, resource]);
                }
            }
        }
        places
    }

    /// Every resource of a group, in every version.
    pub fn of_group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a ApiResource> {
        let versions = self.versions().filter(move |held| held.group == group);
        versions.filter_map(|version| version.resources.as_ref().ok()).flatten()
    }

    /// Every resource in the version that the server prefers, among those that have it.
    pub fn preferred(&self) -> Vec<&ApiResource> {
        let mut seen = HashSet::default();
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
///
/// Fetches run one at a time, and each caller waits for the first fetch that is recent enough for it: the outcome of that fetch, an
/// error included, serves all callers that wait. A caller that needs a later fetch leaves the cached answer of the others in place.
#[derive(Debug)]
pub struct Discovery {
    client: ApiClient,
    cache: Mutex<Cache>,
    /// Held by the fetch under way.
    fetching: tokio::sync::Mutex<()>,
    resets: latest::Sender<()>,
}

/// Fetches are numbered in the order in which they begin.
#[derive(Debug, Default)]
struct Cache {
    /// The fetch that began last, and when.
    begun: u64,
    begun_at: Option<Instant>,
    /// The first fetch that began after the cache was emptied. Earlier ones serve only callers that asked before that.
    oldest_valid: u64,
    /// The last fetch that succeeded.
    known: Option<(u64, fetch::Known)>,
    /// The last fetch that ended.
    ended: Option<(u64, Result<Arc<ApiResources>, ApiError>)>,
    /// Names that a caller did not find and that were fetched again since the cache was emptied.
    searched: HashSet<Str>,
}

impl Cache {
    /// What is known, unless the cache was emptied since.
    fn valid(&self) -> Option<Arc<ApiResources>> {
        let (number, known) = self.known.as_ref()?;
        (*number >= self.oldest_valid).then(|| Arc::clone(&known.resources))
    }

    /// The first fetch that has not ended and may serve a caller that accepts what is cached.
    fn next_valid(&self) -> u64 {
        let ended = self.ended.as_ref().map_or(0, |(number, _)| *number);
        self.oldest_valid.max(ended + 1)
    }

    /// The first fetch that begins after this call.
    fn next(&self) -> u64 {
        self.begun + 1
    }
}

impl Discovery {
    /// Discovery through `client`; asks nothing yet.
    pub fn new(client: ApiClient) -> Self {
        // All who ask wait for one answer: nobody may wait for a server in the place of all.
        Self {
            client: client.impatient(),
            cache: Mutex::default(),
            fetching: tokio::sync::Mutex::new(()),
            resets: latest::Sender::new(()),
        }
    }

    /// The API's resources, from the cache or, if that was emptied, from the server. An error means that nothing
    /// could be found out; single groups that fail are among [`ApiResources::failures`].
    pub async fn resources(&self) -> Result<Arc<ApiResources>, ApiError> {
        let number = {
            let cache = self.cache.lock();
            if let Some(cached) = cache.valid() {
                return Ok(cached);
            }
            cache.next_valid()
        };
        self.fetched(number).await
    }

    /// The API's resources as the server has them now, from a fetch that begins after this call: for decisions that must not rest on
    /// what was true a moment ago.
    pub async fn latest(&self) -> Result<Arc<ApiResources>, ApiError> {
        let number = self.cache.lock().next();
        self.fetched(number).await
    }

    /// The API's resources, for a caller that did not find `name` in [`Self::resources`]. They are fetched again, but at most once in
    /// [`SEARCH_EVERY`] for all callers, and once for each name until the cache is emptied. A caller for which nothing is fetched has the
    /// outcome of a fetch that began at most that long ago, or the cached answer if the name was fetched for before.
    pub async fn search(&self, name: &Str) -> Result<Arc<ApiResources>, ApiError> {
        let (number, is_new) = {
            let cache = self.cache.lock();
            if let Some(cached) = cache.valid().filter(|_| cache.searched.contains(name)) {
                return Ok(cached);
            }
            let is_recent = cache.begun_at.is_some_and(|at| at.elapsed() < SEARCH_EVERY);
            if is_recent { (cache.begun, false) } else { (cache.next(), true) }
        };
        let found = self.fetched(number).await?;
        let mut cache = self.cache.lock();
        if is_new && number >= cache.oldest_valid {
            cache.searched.insert(name.clone());
        }
        Ok(found)
    }

    /// The outcome of the fetch of this number or of a later one.
    async fn fetched(&self, number: u64) -> Result<Arc<ApiResources>, ApiError> {
        let _fetching = self.fetching.lock().await;
        let (number, old) = {
            let mut cache = self.cache.lock();
            if let Some((_, ended)) = cache.ended.as_ref().filter(|(ended, _)| *ended >= number) {
                return ended.clone();
            }
            cache.begun += 1;
            cache.begun_at = Some(Instant::now());
            (cache.begun, cache.known.as_ref().map(|(_, known)| known.clone()))
        };
        let fetched = fetch::known(&self.client, old).await;
        let outcome = fetched.as_ref().map(|known| Arc::clone(&known.resources)).map_err(ApiError::clone);
        let mut cache = self.cache.lock();
        if let Ok(known) = fetched {
            cache.known = Some((number, known));
        }
        cache.ended = Some((number, outcome.clone()));
        outcome
    }

    /// A mapper over [`Self::resources`].
    pub async fn mapper(&self) -> Result<RestMapper, ApiError> {
        self.resources().await.map(RestMapper::new)
    }

    /// Empties the cache: the next who asks gets the server's present state.
    pub fn invalidate(&self) {
        {
            let mut cache = self.cache.lock();
            cache.oldest_valid = cache.next();
            cache.searched.clear();
        }
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
}

/// The API server did not become ready in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("wait for the API server: not ready within {within:?}: {last}")]
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
