//! Content negotiation of `/flagz` and `/statusz` (KEP-4828, KEP-4827): text, or an object of the group `config.k8s.io`.
//!
//! The rules are those of kube-controller-manager, as `tests/data/peer/accept.tsv` has recorded them. Only the first `Accept` header
//! counts. Its clauses are tried in the order of their weights, specific media types before ranges. Names are compared byte by
//! byte, and `q=0` refuses nothing.

use http::HeaderMap;
use http::header::ACCEPT;

/// The group of the objects.
const GROUP: &str = "config.k8s.io";

/// A version of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1Beta1,
    /// Answered with a `Warning` header.
    V1Alpha1,
}

impl Version {
    const ALL: [Self; 2] = [Self::V1Beta1, Self::V1Alpha1];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Alpha1 => "v1alpha1",
        }
    }

    pub(super) fn api_version(self) -> String {
        format!("{GROUP}/{}", self.name())
    }
}

/// The encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Yaml,
}

impl Encoding {
    const ALL: [Self; 2] = [Self::Json, Self::Yaml];

    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }

    /// The `Content-Type` of an object of this kind.
    pub(super) fn content_type(self, version: Version, kind: &str) -> String {
        format!("{};g={GROUP};v={};as={kind}", self.media_type(), version.name())
    }
}

/// The form in which a page is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// An object; `pretty` if the clause asks for indentation.
    Object {
        version: Version,
        encoding: Encoding,
        pretty: bool,
    },
    /// 406, with a `Status` in this encoding.
    NotAcceptable {
        encoding: Encoding,
        pretty: bool,
    },
}

impl Form {
    /// The form that a request for an object of this kind asks for.
    pub(super) fn negotiate(headers: &HeaderMap, kind: &str) -> Self {
        let accept = headers.get(ACCEPT).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let accept = accept.as_deref().map(str::trim).unwrap_or_default();
        if accept.is_empty() {
            return Self::Text;
        }
        let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.ranges().cmp(&b.ranges())));
        clauses.iter().find_map(|clause| clause.form(kind)).unwrap_or_else(|| {
            // Errors are not objects of the page: a clause that names one does not choose their encoding.
            let mut plain = clauses.iter().filter(|clause| clause.names_nothing());
            let chosen = plain.find_map(|clause| Some((clause.encoding()?, clause.pretty)));
            let (encoding, pretty) = chosen.unwrap_or((Encoding::Json, true));
            Self::NotAcceptable { encoding, pretty }
        })
    }
}

/// One alternative of an `Accept` header.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    weight: f64,
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    stream: &'a str,
    pretty: bool,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let media = parts.next().unwrap_or_default().trim();
        let (main, sub) = if media == "*" { ("*", "*") } else { media.split_once('/')? };
        let (main, sub) = (main.trim(), sub.trim());
        if sub.contains('/') {
            return None;
        }
        let mut clause =
            Self { main, sub, weight: 1.0, group: "", version: "", kind: "", stream: "", pretty: false };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim();
            match name.trim() {
                "q" => clause.weight = weight(value),
                "g" => clause.group = value,
                "v" => clause.version = value,
                "as" => clause.kind = value,
                "stream" => clause.stream = value,
                "pretty" => clause.pretty = value == "1",
                _ => {}
            }
        }
        Some(clause)
    }

    /// How much of the media type is a range: nothing, the subtype, or all.
    fn ranges(&self) -> u8 {
        u8::from(self.main == "*") + u8::from(self.sub == "*")
    }

    fn takes(&self, media: &str) -> bool {
        match (self.main, self.sub) {
            ("*", "*") => true,
            (main, "*") => media.split('/').next() == Some(main),
            (main, sub) => media.split_once('/') == Some((main, sub)),
        }
    }

    fn encoding(&self) -> Option<Encoding> {
        Encoding::ALL.into_iter().find(|encoding| self.takes(encoding.media_type()))
    }

    /// Whether the clause asks for no object.
    fn names_nothing(&self) -> bool {
        [self.group, self.version, self.kind, self.stream].iter().all(|name| name.is_empty())
    }

    /// The form that this clause asks for, if there is such a form.
    fn form(&self, kind: &str) -> Option<Form> {
        if self.names_nothing() {
            return self.takes("text/plain").then_some(Form::Text);
        }
        let is_known = self.group == GROUP && self.kind == kind && self.stream.is_empty();
        let version = Version::ALL.into_iter().find(|version| is_known && version.name() == self.version)?;
        Some(Form::Object { version, encoding: self.encoding()?, pretty: self.pretty })
    }
}

/// The weight of a clause: 0 if it cannot be read.
fn weight(text: &str) -> f64 {
    let weight: f64 = text.parse().unwrap_or_default();
    // Compared with anything, "not a number" is the same as the usual weight.
    if weight.is_nan() { 1.0 } else { weight }
}
