//! Endpoints, stores around the room with a server that carries plans out, and slices as lines of text.

use std::sync::Arc;

use bytes::Bytes;

use super::super::*;
use coxswain_machinery::api::endpoints::{EndpointAddress, EndpointPort, NOT_READY, PORTS, READY, SUBSETS};
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::informer::Store;
use coxswain_machinery::wire::Message;
use coxswain_machinery::wire::splice::put_bytes;

pub(super) use crate::network::objects::*;

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

/// The stores, and what reads them.
pub(super) struct Bench {
    pub(super) endpoints: Arc<Store>,
    services: Arc<Store>,
    pub(super) slices: Slices,
    pub(super) max_per_subset: usize,
}

impl Bench {
    /// At most 5 addresses of a subset.
    pub(super) fn new() -> Self {
        let store = |kind| Arc::new(Store::new(kind));
        Self {
            endpoints: store(&ENDPOINTS),
            services: store(&SERVICES),
            slices: Slices::new(),
            max_per_subset: 5,
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
        let all = [&self.endpoints, &self.services, &self.slices.store];
        Arc::clone(all.into_iter().find(|store| store.kind() == kind).unwrap())
    }

    pub(super) fn add<T: Object + Message>(&self, object: &T) {
        let upstream = [Service::UPSTREAM, EndpointSlice::UPSTREAM];
        let stores = [&self.services, &self.slices.store];
        let store = stores[upstream.iter().position(|name| *name == T::UPSTREAM).unwrap()];
        store.upsert(&any(store.kind(), object));
    }

    /// Stores Endpoints with these bytes.
    pub(super) fn put(&self, bytes: impl Into<Bytes>) {
        self.endpoints.upsert(&(ENDPOINTS.decode)(&bytes.into()).unwrap());
    }

    pub(super) fn remove(&self, kind: &Kind) {
        self.store(kind).remove_key(&Key::new("default", "web"), "2");
    }

    /// What is observed of the Endpoints.
    pub(super) fn observe(&self) -> Result<Option<View>, ObserveError> {
        let room = Controller {
            endpoints: Lister::new(Arc::clone(&self.endpoints)),
            services: Lister::new(Arc::clone(&self.services)),
            slices: Indexed::new(&self.slices.store, &BY_SERVICE),
            max_per_subset: self.max_per_subset,
        };
        view::observe(&room, &Key::new("default", "web"))
    }

    fn view(&self) -> Option<View> {
        self.observe().unwrap()
    }

    /// What the plan comes to.
    pub(super) fn count(&self) -> plan::Count {
        plan::plan(&self.view().unwrap()).1
    }

    pub(super) fn plan(&self) -> Option<Plan> {
        let view = self.view()?;
        let made = plan::plan(&view).0;
        let again = format!("{:?}", plan::plan(&view).0);
        assert_eq!(format!("{made:?}"), again, "a plan is a function of its view");
        Some(made)
    }

    /// Carries the plan out, and tells its steps.
    pub(super) fn reconcile(&self) -> Vec<String> {
        let Some(plan) = self.plan() else { return Vec::new() };
        assert_eq!(plan.retry, None);
        self.slices.perform(&plan)
    }

    /// Reconciles, and tells the slices that are there afterwards; a second time there is nothing to do.
    pub(super) fn settled(&self) -> Vec<String> {
        self.reconcile();
        let again = self.plan().unwrap_or_default();
        assert!(again.is_empty(), "{again:?}");
        self.told()
    }

    pub(super) fn slice(&self, name: &str) -> Arc<EndpointSlice> {
        self.slices.get(name)
    }

    pub(super) fn all(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices.all()
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
