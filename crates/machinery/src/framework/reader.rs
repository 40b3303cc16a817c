//! Makes the live reads of one controller, as that controller: equal reads once for all who ask, and those of a slow API group so that they
//! hold up no others.

use std::hash::BuildHasher as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::blocking::BlockingPool;
use super::documents::{AnyDocument, DocumentForm};
use super::metrics::LiveReadCounts;
use super::reads::{
    DeclaredRead, EarlierWrites, ObjectPage, PageQuery, Pass, READ_WITHIN, Read, ReadResult, Reads,
};
use super::room::{EndedPass, FirstSlice, NextSlice, ObserveError, PlanNote, Reconcile};
use super::shared_reads::SharedReads;
use super::slow_reads::{ReadClock, SlowGroups, answered, has_room};
use crate::api::{AnyObject, Kind};
use crate::client::{
    ApiClient, ApiError, Discovery, Interrupted, ListPosition, ListQuery, ObjectList, RateClass, RequestUri,
};
use crate::model::Key;
use crate::model::plan::{Failure, Plan};
use crate::random::{HashMap, HashSeed, HashSet};
use crate::wire::Str;

/// Reads that are under way together.
const AT_A_TIME: usize = 8;
/// The longest JSON document that is read.
const LONGEST_JSON: usize = 16 << 20;
/// Requests of JSON that are under way to one API group: whoever answers for it may be slow, and one connection to the API server,
/// which serves all, carries a hundred.
const TO_A_GROUP: usize = 24;
/// Requests of JSON that are under way to one API group, for each worker of the loop: fewer workers spare a small adapter.
const TO_A_GROUP_BY_A_WORKER: usize = 5;
/// Requests of JSON that wait for a place of a slow API group at most. It does not depend on the places: a waiting request costs the API nothing.
const MOST_IN_LINE: usize = 48;
/// Passes of one reconcile. A room that needs more goes round in circles.
const MOST_PASSES: usize = 8;

/// Reads for the rooms of one controller, as that controller.
#[derive(Clone)]
pub(super) struct Reader {
    client: ApiClient,
    pool: BlockingPool,
    discovery: Arc<Discovery>,
    shared: SharedReads<Option<AnyObject>>,
    shared_lists: SharedReads<ListEnd>,
    /// Of JSON: all that ask a metrics API the same ask it together.
    answers: SharedReads<Arc<Value>>,
    documents: SharedReads<AnyDocument>,
    /// By API group: the requests of JSON.
    groups: Arc<Mutex<HashMap<Str, Arc<GroupLine>>>>,
    /// Places in each of these lines.
    places: usize,
    slow: SlowGroups,
    /// Counts reads, by their rows.
    counts: Option<LiveReadCounts>,
    /// Makes the identity of a read that several callers share.
    identities: HashSeed,
}

/// A list that was read to its end, or as far as it was read.
type ListEnd = Result<Arc<ObjectList>, Interrupted<Arc<ListPosition>>>;

impl Reader {
    pub(super) fn new(client: ApiClient, discovery: Arc<Discovery>, pool: BlockingPool) -> Self {
        Self {
            client,
            pool,
            discovery,
            shared: SharedReads::default(),
            shared_lists: SharedReads::default(),
            answers: SharedReads::default(),
            documents: SharedReads::default(),
            groups: Arc::default(),
            places: TO_A_GROUP,
            slow: SlowGroups::default(),
            counts: None,
            identities: HashSeed::of_process(),
        }
    }

    /// The same, with its reads counted.
    pub(super) fn counted(self, counts: LiveReadCounts) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// The same for a loop with so many workers, which limits the requests that are under way to an API group.
    pub(super) fn for_workers(self, workers: usize) -> Self {
        let places = workers.max(1).saturating_mul(TO_A_GROUP_BY_A_WORKER).min(TO_A_GROUP);
        Self { groups: Arc::default(), places, ..self }
    }

    /// Takes the passes of one reconcile until there is a plan, or nothing to plan for.
    pub(super) async fn plan(
        &self,
        room: &dyn Reconcile,
        key: &Key,
        failures: &[Failure],
        reads: Reads,
        now: impl Fn() -> Timestamp + Sync,
    ) -> Result<Option<(Plan, PlanNote)>, ObserveError> {
        let pass = |reads: &Reads| room.plan_in_slices(key, failures, reads, now());
        let planned = self.passes(key, reads, pass).await?;
        Ok(planned.map(|(plan, note, _)| (plan, note)))
    }

    /// The same for a reconcile that has written nothing and met no failures, with the reasons. The plan's note is dropped.
    pub(super) async fn explain(
        &self,
        room: &dyn Reconcile,
        key: &Key,
        withholds_creates: bool,
        now: impl Fn() -> Timestamp + Sync,
    ) -> Result<Option<(Plan, Vec<String>)>, ObserveError> {
        let pass = |reads: &Reads| room.explain_in_slices(key, reads, now());
        let reads = Reads::begin(EarlierWrites::default(), withholds_creates);
        let explained = self.passes(key, reads, pass).await?;
        Ok(explained.map(|(plan, _, reasons)| (plan, reasons)))
    }

    /// Reads between passes until one of them ends in a plan, or in nothing to plan for. Other tasks run between the slices of a pass.
    async fn passes(
        &self,
        key: &Key,
        mut reads: Reads,
        pass: impl Fn(&Reads) -> Result<FirstSlice, ObserveError>,
    ) -> Result<Option<(Plan, PlanNote, Vec<String>)>, ObserveError> {
        for _ in 0..MOST_PASSES {
            let first = pass(&reads)?;
            let ended = match first {
                ControlFlow::Break(ended) => ended,
                ControlFlow::Continue(next) => to_the_end(next).await,
            };
            let mut needs = match ended {
                (Pass::Nothing, _) => return Ok(None),
                (Pass::Plan(plan, note), reasons) => return Ok(Some((plan, note, reasons))),
                (Pass::Needs(needs), _) => needs,
            };
            let mut asked = HashSet::default();
            needs.retain(|read| reads.lacks(read) && asked.insert((**read).clone()));
            if needs.is_empty() {
                return Err(ObserveError::Retry(format!("{key}: a read was requested twice")));
            }
            let mut found = stream::iter(needs).map(|read| self.read(read)).buffer_unordered(AT_A_TIME);
            while let Some((read, found)) = found.next().await {
                if found.is_stopped() {
                    return Err(ObserveError::Canceled(format!(
                        "{key}: live read canceled: the controller is stopping"
                    )));
                }
                reads.insert(read, found);
            }
        }
        Err(ObserveError::Retry(format!("{key}: no plan after {MOST_PASSES} passes")))
    }

    fn read(&self, declared: DeclaredRead) -> BoxFuture<'_, (Read, ReadResult)> {
        if let (Some(counts), Some(row)) = (&self.counts, declared.row()) {
            counts.count(row);
        }
        let read = Read::from(declared);
        Box::pin(async move {
            let found = self.find(&read);
            let found = match read {
                Read::Parsed(..) => found.await,
                _ => timeout(READ_WITHIN, found).await.unwrap_or_else(|_| ReadResult::expired(&read)),
            };
            (read, found)
        })
    }

    async fn find(&self, read: &Read) -> ReadResult {
        let shared = Some(self.identities.hash_one(read));
        match read {
            // A shared read never waits for `Retry-After`. Each reconcile waits in its own seat and then joins the next shared read.
            Read::Object(kind, key) => ReadResult::Object(
                self.client.patiently(shared, |client| self.object(client, read, kind, key)).await,
            ),
            Read::Scale(kind, key) => ReadResult::Object(
                self.client.patiently(shared, |client| self.scale(client, read, kind, key)).await,
            ),
            Read::Page(page) => {
                ReadResult::Page(self.timed(async |client| page_of(&client, page).await).await)
            }
            Read::Json(uri) => {
                ReadResult::Json(self.client.patiently(shared, |client| self.json(client, read, uri)).await)
            }
            Read::Document(form, uri) => ReadResult::Document(
                self.client.patiently(shared, |client| self.document(client, read, form, uri)).await,
            ),
            Read::Access(question) => {
                ReadResult::Access(self.timed(async |client| client.review_access(question).await).await)
            }
            Read::Parsed(parser, input) => {
                let (parse, input) = (parser.parse, input.clone());
                let parsed = self.pool.run(move || parse(input.bytes()));
                ReadResult::Parsed(answered(&ReadClock::started(), false, parsed).await)
            }
            Read::List(kind, namespace) => {
                let attempt = |client, position| self.list(client, read, position, kind, namespace);
                ReadResult::List(self.client.patiently_from(Arc::default(), shared, attempt).await)
            }
            Read::Resources | Read::SearchedResources(_) | Read::LatestResources => {
                // Discovery has a client of its own, which never waits for `Retry-After`.
                let attempt = |_: ApiClient| {
                    let resources = async {
                        match read {
                            Read::SearchedResources(name) => self.discovery.search(name).await,
                            Read::LatestResources => self.discovery.latest().await,
                            _ => self.discovery.resources().await,
                        }
                    };
                    Box::pin(async { answered(&ReadClock::started(), false, resources).await })
                };
                ReadResult::Resources(self.client.patiently(shared, attempt).await)
            }
        }
    }

    async fn object(
        &self,
        client: ApiClient,
        what: &Read,
        kind: &'static Kind,
        key: &Key,
    ) -> Result<Option<AnyObject>, ApiError> {
        let key = key.clone();
        let read = async move |client: ApiClient| match client.get(kind, &key).await {
            // kube-apiserver names an absent object of its own kinds. All other kinds are dynamic, of which only metadata is read.
            Err(error) if kind.metadata_only && error.is_unnamed_not_found() => {
                listed(&client, kind, &key).await.ok_or(error)
            }
            found => present(found),
        };
        self.shared(client, &self.shared, what, RateClass::Other, read).await
    }

    async fn scale(
        &self,
        client: ApiClient,
        what: &Read,
        kind: &'static Kind,
        key: &Key,
    ) -> Result<Option<AnyObject>, ApiError> {
        let key = key.clone();
        let read = async move |client: ApiClient| present(client.scale(kind, &key).await);
        self.shared(client, &self.shared, what, RateClass::Scale, read).await
    }

    /// Reads a list from a position to its end. Callers share the rest of a list only with callers at the same position: its first
    /// pages may be older than the request of another caller. A list that was begun again is not begun a third time, so a list that begins
    /// does not share it.
    async fn list(
        &self,
        client: ApiClient,
        what: &Read,
        position: Arc<ListPosition>,
        kind: &'static Kind,
        namespace: &Str,
    ) -> ListEnd {
        let (from, namespace) = (Arc::clone(&position), namespace.clone());
        let (after, limit) = (from.after().clone(), u32::from(from.is_second()));
        // This query reads no page: it is the key of the shared read, and its limit shows whether the list was begun again.
        let rest = (!after.is_empty() || from.is_second())
            .then(|| Read::Page(PageQuery { kind, namespace: namespace.clone(), limit, after }));
        let read =
            async move |client: ApiClient| Ok(client.list_from(kind, &namespace, from).await.map(Arc::new));
        let what = rest.as_ref().unwrap_or(what);
        let ended = self.shared(client, &self.shared_lists, what, RateClass::Other, read).await;
        ended.unwrap_or_else(|error| Err(Interrupted { error, position, has_advanced: false }))
    }

    async fn document(
        &self,
        client: ApiClient,
        what: &Read,
        form: &'static DocumentForm,
        uri: &RequestUri,
    ) -> Result<AnyDocument, ApiError> {
        let uri = uri.clone();
        let read = async move |client: ApiClient| {
            let mut pieces = client.pieces_of(&uri, form.longest).await?;
            (form.read)(&mut pieces)
                .map_err(|what| ApiError::Malformed { request: format!("GET {}", uri.path()), what })
        };
        self.shared(client, &self.documents, what, RateClass::Other, read).await
    }

    /// Makes a read once for all who ask for it. Its clock runs while its first request is under way.
    async fn shared<T, F>(
        &self,
        client: ApiClient,
        reads: &SharedReads<T>,
        what: &Read,
        class: RateClass,
        read: impl FnOnce(ApiClient) -> F + Send + 'static,
    ) -> Result<T, ApiError>
    where
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        let (joined, clock) = reads.join(what, |clock| async move {
            clock.stop();
            let client = client.admitted(&class).await;
            clock.start();
            read(client).await
        });
        answered(&clock, false, joined).await
    }

    /// Makes a read of one caller, likewise.
    async fn timed<T>(&self, read: impl AsyncFnOnce(ApiClient) -> T) -> T {
        let clock = ReadClock::default();
        let read = async {
            let client = self.client.admitted(&RateClass::Other).await;
            clock.start();
            read(client).await
        };
        answered(&clock, false, read).await
    }

    /// JSON of an API group, which may be slow. A request takes its token first and then one of the places of the group, so that those
    /// that have a place are under way.
    ///
    /// A read of a slow group fails at once when the line of the group is long, or when the worker has no room to set the key aside: the
    /// line would only grow, and the other keys of the worker would wait.
    async fn json(&self, client: ApiClient, what: &Read, uri: &RequestUri) -> Result<Arc<Value>, ApiError> {
        let (line, is_slow, has_room) = (self.line(uri.group()), self.slow.has(uri.group()), has_room());
        let is_full = line.is_full() && !self.answers.is_lined_up(what);
        if is_slow && (is_full || !has_room) {
            return Err(slow_group(uri));
        }
        let (slow, asked) = (self.slow.clone(), uri.clone());
        let (joined, clock) = self.answers.join(what, |clock| async move {
            let _in_line = InLine::begin(&line);
            clock.stop();
            let client = client.admitted(&asked.rate_class()).await;
            clock.start();
            let answer = async {
                // Semaphores are closed by nobody.
                let _place = line.places.acquire().await;
                client.json_of(&asked, LONGEST_JSON).await.map(Arc::new)
            };
            slow.answered(asked.group(), answer).await
        });
        if has_room {
            return answered(&clock, is_slow, joined).await;
        }
        tokio::select! {
            biased;
            found = joined => found,
            () = clock.runs_long() => Err(slow_group(uri)),
        }
    }

    /// Whether an API group is slow now.
    #[cfg(test)]
    pub(super) fn is_slow(&self, group: &str) -> bool {
        self.slow.has(group)
    }

    /// The line of an API group.
    fn line(&self, group: &str) -> Arc<GroupLine> {
        let new = || Arc::new(GroupLine::new(self.places));
        Arc::clone(self.groups.lock().entry_ref(group).or_insert_with(new))
    }
}

/// The requests of JSON to one API group.
#[derive(Debug)]
struct GroupLine {
    places: Semaphore,
    /// Requests in the line at most.
    most: usize,
    /// Those that wait for a token, wait for a place, or have one.
    requests: AtomicUsize,
}

impl GroupLine {
    fn new(places: usize) -> Self {
        let most = places + MOST_IN_LINE;
        Self { places: Semaphore::new(places), most, requests: AtomicUsize::new(0) }
    }

    fn is_full(&self) -> bool {
        self.requests.load(Ordering::Relaxed) >= self.most
    }
}

/// Counted in the line of a group, for as long as it is there.
struct InLine(Arc<GroupLine>);

impl InLine {
    fn begin(line: &Arc<GroupLine>) -> Self {
        line.requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(line))
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error of a read that is not made, or not waited for. The text has no number: it is in conditions, which would be written again
/// with each change of it.
#[derive(Debug, thiserror::Error)]
#[error("request not sent: the API group {0} is slow and has too many pending requests")]
struct SlowGroup(String);

fn slow_group(uri: &RequestUri) -> ApiError {
    let source = Arc::new(SlowGroup(uri.group().to_owned()));
    ApiError::Transport { request: format!("GET {}", uri.path()), source }
}

/// Computes the slices of a pass. Other tasks run before each of them.
async fn to_the_end(mut next: NextSlice) -> EndedPass {
    loop {
        yield_now().await;
        if let Some(ended) = next() {
            return ended;
        }
    }
}

async fn page_of(client: &ApiClient, of: &PageQuery) -> Result<ObjectPage, ApiError> {
    let query = ListQuery {
        namespace: of.namespace.to_string(),
        limit: Some(of.limit),
        continue_token: (!of.after.is_empty()).then(|| of.after.to_string()),
        ..ListQuery::default()
    };
    let page = client.list(of.kind, &query).await?;
    let mut objects = ObjectList::default();
    for item in &page.items {
        objects.add(of.kind, item);
    }
    Ok(ObjectPage {
        objects,
        next: page.continue_token.into(),
        resource_version: page.resource_version.into(),
    })
}

/// Looks for an object in the list of its namespace. The inner `None` means that a server of the resource has listed the namespace
/// without the object; the outer `None` means that the list proves neither.
///
/// Some aggregated API servers answer 404 for an absent object without its name. A server that does not serve the resource answers in the
/// same way, and discovery may be answered by another replica than the 404. Only the list is evidence about the object.
async fn listed(client: &ApiClient, kind: &'static Kind, key: &Key) -> Option<Option<AnyObject>> {
    let page = match client.find(kind, key).await {
        Ok(page) => page,
        Err(error) => {
            tracing::debug!(%kind, %key, %error, "Failed to list an object after a 404 response that did not name the object");
            return None;
        }
    };
    let mut objects = ObjectList::default();
    for item in &page.items {
        objects.add(kind, item);
    }
    let mut objects = objects.complete().ok()?.iter();
    // A server may ignore the selector.
    match objects.find(|object| object.meta().name == key.name) {
        Some(object) if Key::of(object.meta()) == *key => Some(Some(Arc::clone(object))),
        None if page.continue_token.is_empty() => Some(None),
        _ => None,
    }
}

/// Absence, where who serves such objects says so.
fn present(found: Result<AnyObject, ApiError>) -> Result<Option<AnyObject>, ApiError> {
    match found {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_object_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
