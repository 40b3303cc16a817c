//! `autoscaling/v2` and the scale of `autoscaling/v1`, trimmed. HorizontalPodAutoscalers are rewritten, so their bytes are
//! kept in `raw`.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kind::{AnyObject, ApiVersion, kinds, objects};
use super::meta::{LabelSelector, ObjectMeta, QuantityText};
use crate::wire::json::read_json;
use crate::wire::{Message as _, Str, Time, WireError, message};

const AUTOSCALING: ApiVersion = ApiVersion { group: "autoscaling", version: "v2" };

kinds! {
    /// HorizontalPodAutoscalers.
    HORIZONTAL_POD_AUTOSCALERS =
        AUTOSCALING.namespaced::<HorizontalPodAutoscaler>("HorizontalPodAutoscaler", "horizontalpodautoscalers");
}

objects! {
    HorizontalPodAutoscaler + raw;
    Scale + raw;
}

message! {
    schema SCHEMA;

    /// An autoscaler.
    pub struct HorizontalPodAutoscaler + raw = "k8s.io.api.autoscaling.v2.HorizontalPodAutoscaler" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: HorizontalPodAutoscalerSpec,
        /// Observed state.
        3 => status: HorizontalPodAutoscalerStatus,
    }

    /// What is scaled, and by what.
    pub struct HorizontalPodAutoscalerSpec = "k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerSpec" {
        /// What is scaled.
        1 => scale_target_ref: CrossVersionObjectReference,
        /// The least replicas.
        2 => min_replicas: Option<i32>,
        /// The most replicas.
        3 => max_replicas: i32,
        /// What the number follows.
        4 => metrics: Vec<MetricSpec>,
        /// How fast it may change.
        5 => behavior: Option<Box<HorizontalPodAutoscalerBehavior>>,
    }

    /// An object, by group, kind and name.
    pub struct CrossVersionObjectReference = "k8s.io.api.autoscaling.v2.CrossVersionObjectReference" {
        /// Kind.
        1 => kind: Str [interned],
        /// Name.
        2 => name: Str,
        /// API version.
        3 => api_version: Str [interned],
    }

    /// A metric; which of the fields is set, its type says.
    pub struct MetricSpec = "k8s.io.api.autoscaling.v2.MetricSpec" {
        /// `Resource`, `ContainerResource`, `Pods`, `Object` or `External`.
        1 => r#type: Str [interned],
        /// Of an object.
        2 => object: Option<Box<ObjectMetricSource>>,
        /// Of the pods.
        3 => pods: Option<Box<PodsMetricSource>>,
        /// Of a resource of the pods.
        4 => resource: Option<Box<ResourceMetricSource>>,
        /// Of something outside of the cluster.
        5 => external: Option<Box<ExternalMetricSource>>,
        /// Of a resource of one container.
        7 => container_resource: Option<Box<ContainerResourceMetricSource>>,
    }

    /// A metric of an object.
    pub struct ObjectMetricSource = "k8s.io.api.autoscaling.v2.ObjectMetricSource" {
        /// The object.
        1 => described_object: CrossVersionObjectReference,
        /// What it should be.
        2 => target: MetricTarget,
        /// The metric.
        3 => metric: MetricIdentifier,
    }

    /// A metric of each pod.
    pub struct PodsMetricSource = "k8s.io.api.autoscaling.v2.PodsMetricSource" {
        /// The metric.
        1 => metric: MetricIdentifier,
        /// What it should be.
        2 => target: MetricTarget,
    }

    /// A resource of each pod.
    pub struct ResourceMetricSource = "k8s.io.api.autoscaling.v2.ResourceMetricSource" {
        /// The resource.
        1 => name: Str [interned],
        /// How much of it should be used.
        2 => target: MetricTarget,
    }

    /// A resource of one container of each pod.
    pub struct ContainerResourceMetricSource = "k8s.io.api.autoscaling.v2.ContainerResourceMetricSource" {
        /// The resource.
        1 => name: Str [interned],
        /// How much of it should be used.
        2 => target: MetricTarget,
        /// Name of the container.
        3 => container: Str [interned],
    }

    /// A metric of something outside of the cluster.
    pub struct ExternalMetricSource = "k8s.io.api.autoscaling.v2.ExternalMetricSource" {
        /// The metric.
        1 => metric: MetricIdentifier,
        /// What it should be.
        2 => target: MetricTarget,
    }

    /// Which metric.
    pub struct MetricIdentifier = "k8s.io.api.autoscaling.v2.MetricIdentifier" {
        /// Its name.
        1 => name: Str [interned],
        /// Its series.
        2 => selector: Option<Box<LabelSelector>>,
    }

    /// What a metric should be.
    pub struct MetricTarget = "k8s.io.api.autoscaling.v2.MetricTarget" {
        /// `Utilization`, `Value` or `AverageValue`.
        1 => r#type: Str [interned],
        /// As a whole.
        2 => value: Option<Box<QuantityText>>,
        /// On average over the pods.
        3 => average_value: Option<Box<QuantityText>>,
        /// In percent of what is requested, on average.
        4 => average_utilization: Option<i32>,
    }

    /// How fast the number may change.
    pub struct HorizontalPodAutoscalerBehavior = "k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerBehavior" {
        /// Up.
        1 => scale_up: Option<Box<ScalingRules>>,
        /// Down.
        2 => scale_down: Option<Box<ScalingRules>>,
    }

    /// How fast the number may change in one direction.
    pub struct ScalingRules = "k8s.io.api.autoscaling.v2.HPAScalingRules" {
        /// `Max`, `Min` or `Disabled`.
        1 => select_policy: Option<Str> [interned],
        /// The policies.
        2 => policies: Vec<ScalingPolicy>,
        /// Seconds for which recommendations are remembered.
        3 => stabilization_window_seconds: Option<i32>,
        /// How far a metric may be off.
        4 => tolerance: Option<Box<QuantityText>>,
    }

    /// How much the number may change in some time.
    pub struct ScalingPolicy = "k8s.io.api.autoscaling.v2.HPAScalingPolicy" {
        /// `Pods` or `Percent`.
        1 => r#type: Str [interned],
        /// By so many.
        2 => value: i32,
        /// Within so many seconds.
        3 => period_seconds: i32,
    }

    /// What was found and done.
    pub struct HorizontalPodAutoscalerStatus = "k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerStatus" {
        /// Generation that this status speaks of.
        1 => observed_generation: Option<i64>,
        /// When it was scaled last.
        2 => last_scale_time: Option<Time>,
        /// Replicas that were found.
        3 => current_replicas: i32,
        /// Replicas that are wanted.
        4 => desired_replicas: i32,
        /// The metrics as they were found.
        5 => current_metrics: Vec<MetricStatus>,
        /// Conditions.
        6 => conditions: Vec<HorizontalPodAutoscalerCondition>,
    }

    /// A condition of an autoscaler.
    pub struct HorizontalPodAutoscalerCondition = "k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerCondition" {
        /// `AbleToScale`, `ScalingActive` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When `status` changed last.
        3 => last_transition_time: Option<Time>,
        /// For machines.
        4 => reason: Str [interned],
        /// For people.
        5 => message: Str,
    }

    /// A metric as it was found.
    pub struct MetricStatus = "k8s.io.api.autoscaling.v2.MetricStatus" {
        /// As in [`MetricSpec`].
        1 => r#type: Str [interned],
        /// Of an object.
        2 => object: Option<Box<ObjectMetricStatus>>,
        /// Of the pods.
        3 => pods: Option<Box<PodsMetricStatus>>,
        /// Of a resource of the pods.
        4 => resource: Option<Box<ResourceMetricStatus>>,
        /// Of something outside of the cluster.
        5 => external: Option<Box<ExternalMetricStatus>>,
        /// Of a resource of one container.
        7 => container_resource: Option<Box<ContainerResourceMetricStatus>>,
    }

    /// What a metric of an object is.
    pub struct ObjectMetricStatus = "k8s.io.api.autoscaling.v2.ObjectMetricStatus" {
        /// The metric.
        1 => metric: MetricIdentifier,
        /// What it is.
        2 => current: MetricValueStatus,
        /// The object.
        3 => described_object: CrossVersionObjectReference,
    }

    /// What a metric of the pods is.
    pub struct PodsMetricStatus = "k8s.io.api.autoscaling.v2.PodsMetricStatus" {
        /// The metric.
        1 => metric: MetricIdentifier,
        /// What it is.
        2 => current: MetricValueStatus,
    }

    /// How much of a resource is used.
    pub struct ResourceMetricStatus = "k8s.io.api.autoscaling.v2.ResourceMetricStatus" {
        /// The resource.
        1 => name: Str [interned],
        /// How much.
        2 => current: MetricValueStatus,
    }

    /// How much of a resource one container uses.
    pub struct ContainerResourceMetricStatus = "k8s.io.api.autoscaling.v2.ContainerResourceMetricStatus" {
        /// The resource.
        1 => name: Str [interned],
        /// How much.
        2 => current: MetricValueStatus,
        /// Name of the container.
        3 => container: Str [interned],
    }

    /// What an external metric is.
    pub struct ExternalMetricStatus = "k8s.io.api.autoscaling.v2.ExternalMetricStatus" {
        /// The metric.
        1 => metric: MetricIdentifier,
        /// What it is.
        2 => current: MetricValueStatus,
    }

    /// What a metric is.
    pub struct MetricValueStatus = "k8s.io.api.autoscaling.v2.MetricValueStatus" {
        /// As a whole.
        1 => value: Option<Box<QuantityText>>,
        /// On average over the pods.
        2 => average_value: Option<Box<QuantityText>>,
        /// In percent of what is requested, on average.
        3 => average_utilization: Option<i32>,
    }

    /// The scale of an object. Name, UID and resource version are those of the object. What is known of it is kept
    /// in `raw`, for it is rewritten.
    pub struct Scale + raw = "k8s.io.api.autoscaling.v1.Scale" {
        /// The object's metadata, in part.
        1 => metadata: ObjectMeta,
        /// What is wanted.
        2 => spec: ScaleSpec,
        /// What there is.
        3 => status: ScaleStatus,
    }

    /// What is wanted.
    pub struct ScaleSpec = "k8s.io.api.autoscaling.v1.ScaleSpec" {
        /// So many.
        1 => replicas: i32,
    }

    /// What there is.
    pub struct ScaleStatus = "k8s.io.api.autoscaling.v1.ScaleStatus" {
        /// So many.
        1 => replicas: i32,
        /// The label selector of what is counted, as text.
        2 => selector: Str,
    }
}

impl Scale {
    /// Reads a scale in JSON: those of custom resources have no other form.
    pub(crate) fn from_json(body: &[u8]) -> Result<AnyObject, serde_json::Error> {
        let ScaleJson { metadata, spec, status } = read_json(body)?;
        let mut scale = Self {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid.into(),
                resource_version: metadata.resource_version,
                ..ObjectMeta::default()
            },
            spec: ScaleSpec { replicas: spec.replicas },
            status: ScaleStatus { replicas: status.replicas, selector: status.selector },
            ..Self::default()
        };
        scale.raw = Bytes::from(scale.to_bytes()).into();
        Ok(Arc::new(scale))
    }

    /// The JSON of an encoded scale, as far as a write of it says something.
    pub(crate) fn to_json(scale: &[u8]) -> Result<Value, WireError> {
        let Self { metadata, spec, .. } = Self::decode(&Bytes::copy_from_slice(scale))?;
        Ok(json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": metadata.name.as_str(),
                "namespace": metadata.namespace.as_str(),
                "uid": &*metadata.uid.to_str(),
                "resourceVersion": metadata.resource_version.as_str(),
            },
            "spec": { "replicas": spec.replicas },
        }))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScaleJson {
    metadata: MetadataJson,
    spec: CountsJson,
    status: CountsJson,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MetadataJson {
    name: Str,
    namespace: Str,
    uid: Str,
    resource_version: Str,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CountsJson {
    replicas: i32,
    selector: Str,
}
