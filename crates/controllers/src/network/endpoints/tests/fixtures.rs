//! Stores around the room with a server that carries plans out, and Endpoints as lines of text.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use super::super::*;
use coxswain_machinery::api::endpoints::EndpointAddress;
use coxswain_machinery::api::kinds::SERVICES;
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::informer::{Labeled, Store, downcast};
use coxswain_machinery::model::plan::{Expect, Step, Verb, Write};
use coxswain_machinery::wire::Message;
use coxswain_machinery::wire::splice::{Edit, edit};

pub(super) use crate::network::objects::*;

/// The stores, what reads them, and a server that versions what it stores.
pub(super) struct Bench {
    pub(super) services: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) endpoints: Arc<Store>,
    version: Cell<u64>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let store = |kind| Arc::new(Store::new(kind));
        Self {
            services: store(&SERVICES),
            pods: store(&PODS),
            endpoints: store(&ENDPOINTS),
            version: Cell::new(1),
        }
    }

    pub(super) fn of(service: &Service, pods: impl IntoIterator<Item = Pod>) -> Self {
        let bench = Self::new();
        bench.add(service);
        pods.into_iter().for_each(|pod| bench.add(&pod));
        bench
    }

    pub(super) fn store(&self, kind: &Kind) -> Arc<Store> {
        let all = [&self.services, &self.pods, &self.endpoints];
        Arc::clone(all.into_iter().find(|store| store.kind() == kind).unwrap())
    }

    /// Stores an object as the API server would send it.
    pub(super) fn add<T: Object + Message>(&self, object: &T) {
        let upstream = [Service::UPSTREAM, Pod::UPSTREAM, Endpoints::UPSTREAM];
        let stores = [&self.services, &self.pods, &self.endpoints];
        let store = stores[upstream.iter().position(|name| *name == T::UPSTREAM).unwrap()];
        let anything: &dyn std::any::Any = object;
        match anything.downcast_ref::<Pod>() {
            // What is made of the rest of a pod is not in its encoding.
            Some(pod) => store.upsert(&(Arc::new(pod.clone()) as AnyObject)),
            None => store.upsert(&any(store.kind(), object)),
        }
    }

    /// Stores Endpoints with these bytes.
    pub(super) fn put(&self, bytes: impl Into<Bytes>) {
        self.endpoints.upsert(&(ENDPOINTS.decode)(&bytes.into()).unwrap());
    }

    pub(super) fn remove(&self, kind: &Kind, name: &str) {
        self.store(kind).remove_key(&Key::new("default", name), "2");
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Option<Plan> {
        let room = Controller {
            services: Lister::new(Arc::clone(&self.services)),
            pods: Labeled::new(&self.pods),
            endpoints: Lister::new(Arc::clone(&self.endpoints)),
        };
        let view = view::observe(&room, &Key::new("default", "web"), failures).unwrap()?;
        let made = plan::plan(&view);
        let again = format!("{:?}", plan::plan(&view));
        assert_eq!(format!("{made:?}"), again, "a plan is a function of its view");
        Some(made)
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan_after(&[]).unwrap()
    }

    /// Carries the plan out, and tells its steps.
    pub(super) fn reconcile(&self) -> Vec<String> {
        let Some(plan) = self.plan_after(&[]) else { return Vec::new() };
        assert_eq!(plan.retry, None);
        let steps = plan.steps.iter().map(|step| match step {
            Step::Write(write) => self.perform(write),
            Step::Verify(verify) => {
                assert_eq!((verify.kind, &verify.expect), (&SERVICES, &Expect::Absent));
                format!("verify {}", verify.key)
            }
            other => panic!("{other:?} is no step of this room"),
        });
        steps.collect()
    }

    /// Reconciles, and tells what the Endpoints are afterwards; a second time there is nothing to do.
    pub(super) fn settled(&self) -> Vec<String> {
        self.reconcile();
        let again = self.plan();
        assert!(again.is_empty(), "{again:?}");
        self.told()
    }

    fn perform(&self, write: &Write) -> String {
        assert_eq!(write.kind, &ENDPOINTS);
        let version = self.version.get() + 1;
        self.version.set(version);
        let store = |body: &[u8], uid: &str| {
            let edits = [
                Edit::SetBytes(&[1, 6], version.to_string().into_bytes()),
                Edit::SetBytes(&[1, 5], uid.as_bytes().to_vec()),
            ];
            self.put(edit(body, &edits).unwrap());
        };
        match &write.verb {
            Verb::Create(body) => {
                assert!(write.tolerate.namespace_terminating && self.endpoints.get(&write.key).is_none());
                let made = Endpoints::decode(body).unwrap().metadata;
                assert_eq!(Key::of(&made), write.key);
                store(body, &format!("{version}-uid"));
                "create".to_owned()
            }
            Verb::Update(body) => {
                let (held, sent) = (self.held(), Endpoints::decode(body).unwrap());
                let (held, sent) = (&held.metadata, &sent.metadata);
                assert_eq!((&sent.uid, &sent.resource_version), (&held.uid, &held.resource_version));
                store(body, &held.uid.to_str());
                "update".to_owned()
            }
            Verb::Delete { uid, .. } => {
                assert_eq!(*uid, self.held().metadata.uid);
                self.endpoints.remove_key(&write.key, &version.to_string());
                "delete".to_owned()
            }
            other => panic!("{other:?} is not a write of this room"),
        }
    }

    pub(super) fn held(&self) -> Arc<Endpoints> {
        downcast(self.endpoints.find("default", "web").unwrap()).unwrap()
    }

    /// Every subset as `NAME:PORT …: READY / NOT READY`.
    pub(super) fn told(&self) -> Vec<String> {
        let subsets = self.held().subsets().unwrap();
        let line = |subset: &coxswain_machinery::api::endpoints::EncodedSubset| {
            let ports = subset.ports.iter().map(|(port, _)| format!("{}:{}", port.name, port.port));
            let ips = |all: &[(EndpointAddress, Bytes)]| {
                all.iter().map(|(address, _)| address.ip.to_string()).collect::<Vec<_>>().join(" ")
            };
            let ports = ports.collect::<Vec<_>>().join(",");
            let line = format!("{ports}: {} / {}", ips(&subset.ready), ips(&subset.not_ready));
            line.trim_end_matches([' ', '/']).to_owned()
        };
        subsets.iter().map(line).collect()
    }
}
