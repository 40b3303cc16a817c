//! Objects for the tests of rooms that say where Services are served, and a server that keeps their slices.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use coxswain_machinery::api::core::{Service, ServicePort};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::kinds::ENDPOINT_SLICES;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::{Pod, PodCondition, PodIp};
use coxswain_machinery::api::shape::{NamedPort, PodShape};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::Plan;
use coxswain_machinery::model::plan::{Step, Verb, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{IntOrString, Message};

pub(super) use crate::fixtures::{NOW, ago, deleting, labels};

pub(super) fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: namespace.into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        ..ObjectMeta::default()
    }
}

/// `default/web`: selects `app=web`, port 80, IPv4.
pub(super) fn service(change: impl FnOnce(&mut Service)) -> Service {
    let mut service = Service { metadata: meta("default", "web"), ..Service::default() };
    service.metadata.creation_timestamp = ago(10_000);
    service.spec.selector = labels(&[("app", "web")]);
    service.spec.cluster_ip = "10.96.0.1".into();
    service.spec.r#type = "ClusterIP".into();
    service.spec.ip_families = vec!["IPv4".into()];
    service.spec.ports = vec![port("", 80)];
    change(&mut service);
    service
}

pub(super) fn port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: name.into(),
        protocol: "TCP".into(),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    }
}

/// A running pod `app=web` on `node-0`, with the address `10.0.0.NUMBER`, ready for 1000 seconds.
pub(super) fn pod(number: usize, change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = Pod { metadata: meta("default", &format!("p{number:03}")), ..Pod::default() };
    pod.metadata.labels = labels(&[("app", "web")]);
    pod.spec.node_name = "node-0".into();
    pod.status.phase = "Running".into();
    pod.status.pod_ips = vec![PodIp { ip: format!("10.0.{}.{}", number / 250, number % 250).into() }];
    ready(&mut pod, true, 1000);
    change(&mut pod);
    pod
}

/// The pod with a port of this name.
pub(super) fn named_port(pod: &mut Pod, name: &str, number: i32, protocol: &str) {
    let port = NamedPort { name: name.into(), number, protocol: protocol.into() };
    pod.shape = PodShape { named_ports: vec![port], ..PodShape::default() }.into();
}

pub(super) fn ready(pod: &mut Pod, ready: bool, since: i64) {
    let status = if ready { "True" } else { "False" };
    pod.status.conditions = vec![PodCondition {
        r#type: "Ready".into(),
        status: status.into(),
        last_transition_time: ago(since),
        ..PodCondition::default()
    }];
}

/// The object as the API server would send it.
pub(super) fn any<T: Object + Message>(kind: &Kind, object: &T) -> AnyObject {
    (kind.decode)(&object.to_bytes().into()).unwrap()
}

/// EndpointSlices as a server keeps them: it names and versions what it stores.
pub(super) struct Slices {
    pub(super) store: Arc<Store>,
    version: Cell<u64>,
}

impl Slices {
    pub(super) fn new() -> Self {
        Self { store: Arc::new(Store::new(&ENDPOINT_SLICES)), version: Cell::new(1) }
    }

    /// Stores a slice with these bytes.
    pub(super) fn put(&self, bytes: impl Into<Bytes>) {
        self.store.upsert(&(ENDPOINT_SLICES.decode)(&bytes.into()).unwrap());
    }

    pub(super) fn get(&self, name: &str) -> Arc<EndpointSlice> {
        downcast(self.store.find("default", name).unwrap_or_else(|| panic!("no slice {name}"))).unwrap()
    }

    /// By name.
    pub(super) fn all(&self) -> Vec<Arc<EndpointSlice>> {
        let mut all: Vec<Arc<EndpointSlice>> = self.store.list().into_iter().filter_map(downcast).collect();
        all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        all
    }

    /// Carries a plan out, and tells its steps.
    pub(super) fn perform(&self, plan: &Plan) -> Vec<String> {
        let mut told = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Each(_) | Step::Chains { .. } => {
                    assert!(!step.is_empty());
                    told.extend(step.writes().map(|write| self.write(write)));
                }
                Step::Emit(event) => told.push(format!("{}: {}", event.reason, event.message)),
                other => panic!("{other:?} is no step about slices"),
            }
        }
        told
    }

    fn write(&self, write: &Write) -> String {
        assert_eq!(write.kind, &ENDPOINT_SLICES);
        let version = self.version.get() + 1;
        self.version.set(version);
        let stored = |name: &str, body: &[u8]| {
            let edits = [
                Edit::SetBytes(&[1, 1], name.as_bytes().to_vec()),
                Edit::SetBytes(&[1, 6], version.to_string().into_bytes()),
                Edit::SetBytes(&[1, 5], format!("{name}-uid").into_bytes()),
            ];
            self.put(edit(body, &edits).unwrap());
        };
        match &write.verb {
            Verb::Create(body) => {
                assert!(write.tolerate.namespace_terminating && write.key.name.is_empty());
                let made = EndpointSlice::decode(body).unwrap();
                let name = format!("{}{version}", made.metadata.generate_name);
                stored(&name, body);
                format!("create {name}")
            }
            Verb::Update(body) => {
                let held = self.get(&write.key.name);
                let sent = EndpointSlice::decode(body).unwrap();
                assert_eq!(
                    (&sent.metadata.uid, &sent.metadata.resource_version, &sent.address_type),
                    (&held.metadata.uid, &held.metadata.resource_version, &held.address_type)
                );
                stored(&write.key.name, body);
                format!("update {}", write.key.name)
            }
            Verb::Delete { uid, .. } => {
                assert_eq!(*uid, self.get(&write.key.name).metadata.uid);
                self.store.remove_key(&write.key, &version.to_string());
                format!("delete {}", write.key.name)
            }
            other => panic!("{other:?} is not a write of slices"),
        }
    }
}
