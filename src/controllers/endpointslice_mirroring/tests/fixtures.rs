//! Endpoints, stores around the room with a server that carries plans out, and slices as lines of text.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use super::super::*;
use crate::api::Object;
use crate::api::endpoints::{EndpointAddress, EndpointPort, NOT_READY, PORTS, READY, SUBSETS};
use crate::framework::RoomMetrics;
use crate::informer::{Store, downcast};
use crate::model::plan::{Step, Verb, Write};
use crate::wire::Message;
use crate::wire::splice::{Edit, edit, put_bytes};

pub(super) use crate::controllers::objects::*;

/// A Service without a selector.
pub(super) fn manual() -> Service {
    service(|service| service.spec.selector = labels(&[]))
}

/// A subset: addresses that are ready, addresses that are not, ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Subset {
    pub(super) ready: Vec<EndpointAddress>,
    pub(super) not_ready: Vec<EndpointAddress>,
    pub(super) ports: Vec<EndpointPort>,
}

pub(super) fn addresses(ips: &[&str]) -> Vec<EndpointAddress> {
    ips.iter().map(|ip| EndpointAddress { ip: (*ip).into(), ..EndpointAddress::default() }).collect()
}

pub(super) fn subset(ready: &[&str], not_ready: &[&str], ports: &[i32]) -> Subset {
    let port =
        |number: &i32| EndpointPort { port: *number, protocol: "TCP".into(), ..EndpointPort::default() };
    Subset {
        ready: addresses(ready),
        not_ready: addresses(not_ready),
        ports: ports.iter().map(port).collect(),
    }
}

/// The Endpoints `default/web`.
pub(super) fn endpoints(subsets: &[Subset], change: impl FnOnce(&mut Endpoints)) -> Vec<u8> {
    let mut endpoints = Endpoints { metadata: meta("default", "web"), ..Endpoints::default() };
    change(&mut endpoints);
    let mut body = endpoints.to_bytes();
    for subset in subsets {
        let mut encoded = Vec::new();
        for (number, addresses) in [(READY, &subset.ready), (NOT_READY, &subset.not_ready)] {
            for address in addresses {
                put_bytes(&mut encoded, number, &address.to_bytes());
            }
        }
        for port in &subset.ports {
            put_bytes(&mut encoded, PORTS, &port.to_bytes());
        }
        put_bytes(&mut body, SUBSETS, &encoded);
    }
    body
}

/// The stores, what reads them, and a server that names and versions what it stores.
pub(super) struct Bench {
    pub(super) endpoints: Arc<Store>,
    services: Arc<Store>,
    pub(super) slices: Arc<Store>,
    pub(super) max_per_subset: usize,
    version: Cell<u64>,
}

impl Bench {
    /// At most 5 addresses of a subset.
    pub(super) fn new() -> Self {
        let store = |kind| Arc::new(Store::new(kind));
        Self {
            endpoints: store(&ENDPOINTS),
            services: store(&SERVICES),
            slices: store(&ENDPOINT_SLICES),
            max_per_subset: 5,
            version: Cell::new(1),
        }
    }

    /// With a Service without a selector, and Endpoints with these subsets.
    pub(super) fn of(subsets: &[Subset]) -> Self {
        let bench = Self::new();
        bench.add(&manual());
        bench.put(endpoints(subsets, |_| {}));
        bench
    }

    pub(super) fn store(&self, kind: &Kind) -> Arc<Store> {
        let all = [&self.endpoints, &self.services, &self.slices];
        Arc::clone(all.into_iter().find(|store| store.kind() == kind).unwrap())
    }

    pub(super) fn add<T: Object + Message>(&self, object: &T) {
        let upstream = [Service::UPSTREAM, EndpointSlice::UPSTREAM];
        let stores = [&self.services, &self.slices];
        let store = stores[upstream.iter().position(|name| *name == T::UPSTREAM).unwrap()];
        store.upsert(&any(store.kind(), object));
    }

    /// Stores Endpoints with these bytes.
    pub(super) fn put(&self, bytes: impl Into<Bytes>) {
        self.endpoints.upsert(&(ENDPOINTS.decode)(&bytes.into()).unwrap());
    }

    /// Stores a slice with these bytes.
    pub(super) fn put_slice(&self, bytes: impl Into<Bytes>) {
        self.slices.upsert(&(ENDPOINT_SLICES.decode)(&bytes.into()).unwrap());
    }

    pub(super) fn remove(&self, kind: &Kind) {
        self.store(kind).remove_key(&Key::new("default", "web"), "2");
    }

    fn view(&self, failures: &[Failure]) -> Option<View> {
        let room = Controller {
            endpoints: Lister::new(Arc::clone(&self.endpoints)),
            services: Lister::new(Arc::clone(&self.services)),
            slices: Lister::new(Arc::clone(&self.slices)),
            max_per_subset: self.max_per_subset,
            batch_period: Duration::ZERO,
            metrics: Metrics::register(&RoomMetrics::new(prometheus::Registry::new())).unwrap(),
        };
        room.observe(&Key::new("default", "web"), failures).unwrap()
    }

    /// What the plan comes to.
    pub(super) fn count(&self) -> plan::Count {
        plan::plan(&self.view(&[]).unwrap()).1
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Option<Plan> {
        let view = self.view(failures)?;
        let made = plan::plan(&view).0;
        let again = format!("{:?}", plan::plan(&view).0);
        assert_eq!(format!("{made:?}"), again, "a plan is a function of its view");
        Some(made)
    }

    /// Carries the plan out, and tells its steps.
    pub(super) fn reconcile(&self) -> Vec<String> {
        let Some(plan) = self.plan_after(&[]) else { return Vec::new() };
        assert_eq!(plan.retry, None);
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
        let again = self.plan_after(&[]).unwrap_or_default();
        assert!(again.is_empty(), "{again:?}");
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
            self.put_slice(edit(body, &edits).unwrap());
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

    /// Every slice as `NAME FAMILY PORTS: ADDRESSES`, with `!` behind those that are not ready.
    pub(super) fn told(&self) -> Vec<String> {
        let line = |slice: &EndpointSlice| {
            let ports = slice.ports.iter().map(|port| port.port.unwrap_or_default().to_string());
            let endpoints = slice.endpoints().unwrap().into_iter().map(|(endpoint, _)| {
                let mark = if endpoint.conditions.ready == Some(true) { "" } else { "!" };
                format!("{}{mark}", endpoint.addresses[0])
            });
            format!(
                "{} {} {}: {}",
                slice.metadata.name,
                slice.address_type,
                ports.collect::<Vec<_>>().join(","),
                endpoints.collect::<Vec<_>>().join(" ")
            )
        };
        self.all().iter().map(|slice| line(slice)).collect()
    }
}
