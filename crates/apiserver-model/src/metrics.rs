//! The external metrics API: numbers by namespace and name, which somebody moves. It knows no series and no selectors.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::Refusal;

/// What is answered to those who ask for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Its value, in thousandths.
    Value(i64),
    /// A list with nothing in it.
    Empty,
    /// Nobody answers for the API server.
    Away,
}

/// What all metrics are.
#[derive(Debug, Default)]
pub struct Metrics(BTreeMap<(String, String), Reading>);

/// The namespace and the name of the metric that a path is about.
pub fn series(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/apis/external.metrics.k8s.io/v1beta1/namespaces/")?.split_once('/')
}

impl Metrics {
    /// From now on this is answered to those who ask for the metric.
    pub fn set(&mut self, namespace: &str, name: &str, reading: Reading) {
        self.0.insert((namespace.to_owned(), name.to_owned()), reading);
    }

    /// What a metric is; one that nobody has set is nothing.
    pub fn get(&self, namespace: &str, name: &str) -> Reading {
        self.0.get(&(namespace.to_owned(), name.to_owned())).copied().unwrap_or(Reading::Empty)
    }

    pub(super) fn answer(&self, namespace: &str, name: &str, now: Timestamp) -> Result<Json, Refusal> {
        let items = match self.get(namespace, name) {
            Reading::Value(value) => {
                let value = format!("{value}m");
                json!([{ "metricName": name, "metricLabels": {}, "timestamp": now.to_string(), "value": value }])
            }
            Reading::Empty => json!([]),
            Reading::Away => {
                let why = "the server is currently unable to handle the request";
                return Err(Refusal::new(503, "ServiceUnavailable", why));
            }
        };
        let version = "external.metrics.k8s.io/v1beta1";
        Ok(
            json!({ "kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items }),
        )
    }
}
