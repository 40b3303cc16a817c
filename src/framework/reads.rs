//! Live reads between the passes of one reconcile.
//!
//! A controller that must know what no cache tells (what a namespace still holds, whether an owner is really gone) observes
//! in several passes: each says what it still has to read, the framework reads it as the controller, and the next pass
//! has it. So observing and planning stay free of I/O. Nothing read here is kept beyond its reconcile.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;

use super::room::{ObserveError, PlanNote, Reconcile};
use crate::api::{AnyObject, Kind};
use crate::client::{ApiClient, Discovery};
use crate::model::Key;
use crate::model::plan::{Failure, Plan};
use crate::wire::Str;

/// What reads find and fail with.
pub use crate::client::{ApiError, ApiResources, DiscoveryError};

/// Reads that are under way together.
const AT_A_TIME: usize = 8;
/// Passes of one reconcile. A room that needs more goes round in circles.
const MOST_PASSES: usize = 8;

/// Something to read from the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// One object; of a metadata-only kind, its metadata.
    Object(&'static Kind, Key),
    /// All objects of a kind in a namespace, or everywhere if that is empty.
    List(&'static Kind, Str),
    /// Which resources the API has: at most 30 seconds old.
    Resources,
    /// Which resources the API has now.
    LatestResources,
}

/// What was read in this reconcile so far.
#[derive(Debug, Default)]
pub struct Reads {
    found: HashMap<Read, ReadResult>,
    written: WrittenKinds,
}

/// Kinds, and namespaces, that this reconcile has written to already.
pub(super) type WrittenKinds = Vec<(&'static Kind, Str)>;

#[derive(Debug)]
enum ReadResult {
    Object(Result<Option<AnyObject>, ApiError>),
    List(Result<Vec<AnyObject>, ApiError>),
    Resources(Result<Arc<ApiResources>, ApiError>),
}

impl Reads {
    /// An object that was read: `None` if that was not done, `Ok(None)` if it is not there. Where its resource is not
    /// served, that is an error.
    pub fn object(&self, kind: &'static Kind, key: &Key) -> Option<Result<Option<&AnyObject>, &ApiError>> {
        match self.found.get(&Read::Object(kind, key.clone()))? {
            ReadResult::Object(found) => Some(found.as_ref().map(Option::as_ref)),
            ReadResult::List(_) | ReadResult::Resources(_) => None,
        }
    }

    /// A list that was read; `None` if that was not done.
    pub fn list(&self, kind: &'static Kind, namespace: &Str) -> Option<Result<&[AnyObject], &ApiError>> {
        match self.found.get(&Read::List(kind, namespace.clone()))? {
            ReadResult::List(found) => Some(found.as_ref().map(Vec::as_slice)),
            ReadResult::Object(_) | ReadResult::Resources(_) => None,
        }
    }

    /// The API's resources; `None` if they were not read.
    pub fn resources(&self) -> Option<Result<&Arc<ApiResources>, &ApiError>> {
        match self.found.get(&Read::LatestResources).or_else(|| self.found.get(&Read::Resources))? {
            ReadResult::Resources(found) => Some(found.as_ref()),
            ReadResult::Object(_) | ReadResult::List(_) => None,
        }
    }

    /// With an object read, or found absent: for tests of rooms.
    #[must_use]
    pub fn with_object(
        mut self,
        kind: &'static Kind,
        key: Key,
        found: Result<Option<AnyObject>, ApiError>,
    ) -> Self {
        self.found.insert(Read::Object(kind, key), ReadResult::Object(found));
        self
    }

    /// With a list read: for tests of rooms.
    #[must_use]
    pub fn with_list(
        mut self,
        kind: &'static Kind,
        namespace: Str,
        found: Result<Vec<AnyObject>, ApiError>,
    ) -> Self {
        self.found.insert(Read::List(kind, namespace), ReadResult::List(found));
        self
    }

    /// With the API's resources read: for tests of rooms.
    #[must_use]
    pub fn with_resources(mut self, found: Result<Arc<ApiResources>, ApiError>) -> Self {
        self.found.insert(Read::Resources, ReadResult::Resources(found));
        self
    }

    /// As they are when this was written before: for tests of rooms.
    #[must_use]
    pub fn after_writes(mut self, kind: &'static Kind, namespace: Str) -> Self {
        self.written.push((kind, namespace));
        self
    }

    /// Whether a plan of this same reconcile, which asked to look again, has written to this kind in this namespace.
    pub fn has_written(&self, kind: &'static Kind, namespace: &str) -> bool {
        self.written.iter().any(|(held, in_namespace)| *held == kind && in_namespace == namespace)
    }

    fn lacks(&self, read: &Read) -> bool {
        !self.found.contains_key(read)
    }
}

/// What came of a pass of observing.
#[derive(Debug)]
pub enum Observation<V> {
    /// There is nothing at this key to decide about.
    Nothing,
    /// Read these, and observe again. What was read already is not read again.
    Needs(Vec<Read>),
    /// Everything that the decision rests on.
    View(V),
}

impl<V> From<Option<V>> for Observation<V> {
    /// For rooms that read nothing live.
    fn from(view: Option<V>) -> Self {
        view.map_or(Self::Nothing, Self::View)
    }
}

/// What came of a pass of observing and, if it was the last one, planning.
#[derive(Debug)]
pub enum Pass {
    /// There is nothing at this key to decide about.
    Nothing,
    /// Read these, and come again.
    Needs(Vec<Read>),
    /// What to do, and what that tells beside.
    Plan(Plan, PlanNote),
}

/// Reads for the rooms of one controller, as that controller.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) client: ApiClient,
    pub(super) discovery: Arc<Discovery>,
}

impl Reader {
    /// Takes the passes of one reconcile until there is a plan, or nothing to plan for.
    pub(super) async fn plan(
        &self,
        room: &dyn Reconcile,
        key: &Key,
        failures: &[Failure],
        written: &WrittenKinds,
        now: impl Fn() -> Timestamp + Sync,
    ) -> Result<Option<(Plan, PlanNote)>, ObserveError> {
        let mut reads = Reads { written: written.clone(), ..Reads::default() };
        for _ in 0..MOST_PASSES {
            let mut needs = match room.plan(key, failures, &reads, now())? {
                Pass::Nothing => return Ok(None),
                Pass::Plan(plan, note) => return Ok(Some((plan, note))),
                Pass::Needs(needs) => needs,
            };
            needs.retain(|read| reads.lacks(read));
            if needs.is_empty() {
                return Err(ObserveError::Retry(format!("{key}: asked again for what had been read")));
            }
            let mut found = stream::iter(needs).map(|read| self.read(read)).buffer_unordered(AT_A_TIME);
            while let Some((read, found)) = found.next().await {
                reads.found.insert(read, found);
            }
        }
        Err(ObserveError::Retry(format!("{key}: no decision after {MOST_PASSES} passes")))
    }

    async fn read(&self, read: Read) -> (Read, ReadResult) {
        let found = match &read {
            Read::Object(kind, key) => ReadResult::Object(match self.client.get(kind, key).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.is_object_not_found() => Ok(None),
                Err(error) => Err(error),
            }),
            Read::List(kind, namespace) => ReadResult::List(self.client.list_all(kind, namespace).await),
            Read::Resources => ReadResult::Resources(self.discovery.resources().await),
            Read::LatestResources => ReadResult::Resources(self.discovery.latest().await),
        };
        (read, found)
    }
}
