//! Quotas, and what they count.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::measure::{Measure, measures};
use super::super::plan::plan;
use super::super::view::{Devices, Known, View};
use coxswain_machinery::api::charge::{Charge, PodCharge};
use coxswain_machinery::api::core::{Service, ServicePort};
use coxswain_machinery::api::kinds::RESOURCE_QUOTAS;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::{ResourceQuota, ScopeRequirement, ScopeSelector};
use coxswain_machinery::api::resource::{DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::plan::{Plan, Step, Verb};
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message, Quantities};

/// When plans are made.
pub(super) const NOW: i64 = 1_000_000;

pub(super) type Amounts = BTreeMap<String, String>;

pub(super) fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: "team".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "7".into(),
        ..ObjectMeta::default()
    }
}

pub(super) fn quantities(amounts: &[(&str, &str)]) -> Quantities {
    amounts.iter().copied().collect()
}

/// A quota as an informer caches it, with something in it that nobody here knows.
pub(super) fn quota(hard: &[(&str, &str)], change: impl FnOnce(&mut ResourceQuota)) -> Arc<ResourceQuota> {
    let mut quota = ResourceQuota { metadata: meta("quota"), ..ResourceQuota::default() };
    quota.spec.hard = quantities(hard);
    change(&mut quota);
    let mut bytes = quota.to_bytes();
    put_bytes(&mut bytes, 99, b"unknown");
    stored(&bytes)
}

pub(super) fn stored(bytes: &[u8]) -> Arc<ResourceQuota> {
    downcast((RESOURCE_QUOTAS.decode)(&bytes.to_vec().into()).unwrap()).unwrap()
}

pub(super) fn requirement(scope: &str, operator: &str, values: &[&str]) -> ScopeRequirement {
    ScopeRequirement {
        scope_name: scope.into(),
        operator: operator.into(),
        values: values.iter().map(|value| (*value).into()).collect(),
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "the field holds a box")]
pub(super) fn selector(requirements: Vec<ScopeRequirement>) -> Box<ScopeSelector> {
    Box::new(ScopeSelector { match_expressions: requirements })
}

/// A running pod that is charged this.
pub(super) fn pod(name: &str, charge: PodCharge, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let mut pod = Pod { metadata: meta(name), charge: Charge::from(charge), ..Pod::default() };
    pod.status.phase = "Running".into();
    change(&mut pod);
    Arc::new(pod)
}

pub(super) fn asking(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> PodCharge {
    PodCharge {
        requests: requests.iter().copied().collect(),
        limits: limits.iter().copied().collect(),
        asks: !requests.is_empty() || !limits.is_empty(),
        ..PodCharge::default()
    }
}

/// A service with ports, given as their ports of nodes.
pub(super) fn service(kind: &str, node_ports: &[i32], allocates: Option<bool>) -> Arc<Service> {
    let mut service = Service { metadata: meta(kind), ..Service::default() };
    service.spec.r#type = kind.into();
    service.spec.allocate_load_balancer_node_ports = allocates;
    let port = |node_port: &i32| ServicePort { node_port: *node_port, ..ServicePort::default() };
    service.spec.ports = node_ports.iter().map(port).collect();
    Arc::new(service)
}

pub(super) fn volume_claim(
    name: &str,
    storage: &str,
    change: impl FnOnce(&mut PersistentVolumeClaim),
) -> Arc<PersistentVolumeClaim> {
    let mut claim = PersistentVolumeClaim { metadata: meta(name), ..PersistentVolumeClaim::default() };
    claim.spec.resources.requests = quantities(&[("storage", storage)]);
    change(&mut claim);
    Arc::new(claim)
}

pub(super) fn exactly(class: &str, mode: &str, count: i64) -> DeviceRequest {
    let exactly = ExactDeviceRequest {
        device_class_name: class.into(),
        allocation_mode: mode.into(),
        count,
        admin_access: None,
    };
    DeviceRequest { exactly: Some(Box::new(exactly)), first_available: Vec::new() }
}

pub(super) fn first_of(alternatives: &[(&str, &str, i64)]) -> DeviceRequest {
    let alternative = |(class, mode, count): &(&str, &str, i64)| DeviceSubRequest {
        device_class_name: (*class).into(),
        allocation_mode: (*mode).into(),
        count: *count,
    };
    DeviceRequest { exactly: None, first_available: alternatives.iter().map(alternative).collect() }
}

pub(super) fn device_claim(name: &str, requests: Vec<DeviceRequest>) -> ResourceClaim {
    let mut claim = ResourceClaim { metadata: meta(name), ..ResourceClaim::default() };
    claim.spec.devices.requests = requests;
    claim
}

/// The claim as the scheduler makes it for a pod.
pub(super) fn made_for(pod: &Pod, mut claim: ResourceClaim) -> ResourceClaim {
    claim.metadata.annotations =
        [("resource.kubernetes.io/extended-resource-claim", "true")].into_iter().collect();
    claim.metadata.owner_references = vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    }];
    claim
}

pub(super) fn devices(claims: Vec<ResourceClaim>, extended: &[(&str, &str)]) -> Known<Devices> {
    let pairs = extended.iter().map(|(class, resource)| ((*class).into(), (*resource).into()));
    Known::Yes(Devices { claims: claims.into_iter().map(Arc::new).collect(), extended: pairs.collect() })
}

/// A view of a quota over nothing, whose objects can all be counted, and are none.
pub(super) fn view(quota: Arc<ResourceQuota>) -> View {
    let names = quota.spec.hard.iter().map(|(name, _)| name);
    let is_object = |name: &str| matches!(measures(name)[..], [Measure::Objects(_)]);
    let objects = names.filter(|name| is_object(name)).map(|name| (name.clone(), Known::Yes(0))).collect();
    View { quota, devices: devices(Vec::new(), &[]), objects, ..View::default() }
}

pub(super) fn planned(view: &View) -> Plan {
    plan(view, Timestamp::from_second(NOW).unwrap())
}

/// The quota as a plan writes it; `None` if it does not.
pub(super) fn written(plan: &Plan) -> Option<Arc<ResourceQuota>> {
    match plan.steps.as_slice() {
        [] => None,
        [Step::Write(write)] => {
            assert_eq!(write.to_string(), "update resourcequotas/status team/quota");
            let Verb::Update(object) = &write.verb else { panic!("{write}") };
            Some(stored(object))
        }
        steps => panic!("{steps:?}"),
    }
}

pub(super) fn amounts(quantities: &Quantities) -> Amounts {
    quantities.iter().map(|(name, amount)| (name.to_string(), amount.to_string())).collect()
}

/// What a view of a new quota finds used.
pub(super) fn used(view: &View) -> Amounts {
    amounts(&written(&planned(view)).expect("a new quota is written").status.used)
}

pub(super) fn expected(amounts: &[(&str, &str)]) -> Amounts {
    amounts.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

/// Names with no limit worth mentioning.
pub(super) fn hard<'a>(names: &[&'a str]) -> Vec<(&'a str, &'static str)> {
    names.iter().map(|name| (*name, "1k")).collect()
}
