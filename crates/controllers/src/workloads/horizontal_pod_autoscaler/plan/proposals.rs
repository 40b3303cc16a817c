//! What each metric of an autoscaler asks for, or why there is no telling, in the original's words. Pure.

use jiff::Timestamp;

use super::super::proposal::{MetricFailure, Proposal, Proposed};
use super::super::queries::Found;
use super::super::view::{Look, Selected, Stage, View};
use super::replicas::{Asked, Missing, PodMetric, PodTarget, Present, Tolerance};
use coxswain_machinery::api::autoscaling::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource,
    PodsMetricStatus, ResourceMetricStatus,
};
use coxswain_machinery::api::meta::{LabelSelector, QuantityText};
use coxswain_machinery::model::quantity::{Quantity, QuantityFormat};
use coxswain_machinery::wire::Str;

/// Visits of pods and containers that a slice of an evaluation makes; the metric that comes to this number is evaluated to its end.
const VISITS: usize = 8192;
/// The cost of a metric without pods, in visits.
const METRIC: usize = 64;

/// Evaluates the next metrics that have no proposal yet. Returns whether all metrics have one.
pub(in super::super) fn propose_more(view: &mut View, now: Timestamp) -> bool {
    let Stage::Look(look) = &view.stage else { return true };
    let Ok(selected) = &look.pods else { return true };
    // A metric of utilization visits each container of each pod.
    let visits: usize = selected.pods.iter().map(|pod| 1 + pod.shape.requests.len()).sum();
    let number = VISITS.div_ceil(visits.saturating_add(METRIC));
    let more: Vec<Proposed> = evaluations(view, look, selected, now).take(number).collect();
    let Stage::Look(look) = &mut view.stage else { return true };
    look.proposals.extend(more);
    look.proposals.len() >= look.found.len()
}

/// What all metrics ask for, in the order of the spec.
pub(in super::super) fn proposals(
    view: &View,
    look: &Look,
    selected: &Selected,
    now: Timestamp,
) -> Vec<Proposed> {
    let mut proposals = look.proposals.clone();
    proposals.extend(evaluations(view, look, selected, now));
    proposals
}

/// Evaluates one metric after the other, from the first one without a proposal on.
fn evaluations<'a>(
    view: &'a View,
    look: &'a Look,
    selected: &'a Selected,
    now: Timestamp,
) -> impl Iterator<Item = Proposed> {
    let behavior = view.spec().behavior.as_deref();
    let tolerance = Tolerance {
        down: view.settings.tolerance_of(behavior.and_then(|held| held.scale_down.as_deref())),
        up: view.settings.tolerance_of(behavior.and_then(|held| held.scale_up.as_deref())),
    };
    let present = Present {
        current: look.scale.spec.replicas,
        pods: &selected.pods,
        tolerance,
        settings: &view.settings,
        now,
    };
    let namespace = &view.autoscaler.metadata.namespace;
    let replicas = look.scale.status.replicas;
    let metrics = view.spec().metrics.iter().zip(&look.found).skip(look.proposals.len());
    metrics.map(move |(metric, found)| propose(metric, found, &present, namespace, replicas))
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
    let values = match found.pods() {
        Some(Ok(values)) => values,
        Some(Err(error)) => {
            let told = error.told("resource");
            return Err(failed(format!("unable to get metrics for resource {name}: {told}")));
        }
        None => return Err(failed("the metric was not requested".to_owned())),
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
    let values = match found.pods() {
        Some(Ok(values)) => values,
        Some(Err(error)) => {
            return Err(failed(format!("unable to get metric {name}: {}", error.told("custom"))));
        }
        None => return Err(failed("the metric was not requested".to_owned())),
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
    let usage = |tried: &str| match found.object() {
        Some(Ok(usage)) => Ok(*usage),
        Some(Err(error)) => {
            let told = error.told("custom");
            // kube-controller-manager writes "KIND on NAMESPACE NAME/ERROR". Differs: object-metric-messages.
            let of = format!("{} {namespace}/{}: {told}", object.kind, object.name);
            Err(failed(tried, format!("unable to get metric {}: {of}", metric.name)))
        }
        None => Err(failed(tried, "the metric was not requested".to_owned())),
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
    let usage = |tried: &str| match found.external() {
        Some(Ok(values)) => Ok(values.iter().fold(0_i64, |sum, value| sum.saturating_add(*value))),
        Some(Err(error)) => {
            let (told, series) = (error.told("external"), selector_text(metric.selector.as_deref()));
            Err(failed(tried, format!("unable to get external metric {namespace}/{name}/{series}: {told}")))
        }
        None => Err(failed(tried, "the metric was not requested".to_owned())),
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
