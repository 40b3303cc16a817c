//! Objects, stores around a room with a server that carries plans out, and slices as lines of text.

use std::sync::Arc;

use bytes::Bytes;
use prometheus::Registry;

use super::super::*;
use crate::api::Object;
use crate::api::core::{Node, NodeCondition, Pod, Service};
use crate::api::discovery::{Endpoint, EndpointSlice};
use crate::framework::RoomMetrics;
use crate::informer::{Store, downcast};
use crate::model::plan::{Step, Verb, Write};
use crate::wire::Message;
use crate::wire::splice::{Edit, edit};

pub(super) use crate::controllers::objects::*;

/// A ready node with 4 CPUs.
pub(super) fn node(name: &str, zone: &str) -> Node {
    let mut node = Node { metadata: meta("", name), ..Node::default() };
    node.metadata.labels = labels(&[("topology.kubernetes.io/zone", zone)]);
    node.status.allocatable.insert("cpu", "4");
    node.status.conditions = vec![NodeCondition { r#type: "Ready".into(), status: "True".into() }];
    node
}

/// The stores, what reads them, and a server that names and versions what it stores.
pub(super) struct Bench {
    services: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) slices: Arc<Store>,
    nodes: Arc<Store>,
    pub(super) settings: Settings,
    version: std::cell::Cell<u64>,
}

impl Bench {
    /// Nodes `node-0`, `node-1` and `node-2`, in zones `a`, `b` and `c`; at most 3 endpoints in a slice.
    pub(super) fn new() -> Self {
        let store = |kind| Arc::new(Store::new(kind));
        let bench = Self {
            services: store(&SERVICES),
            pods: store(&PODS),
            slices: store(&ENDPOINT_SLICES),
            nodes: store(&NODES),
            settings: Settings { max_per_slice: 3, batch_period: Duration::ZERO, prefer_same: true },
            version: std::cell::Cell::new(1),
        };
        for (at, zone) in ["a", "b", "c"].into_iter().enumerate() {
            bench.add(&node(&format!("node-{at}"), zone));
        }
        bench
    }

    pub(super) fn of(service: &Service, pods: impl IntoIterator<Item = Pod>) -> Self {
        let bench = Self::new();
        bench.add(service);
        pods.into_iter().for_each(|pod| bench.add(&pod));
        bench
    }

    pub(super) fn store(&self, kind: &Kind) -> Arc<Store> {
        let all = [&self.services, &self.pods, &self.slices, &self.nodes];
        Arc::clone(all.into_iter().find(|store| store.kind() == kind).unwrap())
    }

    /// Stores an object as the API server would send it.
    pub(super) fn add<T: Object + Message>(&self, object: &T) {
        let upstream = [Service::UPSTREAM, Pod::UPSTREAM, EndpointSlice::UPSTREAM, Node::UPSTREAM];
        let stores = [&self.services, &self.pods, &self.slices, &self.nodes];
        let store = stores[upstream.iter().position(|name| *name == T::UPSTREAM).unwrap()];
        store.upsert(&(store.kind().decode)(&object.to_bytes().into()).unwrap());
    }

    pub(super) fn remove(&self, kind: &Kind, key: &Key) {
        self.store(kind).remove_key(key, "2");
    }

    pub(super) fn room(&self) -> Controller {
        Controller {
            services: Lister::new(Arc::clone(&self.services)),
            pods: Lister::new(Arc::clone(&self.pods)),
            slices: Lister::new(Arc::clone(&self.slices)),
            nodes: Lister::new(Arc::clone(&self.nodes)),
            settings: self.settings,
            metrics: Metrics::register(&RoomMetrics::new(Registry::new())).unwrap(),
        }
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Option<Plan> {
        let view = self.room().observe(&Key::new("default", "web"), failures).unwrap()?;
        let (made, counts) = plan::plan(&view);
        assert_eq!(
            format!("{:?}", (&made, &counts)),
            format!("{:?}", plan::plan(&view)),
            "a plan is a function of its view"
        );
        Some(made)
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan_after(&[]).unwrap()
    }

    /// Carries the plan out, and tells its steps.
    pub(super) fn reconcile(&self) -> Vec<String> {
        let plan = self.plan();
        let mut told = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Batch(writes) => {
                    assert!(!writes.is_empty());
                    told.extend(writes.iter().map(|write| self.perform(write)));
                }
                Step::Emit(event) => told.push(format!("{}: {}", event.reason, event.message)),
                other => panic!("{other:?} is no step of this room"),
            }
        }
        told
    }

    /// Reconciles, and tells the slices that are there afterwards; a second time there is nothing to do.
    pub(super) fn settled(&self) -> Vec<String> {
        self.reconcile();
        assert!(self.plan().is_empty(), "{:?}", self.plan());
        self.told()
    }

    fn perform(&self, write: &Write) -> String {
        assert_eq!(write.kind, &ENDPOINT_SLICES);
        let version = self.version.get() + 1;
        self.version.set(version);
        let stored = |name: &str, body: &[u8]| {
            let edits = [
                Edit::SetBytes(vec![1, 1], name.as_bytes().to_vec()),
                Edit::SetBytes(vec![1, 6], version.to_string().into_bytes()),
                Edit::SetBytes(vec![1, 5], format!("{name}-uid").into_bytes()),
            ];
            let bytes = Bytes::from(edit(body, &edits).unwrap());
            self.slices.upsert(&(ENDPOINT_SLICES.decode)(&bytes).unwrap());
        };
        match &write.verb {
            Verb::Create(body) => {
                assert_eq!(write.key.name, "");
                let made = EndpointSlice::decode(body).unwrap();
                let name = format!("{}{version}", made.metadata.generate_name);
                stored(&name, body);
                format!("create {name}")
            }
            Verb::Update(body) => {
                let held = self.slice(&write.key.name);
                let sent = EndpointSlice::decode(body).unwrap();
                assert_eq!(
                    (&sent.metadata.uid, &sent.metadata.resource_version, &sent.address_type),
                    (&held.metadata.uid, &held.metadata.resource_version, &held.address_type)
                );
                stored(&write.key.name, body);
                format!("update {}", write.key.name)
            }
            Verb::Delete { uid, .. } => {
                assert_eq!(*uid, self.slice(&write.key.name).metadata.uid);
                self.slices.remove_key(&write.key, &version.to_string());
                format!("delete {}", write.key.name)
            }
            other => panic!("{other:?} is not a write of this room"),
        }
    }

    pub(super) fn slice(&self, name: &str) -> Arc<EndpointSlice> {
        downcast(self.slices.find("default", name).unwrap_or_else(|| panic!("no slice {name}"))).unwrap()
    }

    pub(super) fn all(&self) -> Vec<Arc<EndpointSlice>> {
        let mut all: Vec<Arc<EndpointSlice>> = self.slices.list().into_iter().filter_map(downcast).collect();
        all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        all
    }

    /// Every slice as `NAME FAMILY PORTS: ENDPOINTS`.
    pub(super) fn told(&self) -> Vec<String> {
        self.all().iter().map(|slice| told(slice)).collect()
    }
}

/// `NAME FAMILY PORTS: ENDPOINTS`.
pub(super) fn told(slice: &EndpointSlice) -> String {
    let ports = slice
        .ports
        .iter()
        .map(|port| format!("{}:{}", port.name.as_deref().unwrap_or("?"), port.port.unwrap_or_default()));
    let endpoints = slice.endpoints().unwrap();
    let endpoints: Vec<String> = endpoints.iter().map(|(endpoint, _)| endpoint_told(endpoint)).collect();
    let ports: Vec<String> = ports.collect();
    let line = format!(
        "{} {} {}: {}",
        slice.metadata.name,
        slice.address_type,
        ports.join(","),
        endpoints.join(" ")
    );
    line.trim_end().to_owned()
}

/// `POD`, with `!ready`, `!serving` and `~` for terminating, and `>HINTS`.
fn endpoint_told(endpoint: &Endpoint) -> String {
    let mut line = endpoint.target_ref.as_ref().map_or("?", |pod| pod.name.as_str()).to_owned();
    let conditions = &endpoint.conditions;
    for (wrong, mark) in [
        (conditions.ready != Some(true), "!ready"),
        (conditions.serving != Some(true), "!serving"),
        (conditions.terminating != Some(false), "~"),
    ] {
        if wrong {
            line.push_str(mark);
        }
    }
    if let Some(hints) = &endpoint.hints {
        let zones = hints.for_zones.iter().map(|zone| zone.name.as_str());
        let nodes = hints.for_nodes.iter().map(|node| node.name.as_str());
        let all: Vec<&str> = zones.chain(nodes).collect();
        line.push('>');
        line.push_str(&all.join("+"));
    }
    line
}
