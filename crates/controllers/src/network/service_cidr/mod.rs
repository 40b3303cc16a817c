//! ServiceCIDRs: ranges of Service addresses that are added and taken away while the cluster runs.
//!
//! A ServiceCIDR gets a finalizer and the condition `Ready`. One that is being deleted keeps its finalizer as long as a
//! Service would be left with an address of no range, and says so; then it rests until the API servers have stopped to
//! give out addresses of it, and goes. See "Extend Service IP Ranges" in the Kubernetes documentation and KEP-1880.
//!
//! | change of | keys |
//! |---|---|
//! | a ServiceCIDR | its own, and those being deleted whose ranges overlap its |
//! | an IPAddress that appears or goes | ServiceCIDRs being deleted that contain it |
//!
//! What it rests on: before a finalizer goes the addresses are listed live, and the ServiceCIDRs on which they can rely are
//! read live. The original trusts its caches: an address that its watch is late to tell of loses its range.
//! Differs: addresses-read-live.
//!
//! It never touches IPAddresses, which are the API server's allocators', nor finalizers and conditions of others.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;

use coxswain_machinery::api::kinds::{IP_ADDRESSES, SERVICE_CIDRS};
use coxswain_machinery::api::meta::{ObjectMeta, PartialObjectMetadata};
use coxswain_machinery::api::networking::ServiceCidr;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, Tries,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::addresses::{parse_strict_address, parse_strict_range};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::View;

/// The finalizer.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Label of an IPAddress: who gave it out.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The API server's allocators in that label. Others look after the addresses that they make.
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// Keys taken at the same time, as in the original.
const WORKERS: usize = 5;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "service-cidr-controller",
    aliases: &[],
    description: "Prevents deletion of a ServiceCIDR while its addresses are in use.",
    gates: &["MultiCIDRServiceAllocator"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("service-cidrs-controller"),
    event_source: None,
    writes: &[
        Grant {
            group: "networking.k8s.io",
            resource: "servicecidrs",
            verbs: &["get", "list", "update", "watch"],
        },
        Grant { group: "networking.k8s.io", resource: "servicecidrs/status", verbs: &["update"] },
        Grant { group: "networking.k8s.io", resource: "ipaddresses", verbs: &["list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let cidrs = build.watch::<ServiceCidr>(&SERVICE_CIDRS);
    let addresses = build.watch::<PartialObjectMetadata>(&IP_ADDRESSES);
    let wake_ups =
        vec![cidrs.wakes(keys_of_cidrs(cidrs.lister())), addresses.wakes(keys_of_addresses(cidrs.lister()))];
    let room = Controller { cidrs: cidrs.lister(), addresses: addresses.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "ipaddresses",
            kind: Some(&SERVICE_CIDRS),
            settings: LoopSettings { workers: WORKERS, tries: Some(Tries::USUAL), ..LoopSettings::default() },
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Controller {
    cidrs: Lister<ServiceCidr>,
    addresses: Lister<PartialObjectMetadata>,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }
}

/// A ServiceCIDR that comes, changes or goes concerns itself, and those whose deletion may hang on it.
fn keys_of_cidrs(cidrs: Lister<ServiceCidr>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<ServiceCidr>();
        let Some(changed) = new.or(old) else { return };
        if new.is_some() {
            emit(Key::of(&changed.metadata));
        }
        // What is there at the start, and at a resync, is told of itself.
        if !delta.is_news() {
            return;
        }
        let changed_ranges = ranges(changed);
        let overlaps = |other: &ServiceCidr| {
            ranges(other)
                .iter()
                .any(|one| changed_ranges.iter().any(|two| one.contains(two) || two.contains(one)))
        };
        for other in cidrs.list() {
            if other.metadata.is_deleting()
                && other.metadata.name != changed.metadata.name
                && overlaps(&other)
            {
                emit(Key::of(&other.metadata));
            }
        }
    })
}

/// An address that appears or goes concerns the ServiceCIDRs that may be waiting for it to go. One whose deletion begins
/// later looks at all addresses then.
fn keys_of_addresses(cidrs: Lister<ServiceCidr>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let address = match delta.typed::<PartialObjectMetadata>() {
            (None, Some(appeared)) if !delta.initial => appeared,
            (Some(gone), None) => gone,
            _ => return,
        };
        let Some(address) = address_of(&address.metadata) else { return };
        for cidr in cidrs.list() {
            if cidr.metadata.is_deleting() && gives_out(&ranges(&cidr), address) {
                emit(Key::of(&cidr.metadata));
            }
        }
    })
}

/// Returns the ranges of a ServiceCIDR. As in kube-controller-manager, ranges that the API server would refuse are skipped, such as those with
/// leading zeros.
fn ranges(cidr: &ServiceCidr) -> Vec<IpNet> {
    cidr.spec.cidrs.iter().filter_map(|range| parse_strict_range(range)).collect()
}

/// Whether an allocator gives out this address from one of these ranges. The first address of a range is its own name, the
/// last one of an IPv4 range is its broadcast address: nobody gets them from there.
fn gives_out(ranges: &[IpNet], address: IpAddr) -> bool {
    ranges.iter().any(|range| {
        let is_broadcast = matches!(range, IpNet::V4(_)) && address == range.broadcast();
        range.contains(&address) && address != range.network() && !is_broadcast
    })
}

/// The address that an IPAddress is named after.
fn address_of(meta: &ObjectMeta) -> Option<IpAddr> {
    parse_strict_address(&meta.name)
}
