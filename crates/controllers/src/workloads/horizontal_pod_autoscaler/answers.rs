//! What metrics APIs answer, made into numbers. Whoever serves such an API may answer anything: what is not understood is an
//! error that says so, and nothing of it is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use coxswain_machinery::framework::ApiError;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::options::duration;
use coxswain_machinery::wire::{Str, WallTime};

/// The window of a metric that tells none.
const USUAL_WINDOW: Duration = Duration::from_mins(1);

/// The value of a metric of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodValue {
    /// In thousandths.
    pub(super) value: i64,
    /// When it was measured.
    pub(super) at: Timestamp,
    /// Over how long before then.
    pub(super) window: Duration,
}

/// Values by pod.
pub(super) type PodValues = BTreeMap<Str, PodValue>;

/// Why a query has no result, in the words in which Kubernetes' own clients say it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum QueryError {
    /// There was no answer, or none that can be used.
    Fetch(String),
    /// There is nothing in the answer.
    Empty,
}

impl QueryError {
    /// What is said of it, of the `resource`, `custom` or `external` metrics API.
    pub(super) fn told(&self, api: &str) -> String {
        match self {
            Self::Fetch(why) => format!("unable to fetch metrics from {api} metrics API: {why}"),
            Self::Empty => format!("no metrics returned from {api} metrics API"),
        }
    }
}

fn unusable(what: impl Into<String>) -> QueryError {
    QueryError::Fetch(what.into())
}

/// Reads null as the zero value, as Go does.
fn or_zero<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a list or null. A null element is the zero value, as in Go.
fn or_zeros<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let elements: Vec<Option<T>> = or_zero(deserializer)?;
    Ok(elements.into_iter().map(Option::unwrap_or_default).collect())
}

#[derive(Deserialize)]
#[serde(default, bound(deserialize = "T: Default + Deserialize<'de>"))]
struct List<T> {
    #[serde(deserialize_with = "or_zero")]
    kind: String,
    #[serde(deserialize_with = "or_zeros")]
    items: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { kind: String::new(), items: Vec::new() }
    }
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Named {
    #[serde(deserialize_with = "or_zero")]
    name: String,
}

/// The usage of one pod, as the metrics API has it.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct PodMetrics {
    #[serde(deserialize_with = "or_zero")]
    metadata: Named,
    timestamp: Option<String>,
    window: Option<String>,
    #[serde(deserialize_with = "or_zeros")]
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct ContainerMetrics {
    #[serde(deserialize_with = "or_zero")]
    name: String,
    usage: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MetricValue {
    #[serde(deserialize_with = "or_zero")]
    described_object: Named,
    timestamp: Option<String>,
    window_seconds: Option<i64>,
    window: Option<i64>,
    value: Value,
}

/// The pods of a `PodMetricsList`.
pub(super) fn pod_metrics(answer: &Value) -> Result<Vec<PodMetrics>, QueryError> {
    some(answer, "PodMetricsList")
}

/// What a `PodMetricsList` says of one resource: of all containers of each pod, or of one. A pod of which a container lacks it
/// has no value.
pub(super) fn resource(
    list: &[PodMetrics],
    resource: &str,
    container: Option<&str>,
) -> Result<PodValues, QueryError> {
    let mut values = PodValues::new();
    for pod in list {
        let mut counted =
            pod.containers.iter().filter(|held| container.is_none_or(|name| held.name == name)).peekable();
        if counted.peek().is_none() {
            continue;
        }
        let mut sum = Some(0_i64);
        for held in counted {
            let used = held.usage.as_ref().and_then(|usage| usage.get(resource)).map(milli).transpose()?;
            sum = sum.zip(used).map(|(sum, used)| sum.saturating_add(used));
        }
        let Some(value) = sum else { continue };
        let window = pod.window.as_deref().map_or(Ok(Duration::ZERO), duration)?;
        values.insert(
            pod.metadata.name.as_str().into(),
            PodValue { value, at: time(pod.timestamp.as_deref())?, window },
        );
    }
    Ok(values)
}

/// What a `MetricValueList` says of pods.
pub(super) fn pods(answer: &Value) -> Result<PodValues, QueryError> {
    let read = |item: MetricValue| {
        let seconds = item.window_seconds.or(item.window).and_then(|seconds| u64::try_from(seconds).ok());
        let window = seconds.map_or(USUAL_WINDOW, Duration::from_secs);
        let value = PodValue { value: milli(&item.value)?, at: time(item.timestamp.as_deref())?, window };
        Ok((item.described_object.name.into(), value))
    };
    some::<MetricValue>(answer, "MetricValueList")?.into_iter().map(read).collect()
}

/// What a `MetricValueList` says of the one object that was asked about.
pub(super) fn object(answer: &Value) -> Result<i64, QueryError> {
    match items::<MetricValue>(answer, "MetricValueList")?.as_slice() {
        [one] => milli(&one.value),
        other => {
            let number = other.len();
            let text = "the custom metrics API server returned";
            Err(unusable(format!("{text} {number} results when we asked for exactly one")))
        }
    }
}

/// What an `ExternalMetricValueList` says of each series.
pub(super) fn external(answer: &Value) -> Result<Vec<i64>, QueryError> {
    some::<MetricValue>(answer, "ExternalMetricValueList")?.iter().map(|item| milli(&item.value)).collect()
}

/// The items of a list that is to have some.
fn some<'a, T: Default + Deserialize<'a>>(answer: &'a Value, kind: &str) -> Result<Vec<T>, QueryError> {
    let items = items(answer, kind)?;
    if items.is_empty() { Err(QueryError::Empty) } else { Ok(items) }
}

fn items<'a, T: Default + Deserialize<'a>>(answer: &'a Value, kind: &str) -> Result<Vec<T>, QueryError> {
    let list: List<T> =
        List::deserialize(answer).map_err(|error| unusable(format!("decode {kind}: {error}")))?;
    // An adapter may leave out the kind, as kube-controller-manager allows.
    if !list.kind.is_empty() && list.kind != kind {
        let held: String = list.kind.chars().take(60).collect();
        return Err(unusable(format!("decode {kind}: unexpected kind {held:?}")));
    }
    Ok(list.items)
}

/// Returns a quantity in thousandths. As in kube-controller-manager, a number is a quantity, too, and `null` or a missing value is 0.
fn milli(value: &Value) -> Result<i64, QueryError> {
    let number;
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Number(held) => {
            number = held.to_string();
            number.as_str()
        }
        Value::Null => return Ok(0),
        _ => return Err(unusable("a value is not a quantity")),
    };
    Quantity::of_json(text).map(Quantity::milli).map_err(|_| {
        let text: String = text.chars().take(60).collect();
        unusable(format!("{text:?} is not a quantity"))
    })
}

fn time(text: Option<&str>) -> Result<Timestamp, QueryError> {
    let Some(text) = text else { return Ok(Timestamp::UNIX_EPOCH) };
    text.parse().map(|at: WallTime| at.into()).map_err(|_| unusable("a timestamp is not an RFC 3339 time"))
}

/// A duration as Go writes it. A negative one covers no time.
fn duration(text: &str) -> Result<Duration, QueryError> {
    let positive = text.strip_prefix('-');
    let window =
        duration::parse(positive.unwrap_or(text)).map_err(|_| unusable("a window is not a duration"))?;
    Ok(if positive.is_some() { Duration::ZERO } else { window })
}

/// Why a request failed, as Kubernetes' own clients say it: by the message of a `Status`, or else by the code. `what` was asked
/// (`get pods.metrics.k8s.io`).
pub(super) fn refusal(error: &ApiError, what: &str) -> String {
    let ApiError::Refused { code, status, message, .. } = error else { return error.message() };
    if !status.message.is_empty() {
        return message.clone();
    }
    let said = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => "the server does not allow access to the requested resource".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request"
            .to_owned(),
        500.. => format!("an error on the server ({message:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    format!("{said} ({what})")
}
