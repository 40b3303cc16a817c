//! What a name in a quota's `spec.hard` counts. Pure.
//!
//! | name | counts |
//! |---|---|
//! | `count/RESOURCE.GROUP`, `configmaps`, `secrets`, `replicationcontrollers`, `resourcequotas` | objects |
//! | `pods` | pods that have not ended |
//! | `cpu`, `requests.cpu`, `limits.cpu`, … `hugepages-SIZE`, `requests.EXTENDED` | what pods ask for |
//! | `services`, `services.loadbalancers`, `services.nodeports` | services, and what they take |
//! | `persistentvolumeclaims`, `requests.storage`, and both of a `CLASS.storageclass.storage.k8s.io/` | claims on volumes |
//! | `CLASS.deviceclass.resource.k8s.io/devices` | devices that claims ask for |
//! | `requests.deviceclass.resource.kubernetes.io/CLASS`, `requests.EXTENDED` | those and what pods ask for by that name |

use smallvec::{SmallVec, smallvec};

/// One thing that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure<'a> {
    /// Objects of which nothing but their number counts.
    Objects(Resource<'a>),
    /// All pods.
    PodObjects,
    /// Pods that have not ended.
    Pods,
    /// What those ask for of a resource.
    Requests(&'a str),
    /// What they may have at most of a resource.
    Limits(&'a str),
    /// Services.
    Services,
    /// Services of type `LoadBalancer`.
    LoadBalancers,
    /// Ports of nodes that services take.
    NodePorts,
    /// Claims on volumes; of a storage class.
    VolumeClaims(Option<&'a str>),
    /// The storage that they ask for.
    Storage(Option<&'a str>),
    /// Claims on devices.
    DeviceClaims,
    /// Devices of a class that they ask for.
    Devices(&'a str),
    /// The same, counted as if pods had asked for them.
    RequestedDevices(&'a str),
    /// Devices that they ask for of whatever classes stand for an extended resource.
    ExtendedDevices(&'a str),
}

/// A resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource<'a> {
    /// Its group; empty for core.
    pub(super) group: &'a str,
    /// Its plural name.
    pub(super) name: &'a str,
}

/// Where what is counted comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured<'a> {
    Pods,
    Services,
    VolumeClaims,
    DeviceClaims,
    Objects(Resource<'a>),
}

const STORAGE_CLASS_CLAIMS: &str = ".storageclass.storage.k8s.io/persistentvolumeclaims";
const STORAGE_CLASS_STORAGE: &str = ".storageclass.storage.k8s.io/requests.storage";
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// By this name and that of a device class, pods ask for devices as for an extended resource.
const IMPLICIT_RESOURCE: &str = "deviceclass.resource.kubernetes.io/";

pub(super) type Measures<'a> = SmallVec<[Measure<'a>; 2]>;

/// What `name` counts, the sum of all of these; nothing if it is not known.
pub(super) fn measures(name: &str) -> Measures<'_> {
    if let Some(objects) = name.strip_prefix("count/") {
        return smallvec![objects_of(objects)];
    }
    if let Some(class) = name.strip_suffix(STORAGE_CLASS_CLAIMS) {
        return smallvec![Measure::VolumeClaims(Some(class))];
    }
    if let Some(class) = name.strip_suffix(STORAGE_CLASS_STORAGE) {
        return smallvec![Measure::Storage(Some(class))];
    }
    if let Some(class) = name.strip_suffix(DEVICE_CLASS) {
        return smallvec![Measure::Devices(class)];
    }
    match name {
        "pods" => smallvec![Measure::Pods],
        "cpu" | "memory" | "ephemeral-storage" => smallvec![Measure::Requests(name)],
        "services" => smallvec![Measure::Services],
        "services.loadbalancers" => smallvec![Measure::LoadBalancers],
        "services.nodeports" => smallvec![Measure::NodePorts],
        "persistentvolumeclaims" => smallvec![Measure::VolumeClaims(None)],
        "requests.storage" => smallvec![Measure::Storage(None)],
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            smallvec![Measure::Objects(Resource { group: "", name })]
        }
        _ if name.starts_with("hugepages-") => smallvec![Measure::Requests(name)],
        _ => of_pods(name),
    }
}

fn of_pods(name: &str) -> Measures<'_> {
    if let Some(resource) = name.strip_prefix("limits.") {
        let is_limited = matches!(resource, "cpu" | "memory" | "ephemeral-storage");
        return is_limited.then_some(Measure::Limits(resource)).into_iter().collect();
    }
    let Some(resource) = name.strip_prefix("requests.") else { return Measures::new() };
    let requests = Measure::Requests(resource);
    if matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-") {
        smallvec![requests]
    } else if let Some(class) = resource.strip_prefix(IMPLICIT_RESOURCE) {
        smallvec![requests, Measure::RequestedDevices(class)]
    } else if resource.contains('/') && !resource.contains("kubernetes.io/") {
        smallvec![requests, Measure::ExtendedDevices(resource)]
    } else {
        Measures::new()
    }
}

fn objects_of(resource: &str) -> Measure<'_> {
    match resource {
        "pods" => Measure::PodObjects,
        "services" => Measure::Services,
        "persistentvolumeclaims" => Measure::VolumeClaims(None),
        "resourceclaims.resource.k8s.io" => Measure::DeviceClaims,
        _ => {
            let (name, group) = resource.split_once('.').unwrap_or((resource, ""));
            Measure::Objects(Resource { group, name })
        }
    }
}

impl<'a> Measure<'a> {
    /// Where it comes from.
    pub(super) fn source(self) -> Measured<'a> {
        match self {
            Self::Objects(resource) => Measured::Objects(resource),
            Self::PodObjects | Self::Pods | Self::Requests(_) | Self::Limits(_) => Measured::Pods,
            Self::Services | Self::LoadBalancers | Self::NodePorts => Measured::Services,
            Self::VolumeClaims(_) | Self::Storage(_) => Measured::VolumeClaims,
            Self::DeviceClaims | Self::Devices(_) | Self::RequestedDevices(_) | Self::ExtendedDevices(_) => {
                Measured::DeviceClaims
            }
        }
    }
}
