//! The pages `/flagz` and `/statusz`: text for people, objects for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::header::WARNING;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use super::StatusPage;
use super::negotiation::{Encoding, Form, Version};
use crate::serve::answers::{AnswerBody, RequestBody, RequestHints, TEXT, failure, respond, text};

/// The component's name on its pages: that of kube-controller-manager, whose place it takes.
const COMPONENT: &str = "kube-controller-manager";

const NOTE: &str = "This page is for human readers. Its format may change at any time; do not parse it.";

const NOT_ACCEPTABLE: &str =
    "only the following media types are accepted: application/json, application/yaml, text/plain";

/// A page in both of its forms.
pub(super) trait Page {
    /// The kind of the object.
    const KIND: &'static str;

    /// The page for people.
    fn text(&self) -> String;

    /// The fields of the object, apart from its type and its metadata.
    fn fields(&self) -> Vec<(&'static str, serde_json::Value)>;
}

/// Answers a request in the form that its `Accept` header asks for.
pub(super) fn answer<P: Page>(request: &Request<RequestBody>, page: &P) -> Response<AnswerBody> {
    let hints = RequestHints::of(request.headers(), request.uri().query());
    match Form::negotiate(request.headers(), P::KIND) {
        Form::Text => text(StatusCode::OK, page.text()),
        Form::NotAcceptable { encoding, pretty } => {
            let status = failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", NOT_ACCEPTABLE);
            let body = encode(&status, encoding, hints.or_pretty(pretty));
            respond(StatusCode::NOT_ACCEPTABLE, HeaderValue::from_static(encoding.media_type()), body)
        }
        Form::Object { version, encoding, pretty } => {
            let mut fields = vec![
                ("kind", json!(P::KIND)),
                ("apiVersion", json!(version.api_version())),
                ("metadata", json!({ "name": COMPONENT })),
            ];
            fields.extend(page.fields());
            let body = encode(&Fields(fields), encoding, hints.or_pretty(pretty));
            // Made of the names above, all of which a header can hold.
            let kind = HeaderValue::from_str(&encoding.content_type(version, P::KIND)).unwrap_or(TEXT);
            let mut response = respond(StatusCode::OK, kind, body);
            if version == Version::V1Alpha1 {
                let page = P::KIND.to_ascii_lowercase();
                let warning = format!(
                    "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
                );
                response.headers_mut().extend(HeaderValue::from_str(&warning).ok().map(|it| (WARNING, it)));
            }
            response
        }
    }
}

/// Fields of an object, in the order in which they are written.
struct Fields(Vec<(&'static str, serde_json::Value)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn encode(object: &impl Serialize, encoding: Encoding, hints: RequestHints) -> String {
    match encoding {
        Encoding::Json => hints.encode(object),
        Encoding::Yaml => {
            let mut out = String::new();
            // Objects of strings, numbers, maps and lists always become a value.
            yaml(&mut out, &serde_json::to_value(object).unwrap_or_default(), 0);
            out
        }
    }
}

/// Writes a value in block style, with its strings in quotes: no reader can take one for a boolean or a time.
fn yaml(out: &mut String, value: &serde_json::Value, indent: usize) {
    match value {
        serde_json::Value::Object(fields) if !fields.is_empty() => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            for (name, value) in fields {
                let _infallible = write!(out, "{:indent$}{name}:", "");
                out.push(if is_block(value) { '\n' } else { ' ' });
                yaml(out, value, if value.is_array() { indent } else { indent + 2 });
            }
        }
        serde_json::Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _infallible = writeln!(out, "{:indent$}- {item}", "");
            }
        }
        scalar => {
            let _infallible = writeln!(out, "{scalar}");
        }
    }
}

fn is_block(value: &serde_json::Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty())
}

/// Every flag and its value.
pub(super) struct Flagz(pub(super) Vec<(String, String)>);

impl Page for Flagz {
    const KIND: &'static str = "Flagz";

    fn text(&self) -> String {
        let mut flags: Vec<_> = self.0.iter().collect();
        flags.sort();
        let mut page = format!("\n{COMPONENT} flagz\n{NOTE}\n");
        for (name, value) in flags {
            let _infallible = writeln!(page, "{name}: {value}");
        }
        page
    }

    fn fields(&self) -> Vec<(&'static str, serde_json::Value)> {
        let flags: BTreeMap<_, _> = self.0.iter().map(|(name, value)| (name, value)).collect();
        vec![("flags", json!(flags))]
    }
}

/// Versions, times, paths.
pub(super) struct Statusz<'a> {
    pub(super) status: &'a StatusPage,
    pub(super) started: Timestamp,
    pub(super) now: Timestamp,
    pub(super) paths: &'a [String],
}

impl Statusz<'_> {
    fn uptime(&self) -> i64 {
        self.now.as_second().saturating_sub(self.started.as_second()).max(0)
    }
}

impl Page for Statusz<'_> {
    const KIND: &'static str = "Statusz";

    fn text(&self) -> String {
        let up = self.uptime();
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        format!(
            "\n{COMPONENT} statusz\n{NOTE}\n\nStarted:  {started}\nUp:  {hours} hr {minutes:02} min {seconds:02} sec\n\
             Implementation:  coxswain {}\nBinary version:  {}\nEmulation version:  {}\nPaths:  {}\n",
            self.status.binary_version,
            self.status.compatible_version,
            self.status.emulation_version,
            self.paths.join(" "),
        )
    }

    fn fields(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("startTime", json!(self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())),
            ("uptimeSeconds", json!(self.uptime())),
            // As the label `go_version` of `kubernetes_build_info`: the field is required, and there is no Go.
            ("goVersion", json!("")),
            ("binaryVersion", json!(self.status.compatible_version)),
            ("emulationVersion", json!(self.status.emulation_version)),
            ("paths", json!(self.paths)),
        ]
    }
}
