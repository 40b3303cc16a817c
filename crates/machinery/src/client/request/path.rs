//! Paths, built from segments. Each segment is checked and percent-encoded; nothing else can make a path.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::LONGEST_URI;
use super::query::Query;
use crate::api::Kind;
use crate::client::layers::RateClass;
use crate::wire::Str;
use crate::wire::text::{lossy_text, raw_bytes};

/// Bytes of a segment that are percent-encoded: all but RFC 3986's unreserved characters and those of `:`, `@` and the
/// sub-delimiters that Go's clients leave as they are, so that audit logs show the same URI.
pub(in crate::client) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Where the documents of OpenAPI are.
const OPENAPI: &str = "/openapi/v3";

/// Characters of a segment that an error shows. Names of objects are shorter; longer ones are somebody's attempt to fill a log.
const LONGEST_SHOWN: usize = 512;

/// A path that cannot be built. The message is the one of Kubernetes' own clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPath(String);

impl InvalidPath {
    fn new(part: &str, segment: &str, faults: &str) -> Self {
        let shown: String = lossy_text(segment).chars().take(LONGEST_SHOWN).collect();
        Self(format!("invalid {part} {shown:?}: [{faults}]"))
    }
}

/// The path of a request, as segments that are not encoded yet. Borrows them; nothing is allocated before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct RequestPath<'a> {
    root: Root<'a>,
    namespace: Option<&'a str>,
    resource: Option<&'static str>,
    name: Option<&'a str>,
    subresource: Option<&'static str>,
    series: &'a [&'a str],
}

#[derive(Clone, Copy, Debug)]
enum Root<'a> {
    /// A path that is no resource's.
    Fixed(&'static str),
    /// A version of an API group; the core group is empty.
    Group { group: &'a str, version: &'a str },
    /// A document of OpenAPI: its path as the index names it.
    Document(&'a str),
}

impl<'a> RequestPath<'a> {
    /// The versions of the core group.
    pub const CORE_VERSIONS: Self = Self::of(Root::Fixed("/api"));
    /// The API groups.
    pub const GROUPS: Self = Self::of(Root::Fixed("/apis"));
    /// The health of the API server.
    pub const HEALTHZ: Self = Self::of(Root::Fixed("/healthz"));
    /// The version of the API server.
    pub const VERSION: Self = Self::of(Root::Fixed("/version"));
    /// The SubjectAccessReviews.
    pub const ACCESS_REVIEWS: Self =
        Self::group_version("authorization.k8s.io", "v1").resource("subjectaccessreviews");
    /// The TokenReviews.
    pub const TOKEN_REVIEWS: Self =
        Self::group_version("authentication.k8s.io", "v1").resource("tokenreviews");

    const fn of(root: Root<'a>) -> Self {
        Self { root, namespace: None, resource: None, name: None, subresource: None, series: &[] }
    }

    /// A version of an API group: by itself the path of its discovery document. The core group is empty.
    pub const fn group_version(group: &'a str, version: &'a str) -> Self {
        Self::of(Root::Group { group, version })
    }

    /// A document of OpenAPI, by its path in the index without the query. Only paths below `/openapi/v3/` can be encoded.
    pub const fn openapi_document(path: &'a str) -> Self {
        Self::of(Root::Document(path))
    }

    /// A collection: of one namespace, or with an empty `namespace` of all.
    pub const fn collection(kind: &Kind, namespace: &'a str) -> Self {
        let path = Self::group_version(kind.group, kind.version).resource(kind.resource);
        if kind.namespaced { path.in_namespace(namespace) } else { path }
    }

    /// One object.
    pub const fn object(kind: &Kind, namespace: &'a str, name: &'a str) -> Self {
        Self::collection(kind, namespace).named(name)
    }

    /// The path within a namespace; an empty one is none.
    #[must_use]
    pub const fn in_namespace(mut self, namespace: &'a str) -> Self {
        self.namespace = if namespace.is_empty() { None } else { Some(namespace) };
        self
    }

    /// The path of this resource.
    #[must_use]
    pub const fn resource(mut self, resource: &'static str) -> Self {
        self.resource = Some(resource);
        self
    }

    /// The path of the object of this name.
    #[must_use]
    pub const fn named(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// The path of this subresource.
    #[must_use]
    pub const fn subresource(mut self, subresource: Option<&'static str>) -> Self {
        self.subresource = subresource;
        self
    }

    /// The path of a series of a metrics API: these have the names of metrics, which users choose, where other APIs have
    /// resources, names and subresources. Traces do not name spans by them.
    #[must_use]
    pub const fn series(mut self, series: &'a [&'a str]) -> Self {
        self.series = series;
        self
    }

    /// Encodes path and query, to be read later.
    ///
    /// # Errors
    /// When a segment is not legal in a path, or the URI would be longer than any request's. Nothing of that length is allocated.
    pub fn uri(self, query: &Query<'_>) -> Result<RequestUri, InvalidPath> {
        let least = self.length() + query.length();
        if least > LONGEST_URI {
            return Err(InvalidPath(format!("the request URI has more than {LONGEST_URI} bytes")));
        }
        let mut text = String::with_capacity(least);
        let layout = self.encode(&mut text)?;
        let path_length = text.len();
        query.encode(&mut text);
        Ok(RequestUri { text: text.into(), path_length, layout })
    }

    /// Bytes of the path when nothing in it has to be encoded.
    pub(super) fn length(&self) -> usize {
        let root = match self.root {
            Root::Fixed(path) | Root::Document(path) => path.len(),
            Root::Group { group, version } => "/apis//".len() + group.len() + version.len(),
        };
        let namespace = self.namespace.map_or(0, |namespace| "/namespaces/".len() + namespace.len());
        let segments = [self.resource, self.name, self.subresource].into_iter().flatten();
        let segments = segments.chain(self.series.iter().copied()).map(|segment| 1 + segment.len());
        root + namespace + segments.sum::<usize>()
    }

    /// Appends the encoded path to `out`.
    pub(super) fn encode(&self, out: &mut String) -> Result<Layout, InvalidPath> {
        let start = out.len();
        let mut layout = Layout::default();
        match self.root {
            Root::Fixed(path) => out.push_str(path),
            Root::Group { group: "", version } => {
                out.push_str("/api");
                push_segment("version", version, out)?;
                layout.group = Some(Part::default());
            }
            Root::Group { group, version } => {
                out.push_str("/apis");
                layout.group = Some(part("group", group, start, out)?);
                push_segment("version", version, out)?;
            }
            Root::Document(path) => {
                let below = path.strip_prefix(OPENAPI).and_then(|below| below.strip_prefix('/'));
                let outside = || InvalidPath::new("document", path, "must begin with '/openapi/v3/'");
                out.push_str(OPENAPI);
                for segment in below.ok_or_else(outside)?.split('/') {
                    push_segment("document", segment, out)?;
                }
            }
        }
        if let Some(namespace) = self.namespace {
            out.push_str("/namespaces");
            layout.namespace = Some(part("namespace", namespace, start, out)?);
        }
        if let Some(resource) = self.resource {
            layout.resource = Some(part("resource", resource, start, out)?);
        }
        if let Some(name) = self.name {
            layout.name = Some(part("resource name", name, start, out)?);
        }
        if let Some(subresource) = self.subresource {
            layout.subresource = Some(part("subresource", subresource, start, out)?);
        }
        for (at, segment) in self.series.iter().enumerate() {
            let names = ["resource", "resource name", "subresource"];
            push_segment(names.get(at).copied().unwrap_or("segment"), segment, out)?;
        }
        Ok(layout)
    }
}

impl fmt::Display for RequestPath<'_> {
    /// The path without encoding, for errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.root {
            Root::Fixed(path) | Root::Document(path) => f.write_str(path)?,
            Root::Group { group: "", version } => write!(f, "/api/{version}")?,
            Root::Group { group, version } => write!(f, "/apis/{group}/{version}")?,
        }
        if let Some(namespace) = self.namespace {
            write!(f, "/namespaces/{namespace}")?;
        }
        for segment in [self.resource, self.name, self.subresource]
            .into_iter()
            .flatten()
            .chain(self.series.iter().copied())
        {
            write!(f, "/{segment}")?;
        }
        Ok(())
    }
}

/// Appends a slash and the segment, encoded. Every segment of every path goes through here.
fn push_segment(part: &str, segment: &str, out: &mut String) -> Result<(), InvalidPath> {
    let bytes = segment.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.');
    out.push('/');
    if bytes.iter().all(is_plain) && !matches!(bytes, b"" | b"." | b"..") {
        out.push_str(segment);
        return Ok(());
    }
    let bytes = &*raw_bytes(segment);
    let faults = match bytes {
        b"" => return Err(InvalidPath(format!("{part} may not be empty"))),
        b"." => "may not be '.'",
        b".." => "may not be '..'",
        _ => match (bytes.contains(&b'/'), bytes.contains(&b'%')) {
            (true, true) => "may not contain '/' may not contain '%'",
            (true, false) => "may not contain '/'",
            (false, true) => "may not contain '%'",
            (false, false) => {
                out.extend(percent_encode(bytes, ESCAPED));
                return Ok(());
            }
        },
    };
    Err(InvalidPath::new(part, segment, faults))
}

/// Appends a segment and returns its position in the path, which begins at `start`.
fn part(name: &str, segment: &str, start: usize, out: &mut String) -> Result<Part, InvalidPath> {
    let begin = out.len() + 1 - start;
    push_segment(name, segment, out)?;
    Ok(Part::new(begin, out.len() - start))
}

/// A part of an encoded path, by its position. URIs are shorter than 64 KiB: one with a part beyond that is not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::client) struct Part {
    begin: u16,
    end: u16,
}

impl Part {
    fn new(begin: usize, end: usize) -> Self {
        let short = |at| u16::try_from(at).unwrap_or(u16::MAX);
        Self { begin: short(begin), end: short(end) }
    }

    /// The part of this path, encoded.
    pub(in crate::client) fn of(self, path: &str) -> &str {
        path.get(self.begin.into()..self.end.into()).unwrap_or_default()
    }
}

/// The positions of a path's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::client) struct Layout {
    /// The API group; empty for the core group.
    pub(in crate::client) group: Option<Part>,
    pub(in crate::client) namespace: Option<Part>,
    pub(in crate::client) resource: Option<Part>,
    pub(in crate::client) name: Option<Part>,
    pub(in crate::client) subresource: Option<Part>,
}

impl Layout {
    /// The API group and the version, as they are in the path; empty for the core group.
    pub(in crate::client) fn group_version(self, path: &str) -> &str {
        let Some(group) = self.group else { return "" };
        let (begin, version) = (usize::from(group.begin), usize::from(group.end) + 1);
        let end = path.get(version..).and_then(|rest| rest.find('/')).map_or(path.len(), |at| version + at);
        path.get(begin..end).unwrap_or_default()
    }
}

/// The path and the query of a read, encoded. Only [`RequestPath::uri`] makes one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestUri {
    text: Str,
    path_length: usize,
    layout: Layout,
}

impl RequestUri {
    /// The index of the documents of OpenAPI.
    pub fn openapi_index() -> Self {
        Self { text: OPENAPI.into(), path_length: OPENAPI.len(), layout: Layout::default() }
    }

    /// Path and query.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path, encoded.
    pub fn path(&self) -> &str {
        self.text.get(..self.path_length).unwrap_or_default()
    }

    /// The API group that serves it; empty for the core group and for paths of no group.
    pub fn group(&self) -> &str {
        self.layout.group.map_or("", |group| group.of(&self.text))
    }

    /// The limiter that this read is subject to.
    pub(crate) fn rate_class(&self) -> RateClass {
        RateClass::of_path(self.layout, self.path())
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn path_length(&self) -> usize {
        self.path_length
    }
}

impl fmt::Display for RequestUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
