//! Live reads between the passes of one reconcile.
//!
//! A controller that must know what no cache tells (what a namespace still holds, whether an owner is really gone) observes
//! in several passes: each says what it still has to read, the framework reads it as the controller, and the next pass
//! has it. So observing and planning stay free of I/O. Nothing read here is kept beyond its reconcile.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::documents::{AnyDocument, DocumentForm};
use super::parsing::{ParsedValue, Parser, ParserInput};
use super::room::PlanNote;
use crate::api::autoscaling::Scale;
use crate::api::{AnyObject, Kind};
use crate::executor::{Effect, WriteEffect};
use crate::model::Key;
pub use crate::model::live_reads::LiveRead;
use crate::model::plan::Plan;
use crate::random::HashMap;
use crate::wire::Str;

/// What reads ask, find and fail with.
pub use crate::client::{
    AccessQuestion, AccessVerdict, ApiError, ApiResources, DiscoveryError, InvalidPath, ObjectList, Query,
    RequestPath, RequestUri,
};

/// How long one read takes at most, with its wait for a place and for the rate limit. The client ends each request after 70 s, so
/// only a list of very many pages comes near. The limit keeps a fault of the client from holding a worker for ever.
pub(super) const READ_WITHIN: Duration = Duration::from_mins(15);

/// Something to read from the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// One object; of a metadata-only kind, its metadata.
    Object(&'static Kind, Key),
    /// All objects of a kind in a namespace, or everywhere if that is empty.
    List(&'static Kind, Str),
    /// One page of all objects of a kind.
    Page(PageQuery),
    /// The scale of an object, of whatever kind; [`Reads::scale`] has it. [`super::scales`] says which kind it is that a reference
    /// names.
    Scale(&'static Kind, Key),
    /// JSON of at most 16 MiB: of a metrics API, or the index of OpenAPI.
    Json(RequestUri),
    /// A document of OpenAPI in this form. [`Reads::document`] has it.
    Document(&'static DocumentForm, RequestUri),
    /// Whether somebody may do something.
    Access(Arc<AccessQuestion>),
    /// The value that a parser returns for a field of an object. It is no request: the parser runs on the framework's
    /// [`BlockingPool`], so that large input holds no controllers' thread. [`Reads::parsed`] has it.
    Parsed(&'static Parser, ParserInput),
    /// Which resources the API has: at most 30 seconds old.
    Resources,
    /// Which resources the API has, for a caller that did not find this name among [`Read::Resources`]. They are read again, but at
    /// most once in some seconds for all callers, and once in 30 seconds for a name. [`Reads::latest_resources`] has them.
    SearchedResources(Str),
    /// Which resources the API has now.
    LatestResources,
}

/// A [`Read`] with its row in the table of live reads, see [`LiveRead::of`]. Reads are equal if they read the same.
#[derive(Clone)]
pub struct DeclaredRead {
    row: &'static LiveRead,
    read: Read,
}

/// The row of what is no request.
static NO_REQUEST: LiveRead = LiveRead {
    controller: "",
    name: "",
    request: "none",
    when: "A controller parses a field of an object.",
    idle_per_hour: 0,
};

impl LiveRead {
    /// A read for the reason that this row declares.
    pub fn of(&'static self, read: Read) -> DeclaredRead {
        DeclaredRead { row: self, read }
    }
}

impl DeclaredRead {
    /// [`Read::Parsed`], which is no request.
    pub fn parsed(parser: &'static Parser, input: ParserInput) -> Self {
        Self { row: &NO_REQUEST, read: Read::Parsed(parser, input) }
    }

    /// Its row; `None` if it is no request.
    pub fn row(&self) -> Option<&'static LiveRead> {
        Some(self.row).filter(|row| **row != NO_REQUEST)
    }
}

impl fmt::Debug for DeclaredRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read.fmt(f)
    }
}

impl Deref for DeclaredRead {
    type Target = Read;

    fn deref(&self) -> &Read {
        &self.read
    }
}

impl From<DeclaredRead> for Read {
    fn from(declared: DeclaredRead) -> Self {
        declared.read
    }
}

impl PartialEq for DeclaredRead {
    fn eq(&self, other: &Self) -> bool {
        self.read == other.read
    }
}

impl PartialEq<Read> for DeclaredRead {
    fn eq(&self, other: &Read) -> bool {
        self.read == *other
    }
}

/// One page of a list. The server remembers a position for some minutes; then it answers 410, and one begins anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageQuery {
    /// The kind.
    pub kind: &'static Kind,
    /// The namespace; empty for all.
    pub namespace: Str,
    /// Objects on it at most.
    pub limit: u32,
    /// Where it begins: [`ObjectPage::next`] of the page before; empty for the first.
    pub after: Str,
}

/// A page that was read.
#[derive(Clone, Debug, Default)]
pub struct ObjectPage {
    /// Its objects.
    pub objects: ObjectList,
    /// Where the next one begins; empty on the last. For a plan's note: what keeps the position from one reconcile to the
    /// next is the controller's memory.
    pub next: Str,
    /// The resource version of the list.
    pub resource_version: Str,
}

/// What was read in this reconcile so far.
#[derive(Debug, Default)]
pub struct Reads {
    found: HashMap<Read, ReadResult>,
    written: EarlierWrites,
    withholds_creates: bool,
    pub(super) is_contended: bool,
}

/// What earlier plans of this reconcile have written.
pub(super) type EarlierWrites = Vec<Effect>;

#[derive(Debug)]
pub(super) enum ReadResult {
    Object(Result<Option<AnyObject>, ApiError>),
    List(Result<Arc<ObjectList>, ApiError>),
    Page(Result<ObjectPage, ApiError>),
    Json(Result<Arc<Value>, ApiError>),
    Document(Result<AnyDocument, ApiError>),
    Access(Result<AccessVerdict, ApiError>),
    Parsed(ParsedValue),
    Resources(Result<Arc<ApiResources>, ApiError>),
}

impl ReadResult {
    /// Reports whether a stop of the controller or the end of its term canceled the read. A canceled read is no evidence about the object.
    pub(super) fn is_stopped(&self) -> bool {
        let error = match self {
            Self::Object(found) => found.as_ref().err(),
            Self::List(found) => found.as_ref().err(),
            Self::Page(found) => found.as_ref().err(),
            Self::Json(found) => found.as_ref().err(),
            Self::Document(found) => found.as_ref().err(),
            Self::Access(found) => found.as_ref().err(),
            Self::Resources(found) => found.as_ref().err(),
            Self::Parsed(_) => None,
        };
        error.is_some_and(ApiError::is_writes_stopped)
    }

    /// Returns the result of a read that took longer than [`READ_WITHIN`].
    pub(super) fn expired(read: &Read) -> Self {
        let error = |request: String| ApiError::Timeout { request, after: READ_WITHIN };
        match read {
            // Parsing never expires. No parser returns this value.
            Read::Parsed(..) => Self::Parsed(Arc::new(())),
            Read::Object(kind, key) => Self::Object(Err(error(format!("GET {kind} {key}")))),
            Read::Scale(kind, key) => Self::Object(Err(error(format!("GET {kind}/scale {key}")))),
            Read::List(kind, _) => Self::List(Err(error(format!("LIST {kind}")))),
            Read::Page(page) => Self::Page(Err(error(format!("LIST {}", page.kind)))),
            Read::Json(uri) => Self::Json(Err(error(format!("GET {}", uri.path())))),
            Read::Document(_, uri) => Self::Document(Err(error(format!("GET {}", uri.path())))),
            Read::Access(_) => Self::Access(Err(error("POST subjectaccessreviews".to_owned()))),
            Read::Resources | Read::SearchedResources(_) | Read::LatestResources => {
                Self::Resources(Err(error("GET discovery".to_owned())))
            }
        }
    }
}

impl Reads {
    /// Returns the number of reads that were made so far, failed ones included.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// An object that was read: `None` if that was not done, `Ok(None)` if it is not there. Where its resource is not
    /// served, that is an error.
    pub fn object(&self, kind: &'static Kind, key: &Key) -> Option<Result<Option<&AnyObject>, &ApiError>> {
        match self.found.get(&Read::Object(kind, key.clone()))? {
            ReadResult::Object(found) => Some(found.as_ref().map(Option::as_ref)),
            _ => None,
        }
    }

    /// A list that was read; `None` if that was not done.
    pub fn list(&self, kind: &'static Kind, namespace: &Str) -> Option<Result<&ObjectList, &ApiError>> {
        match self.found.get(&Read::List(kind, namespace.clone()))? {
            ReadResult::List(found) => Some(found.as_ref().map(AsRef::as_ref)),
            _ => None,
        }
    }

    /// A page that was read; `None` if that was not done.
    pub fn page(&self, page: &PageQuery) -> Option<Result<&ObjectPage, &ApiError>> {
        match self.found.get(&Read::Page(page.clone()))? {
            ReadResult::Page(found) => Some(found.as_ref()),
            _ => None,
        }
    }

    /// A scale that was read: `None` if that was not done, `Ok(None)` if the object is not there. Where the resource or its
    /// scale is not served, that is an error.
    pub fn scale(&self, kind: &'static Kind, key: &Key) -> Option<Result<Option<&Scale>, &ApiError>> {
        match self.found.get(&Read::Scale(kind, key.clone()))? {
            ReadResult::Object(found) => Some(found.as_ref().map(|found| {
                let any: &dyn std::any::Any = &**found.as_ref()?;
                any.downcast_ref()
            })),
            _ => None,
        }
    }

    /// JSON that was read; `None` if that was not done.
    pub fn json(&self, uri: &RequestUri) -> Option<Result<&Arc<Value>, &ApiError>> {
        match self.found.get(&Read::Json(uri.clone()))? {
            ReadResult::Json(found) => Some(found.as_ref()),
            _ => None,
        }
    }

    /// A document that was read, as what its form makes of it; `None` if that was not done, or the form makes something else.
    pub fn document<T: Send + Sync + 'static>(
        &self,
        form: &'static DocumentForm,
        uri: &RequestUri,
    ) -> Option<Result<Arc<T>, &ApiError>> {
        match self.found.get(&Read::Document(form, uri.clone()))? {
            ReadResult::Document(Ok(found)) => Arc::clone(found).downcast().ok().map(Ok),
            ReadResult::Document(Err(error)) => Some(Err(error)),
            _ => None,
        }
    }

    /// Whether somebody may do something; `None` if that was not asked.
    pub fn access(&self, question: &Arc<AccessQuestion>) -> Option<Result<&AccessVerdict, &ApiError>> {
        match self.found.get(&Read::Access(Arc::clone(question)))? {
            ReadResult::Access(found) => Some(found.as_ref()),
            _ => None,
        }
    }

    /// The value that a parser has returned for this input; `None` if it has not run, or returns another type.
    pub fn parsed<T: Send + Sync + 'static>(
        &self,
        parser: &'static Parser,
        input: &ParserInput,
    ) -> Option<Arc<T>> {
        match self.found.get(&Read::Parsed(parser, input.clone()))? {
            ReadResult::Parsed(value) => Arc::clone(value).downcast().ok(),
            _ => None,
        }
    }

    /// The API's resources; `None` if they were not read.
    pub fn resources(&self) -> Option<Result<&Arc<ApiResources>, &ApiError>> {
        match self.found.get(&Read::LatestResources).or_else(|| self.found.get(&Read::Resources))? {
            ReadResult::Resources(found) => Some(found.as_ref()),
            _ => None,
        }
    }

    /// The API's resources as a second read found them; `None` if neither [`Read::LatestResources`] nor
    /// [`Read::SearchedResources`] was made.
    pub fn latest_resources(&self) -> Option<Result<&Arc<ApiResources>, &ApiError>> {
        match self.found.get(&Read::LatestResources)? {
            ReadResult::Resources(found) => Some(found.as_ref()),
            _ => None,
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
        let found = found.map(|objects| Arc::new(objects.into()));
        self.found.insert(Read::List(kind, namespace), ReadResult::List(found));
        self
    }

    /// With a list read, of these encoded objects: for tests of rooms.
    #[must_use]
    pub fn with_encoded(mut self, kind: &'static Kind, namespace: Str, objects: &[bytes::Bytes]) -> Self {
        let mut list = ObjectList::default();
        for object in objects {
            list.add(kind, object);
        }
        self.found.insert(Read::List(kind, namespace), ReadResult::List(Ok(Arc::new(list))));
        self
    }

    /// With the API's resources read: for tests of rooms.
    #[must_use]
    pub fn with_resources(mut self, found: Result<Arc<ApiResources>, ApiError>) -> Self {
        self.found.insert(Read::Resources, ReadResult::Resources(found));
        self
    }

    /// With the API's resources read anew: for tests of rooms.
    #[must_use]
    pub fn with_latest_resources(mut self, found: Result<Arc<ApiResources>, ApiError>) -> Self {
        self.found.insert(Read::LatestResources, ReadResult::Resources(found));
        self
    }

    /// With a page read: for tests of rooms.
    #[must_use]
    pub fn with_page(mut self, page: PageQuery, found: Result<ObjectPage, ApiError>) -> Self {
        self.found.insert(Read::Page(page), ReadResult::Page(found));
        self
    }

    /// With a scale read, or found absent: for tests of rooms.
    #[must_use]
    pub fn with_scale(
        mut self,
        kind: &'static Kind,
        key: Key,
        found: Result<Option<Scale>, ApiError>,
    ) -> Self {
        let found = found.map(|found| found.map(|scale| Arc::new(scale) as AnyObject));
        self.found.insert(Read::Scale(kind, key), ReadResult::Object(found));
        self
    }

    /// With JSON read: for tests of rooms.
    #[must_use]
    pub fn with_json(mut self, uri: RequestUri, found: Result<Value, ApiError>) -> Self {
        self.found.insert(Read::Json(uri), ReadResult::Json(found.map(Arc::new)));
        self
    }

    /// With a document read: for tests of rooms.
    #[must_use]
    pub fn with_document(
        mut self,
        form: &'static DocumentForm,
        uri: RequestUri,
        found: Result<AnyDocument, ApiError>,
    ) -> Self {
        self.found.insert(Read::Document(form, uri), ReadResult::Document(found));
        self
    }

    /// With a question answered: for tests of rooms.
    #[must_use]
    pub fn with_access(
        mut self,
        question: Arc<AccessQuestion>,
        found: Result<AccessVerdict, ApiError>,
    ) -> Self {
        self.found.insert(Read::Access(question), ReadResult::Access(found));
        self
    }

    /// With an input parsed: for tests of rooms.
    #[must_use]
    pub fn with_parsed(mut self, parser: &'static Parser, input: ParserInput) -> Self {
        let value = (parser.parse)(input.bytes());
        self.found.insert(Read::Parsed(parser, input), ReadResult::Parsed(value));
        self
    }

    /// As they are when a collection of this was deleted before: for tests of rooms.
    #[must_use]
    pub fn after_writes(self, kind: &'static Kind, namespace: Str) -> Self {
        self.after(Effect {
            kind,
            key: Key::new(namespace, ""),
            subresource: "",
            change: WriteEffect::Swept,
            answer: None,
        })
    }

    /// As they are when this was written before: for tests of rooms.
    #[must_use]
    pub fn after(mut self, effect: Effect) -> Self {
        self.written.push(effect);
        self
    }

    /// What earlier plans of this same reconcile have written, or may have: those that asked to look again, and the one whose
    /// failures are to be recorded. Of that one, what was not written is among the failures or was not tried.
    pub fn written(&self) -> &[Effect] {
        &self.written
    }

    /// The object as the last write of it in this reconcile was answered, with the UID and resource version that it got.
    /// Scales are no objects.
    pub fn answer(&self, kind: &'static Kind, key: &Key) -> Option<&AnyObject> {
        let of_object =
            |effect: &&Effect| effect.kind == kind && effect.key == *key && effect.subresource != "scale";
        self.written.iter().rev().filter(of_object).find_map(|effect| effect.answer.as_ref())
    }

    /// Whether an earlier plan of this same reconcile has written to this kind in this namespace.
    pub fn has_written(&self, kind: &'static Kind, namespace: &str) -> bool {
        self.written.iter().any(|effect| effect.kind == kind && effect.key.namespace == namespace)
    }

    /// Returns whether creates of this reconcile that tolerate a terminating namespace are not sent: the namespace has refused one before.
    pub fn withholds_creates(&self) -> bool {
        self.withholds_creates
    }

    /// Creates the reads of a reconcile whose earlier plans have written this.
    pub(super) fn begin(written: EarlierWrites, withholds_creates: bool) -> Self {
        Self { written, withholds_creates, ..Self::default() }
    }

    pub(super) fn lacks(&self, read: &Read) -> bool {
        match read {
            Read::SearchedResources(_) => !self.found.contains_key(&Read::LatestResources),
            read => !self.found.contains_key(read),
        }
    }

    pub(super) fn insert(&mut self, read: Read, found: ReadResult) {
        let read = if matches!(read, Read::SearchedResources(_)) { Read::LatestResources } else { read };
        self.found.insert(read, found);
    }
}

/// What came of a pass of observing.
#[derive(Debug)]
pub enum Observation<V> {
    /// There is nothing at this key to decide about.
    Nothing,
    /// Read these, and observe again. What was read already is not read again.
    Needs(Vec<DeclaredRead>),
    /// Everything that the decision rests on.
    View(V),
}

impl<V> Observation<V> {
    /// Makes another view of this one, or nothing.
    pub fn and_then<U>(self, view: impl FnOnce(V) -> Option<U>) -> Observation<U> {
        match self {
            Self::View(held) => view(held).into(),
            Self::Needs(needs) => Observation::Needs(needs),
            Self::Nothing => Observation::Nothing,
        }
    }
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
    Needs(Vec<DeclaredRead>),
    /// What to do, and what that tells beside.
    Plan(Plan, PlanNote),
}
