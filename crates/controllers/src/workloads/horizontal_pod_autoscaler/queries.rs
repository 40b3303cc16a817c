//! What is asked of the metrics APIs for each metric of an autoscaler, and what was found. Asks for reads; makes none.
//!
//! | metric | is asked at |
//! |---|---|
//! | Resource, `ContainerResource` | `metrics.k8s.io/v1beta1`, all pods of the selector |
//! | Pods, Object | `custom.metrics.k8s.io`, in the first version of `v1beta2` and `v1beta1` that is served |
//! | External | `external.metrics.k8s.io/v1beta1` |
//!
//! A query is a URI. Autoscalers that ask the same ask it together: the framework reads a URI once for all who wait for it. Metrics of
//! one autoscaler that ask the same share what is found, which is decoded when the first of them is evaluated.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::live_reads::{AUTOSCALER_DISCOVERY, AUTOSCALER_METRICS};
use coxswain_machinery::api::autoscaling::MetricSpec;
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::framework::{ApiResources, DeclaredRead, Query as Pairs, Read, Reads, RequestPath};
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::random::HashMap;

use super::answers::{self, PodMetrics, PodValues, QueryError};

const CUSTOM: &str = "custom.metrics.k8s.io";

/// The values of metrics with equal questions.
#[derive(Debug)]
pub(super) enum Found {
    /// Values of pods.
    Pods(Decoded<PodValues>),
    /// The value of an object.
    Object(Decoded<i64>),
    /// Values of what is not in the cluster.
    External(Decoded<Vec<i64>>),
    /// The metric is of a type that nobody knows.
    Nothing,
}

impl Found {
    /// Returns the values of pods; `None` if the metric has none.
    pub(super) fn pods(&self) -> Option<&Result<PodValues, QueryError>> {
        match self {
            Self::Pods(values) => Some(&**values),
            _ => None,
        }
    }

    /// Returns the value of an object; `None` if the metric has none.
    pub(super) fn object(&self) -> Option<&Result<i64, QueryError>> {
        match self {
            Self::Object(value) => Some(&**value),
            _ => None,
        }
    }

    /// Returns the values of what is not in the cluster; `None` if the metric has none.
    pub(super) fn external(&self) -> Option<&Result<Vec<i64>, QueryError>> {
        match self {
            Self::External(values) => Some(&**values),
            _ => None,
        }
    }
}

/// An answer that is decoded once, when it is looked at for the first time.
pub(super) type Decoded<T> = LazyLock<Result<T, QueryError>, Decode<T>>;

/// Decodes an answer.
type Decode<T> = Box<dyn FnOnce() -> Result<T, QueryError> + Send>;

/// The answer to a request, or why there is none.
type Reply = Result<Arc<Value>, QueryError>;

fn decoded<T: 'static>(reply: Reply, decode: fn(&Value) -> Result<T, QueryError>) -> Decoded<T> {
    LazyLock::new(Box::new(move || reply.and_then(|answer| decode(&answer))))
}

/// What is known of one metric.
pub(super) enum Query {
    /// Read this, and ask again.
    Needs(DeclaredRead),
    /// An equal question of another metric needs a read.
    Waits,
    /// What was found.
    Found(Arc<Found>),
}

/// The question of a metric. Metrics with equal questions have the same values, whatever their targets are.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Question<'a> {
    Usage {
        resource: &'a str,
        /// The only container that counts; all containers if `None`.
        container: Option<&'a str>,
    },
    Pods {
        metric: &'a str,
        series: Result<String, QueryError>,
    },
    Object {
        group: &'a str,
        kind: &'a str,
        name: &'a str,
        metric: &'a str,
        series: Result<String, QueryError>,
    },
    External {
        metric: &'a str,
        series: Result<String, QueryError>,
    },
}

impl<'a> Question<'a> {
    /// The question of a metric; `None` if its type is unknown, or what its type says is missing.
    fn of(metric: &'a MetricSpec) -> Option<Self> {
        Some(match metric.r#type.as_str() {
            "Resource" => {
                let resource = metric.resource.as_deref().map_or("", |source| source.name.as_str());
                Self::Usage { resource, container: None }
            }
            "ContainerResource" => {
                let source = metric.container_resource.as_deref();
                let (resource, container) =
                    source.map_or(("", ""), |source| (source.name.as_str(), source.container.as_str()));
                Self::Usage { resource, container: Some(container) }
            }
            "Pods" => {
                let metric = &metric.pods.as_deref()?.metric;
                Self::Pods { metric: metric.name.as_str(), series: series(metric.selector.as_deref()) }
            }
            "Object" => {
                let source = metric.object.as_deref()?;
                let (object, metric) = (&source.described_object, &source.metric);
                Self::Object {
                    group: object.api_version.as_str().split_once('/').map_or("", |(group, _)| group),
                    kind: object.kind.as_str(),
                    name: object.name.as_str(),
                    metric: metric.name.as_str(),
                    series: series(metric.selector.as_deref()),
                }
            }
            "External" => {
                let metric = &metric.external.as_deref()?.metric;
                Self::External { metric: metric.name.as_str(), series: series(metric.selector.as_deref()) }
            }
            _ => return None,
        })
    }
}

/// The questions of one autoscaler, and the values that were found so far.
pub(super) struct Questions<'a> {
    namespace: &'a str,
    /// Selects the pods of the autoscaler's target.
    selector: &'a str,
    read: &'a Reads,
    /// By question; `None` if a read is missing.
    asked: HashMap<Question<'a>, Option<Arc<Found>>>,
    /// The usage of all pods, which all metrics of resources share.
    usage: Option<Arc<Decoded<Vec<PodMetrics>>>>,
    /// The version in which custom metrics are asked for.
    version: Option<Result<&'static str, &'static str>>,
    /// Resources by kind, by group.
    kinds: HashMap<&'a str, HashMap<&'a str, &'a str>>,
}

impl<'a> Questions<'a> {
    /// Creates an empty list of questions for an autoscaler in `namespace` whose target's pods `selector` selects.
    pub(super) fn new(namespace: &'a str, selector: &'a str, read: &'a Reads) -> Self {
        let (asked, kinds) = (HashMap::default(), HashMap::default());
        Self { namespace, selector, read, asked, usage: None, version: None, kinds }
    }

    /// Asks for one metric.
    pub(super) fn ask(&mut self, metric: &'a MetricSpec) -> Query {
        let Some(question) = Question::of(metric) else { return Query::Found(Arc::new(Found::Nothing)) };
        if let Some(asked) = self.asked.get(&question) {
            return asked.as_ref().map_or(Query::Waits, |found| Query::Found(Arc::clone(found)));
        }
        let (query, found) = match self.find(&question) {
            Ok(found) => {
                let found = Arc::new(found);
                (Query::Found(Arc::clone(&found)), Some(found))
            }
            Err(need) => (Query::Needs(need), None),
        };
        self.asked.insert(question, found);
        query
    }

    /// Returns the values for a question, or the read that it needs.
    fn find(&mut self, question: &Question<'a>) -> Result<Found, DeclaredRead> {
        match question {
            Question::Usage { resource, container } => {
                let list = self.usage()?;
                let (resource, container) = ((*resource).to_owned(), container.map(str::to_owned));
                Ok(Found::Pods(LazyLock::new(Box::new(move || match &**list {
                    Ok(list) => answers::resource(list, &resource, container.as_deref()),
                    Err(error) => Err(error.clone()),
                }))))
            }
            Question::Pods { metric, series } => {
                let asked = Custom {
                    path: &["pods", "*", metric],
                    pods: self.selector,
                    series,
                    what: "pods.custom.metrics.k8s.io *",
                };
                Ok(Found::Pods(decoded(self.custom(&asked)?, answers::pods)))
            }
            Question::Object { group, kind, name, metric, series } => {
                let reply = self.of_object((*group, *kind, *name), metric, series)?;
                Ok(Found::Object(decoded(reply, answers::object)))
            }
            Question::External { metric, series } => {
                Ok(Found::External(decoded(self.of_external(metric, series)?, answers::external)))
            }
        }
    }

    /// The usage of all pods of the selector.
    fn usage(&mut self) -> Result<Arc<Decoded<Vec<PodMetrics>>>, DeclaredRead> {
        if let Some(usage) = &self.usage {
            return Ok(Arc::clone(usage));
        }
        let path = RequestPath::group_version("metrics.k8s.io", "v1beta1")
            .in_namespace(self.namespace)
            .resource("pods");
        let reply =
            self.json(path, &pairs(&[("labelSelector", self.selector)]), "get pods.metrics.k8s.io")?;
        let usage = Arc::new(decoded(reply, answers::pod_metrics));
        self.usage = Some(Arc::clone(&usage));
        Ok(usage)
    }

    fn of_object(
        &mut self,
        (group, kind, name): (&'a str, &str, &str),
        metric: &str,
        series: &Result<String, QueryError>,
    ) -> Result<Reply, DeclaredRead> {
        let resources = match self.resources()? {
            Ok(resources) => resources,
            Err(error) => return Ok(Err(error)),
        };
        let resource = match self.resource_of(group, kind, resources) {
            Ok(resource) => resource,
            Err(why) => return Ok(Err(QueryError::Fetch(why))),
        };
        // The metrics of a namespace are those of the autoscaler's own, whatever its name is said to be.
        let of_namespace = resource == "namespaces";
        let path: &[&str] = if of_namespace { &["metrics", metric] } else { &[&resource, name, metric] };
        let what = if of_namespace {
            "metrics.custom.metrics.k8s.io".to_owned()
        } else {
            format!("{resource}.custom.metrics.k8s.io {name}")
        };
        self.custom(&Custom { path, pods: "", series, what: &what })
    }

    fn of_external(&self, name: &str, series: &Result<String, QueryError>) -> Result<Reply, DeclaredRead> {
        let series = match series {
            Ok(series) => series,
            Err(error) => return Ok(Err(error.clone())),
        };
        // Kubernetes' own client asks for the resource of this name, and resources are in lower case.
        let resource: String = name.chars().flat_map(char::to_lowercase).collect();
        let metric: &[&str] = &[&resource];
        let path = RequestPath::group_version("external.metrics.k8s.io", "v1beta1")
            .in_namespace(self.namespace)
            .series(metric);
        let what = format!("get {name}.external.metrics.k8s.io");
        self.json(path, &pairs(&[("labelSelector", series)]), &what)
    }

    /// `deployments.apps`: the resource of an object, by its group and kind.
    fn resource_of(
        &mut self,
        group: &'a str,
        kind: &str,
        resources: &'a ApiResources,
    ) -> Result<String, String> {
        let kinds = self.kinds.entry(group).or_insert_with(|| {
            let mut kinds = HashMap::default();
            for held in resources.of_group(group) {
                // The first one of a kind counts.
                kinds.entry(held.kind.as_str()).or_insert(held.resource.as_str());
            }
            kinds
        });
        match kinds.get(kind) {
            Some(resource) if group.is_empty() => Ok((*resource).to_owned()),
            Some(resource) => Ok(format!("{resource}.{group}")),
            None => {
                let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
                Err(format!(
                    "unable to map kind {full} to resource: no matches for kind \"{kind}\" in group \"{group}\""
                ))
            }
        }
    }

    fn custom(&mut self, asked: &Custom<'_>) -> Result<Reply, DeclaredRead> {
        let resources = match self.resources()? {
            Ok(resources) => resources,
            Err(error) => return Ok(Err(error)),
        };
        let version = match *self.version.get_or_insert_with(|| custom_version(resources)) {
            Ok(version) => version,
            Err(why) => return Ok(Err(QueryError::Fetch(why.to_owned()))),
        };
        let series = match asked.series {
            Ok(series) => series,
            Err(error) => return Ok(Err(error.clone())),
        };
        let path =
            RequestPath::group_version(CUSTOM, version).in_namespace(self.namespace).series(asked.path);
        let pairs = pairs(&[("labelSelector", asked.pods), ("metricLabelSelector", series)]);
        self.json(path, &pairs, &format!("get {}", asked.what))
    }

    fn resources(&self) -> Result<Result<&'a ApiResources, QueryError>, DeclaredRead> {
        let read = self.read;
        match read.resources() {
            None => Err(AUTOSCALER_DISCOVERY.of(Read::Resources)),
            Some(Err(error)) => Ok(Err(QueryError::Fetch(error.message()))),
            Some(Ok(resources)) => Ok(Ok(&**resources)),
        }
    }

    fn json(&self, path: RequestPath<'_>, query: &Pairs<'_>, what: &str) -> Result<Reply, DeclaredRead> {
        let uri = match path.uri(query) {
            Ok(uri) => uri,
            Err(error) => return Ok(Err(QueryError::Fetch(error.to_string()))),
        };
        match self.read.json(&uri) {
            None => Err(AUTOSCALER_METRICS.of(Read::Json(uri))),
            Some(Ok(answer)) => Ok(Ok(Arc::clone(answer))),
            Some(Err(error)) => Ok(Err(QueryError::Fetch(answers::refusal(error, what)))),
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
    series: &'a Result<String, QueryError>,
    /// What is said to have been asked.
    what: &'a str,
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
