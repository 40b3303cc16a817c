//! Objects, stores around a room, and plans as lines of text.

use std::sync::Arc;

use bytes::Bytes;

use super::super::view::{Gates, View};
use super::super::*;
use coxswain_machinery::api::apps::{RollingUpdateStatefulSet, StatefulSet};
use coxswain_machinery::api::kinds::CONTROLLER_REVISION_DOCUMENTS;
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::{PodClaim, PodClaimSource};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::informer::{Dependents, Store};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::revisions::{NewRevision, Numbers, TemplateDocument, cut_name, template_of};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message, Raw, Str};

pub(super) use crate::fixtures::{ago, deleting, failed, labels, now, orphaned, ready, unready};

/// A template with this image.
pub(super) fn template(image: &str) -> Raw {
    let document = format!(
        r#"{{"spec":{{"template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"web",
        "image":"{image}"}}],"volumes":[{{"name":"data","emptyDir":{{}}}},{{"name":"own"}}]}}}}}}}}"#
    );
    Raw(template_of(document.as_bytes()).unwrap().into())
}

/// A template of claims.
pub(super) fn claim_template(name: &str) -> Raw {
    let metadata =
        ObjectMeta { name: name.into(), labels: labels(&[("tier", "store")]), ..ObjectMeta::default() };
    Raw(PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() }.to_bytes().into())
}

/// `default/web`: 3 pods of `web:1` wanted one after the other, generation 1, no status yet.
pub(super) fn set(change: impl FnOnce(&mut StatefulSet)) -> Arc<StatefulSet> {
    let metadata = ObjectMeta {
        name: "web".into(),
        namespace: "default".into(),
        uid: "web-uid".into(),
        resource_version: "100".into(),
        generation: 1,
        annotations: labels(&[("note", "kept")]),
        ..ObjectMeta::default()
    };
    let mut set = StatefulSet { metadata, ..StatefulSet::default() };
    set.spec.replicas = Some(3);
    set.spec.service_name = "service".into();
    set.spec.selector = LabelSelector { match_labels: labels(&[("app", "web")]), ..Default::default() };
    set.spec.template = template("web:1");
    set.spec.pod_management_policy = "OrderedReady".into();
    set.spec.update_strategy.r#type = "RollingUpdate".into();
    set.spec.update_strategy.rolling_update = Some(Box::new(RollingUpdateStatefulSet {
        partition: Some(0),
        ..RollingUpdateStatefulSet::default()
    }));
    change(&mut set);
    decoded(set.to_bytes())
}

/// A StatefulSet as the API server would send these bytes.
pub(super) fn decoded(bytes: Vec<u8>) -> Arc<StatefulSet> {
    typed((STATEFUL_SETS.decode)(&Bytes::from(bytes)).unwrap())
}

pub(super) fn typed<T: Object>(object: AnyObject) -> Arc<T> {
    let any: Arc<dyn std::any::Any + Send + std::marker::Sync> = object;
    any.downcast().unwrap()
}

pub(super) fn owner() -> OwnerReference {
    controller_reference(&set(|_| {}).metadata, &STATEFUL_SETS)
}

/// The document of a template with this image.
pub(super) fn document(image: &str) -> TemplateDocument {
    TemplateDocument::of(&template(image), Numbers::Doubles).unwrap()
}

/// The name of the revision of a template with this image.
pub(super) fn revision_name(image: &str) -> String {
    cut_name("web", &document(image).hash(0))
}

/// The encoded revision of a template with this image.
pub(super) fn revision_bytes(image: &str, number: i64) -> Vec<u8> {
    let set = set(|_| {});
    let create = NewRevision {
        owner: &set.metadata,
        kind: &STATEFUL_SETS,
        name: &revision_name(image),
        labels: labels(&[("app", "web")]),
        document: &document(image),
        number,
    };
    let Verb::Create(body) = create.create().verb else { panic!("a create") };
    let version = Edit::SetBytes(&[1, 6], format!("{number}00").into_bytes());
    edit(&body, &[version, Edit::SetBytes(&[1, 5], format!("{image}-uid").into_bytes())]).unwrap()
}

pub(super) fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
    typed((CONTROLLER_REVISIONS.decode)(&revision_bytes(image, number).into()).unwrap())
}

/// What state a pod is brought into.
pub(super) type State = fn(&mut Pod);

/// A pod: its ordinal, its image, its state.
pub(super) type Member<'a> = (i32, &'a str, State);

/// A running pod of `default/web` with this image, ready for 1000 seconds.
pub(super) fn pod(ordinal: i32, image: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let name = format!("web-{ordinal}");
    let metadata = ObjectMeta {
        name: name.as_str().into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        labels: labels(&[
            ("app", "web"),
            ("controller-revision-hash", &revision_name(image)),
            ("statefulset.kubernetes.io/pod-name", &name),
        ]),
        creation_timestamp: ago(1100),
        owner_references: vec![owner()],
        ..ObjectMeta::default()
    };
    let mut pod = Pod { metadata, ..Pod::default() };
    let source = PodClaimSource::Named(Str::from(format!("data-{name}")));
    pod.claims = [PodClaim { volume: "data".into(), source }].into_iter().collect();
    pod.status.phase = "Running".into();
    pod.status.conditions = vec![ready(ago(1000))];
    change(&mut pod);
    Arc::new(pod)
}

pub(super) fn pending(pod: &mut Pod) {
    unready(pod);
    pod.status.phase = "Pending".into();
}

/// A claim of `default/web`, as the API server would send it.
pub(super) fn claim(
    name: &str,
    change: impl FnOnce(&mut PersistentVolumeClaim),
) -> Arc<PersistentVolumeClaim> {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "70".into(),
        ..ObjectMeta::default()
    };
    let mut claim = PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() };
    change(&mut claim);
    typed((PERSISTENT_VOLUME_CLAIMS.decode)(&claim.to_bytes().into()).unwrap())
}

/// The stores, what is read live, and a room that reads them.
pub(super) struct Bench {
    pub(super) sets: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) claims: Arc<Store>,
    pub(super) revisions: Arc<Store>,
    /// The documents of revisions, by their names.
    pub(super) documents: Vec<(String, Vec<u8>)>,
    pub(super) gates: Gates,
    memory: Arc<Remembered>,
}

impl Bench {
    pub(super) fn empty() -> Self {
        Self {
            sets: Arc::new(Store::new(&STATEFUL_SETS)),
            pods: Arc::new(Store::new(&PODS)),
            claims: Arc::new(Store::new(&PERSISTENT_VOLUME_CLAIMS)),
            revisions: Arc::new(Store::new(&CONTROLLER_REVISIONS)),
            documents: Vec::new(),
            gates: Gates { max_unavailable: false, semantic_revisions: true },
            memory: Arc::default(),
        }
    }

    /// With the revision of `web:1`.
    pub(super) fn of(set: &Arc<StatefulSet>, pods: &[Arc<Pod>]) -> Self {
        let bench = Self::empty();
        bench.sets.upsert(&(Arc::clone(set) as AnyObject));
        for pod in pods {
            bench.pods.upsert(&(Arc::clone(pod) as AnyObject));
        }
        bench.with_revision("web:1", 1)
    }

    pub(super) fn with_revision(mut self, image: &str, number: i64) -> Self {
        self.revisions.upsert(&(revision(image, number) as AnyObject));
        self.documents.push((revision_name(image), revision_bytes(image, number)));
        self
    }

    pub(super) fn with_claims(self, claims: &[Arc<PersistentVolumeClaim>]) -> Self {
        for claim in claims {
            self.claims.upsert(&(Arc::clone(claim) as AnyObject));
        }
        self
    }

    pub(super) fn room(&self) -> Controller {
        Controller {
            sets: Lister::new(Arc::clone(&self.sets)),
            pods: Dependents::new(&self.pods),
            claims: Lister::new(Arc::clone(&self.claims)),
            revisions: Dependents::new(&self.revisions),
            gates: self.gates,
            memory: Arc::clone(&self.memory),
        }
    }

    /// What is observed with all documents at hand.
    pub(super) fn view(&self, failures: &[Failure]) -> View {
        self.view_after(failures, Reads::default())
    }

    pub(super) fn view_after(&self, failures: &[Failure], mut read: Reads) -> View {
        for (name, bytes) in &self.documents {
            let document = (CONTROLLER_REVISION_DOCUMENTS.decode)(&bytes.clone().into()).unwrap();
            let key = Key::new("default", name.as_str());
            read = read.with_object(&CONTROLLER_REVISION_DOCUMENTS, key, Ok(Some(document)));
        }
        match view::observe(&self.room(), &Key::new("default", "web"), failures, &read).unwrap() {
            Observation::View(view) => view,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan::plan(&self.view(&[]), now()).0
    }

    /// The plan's steps as text.
    pub(super) fn lines(&self) -> Vec<String> {
        lines(&self.plan())
    }

    /// The plan's steps but for the status.
    pub(super) fn acts(&self) -> Vec<String> {
        self.lines().into_iter().filter(|line| !line.starts_with("status")).collect()
    }
}

/// A write of `verb` that the server answered with 403 and `message`.
pub(super) fn refused(kind: &'static Kind, verb: &'static str, name: &str, message: &str) -> Failure {
    Failure {
        what: String::new(),
        verb,
        subresource: "",
        kind,
        key: Key::new("default", name),
        code: 403,
        reason: "Forbidden".into(),
        message: message.to_owned(),
        existing: None,
    }
}

/// What a plan does, a line for each step; chains and batches are one line.
pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let told = |step: &Step| match step {
        Step::Verify(verify) => format!("verify {} {:?}", verify.key, verify.expect),
        Step::Emit(event) => format!("{}: {}", event.reason, event.message),
        Step::Chains { chains, .. } => {
            let chain = |chain: &Vec<Write>| chain.iter().map(line).collect::<Vec<_>>().join(", ");
            let busy = chains.iter().filter(|chain| !chain.is_empty());
            busy.map(chain).collect::<Vec<_>>().join(" | ")
        }
        other => other.writes().map(line).collect::<Vec<_>>().join(" & "),
    };
    plan.steps.iter().map(told).collect()
}

fn line(write: &Write) -> String {
    match &write.verb {
        Verb::Update(object) if write.subresource == "status" => told(&decoded(object.to_vec())),
        Verb::Delete { uid, .. } => format!("delete {} {uid}", write.key.name),
        Verb::Create(body) if write.kind == &PODS => {
            let pod = Pod::decode(body).unwrap();
            let revision = pod.metadata.labels.get("controller-revision-hash").unwrap();
            let image =
                ["web:1", "web:2", "web:3"].into_iter().find(|image| revision_name(image) == **revision);
            format!("create {} {}", write.key.name, image.unwrap_or("?"))
        }
        Verb::Patch(Patch::Merge(patch)) => format!("patch {} {patch}", write.key.name),
        verb => format!("{} {}", verb.name(), write.key.name),
    }
}

/// `status replicas/ready/available current updated`, and its revisions by their images.
pub(super) fn told(set: &StatefulSet) -> String {
    let status = &set.status;
    let image = |name: &Str| {
        let known = ["web:1", "web:2", "web:3"].into_iter().find(|image| revision_name(image) == **name);
        known.map_or_else(|| name.to_string(), str::to_owned)
    };
    format!(
        "status {}/{}/{} {} {} {} {}",
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        status.current_replicas,
        status.updated_replicas,
        image(&status.current_revision),
        image(&status.update_revision),
    )
}

/// A status that says this of the revisions, and nothing of pods.
pub(super) fn says(set: &mut StatefulSet, current: &str, update: &str) {
    set.status.current_revision = revision_name(current).into();
    set.status.update_revision = revision_name(update).into();
    set.status.observed_generation = set.metadata.generation;
}

/// A set that is rolling from `web:1` to `web:2`.
pub(super) fn rolling(change: impl FnOnce(&mut StatefulSet)) -> Arc<StatefulSet> {
    set(|set| {
        set.spec.template = template("web:2");
        says(set, "web:1", "web:2");
        change(set);
    })
}
