//! Objects, stores around the rooms, and plans as lines of text.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::super::claim;
use super::super::departed::Departed;
use super::super::rooms::{GroupRoom, PodRoom};
use super::super::view::Rooms;
use coxswain_machinery::api::kinds::{POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{
    ExactDeviceRequest, ResourceClaim, ResourceClaimConsumer, ResourceClaimTemplate,
};
use coxswain_machinery::api::scheduling::{PodGroup, PodGroupResourceClaim};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads, Room};
use coxswain_machinery::informer::{Dependents, Lister, Store, downcast};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Key, Plan};
use coxswain_machinery::wire::splice::{Edit, edit, put_bytes};
use coxswain_machinery::wire::{Message as _, Time, field, path};

pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Something of `ns`, of version 7 and the UID `NAME-uid`.
pub(super) fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: "ns".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "7".into(),
        ..ObjectMeta::default()
    }
}

fn decoded<T: Object>(kind: &Kind, bytes: Vec<u8>) -> Arc<T> {
    downcast((kind.decode)(&Bytes::from(bytes)).unwrap()).unwrap()
}

/// Which claims a pod asks for: entries with the name of a claim, or of a template after `from `.
fn claims_of_spec(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut spec = Vec::new();
    for (name, source) in entries {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, name.as_bytes());
        match source.strip_prefix("from ") {
            Some(template) => put_bytes(&mut entry, 4, template.as_bytes()),
            None if source.is_empty() => {}
            None => put_bytes(&mut entry, 3, source.as_bytes()),
        }
        put_bytes(&mut spec, 39, &entry);
    }
    spec
}

/// A pod `name` with these claims, of which some are recorded (an empty name: none is needed).
pub(super) fn pod(
    name: &str,
    entries: &[(&str, &str)],
    recorded: &[(&str, &str)],
    change: impl FnOnce(&mut Pod),
) -> Arc<Pod> {
    member("", name, (entries, recorded), change)
}

/// Names of entries, and what they name.
type Pairs<'a> = &'a [(&'a str, &'a str)];

/// The same in a PodGroup; in none if that is empty.
pub(super) fn member(
    group: &str,
    name: &str,
    (entries, recorded): (Pairs<'_>, Pairs<'_>),
    change: impl FnOnce(&mut Pod),
) -> Arc<Pod> {
    let mut pod = Pod { metadata: meta(name), ..Pod::default() };
    pod.status.phase = "Pending".into();
    change(&mut pod);
    let mut bytes = pod.to_bytes();
    let mut spec = [pod.spec.to_bytes(), claims_of_spec(entries)].concat();
    if !group.is_empty() {
        let mut reference = Vec::new();
        put_bytes(&mut reference, 1, group.as_bytes());
        put_bytes(&mut spec, 43, &reference);
    }
    bytes = edit(&bytes, &[Edit::SetBytes(path!(Pod, spec), spec)]).unwrap();
    for (entry, claim) in recorded {
        let mut made = Vec::new();
        put_bytes(&mut made, 1, entry.as_bytes());
        if !claim.is_empty() {
            put_bytes(&mut made, 2, claim.as_bytes());
        }
        bytes = edit(&bytes, &[Edit::Push(path!(Pod, status.resourceClaimStatuses), made)]).unwrap();
    }
    decoded(&PODS, bytes)
}

pub(super) fn finished(pod: &mut Pod) {
    pod.status.phase = "Succeeded".into();
}

pub(super) fn deleting(pod: &mut Pod) {
    pod.metadata.deletion_timestamp = Time::from_seconds(1);
}

pub(super) fn bound(pod: &mut Pod) {
    pod.spec.node_name = "node".into();
}

/// A claim of nobody.
pub(super) fn claim(name: &str, change: impl FnOnce(&mut ResourceClaim)) -> Arc<ResourceClaim> {
    let mut claim = ResourceClaim { metadata: meta(name), ..ResourceClaim::default() };
    change(&mut claim);
    decoded(&RESOURCE_CLAIMS, claim.to_bytes())
}

/// Made for an entry of a pod.
pub(super) fn made_for(claim: &mut ResourceClaim, pod: &str, entry: &str) {
    claim.metadata.owner_references = vec![OwnerReference {
        kind: "Pod".into(),
        name: pod.into(),
        uid: format!("{pod}-uid").into(),
        api_version: "v1".into(),
        controller: Some(true),
        block_owner_deletion: None,
    }];
    claim.metadata.annotations = [(super::super::ENTRY, entry)].into_iter().collect();
}

/// Made for an entry of a PodGroup.
pub(super) fn made_for_group(claim: &mut ResourceClaim, group: &str, entry: &str) {
    made_for(claim, group, entry);
    claim.metadata.owner_references[0].kind = "PodGroup".into();
    claim.metadata.owner_references[0].api_version = "scheduling.k8s.io/v1alpha2".into();
}

/// Allocated, and protected by the scheduler.
pub(super) fn allocated(claim: &mut ResourceClaim) {
    claim.metadata.finalizers.push("resource.kubernetes.io/delete-protection".into());
    claim.status.allocation = Some(Box::default());
}

/// A pod as a consumer.
pub(super) fn consumer(pod: &str) -> ResourceClaimConsumer {
    ResourceClaimConsumer {
        resource: "pods".into(),
        name: pod.into(),
        uid: format!("{pod}-uid").into(),
        ..ResourceClaimConsumer::default()
    }
}

/// A PodGroup as a consumer.
pub(super) fn group_consumer(group: &str) -> ResourceClaimConsumer {
    ResourceClaimConsumer {
        api_group: "scheduling.k8s.io".into(),
        resource: "podgroups".into(),
        ..consumer(group)
    }
}

/// A template with a label, an annotation and a request; `alternatives` makes it one of alternatives.
pub(super) fn template(name: &str, alternatives: bool) -> Arc<ResourceClaimTemplate> {
    template_of(name, if alternatives { 3 } else { 2 }, &[])
}

/// The same, for access as an administrator.
pub(super) fn admin_template(name: &str) -> Arc<ResourceClaimTemplate> {
    let exact = ExactDeviceRequest { admin_access: Some(true), ..ExactDeviceRequest::default() };
    template_of(name, 2, &exact.to_bytes())
}

fn template_of(name: &str, field: u32, asked: &[u8]) -> Arc<ResourceClaimTemplate> {
    let mut request = Vec::new();
    put_bytes(&mut request, 1, b"req");
    put_bytes(&mut request, field, asked);
    let (mut devices, mut spec, mut made) = (Vec::new(), Vec::new(), Vec::new());
    put_bytes(&mut devices, 1, &request);
    put_bytes(&mut spec, 1, &devices);
    let metadata = ObjectMeta {
        name: "not taken over".into(),
        labels: [("team", "a")].into_iter().collect(),
        annotations: [("note", "b")].into_iter().collect(),
        ..ObjectMeta::default()
    };
    put_bytes(&mut made, 1, &metadata.to_bytes());
    put_bytes(&mut made, 2, &spec);
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, field!(ResourceClaimTemplate, metadata), &meta(name).to_bytes());
    put_bytes(&mut bytes, field!(ResourceClaimTemplate, spec), &made);
    decoded(&RESOURCE_CLAIM_TEMPLATES, bytes)
}

/// A PodGroup with these claims, each made from a template.
pub(super) fn group(name: &str, entries: &[(&str, &str)]) -> Arc<PodGroup> {
    let mut group = PodGroup { metadata: meta(name), ..PodGroup::default() };
    group.spec.resource_claims = entries
        .iter()
        .map(|(entry, template)| PodGroupResourceClaim {
            name: (*entry).into(),
            resource_claim_name: None,
            resource_claim_template_name: Some((*template).into()),
        })
        .collect();
    decoded(&POD_GROUPS, group.to_bytes())
}

/// Stores, filled by hand.
pub(super) struct Cluster {
    pods: Arc<Store>,
    groups: Arc<Store>,
    claims: Arc<Store>,
    templates: Arc<Store>,
    pub(super) departed: Arc<Departed>,
    pub(super) with_groups: bool,
    pub(super) prioritized_lists: bool,
    pub(super) admin_access: bool,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let store = |kind| Arc::new(Store::new(kind));
        Self {
            pods: store(&PODS),
            groups: store(&POD_GROUPS),
            claims: store(&RESOURCE_CLAIMS),
            templates: store(&RESOURCE_CLAIM_TEMPLATES),
            departed: Arc::default(),
            with_groups: false,
            prioritized_lists: true,
            admin_access: true,
        }
    }

    pub(super) fn with(self, object: impl Into<Held>) -> Self {
        let (store, object): (_, AnyObject) = match object.into() {
            Held::Pod(held) => (&self.pods, held),
            Held::Group(held) => (&self.groups, held),
            Held::Claim(held) => (&self.claims, held),
            Held::Template(held) => (&self.templates, held),
        };
        store.upsert(&object);
        self
    }

    fn rooms(&self) -> Rooms {
        Rooms {
            pods: Lister::new(Arc::clone(&self.pods)),
            groups: self.with_groups.then(|| Lister::new(Arc::clone(&self.groups))),
            claims: Lister::new(Arc::clone(&self.claims)),
            by_controller: Dependents::new(&self.claims),
            templates: Lister::new(Arc::clone(&self.templates)),
            prioritized_lists: self.prioritized_lists,
            admin_access: self.admin_access,
        }
    }

    /// What is done about a pod, line by line; or what must be read first.
    pub(super) fn pod(&self, name: &str, read: &Reads) -> Result<Vec<String>, String> {
        decide(&PodRoom(Arc::new(self.rooms())), name, read)
    }

    /// What is done about a PodGroup, line by line; or what must be read first.
    pub(super) fn group(&self, name: &str, read: &Reads) -> Result<Vec<String>, String> {
        decide(&GroupRoom(Arc::new(self.rooms())), name, read)
    }

    /// What is done about a claim, line by line; or what must be read first.
    pub(super) fn claim(&self, name: &str, read: &Reads) -> Result<Vec<String>, String> {
        decide(&self.claim_room(), name, read)
    }

    fn claim_room(&self) -> claim::Controller {
        claim::Controller {
            claims: Lister::new(Arc::clone(&self.claims)),
            pods: Lister::new(Arc::clone(&self.pods)),
            groups: self.with_groups.then(|| Lister::new(Arc::clone(&self.groups))),
            departed: Arc::clone(&self.departed),
        }
    }

    /// Why.
    pub(super) fn reasons_of_pod(&self, name: &str) -> Vec<String> {
        why(&PodRoom(Arc::new(self.rooms())), name)
    }

    /// Why.
    pub(super) fn reasons_of_claim(&self, name: &str) -> Vec<String> {
        why(&self.claim_room(), name)
    }

    /// The writes to a claim.
    pub(super) fn writes_to_claim(&self, name: &str, read: &Reads) -> Vec<Write> {
        let Ok(Observation::View(view)) = self.claim_room().observe(&Key::new("ns", name), &[], read) else {
            panic!("no view")
        };
        claim::Controller::plan(&view, NOW).writes().cloned().collect()
    }

    /// The writes for a pod.
    pub(super) fn writes_for_pod(&self, name: &str, read: &Reads) -> Vec<Write> {
        let room = PodRoom(Arc::new(self.rooms()));
        let Ok(Observation::View(view)) = room.observe(&Key::new("ns", name), &[], read) else {
            panic!("no view")
        };
        PodRoom::plan(&view, NOW).writes().cloned().collect()
    }
}

/// What a cluster holds.
pub(super) enum Held {
    Pod(Arc<Pod>),
    Group(Arc<PodGroup>),
    Claim(Arc<ResourceClaim>),
    Template(Arc<ResourceClaimTemplate>),
}

impl From<Arc<Pod>> for Held {
    fn from(held: Arc<Pod>) -> Self {
        Self::Pod(held)
    }
}
impl From<Arc<PodGroup>> for Held {
    fn from(held: Arc<PodGroup>) -> Self {
        Self::Group(held)
    }
}
impl From<Arc<ResourceClaim>> for Held {
    fn from(held: Arc<ResourceClaim>) -> Self {
        Self::Claim(held)
    }
}
impl From<Arc<ResourceClaimTemplate>> for Held {
    fn from(held: Arc<ResourceClaimTemplate>) -> Self {
        Self::Template(held)
    }
}

fn decide<N, R: Room<N>>(room: &R, name: &str, read: &Reads) -> Result<Vec<String>, String> {
    match room.observe(&Key::new("ns", name), &[], read) {
        Ok(Observation::Nothing) => Ok(vec!["nothing".to_owned()]),
        Ok(Observation::Needs(needs)) => {
            Err(needs.iter().map(|need| shown_read(need)).collect::<Vec<_>>().join(", "))
        }
        Ok(Observation::View(view)) => Ok(lines(&R::plan(&view, NOW))),
        Err(ObserveError::Retry(why) | ObserveError::Terminal(why) | ObserveError::Canceled(why)) => Err(why),
    }
}

fn why<N, R: Room<N>>(room: &R, name: &str) -> Vec<String> {
    match room.observe(&Key::new("ns", name), &[], &Reads::default()) {
        Ok(Observation::View(view)) => R::reasons(&view, NOW),
        _ => panic!("no view"),
    }
}

fn shown_read(read: &Read) -> String {
    match read {
        Read::Object(kind, key) => format!("read {kind} {}", key.name),
        other => format!("{other:?}"),
    }
}

fn lines<N>(plan: &Plan<N>) -> Vec<String> {
    let mut lines: Vec<String> = plan.steps.iter().flat_map(shown).collect();
    lines.extend(plan.look_again.then(|| "look again".to_owned()));
    lines.extend(plan.retry.as_ref().map(|why| format!("retry: {why}")));
    lines
}

fn shown(step: &Step) -> Vec<String> {
    if let Step::Emit(event) = step {
        return vec![format!("event {}: {}", event.reason, event.message)];
    }
    step.writes().map(shown_write).collect()
}

fn shown_write(write: &Write) -> String {
    let slash = if write.subresource.is_empty() { "" } else { "/" };
    let what = format!("{}{slash}{} {}", write.kind.resource, write.subresource, write.key.name);
    match &write.verb {
        Verb::Create(body) => {
            let claim: Arc<ResourceClaim> = decoded(&RESOURCE_CLAIMS, body.to_vec());
            format!("create {what}{}", claim.metadata.generate_name)
        }
        Verb::Update(body) => {
            let claim: Arc<ResourceClaim> = decoded(&RESOURCE_CLAIMS, body.to_vec());
            format!("update {what}: {}", shown_claim(&claim))
        }
        Verb::UpdateLast(edits) => format!("update {what} as answered, {} edits", edits.len()),
        Verb::Patch(Patch::Apply { manager, force: true, object }) => {
            format!("apply {what} as {manager}: {}", object["status"]["resourceClaimStatuses"])
        }
        Verb::Delete { uid, resource_version, .. } => {
            format!("delete {what} {uid} {}", resource_version.as_deref().unwrap_or("any version"))
        }
        other => panic!("{other:?} is not expected here"),
    }
}

fn shown_claim(claim: &ResourceClaim) -> String {
    let consumers: Vec<_> = claim.status.reserved_for.iter().map(|held| held.name.as_str()).collect();
    let is_allocated = if claim.status.allocation.is_some() { "allocated" } else { "free" };
    let finalizers: Vec<_> = claim.metadata.finalizers.iter().map(AsRef::as_ref).collect::<Vec<&str>>();
    format!("{is_allocated}, for [{}], kept by [{}]", consumers.join(" "), finalizers.join(" "))
}
