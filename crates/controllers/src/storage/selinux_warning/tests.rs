//! Pods, claims, volumes and drivers that are filled in by hand, and what is told of them.

use super::conflict::Mounted;
use super::metrics::Series;
use super::*;
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::selinux::{MountLabel, Mounts};
use coxswain_machinery::api::pod::{PodClaim, PodClaimSource};
use coxswain_machinery::api::volumes::{CsiPersistent, HostPath, Iscsi, PersistentVolumeSource};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{Memory as _, RoomMetrics};
use coxswain_machinery::informer::{Delta, Indexed, Store};
use coxswain_machinery::model::Step;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Raw, Str};

mod judging;
mod telling;
mod waking;

/// A cluster, and what the room has seen of it.
struct World {
    stores: [Arc<Store>; 4],
    record: Arc<Record>,
    registry: Registry,
    compares_labels: bool,
}

impl World {
    fn new() -> Self {
        let kinds = [&SELINUX_PODS, &PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES, &CSI_DRIVERS];
        let registry = Registry::new();
        let series = Series::register(&RoomMetrics::new(registry.clone())).unwrap();
        let stores = kinds.map(|kind: &'static Kind| Arc::new(Store::new(kind)));
        let world = Self { stores, record: Arc::new(Record::new(series)), registry, compares_labels: true };
        world.driver("labels", Some(true));
        world
    }

    fn room(&self) -> Controller {
        let [pods, claims, volumes, drivers] = &self.stores;
        Controller {
            pods: Lister::new(Arc::clone(pods)),
            claims: Lister::new(Arc::clone(claims)),
            volumes: Lister::new(Arc::clone(volumes)),
            drivers: Lister::new(Arc::clone(drivers)),
            record: Arc::clone(&self.record),
            compares_labels: self.compares_labels,
        }
    }

    fn put(&self, at: usize, object: impl coxswain_machinery::api::Object) {
        self.stores[at].upsert(&(Arc::new(object) as AnyObject));
    }

    fn gone(&self, at: usize, key: &Key) {
        let held = self.stores[at].get(key).unwrap();
        self.stores[at].remove(&held);
    }

    fn driver(&self, name: &str, mounts: Option<bool>) {
        let mut driver = CsiDriver::default();
        driver.metadata.name = name.into();
        driver.spec.se_linux_mount = mounts;
        self.put(3, driver);
    }

    /// A claim `ns/NAME` that is bound to a volume with this source.
    fn bind(&self, namespace: &str, name: &str, source: PersistentVolumeSource) {
        self.put(1, claim(namespace, name));
        self.put(2, volume(namespace, name, source));
    }

    /// One of CSI driver `labels`, whose volume has this handle.
    fn bind_csi(&self, namespace: &str, name: &str, driver: &str, handle: &str) {
        let csi = Some(Box::new(CsiPersistent { driver: driver.into(), volume_handle: handle.into() }));
        self.bind(namespace, name, PersistentVolumeSource { csi, ..PersistentVolumeSource::default() });
    }

    fn pod(&self, pod: SelinuxPod) -> Vec<String> {
        let key = Key::of(&pod.metadata);
        self.put(0, pod);
        self.look(&key)
    }

    fn view(&self, key: &Key) -> View {
        match self.room().observe(key, &[], &Reads::default()).unwrap() {
            Observation::View(view) => view,
            other => panic!("{other:?}"),
        }
    }

    /// What is told when a pod is looked at, `POD: TYPE REASON MESSAGE` without the end of conflicts' messages, and why it is tried again.
    fn look(&self, key: &Key) -> Vec<String> {
        let plan = Controller::plan(&self.view(key), Timestamp::UNIX_EPOCH);
        let told = |step: &Step| match step {
            Step::Emit(event) => {
                assert_eq!(event.regarding.kind, &SELINUX_PODS);
                let tail = " If both pods land on the same node, only one of them may access the volume.";
                let message = event.message.strip_suffix(tail);
                assert_eq!(message.is_none(), event.warning, "{}", event.message);
                let kind = if event.warning { "Warning" } else { "Normal" };
                let message = message.unwrap_or(&event.message);
                format!("{}: {kind} {} {message}", event.regarding.key, event.reason)
            }
            other => panic!("{other:?}"),
        };
        let mut said: Vec<String> = plan.steps.iter().map(told).collect();
        said.extend(plan.retry.clone().map(|why| format!("again: {why}")));
        let (_, note) = plan.into_parts();
        self.record.commit(key, note);
        said
    }

    /// The series that there are: `PROPERTY NS/POD=VALUE NS/POD=VALUE`.
    fn series(&self) -> Vec<String> {
        let families = self.registry.gather();
        let mut series: Vec<String> = families
            .iter()
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(|metric| {
                assert!((metric.get_gauge().get_value() - 1.0).abs() < 0.1);
                let value = |name: &str| {
                    metric.get_label().iter().find(|label| label.name() == name).unwrap().value().to_owned()
                };
                let pod = |n: u8| {
                    let part = |part: &str| value(&format!("pod{n}_{part}"));
                    format!("{}/{}={}", part("namespace"), part("name"), part("value"))
                };
                format!("{} {} {}", value("property"), pod(1), pod(2))
            })
            .collect();
        series.sort();
        series
    }
}

fn claim(namespace: &str, name: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = namespace.into();
    claim.metadata.name = name.into();
    claim.metadata.uid = format!("claim {namespace} {name}").into();
    claim.spec.volume_name = format!("{namespace}-{name}").into();
    claim.status.phase = "Bound".into();
    claim
}

fn volume(namespace: &str, name: &str, source: PersistentVolumeSource) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = format!("{namespace}-{name}").into();
    volume.spec.persistent_volume_source = source;
    volume.spec.claim_ref = Some(Box::new(ObjectReference {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("claim {namespace} {name}").into(),
        ..ObjectReference::default()
    }));
    volume
}

/// A pod that mounts claims, each `CLAIM LABEL`, with this policy. A label `-` is for containers that say none, `?` for several.
fn pod(name: &str, policy: &str, mounts: &[&str]) -> SelinuxPod {
    let mut pod = SelinuxPod::default();
    let (namespace, name) = name.split_once('/').unwrap_or(("ns", name));
    pod.metadata.namespace = namespace.into();
    pod.metadata.name = name.into();
    pod.metadata.uid = format!("pod {name}").into();
    let all = mounts.iter().map(|mount| mount.split_once(' ').unwrap());
    let label = |label: &str| match label {
        "-" => MountLabel::Unsaid,
        "?" => MountLabel::Several,
        label => MountLabel::One(label.into()),
    };
    let mut volumes: Vec<(Str, MountLabel)> =
        all.clone().map(|(claim, said)| (Str::from(claim), label(said))).collect();
    volumes.sort_by(|one, other| one.0.cmp(&other.0));
    pod.mounts = Mounts { change_policy: policy.into(), volumes };
    let named = |claim: &str| PodClaim { volume: claim.into(), source: PodClaimSource::Named(claim.into()) };
    pod.claims = all.map(|(claim, _)| named(claim)).collect();
    pod
}
