//! How Endpoints are written: new ones from nothing, those that are there by splicing, so that nothing in them is lost.

use bytes::Bytes;

use super::super::services::{HEADLESS, HeldEndpoints, MANAGED_BY, TRIGGER_TIME, is_headless};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::endpoints::{
    EndpointAddress, EndpointPort, Endpoints, NOT_READY, PORTS, READY, SUBSETS,
};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::metadata::{annotation_edit, label_edits};
use coxswain_machinery::model::subsets::{
    AddressIdentity, PortIdentity, Subset, are_same, identity, is_same, port_identity, repack,
};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::splice::{Edit, edit, put_bytes, retain_items};
use coxswain_machinery::wire::text::raw_bytes;
use coxswain_machinery::wire::{Labels, Message, Path, Str, Time, WireError, path};

/// Our name in [`MANAGED_BY`], and the original's.
const MANAGER: &str = "endpoint-controller";

/// Annotation of Endpoints from which addresses were left out, and what it says.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";

/// What the Endpoints of a Service should be.
pub(super) struct Draft<'a> {
    pub(super) service: &'a Service,
    pub(super) subsets: Vec<Subset>,
    /// Whether there were more addresses.
    pub(super) truncated: bool,
    /// When what is written has happened; `None` when it is not told.
    pub(super) since: Option<Time>,
}

impl Draft<'_> {
    /// Whether what is there says the same already.
    pub(super) fn is(&self, held: &HeldEndpoints) -> bool {
        let meta = &held.endpoints.metadata;
        let marked = meta.annotations.get(OVER_CAPACITY).is_some_and(|mark| *mark == TRUNCATED);
        let managed = meta.labels.get(MANAGED_BY).is_some_and(|manager| *manager == MANAGER);
        managed
            && copied(&meta.labels).eq(copied(&self.service.metadata.labels))
            && marked == self.truncated
            && (marked || !meta.annotations.contains_key(OVER_CAPACITY))
            // Subsets without a canonical form are written once. Differs: entangled-subsets
            && repack(&held.subsets).is_some_and(|held| are_same(&held, &self.subsets))
    }

    /// New Endpoints.
    pub(super) fn create(&self) -> Result<Vec<u8>, WireError> {
        let service = &self.service.metadata;
        let metadata = ObjectMeta {
            name: service.name.clone(),
            namespace: service.namespace.clone(),
            labels: self.labels(),
            annotations: self
                .annotations()
                .filter_map(|(name, value)| Some((Str::from(name), value?.into())))
                .collect(),
            ..ObjectMeta::default()
        };
        let mut body = Endpoints { metadata, ..Endpoints::default() }.to_bytes();
        for subset in &self.subsets {
            put_bytes(&mut body, SUBSETS, &Known::default().encode(subset)?);
        }
        Ok(body)
    }

    /// The Endpoints with other subsets, labels and annotations of ours.
    pub(super) fn update(&self, held: &HeldEndpoints) -> Result<Vec<u8>, WireError> {
        let endpoints = &held.endpoints;
        let mut body = retain_items(&endpoints.raw, SUBSETS, |_| false)?;
        body = edit(&body, &self.metadata_edits(&endpoints.metadata.labels))?;
        let known = Known::of(held);
        for subset in &self.subsets {
            put_bytes(&mut body, SUBSETS, &known.encode(subset)?);
        }
        Ok(body)
    }

    /// The Service's labels, and what the Endpoints are.
    fn labels(&self) -> Labels {
        let headless = is_headless(self.service).then_some((HEADLESS, ""));
        copied(&self.service.metadata.labels).chain(headless).chain([(MANAGED_BY, MANAGER)]).collect()
    }

    fn annotations(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let since = self.since.map(|since| since.to_string());
        [(TRIGGER_TIME, since), (OVER_CAPACITY, self.truncated.then(|| TRUNCATED.to_owned()))].into_iter()
    }

    fn metadata_edits(&self, held: &Labels) -> Vec<Edit> {
        let annotations = self.annotations().map(|(name, value)| annotation_edit(name, value));
        label_edits(held, &self.labels()).into_iter().chain(annotations).collect()
    }
}

/// The labels that Endpoints have from their Service: all but those that say what they are.
fn copied(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    let all = labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
    all.filter(|(label, _)| ![HEADLESS, MANAGED_BY].contains(label))
}

/// What is known of the parts of the Endpoints that are there, and may hold more than we know.
#[derive(Default)]
struct Known<'a> {
    addresses: HashMap<AddressIdentity, &'a (EndpointAddress, Bytes)>,
    ports: HashMap<PortIdentity, &'a Bytes>,
    /// By the ports of a subset, what else is in it.
    rests: HashMap<Vec<PortIdentity>, &'a [u8]>,
}

impl<'a> Known<'a> {
    fn of(held: &'a HeldEndpoints) -> Self {
        let mut known = Self::default();
        for subset in &held.subsets {
            known.addresses.extend(subset.addresses().map(|(held, _)| (identity(&held.0), held)));
            known.ports.extend(subset.ports.iter().map(|(port, bytes)| (port_identity(port), bytes)));
            if !subset.rest.is_empty() {
                let mut ports: Vec<_> = subset.ports.iter().map(|(port, _)| port_identity(port)).collect();
                ports.sort_unstable();
                known.rests.insert(ports, &subset.rest);
            }
        }
        known
    }

    fn encode(&self, subset: &Subset) -> Result<Vec<u8>, WireError> {
        let mut body = Vec::new();
        for (number, addresses) in [(READY, &subset.ready), (NOT_READY, &subset.not_ready)] {
            for address in addresses {
                put_bytes(&mut body, number, &self.address(address)?);
            }
        }
        for port in &subset.ports {
            put_bytes(&mut body, PORTS, &self.port(port));
        }
        if !self.rests.is_empty() {
            let ports: Vec<_> = subset.ports.iter().map(port_identity).collect();
            body.extend_from_slice(self.rests.get(&ports).copied().unwrap_or_default());
        }
        Ok(body)
    }

    fn port(&self, port: &EndpointPort) -> Bytes {
        let held = self.ports.get(&port_identity(port));
        held.map_or_else(|| port.to_bytes().into(), |bytes| Bytes::clone(bytes))
    }

    fn address(&self, wanted: &EndpointAddress) -> Result<Bytes, WireError> {
        let Some((held, bytes)) = self.addresses.get(&identity(wanted)) else {
            return Ok(wanted.to_bytes().into());
        };
        if is_same(held, wanted) {
            return Ok(bytes.clone());
        }
        let node_name = wanted.node_name.as_ref().map(|name| raw_bytes(name).into_owned());
        let target_ref = wanted.target_ref.as_ref().map(|target| target.to_bytes());
        let edits = [
            Edit::set_text(path!(EndpointAddress, hostname), &wanted.hostname),
            set(path!(EndpointAddress, nodeName), node_name),
            set(path!(EndpointAddress, targetRef), target_ref),
        ];
        edit(bytes, &edits).map(Into::into)
    }
}

fn set(path: Path, value: Option<Vec<u8>>) -> Edit {
    value.map_or_else(|| Edit::Clear(path), |value| Edit::SetBytes(path, value))
}
