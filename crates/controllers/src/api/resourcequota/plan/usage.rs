//! Counting: what the objects in a quota's scopes come to.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::super::Gates;
use super::super::measure::Measure;
use super::super::view::{Devices, Known, View};
use super::scopes::Scopes;
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{DeviceRequest, ResourceClaim};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::wire::{Str, Uid};

/// Annotation of a volume claim: its storage class, in the old way. It wins.
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation of a resource claim that the scheduler made for what its pod asks for as an extended resource.
const MADE_FOR_POD: &str = "resource.kubernetes.io/extended-resource-claim";
/// Devices that one request can be given at most: as many as a request for all of them may mean.
const MOST_DEVICES: i64 = 32;

/// What comes of counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// This much.
    Total(Quantity),
    /// Not all that counts has been seen.
    NotYet,
    /// The API does not have it.
    NotServed,
    /// Nobody knows what is meant.
    Unknown,
}

/// The objects in a quota's scopes.
pub(super) struct Usage<'a> {
    view: &'a View,
    /// All pods.
    pods: Vec<&'a Pod>,
    /// Pods that have not ended.
    running: Vec<&'a Pod>,
    volume_claims: Vec<&'a PersistentVolumeClaim>,
    has_scopes: bool,
    /// When counting will give something else though nothing happens.
    pub(super) changes_after: Option<Duration>,
}

impl<'a> Usage<'a> {
    pub(super) fn of(view: &'a View, now: Timestamp) -> Self {
        let scopes = Scopes::of(view);
        let has_scopes = !scopes.is_empty();
        let pods: Vec<&Pod> =
            view.pods.iter().map(AsRef::as_ref).filter(|pod| !has_scopes || scopes.hold_pod(pod)).collect();
        let (mut running, mut changes_after) = (Vec::with_capacity(pods.len()), None);
        for pod in pods.iter().copied().filter(|pod| !pod.is_finished()) {
            let left = lost_at(pod).map(|at| at.duration_since(now));
            if left.is_some_and(|left| left.is_negative()) {
                continue;
            }
            running.push(pod);
            if let Some(left) = left.and_then(|left| Duration::try_from(left).ok()) {
                let after = left.saturating_add(Duration::from_secs(1));
                changes_after = Some(changes_after.map_or(after, |earlier: Duration| earlier.min(after)));
            }
        }
        let volume_claims = view.volume_claims.iter().map(AsRef::as_ref);
        let volume_claims =
            volume_claims.filter(|claim| !has_scopes || scopes.hold_volume_claim(claim)).collect();
        Self { view, pods, running, volume_claims, has_scopes, changes_after }
    }

    /// What `name` counts, the sum of all `measures`.
    pub(super) fn count(&self, name: &str, measures: &[Measure<'_>]) -> Count {
        let (mut total, mut missing) = (None, Count::Unknown);
        for measure in measures {
            match self.measure(name, *measure) {
                Count::Total(amount) => total = Some(total.unwrap_or(Quantity::ZERO).plus(amount)),
                // A part is not the whole.
                Count::NotYet => return Count::NotYet,
                other => missing = other,
            }
        }
        let Some(total) = total else { return missing };
        Count::Total(total.minus(self.counted_twice(measures)))
    }

    fn measure(&self, name: &str, measure: Measure<'_>) -> Count {
        let gates = self.view.gates;
        let total = match measure {
            Measure::Objects(_) => return self.objects(name),
            Measure::DeviceClaims
            | Measure::Devices(_)
            | Measure::RequestedDevices(_)
            | Measure::ExtendedDevices(_) => return self.devices(measure),
            Measure::PodObjects => number(self.pods.len()),
            Measure::Pods => number(self.running.len()),
            Measure::Requests(resource) => {
                sum(self.running.iter().map(|pod| pod.charge.requests(gates.charge).of(resource)))
            }
            Measure::Limits(resource) => {
                sum(self.running.iter().map(|pod| pod.charge.limits(gates.charge).of(resource)))
            }
            Measure::Services => number(self.services().count()),
            Measure::LoadBalancers => number(self.services().map(|held| takes(held).load_balancers).sum()),
            Measure::NodePorts => number(self.services().map(|held| takes(held).node_ports).sum()),
            Measure::VolumeClaims(class) => number(self.volume_claims(class).count()),
            Measure::Storage(class) => sum(self.volume_claims(class).map(|claim| storage(claim, gates))),
        };
        Count::Total(total)
    }

    fn objects(&self, name: &str) -> Count {
        match self.view.objects.get(name) {
            // They know no scopes.
            Some(Known::Yes(_)) if self.has_scopes => Count::Total(Quantity::ZERO),
            Some(Known::Yes(objects)) => Count::Total(number(*objects)),
            Some(Known::NotYet) => Count::NotYet,
            Some(Known::NotServed) | None => Count::NotServed,
        }
    }

    /// Services know no scopes.
    fn services(&self) -> impl Iterator<Item = &'a Service> {
        self.view.services.iter().map(AsRef::as_ref).filter(|_| !self.has_scopes)
    }

    fn volume_claims<'b>(
        &'b self,
        class: Option<&'b str>,
    ) -> impl Iterator<Item = &'a PersistentVolumeClaim> + 'b {
        let of_class =
            move |claim: &&PersistentVolumeClaim| class.is_none_or(|class| storage_class(claim) == class);
        self.volume_claims.iter().copied().filter(of_class)
    }

    fn devices(&self, measure: Measure<'_>) -> Count {
        let as_requests = matches!(measure, Measure::RequestedDevices(_) | Measure::ExtendedDevices(_));
        let gates = self.view.gates;
        let devices = match &self.view.devices {
            _ if matches!(measure, Measure::Devices(_)) && !gates.devices => return Count::Unknown,
            Known::NotServed => return Count::NotServed,
            _ if as_requests && !gates.extended => return Count::NotServed,
            Known::NotYet => return Count::NotYet,
            // They know no scopes.
            Known::Yes(_) if self.has_scopes => return Count::Total(Quantity::ZERO),
            Known::Yes(devices) => devices,
        };
        Count::Total(match measure {
            Measure::DeviceClaims => number(devices.claims.len()),
            _ => sum(devices.claims.iter().map(|claim| devices.asked(claim, measure))),
        })
    }

    /// What pods ask for as an extended resource the scheduler claims for them as devices: it is the same. It makes one claim
    /// for a pod, and names it in the pod's status, which no user writes. What else says that it was made so lies.
    fn counted_twice(&self, measures: &[Measure<'_>]) -> Quantity {
        let ([Measure::Requests(resource), asked], Known::Yes(devices)) = (measures, &self.view.devices)
        else {
            return Quantity::ZERO;
        };
        if self.has_scopes || !self.view.gates.extended {
            return Quantity::ZERO;
        }
        let mut by_pod: BTreeMap<&Uid, Vec<&ResourceClaim>> = BTreeMap::new();
        for claim in &devices.claims {
            let is_made = claim.metadata.annotations.get(MADE_FOR_POD).is_some_and(|value| *value == "true");
            if let Some(owner) = claim.metadata.controller().filter(|owner| is_made && is_pod(owner)) {
                by_pod.entry(&owner.uid).or_default().push(claim);
            }
        }
        if by_pod.is_empty() {
            return Quantity::ZERO;
        }
        sum(self.running.iter().filter_map(|pod| {
            let claimed = devices.asked(made_for(pod, by_pod.get(&pod.metadata.uid)?)?, *asked);
            Some(pod.charge.requests(self.view.gates.charge).of(resource).or_less(claimed))
        }))
    }
}

impl Devices {
    /// Devices that a claim asks for, of what is measured.
    fn asked(&self, claim: &ResourceClaim, measure: Measure<'_>) -> Quantity {
        let counts = |class: &Str| match measure {
            Measure::Devices(wanted) | Measure::RequestedDevices(wanted) => *class == wanted,
            Measure::ExtendedDevices(wanted) => self.extended.get(class).is_some_and(|held| *held == wanted),
            _ => false,
        };
        sum(claim.spec.devices.requests.iter().map(|request| Quantity::count(most(request, counts))))
    }
}

fn is_pod(owner: &OwnerReference) -> bool {
    owner.kind == PODS.kind && owner.api_version == *PODS.api_version()
}

/// The claim that the scheduler has made for a pod, of those that say so: the one that the pod's status names, or, before it
/// names one, the oldest of those whose owner is of the pod's name, and of these the first by name.
fn made_for<'a>(pod: &Pod, claims: &[&'a ResourceClaim]) -> Option<&'a ResourceClaim> {
    let told = pod.status.extended_resource_claim_status.as_ref().map(|status| &status.resource_claim_name);
    let is_made = |claim: &&ResourceClaim| {
        claim.metadata.controller().is_some_and(|owner| owner.name == pod.metadata.name)
            && told.is_none_or(|name| claim.metadata.name == *name)
    };
    let age = |claim: &&ResourceClaim| (claim.metadata.creation_timestamp, claim.metadata.name.clone());
    claims.iter().copied().filter(is_made).min_by_key(age)
}

/// The most devices that a request may come to, of the classes that count.
fn most(request: &DeviceRequest, counts: impl Fn(&Str) -> bool) -> i64 {
    let of = |class: &Str, mode: &Str, count: i64| match mode.as_str() {
        _ if !counts(class) => 0,
        "ExactCount" => count,
        "All" => MOST_DEVICES,
        // What it means is for a later version to know.
        _ => 0,
    };
    let alternatives = request.first_available.iter();
    let alternative =
        alternatives.map(|held| of(&held.device_class_name, &held.allocation_mode, held.count)).max();
    let exactly = || {
        let exactly = request.exactly.as_ref();
        exactly.map(|held| of(&held.device_class_name, &held.allocation_mode, held.count))
    };
    alternative.or_else(exactly).unwrap_or(0).max(0)
}

/// When a pod that should have gone long ago is held to be lost, with its node: it no longer counts.
fn lost_at(pod: &Pod) -> Option<Timestamp> {
    let meta = &pod.metadata;
    Some(meta.deletion_timestamp?.plus_seconds(meta.deletion_grace_period_seconds?).into())
}

/// What a service takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Takes {
    pub(in super::super) load_balancers: usize,
    pub(in super::super) node_ports: usize,
}

/// What a service takes of load balancers and ports of nodes.
pub(in super::super) fn takes(service: &Service) -> Takes {
    let ports = &service.spec.ports;
    match service.spec.r#type.as_str() {
        "NodePort" => Takes { load_balancers: 0, node_ports: ports.len() },
        "LoadBalancer" => {
            let is_given = service.spec.allocate_load_balancer_node_ports != Some(false);
            let node_ports = ports.iter().filter(|port| is_given || port.node_port != 0).count();
            Takes { load_balancers: 1, node_ports }
        }
        _ => Takes::default(),
    }
}

/// The storage class of a volume claim; empty if it has none.
pub(in super::super) fn storage_class(claim: &PersistentVolumeClaim) -> &str {
    let old = claim.metadata.annotations.get(STORAGE_CLASS);
    old.or(claim.spec.storage_class_name.as_ref()).map_or("", Str::as_str)
}

/// The bytes that a volume claim asks for, or was set aside for it while it is being resized, if that is more.
pub(in super::super) fn storage(claim: &PersistentVolumeClaim, gates: Gates) -> Quantity {
    let amount = |text: &Str| text.parse::<Quantity>().ok().map(Quantity::rounded_up);
    let asked = claim.spec.resources.requests.get("storage").and_then(amount);
    let set_aside =
        claim.status.allocated_resources.get("storage").filter(|_| gates.set_aside).and_then(amount);
    asked.map_or(Quantity::ZERO, |asked| asked.or_more(set_aside.unwrap_or(Quantity::ZERO)))
}

fn number(count: usize) -> Quantity {
    Quantity::count(i128::try_from(count).unwrap_or(i128::MAX))
}

fn sum(amounts: impl Iterator<Item = Quantity>) -> Quantity {
    amounts.fold(Quantity::ZERO, Quantity::plus)
}
