//! The file of `--tracing-config-file`: a `TracingConfiguration` as the API server and the kubelet take it.

use serde::Deserialize;

use super::{FILE, SettingProblem};
use crate::api::document::Document;

const DOCUMENT: Document = Document {
    group: "apiserver.config.k8s.io",
    kind: "TracingConfiguration",
    versions: &["v1", "v1beta1", "v1alpha1"],
};

/// What the file says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TracingDocument {
    pub(super) endpoint: Option<String>,
    /// 0 where the file says nothing: then only traces that somebody else began to record are.
    pub(super) rate_per_million: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

/// Reads the file; `None` where there is none, or where something is wrong, which is added to `problems`.
pub(super) fn read(path: &str, problems: &mut Vec<SettingProblem>) -> Option<TracingDocument> {
    if path.is_empty() {
        return None;
    }
    match Document::read(path, parse) {
        Ok(document) => Some(document),
        Err(found) => {
            problems
                .extend(found.into_iter().map(|each| SettingProblem::new(FILE, each, DOCUMENT.expected())));
            None
        }
    }
}

pub(super) fn parse(text: &str) -> Result<TracingDocument, Vec<String>> {
    let (document, _): (Configuration, _) = DOCUMENT.decode(text)?;
    let rate = document.sampling_rate_per_million.unwrap_or(0);
    match u32::try_from(rate) {
        Ok(rate_per_million @ 0..=1_000_000) => {
            Ok(TracingDocument { endpoint: document.endpoint, rate_per_million })
        }
        _ => Err(vec![format!("samplingRatePerMillion: {rate} is out of range; allowed: 0 to 1000000")]),
    }
}
