//! What each metric of an autoscaler asks for, or why there is no telling, in the original's words. Pure.

use jiff::Timestamp;

use super::super::queries::Found;
use super::super::view::{Selected, View};
use super::replicas::{Asked, Missing, PodMetric, PodTarget, Present, Tolerance};
use coxswain_machinery::api::autoscaling::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource,
    PodsMetricStatus, ResourceMetricStatus, Scale,
};
use coxswain_machinery::api::meta::{LabelSelector, QuantityText};
use coxswain_machinery::model::quantity::{Quantity, QuantityFormat};
use coxswain_machinery::wire::Str;

/// What a metric asks for.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Proposal {
    pub(in super::super) replicas: i32,
    /// The metric, as messages name it.
    pub(in super::super) name: String,
    /// What it is now.
    pub(in super::super) status: MetricStatus,
}

/// A metric that asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct MetricFailure {
    /// For machines.
    pub(in super::super) reason: &'static str,
    /// For people.
    pub(in super::super) text: String,
    /// The same with what was tried.
    pub(in super::super) whole: String,
    /// Whether the spec is wrong.
    pub(in super::super) is_of_spec: bool,
}

type Proposed = Result<Proposal, MetricFailure>;

/// What all metrics ask for, in the order of the spec.
pub(in super::super) fn proposals(
    view: &View,
    scale: &Scale,
    selected: &Selected,
    found: &[Found],
    now: Timestamp,
) -> Vec<Proposed> {
    let behavior = view.spec().behavior.as_deref();
    let tolerance = Tolerance {
        down: view.settings.tolerance_of(behavior.and_then(|held| held.scale_down.as_deref())),
        up: view.settings.tolerance_of(behavior.and_then(|held| held.scale_up.as_deref())),
    };
    let present = Present {
        current: scale.spec.replicas,
        pods: &selected.pods,
        tolerance,
        settings: &view.settings,
        now,
    };
    let namespace = &view.autoscaler.metadata.namespace;
    let metrics = view.spec().metrics.iter().zip(found);
    metrics
        .map(|(metric, found)| propose(metric, found, &present, namespace, scale.status.replicas))
        .collect()
}

fn propose(
    metric: &MetricSpec,
    found: &Found,
    present: &Present<'_>,
    namespace: &str,
    replicas: i32,
) -> Proposed {
    match (metric.r#type.as_str(), found) {
        ("Resource", _) => of_resource(metric, found, present),
        ("ContainerResource", _) => of_container(metric, found, present),
        ("Pods", _) => metric
            .pods
            .as_deref()
            .map_or_else(|| Err(unknown(metric)), |source| of_pods(source, found, present)),
        ("Object", _) => {
            let source = metric.object.as_deref();
            source.map_or_else(
                || Err(unknown(metric)),
                |source| of_object(source, found, present, namespace, replicas),
            )
        }
        ("External", _) => {
            let source = metric.external.as_deref();
            source.map_or_else(
                || Err(unknown(metric)),
                |source| of_external(source, found, present, namespace, replicas),
            )
        }
        _ => Err(unknown(metric)),
    }
}

/// A metric of a type that nobody knows, or without what its type says.
fn unknown(metric: &MetricSpec) -> MetricFailure {
    let text = format!("unknown metric source type \"{}\"", metric.r#type);
    MetricFailure { reason: "InvalidMetricSourceType", whole: text.clone(), text, is_of_spec: true }
}

fn failure(reason: &'static str, tried: &str, text: String) -> MetricFailure {
    MetricFailure { reason, whole: format!("{tried}{text}"), text, is_of_spec: false }
}

fn of_resource(metric: &MetricSpec, found: &Found, present: &Present<'_>) -> Proposed {
    let Some(source) = metric.resource.as_deref() else { return Err(unknown(metric)) };
    let tried = format!("failed to get {} resource metric value: ", source.name);
    let failed = |text| failure("FailedGetResourceMetric", &tried, text);
    let (asked, current) = resource(&source.name, None, &source.target, found, present).map_err(failed)?;
    let name = match asked.utilization {
        Some(_) => format!("{} resource utilization (percentage of request)", source.name),
        None => format!("{} resource", source.name),
    };
    let status = ResourceMetricStatus { name: source.name.clone(), current };
    Ok(Proposal {
        replicas: asked.replicas,
        name,
        status: MetricStatus {
            r#type: metric.r#type.clone(),
            resource: Some(Box::new(status)),
            ..MetricStatus::default()
        },
    })
}

fn of_container(metric: &MetricSpec, found: &Found, present: &Present<'_>) -> Proposed {
    let Some(source) = metric.container_resource.as_deref() else { return Err(unknown(metric)) };
    let tried = format!("failed to get {} container metric value: ", source.container);
    let failed = |text| failure("FailedGetContainerResourceMetric", &tried, text);
    let container = Some(&source.container);
    let (asked, current) =
        resource(&source.name, container, &source.target, found, present).map_err(failed)?;
    let name = match asked.utilization {
        Some(_) => format!("{} container resource utilization (percentage of request)", source.name),
        // As in kube-controller-manager, the name is that of the resource alone.
        None => format!("{} resource", source.name),
    };
    let status = ContainerResourceMetricStatus {
        name: source.name.clone(),
        current,
        container: source.container.clone(),
    };
    Ok(Proposal {
        replicas: asked.replicas,
        name,
        status: MetricStatus {
            r#type: metric.r#type.clone(),
            container_resource: Some(Box::new(status)),
            ..MetricStatus::default()
        },
    })
}

/// What a resource asks for, and what is used of it.
fn resource(
    name: &Str,
    container: Option<&Str>,
    target: &MetricTarget,
    found: &Found,
    present: &Present<'_>,
) -> Result<(Asked, MetricValueStatus), String> {
    let (wanted, what) = match (&target.average_value, target.average_utilization) {
        (Some(average), _) => (PodTarget::Average(milli(average)), "usage"),
        (None, Some(percent)) => (PodTarget::Utilization(percent), "utilization"),
        (None, None) => {
            let kind = "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {kind}"));
        }
    };
    let failed = |why: String| format!("failed to get {name} {what}: {why}");
    let values = match found {
        Found::Pods(Ok(values)) => values,
        Found::Pods(Err(error)) => {
            let told = error.told("resource");
            return Err(failed(format!("unable to get metrics for resource {name}: {told}")));
        }
        _ => return Err(failed("the metric was not requested".to_owned())),
    };
    let metric = PodMetric { resource: Some(name), container, target: wanted };
    let asked = present.by_pods(&metric, values).map_err(|error| failed(error.to_string()))?;
    // Memory is told in powers of two, where it goes.
    let format = if *name == "memory" { QuantityFormat::Binary } else { QuantityFormat::Decimal };
    let current = MetricValueStatus {
        average_value: Some(Box::new(quantity(asked.usage, format))),
        average_utilization: asked.utilization,
        ..MetricValueStatus::default()
    };
    Ok((asked, current))
}

fn of_pods(source: &PodsMetricSource, found: &Found, present: &Present<'_>) -> Proposed {
    let name = &source.metric.name;
    let failed = |text| failure("FailedGetPodsMetric", "failed to get pods metric value: ", text);
    let values = match found {
        Found::Pods(Ok(values)) => values,
        Found::Pods(Err(error)) => {
            return Err(failed(format!("unable to get metric {name}: {}", error.told("custom"))));
        }
        _ => return Err(failed("the metric was not requested".to_owned())),
    };
    let target = source.target.average_value.as_ref().map_or(0, |average| milli(average));
    let metric = PodMetric { resource: None, container: None, target: PodTarget::Average(target) };
    let asked = present.by_pods(&metric, values).map_err(|error| failed(error.to_string()))?;
    let status = PodsMetricStatus { metric: source.metric.clone(), current: average(asked.usage) };
    Ok(Proposal {
        replicas: asked.replicas,
        name: format!("pods metric {name}"),
        status: MetricStatus {
            r#type: "Pods".into(),
            pods: Some(Box::new(status)),
            ..MetricStatus::default()
        },
    })
}

fn of_object(
    source: &ObjectMetricSource,
    found: &Found,
    present: &Present<'_>,
    namespace: &str,
    replicas: i32,
) -> Proposed {
    let ObjectMetricSource { described_object: object, target, metric } = source;
    let whole = "failed to get object metric value: ".to_owned();
    let failed = |tried: &str, text| failure("FailedGetObjectMetric", tried, text);
    let usage = |tried: &str| match found {
        Found::Object(Ok(usage)) => Ok(*usage),
        Found::Object(Err(error)) => {
            let told = error.told("custom");
            // kube-controller-manager writes "KIND on NAMESPACE NAME/ERROR". Differs: object-metric-messages.
            let of = format!("{} {namespace}/{}: {told}", object.kind, object.name);
            Err(failed(tried, format!("unable to get metric {}: {of}", metric.name)))
        }
        _ => Err(failed(tried, "the metric was not requested".to_owned())),
    };
    let (asked, current, name) = match (target.r#type.as_str(), &target.value, &target.average_value) {
        ("Value", Some(value), _) => {
            let usage = usage(&whole)?;
            let asked = present.by_value(usage, milli(value));
            let asked = asked.map_err(|error| failed(&whole, not_ready(&error)))?;
            (asked, total(usage), format!("{} metric {}", object.kind, metric.name))
        }
        ("AverageValue", _, Some(value)) => {
            let tried = format!("{whole}failed to get {} object metric: ", metric.name);
            let asked = present.by_average(usage(&tried)?, milli(value), replicas);
            (asked, average(asked.usage), external_name(metric))
        }
        _ => {
            let what = "neither a value target nor an average value target was set";
            return Err(failed(&whole, format!("invalid object metric source: {what}")));
        }
    };
    let status = ObjectMetricStatus { metric: metric.clone(), current, described_object: object.clone() };
    Ok(Proposal {
        replicas: asked.replicas,
        name,
        status: MetricStatus {
            r#type: "Object".into(),
            object: Some(Box::new(status)),
            ..MetricStatus::default()
        },
    })
}

fn of_external(
    source: &ExternalMetricSource,
    found: &Found,
    present: &Present<'_>,
    namespace: &str,
    replicas: i32,
) -> Proposed {
    let ExternalMetricSource { metric, target } = source;
    let name = &metric.name;
    let whole = format!("failed to get {name} external metric value: ");
    let failed = |tried: &str, text| failure("FailedGetExternalMetric", tried, text);
    let usage = |tried: &str| match found {
        Found::External(Ok(values)) => Ok(values.iter().fold(0_i64, |sum, value| sum.saturating_add(*value))),
        Found::External(Err(error)) => {
            let (told, series) = (error.told("external"), selector_text(metric.selector.as_deref()));
            Err(failed(tried, format!("unable to get external metric {namespace}/{name}/{series}: {told}")))
        }
        _ => Err(failed(tried, "the metric was not requested".to_owned())),
    };
    let (asked, current) = match (&target.average_value, &target.value) {
        (Some(value), _) => {
            let tried = format!("{whole}failed to get {name} external metric: ");
            let asked = present.by_average(usage(&tried)?, milli(value), replicas);
            (asked, average(asked.usage))
        }
        (None, Some(value)) => {
            let tried = format!("{whole}failed to get external metric {name}: ");
            let usage = usage(&tried)?;
            let asked = present.by_value(usage, milli(value));
            (asked.map_err(|error| failed(&tried, not_ready(&error)))?, total(usage))
        }
        (None, None) => {
            let what = "neither a value target nor an average value target was set";
            return Err(failed(&whole, format!("invalid external metric source: {what}")));
        }
    };
    let status = ExternalMetricStatus { metric: metric.clone(), current };
    Ok(Proposal {
        replicas: asked.replicas,
        name: external_name(metric),
        status: MetricStatus {
            r#type: "External".into(),
            external: Some(Box::new(status)),
            ..MetricStatus::default()
        },
    })
}

fn not_ready(error: &Missing) -> String {
    format!("unable to calculate ready pods: {error}")
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, selector_text(metric.selector.as_deref()))
}

/// A selector as the original's messages show it.
pub(in super::super) fn selector_text(selector: Option<&LabelSelector>) -> String {
    let Some(LabelSelector { match_labels, match_expressions }) = selector else { return "nil".to_owned() };
    let labels: Vec<String> =
        match_labels.iter().map(|(label, value)| format!("{label}: {value},")).collect();
    let expressions = match_expressions.iter().map(|held| {
        let values: Vec<&str> = held.values.iter().map(Str::as_str).collect();
        let (key, operator, values) = (&held.key, &held.operator, values.join(" "));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let (labels, expressions) = (labels.concat(), expressions.collect::<Vec<_>>().concat());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// A quantity of the spec, which the API server has judged, in thousandths.
fn milli(text: &QuantityText) -> i64 {
    text.string.parse::<Quantity>().map_or(0, Quantity::milli)
}

fn quantity(thousandths: i64, format: QuantityFormat) -> QuantityText {
    let text = Quantity::from_milli(thousandths, format).to_string();
    QuantityText { string: text.into() }
}

fn average(thousandths: i64) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(Box::new(quantity(thousandths, QuantityFormat::Decimal))),
        ..MetricValueStatus::default()
    }
}

fn total(thousandths: i64) -> MetricValueStatus {
    MetricValueStatus {
        value: Some(Box::new(quantity(thousandths, QuantityFormat::Decimal))),
        ..MetricValueStatus::default()
    }
}
