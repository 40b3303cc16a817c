//! Objects, stores around a room with a server that carries plans out, and slices as lines of text.

use std::sync::Arc;

use super::super::*;
use coxswain_machinery::api::core::{Node, NodeCondition, Service};
use coxswain_machinery::api::discovery::{Endpoint, EndpointSlice};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::informer::{Labeled, Store};
use coxswain_machinery::model::{Plan, Step};
use coxswain_machinery::wire::Message;

pub(super) use crate::network::objects::*;

/// A ready node with 4 CPUs.
pub(super) fn node(name: &str, zone: &str) -> Node {
    let mut node = Node { metadata: meta("", name), ..Node::default() };
    node.metadata.labels = labels(&[("topology.kubernetes.io/zone", zone)]);
    node.status.allocatable.insert("cpu", "4");
    node.status.conditions =
        vec![NodeCondition { r#type: "Ready".into(), status: "True".into(), ..NodeCondition::default() }];
    node
}

/// The stores, and what reads them.
pub(super) struct Bench {
    services: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) slices: Slices,
    nodes: Arc<Store>,
    pub(super) settings: Settings,
}

impl Bench {
    /// Nodes `node-0`, `node-1` and `node-2`, in zones `a`, `b` and `c`; at most 3 endpoints in a slice.
    pub(super) fn new() -> Self {
        let store = |kind| Arc::new(Store::new(kind));
        let bench = Self {
            services: store(&SERVICES),
            pods: store(&PODS),
            slices: Slices::new(),
            nodes: store(&NODES),
            settings: Settings { max_per_slice: 3, prefer_same: true },
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
        let all = [&self.services, &self.pods, &self.slices.store, &self.nodes];
        Arc::clone(all.into_iter().find(|store| store.kind() == kind).unwrap())
    }

    /// Stores an object as the API server would send it.
    pub(super) fn add<T: Object + Message>(&self, object: &T) {
        let upstream = [Service::UPSTREAM, Pod::UPSTREAM, EndpointSlice::UPSTREAM, Node::UPSTREAM];
        let stores = [&self.services, &self.pods, &self.slices.store, &self.nodes];
        let store = stores[upstream.iter().position(|name| *name == T::UPSTREAM).unwrap()];
        let any: &dyn std::any::Any = object;
        let object = match any.downcast_ref::<Pod>() {
            // What is made of the rest of a pod is not in its encoding.
            Some(pod) => Arc::new(pod.clone()),
            None => (store.kind().decode)(&object.to_bytes().into()).unwrap(),
        };
        store.upsert(&object);
    }

    pub(super) fn remove(&self, kind: &Kind, key: &Key) {
        self.store(kind).remove_key(key, "2");
    }

    pub(super) fn room(&self) -> Controller {
        Controller {
            services: Lister::new(Arc::clone(&self.services)),
            pods: Labeled::new(&self.pods),
            slices: Indexed::new(&self.slices.store, &BY_SERVICE),
            nodes: Lister::new(Arc::clone(&self.nodes)),
            settings: self.settings,
        }
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Option<Plan> {
        let view = view::observe(&self.room(), &Key::new("default", "web"), failures).unwrap()?;
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
        self.slices.perform(&self.plan())
    }

    /// The plan without the event that says why there are no hints: that is emitted at every reconcile.
    pub(super) fn remaining(&self) -> Plan {
        let says_why =
            |step: &Step| matches!(step, Step::Emit(event) if event.reason == "TopologyAwareHintsDisabled");
        let mut plan = self.plan();
        plan.steps.retain(|step| !says_why(step));
        plan
    }

    /// Reconciles, and tells the slices that are there afterwards; a second time there is nothing to do.
    pub(super) fn settled(&self) -> Vec<String> {
        self.reconcile();
        assert!(self.remaining().is_empty(), "{:?}", self.remaining());
        self.told()
    }

    pub(super) fn slice(&self, name: &str) -> Arc<EndpointSlice> {
        self.slices.get(name)
    }

    pub(super) fn all(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices.all()
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
