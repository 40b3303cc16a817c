//! What is asked of the metrics APIs for each metric of an autoscaler, and what was found. Asks for reads; makes none.
//!
//! | metric | is asked at |
//! |---|---|
//! | Resource, `ContainerResource` | `metrics.k8s.io/v1beta1`, all pods of the selector |
//! | Pods, Object | `custom.metrics.k8s.io`, in the first version of `v1beta2` and `v1beta1` that is served |
//! | External | `external.metrics.k8s.io/v1beta1` |
//!
//! A query is a URI. Autoscalers that ask the same ask it together: the framework reads a URI once for all who wait for it.

use crate::live_reads::{AUTOSCALER_DISCOVERY, AUTOSCALER_METRICS};
use coxswain_machinery::api::autoscaling::{CrossVersionObjectReference, MetricSpec, ObjectMetricSource};
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::framework::{ApiResources, DeclaredRead, Query as Pairs, Read, Reads, RequestPath};
use coxswain_machinery::model::selector::Selector;

use super::answers::{self, PodValues, QueryError};

const CUSTOM: &str = "custom.metrics.k8s.io";

/// What was found of one metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    /// Values of pods.
    Pods(Result<PodValues, QueryError>),
    /// The value of an object.
    Object(Result<i64, QueryError>),
    /// Values of what is not in the cluster.
    External(Result<Vec<i64>, QueryError>),
    /// The metric is of a type that nobody knows.
    Nothing,
}

/// What is known of one metric.
pub(super) enum Query {
    /// Read this, and ask again.
    Needs(DeclaredRead),
    /// What was found.
    Found(Found),
}

/// Asks for one metric of an autoscaler in `namespace` whose target's pods `selector` selects.
pub(super) fn ask(metric: &MetricSpec, namespace: &str, selector: &str, read: &Reads) -> Query {
    match metric.r#type.as_str() {
        "Resource" => {
            let name = metric.resource.as_ref().map_or("", |source| source.name.as_str());
            of_pods(name, None, namespace, selector, read)
        }
        "ContainerResource" => {
            let source = metric.container_resource.as_deref();
            let (name, container) = source.map_or(("", ""), |source| (&*source.name, &*source.container));
            of_pods(name, Some(container), namespace, selector, read)
        }
        "Pods" => {
            let Some(source) = metric.pods.as_deref() else { return Query::Found(Found::Nothing) };
            let asked = Custom {
                path: &["pods", "*", &source.metric.name],
                pods: selector,
                series: source.metric.selector.as_deref(),
                what: "pods.custom.metrics.k8s.io *",
            };
            custom(&asked, namespace, read, |answer| Found::Pods(answer.and_then(answers::pods)))
        }
        "Object" => {
            let Some(source) = metric.object.as_deref() else { return Query::Found(Found::Nothing) };
            of_object(source, namespace, read)
        }
        "External" => {
            let Some(source) = metric.external.as_deref() else { return Query::Found(Found::Nothing) };
            let name = &source.metric.name;
            let series = match series(source.metric.selector.as_deref()) {
                Ok(series) => series,
                Err(error) => return Query::Found(Found::External(Err(error))),
            };
            // Kubernetes' own client asks for the resource of this name, and resources are in lower case.
            let resource: String = name.chars().flat_map(char::to_lowercase).collect();
            let metric: &[&str] = &[&resource];
            let path = RequestPath::group_version("external.metrics.k8s.io", "v1beta1")
                .in_namespace(namespace)
                .series(metric);
            let what = format!("get {name}.external.metrics.k8s.io");
            json(path, &pairs(&[("labelSelector", &series)]), &what, read, |answer| {
                Found::External(answer.and_then(answers::external))
            })
        }
        _ => Query::Found(Found::Nothing),
    }
}

fn of_pods(resource: &str, container: Option<&str>, namespace: &str, selector: &str, read: &Reads) -> Query {
    let path =
        RequestPath::group_version("metrics.k8s.io", "v1beta1").in_namespace(namespace).resource("pods");
    json(path, &pairs(&[("labelSelector", selector)]), "get pods.metrics.k8s.io", read, |answer| {
        Found::Pods(answer.and_then(|answer| answers::resource(answer, resource, container)))
    })
}

fn of_object(source: &ObjectMetricSource, namespace: &str, read: &Reads) -> Query {
    let object = &source.described_object;
    let found = |answer: Result<&_, QueryError>| Found::Object(answer.and_then(answers::object));
    let resources = match read.resources() {
        None => return Query::Needs(AUTOSCALER_DISCOVERY.of(Read::Resources)),
        Some(Err(error)) => return Query::Found(found(Err(QueryError::Fetch(error.message())))),
        Some(Ok(resources)) => resources,
    };
    let resource = match resource_of(object, resources) {
        Ok(resource) => resource,
        Err(why) => return Query::Found(found(Err(QueryError::Fetch(why)))),
    };
    // The metrics of a namespace are those of the autoscaler's own, whatever its name is said to be.
    let of_namespace = resource == "namespaces";
    let metric = source.metric.name.as_str();
    let path: &[&str] = if of_namespace { &["metrics", metric] } else { &[&resource, &object.name, metric] };
    let what = if of_namespace {
        "metrics.custom.metrics.k8s.io".to_owned()
    } else {
        format!("{resource}.custom.metrics.k8s.io {}", object.name)
    };
    let asked = Custom { path, pods: "", series: source.metric.selector.as_deref(), what: &what };
    custom(&asked, namespace, read, found)
}

/// `deployments.apps`: the resource of the object that a reference names, by its group and kind.
fn resource_of(object: &CrossVersionObjectReference, resources: &ApiResources) -> Result<String, String> {
    let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = &object.kind;
    match resources.of_group(group).find(|held| held.kind == *kind) {
        Some(held) if group.is_empty() => Ok(held.resource.to_string()),
        Some(held) => Ok(format!("{}.{group}", held.resource)),
        None => {
            let full = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
            Err(format!(
                "unable to map kind {full} to resource: no matches for kind \"{kind}\" in group \"{group}\""
            ))
        }
    }
}

/// A query to the custom metrics API.
struct Custom<'a> {
    /// The resource, the name and the metric.
    path: &'a [&'a str],
    /// Of which pods.
    pods: &'a str,
    /// Which of its series.
    series: Option<&'a LabelSelector>,
    /// What is said to have been asked.
    what: &'a str,
}

fn custom(
    asked: &Custom<'_>,
    namespace: &str,
    read: &Reads,
    found: impl Fn(Result<&serde_json::Value, QueryError>) -> Found,
) -> Query {
    let failed = |error| Query::Found(found(Err(error)));
    let version = match read.resources() {
        None => return Query::Needs(AUTOSCALER_DISCOVERY.of(Read::Resources)),
        Some(Err(error)) => return failed(QueryError::Fetch(error.message())),
        Some(Ok(resources)) => custom_version(resources),
    };
    let version = match version {
        Ok(version) => version,
        Err(why) => return failed(QueryError::Fetch(why.to_owned())),
    };
    let series = match series(asked.series) {
        Ok(series) => series,
        Err(error) => return failed(error),
    };
    let path = RequestPath::group_version(CUSTOM, version).in_namespace(namespace).series(asked.path);
    let pairs = pairs(&[("labelSelector", asked.pods), ("metricLabelSelector", &series)]);
    json(path, &pairs, &format!("get {}", asked.what), read, found)
}

/// The version in which custom metrics are asked for.
fn custom_version(resources: &ApiResources) -> Result<&'static str, &'static str> {
    let mut is_there = false;
    for version in resources.versions_of(CUSTOM) {
        is_there = true;
        if let Some(known) = ["v1beta2", "v1beta1"].into_iter().find(|known| *known == version.as_str()) {
            return Ok(known);
        }
    }
    Err(if is_there {
        "no known available metric versions found"
    } else {
        "no custom metrics API (custom.metrics.k8s.io) registered"
    })
}

fn json(
    path: RequestPath<'_>,
    query: &Pairs<'_>,
    what: &str,
    read: &Reads,
    found: impl Fn(Result<&serde_json::Value, QueryError>) -> Found,
) -> Query {
    let uri = match path.uri(query) {
        Ok(uri) => uri,
        Err(error) => return Query::Found(found(Err(QueryError::Fetch(error.to_string())))),
    };
    match read.json(&uri) {
        None => Query::Needs(AUTOSCALER_METRICS.of(Read::Json(uri))),
        Some(Ok(answer)) => Query::Found(found(Ok(answer))),
        Some(Err(error)) => Query::Found(found(Err(QueryError::Fetch(answers::refusal(error, what))))),
    }
}

/// A label selector as a query has it.
fn series(selector: Option<&LabelSelector>) -> Result<String, QueryError> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let compiled = Selector::compile(selector).map_err(|error| QueryError::Fetch(error.to_string()))?;
    Ok(compiled.to_string())
}

/// The pairs that have a value.
fn pairs<'a>(pairs: &[(&'static str, &'a str)]) -> Pairs<'a> {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    given.fold(Pairs::default(), |query, (name, value)| query.with(name, *value))
}
