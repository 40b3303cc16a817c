//! A namespace, what there is of it, and an API server that does what it is told.

use std::collections::BTreeSet;

use super::super::plan::plan;
use super::super::*;
use super::resource;
use coxswain_machinery::api::core::{EndingNamespace, EndingNamespaceStatus, NamespaceSpec};
use coxswain_machinery::api::kinds::ENDING_NAMESPACES;
use coxswain_machinery::api::meta::{ObjectMeta, PartialObjectMetadata};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::executor::{Effect, Executed, WriteEffect};
use coxswain_machinery::framework::{ApiError, ApiResource, ApiResources, DiscoveryError, Read};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::plan::{Expect, Step, Verb, Write};
use coxswain_machinery::wire::{Message, Time};

pub(super) const DELETED_AT: i64 = 1_700_000_000;
pub(super) const NAME: &str = "team";

pub(super) fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: NAME.into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        ..ObjectMeta::default()
    }
}

/// A namespace as it is cached.
pub(super) fn cached(name: &str, deleting: bool) -> AnyObject {
    let mut metadata = ObjectMeta { namespace: "".into(), ..meta(name) };
    metadata.deletion_timestamp = Time::from_seconds(DELETED_AT).filter(|_| deleting);
    let namespace = EndingNamespace { metadata, ..EndingNamespace::default() };
    (NAMESPACES.decode)(&namespace.to_bytes().into()).unwrap()
}

/// The namespace, 10 seconds after its deletion began, and all that is in it.
pub(super) struct World {
    store: Arc<Store>,
    pub(super) namespace: Option<EndingNamespace>,
    pub(super) resources: Vec<ApiResource>,
    /// Group versions that are not known.
    pub(super) stale: Vec<&'static str>,
    /// Each with the index of its resource. Of one that is not being deleted, `deletion_grace_period_seconds` is what it
    /// will be given.
    pub(super) objects: Vec<(usize, ObjectMeta)>,
    /// Resources whose deletion is refused.
    pub(super) refused: BTreeSet<usize>,
    /// The code of refusals; 0 where no answer comes.
    pub(super) code: u16,
    /// Resources that can't be deleted at once, whatever is advertised, and how that is answered.
    pub(super) not_at_once: Vec<(usize, u16)>,
    /// Resources that can't be listed, and why.
    pub(super) unlistable: Vec<(usize, u16)>,
    /// The namespace is another one, with the same content, when it has been observed.
    pub(super) swapped: bool,
    /// Deletes are answered, and nothing comes of them.
    pub(super) deaf: bool,
    pub(super) pods_first: bool,
    /// Seconds since the deletion began.
    pub(super) age: i64,
    /// What was written, refusals included.
    pub(super) writes: Vec<String>,
    version: u64,
}

/// How a reconcile ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    Nothing,
    Failed(String),
    Done(Option<Duration>),
}

impl World {
    /// Pods, config maps, and a kind of others.
    pub(super) fn new() -> Self {
        let store = Arc::new(Store::new(&NAMESPACES));
        store.upsert(&cached(NAME, true));
        let mut metadata = ObjectMeta { namespace: "".into(), ..meta(NAME) };
        metadata.deletion_timestamp = Time::from_seconds(DELETED_AT);
        let namespace = EndingNamespace {
            metadata,
            spec: NamespaceSpec { finalizers: vec![FINALIZER.into()] },
            status: EndingNamespaceStatus { phase: "Terminating".into(), conditions: Vec::new() },
            ..EndingNamespace::default()
        };
        Self {
            store,
            namespace: Some(namespace),
            resources: vec![resource("", "pods"), resource("", "configmaps"), resource("ex.io", "things")],
            stale: Vec::new(),
            objects: Vec::new(),
            refused: BTreeSet::new(),
            code: 403,
            not_at_once: Vec::new(),
            unlistable: Vec::new(),
            swapped: false,
            deaf: false,
            pods_first: true,
            age: 10,
            writes: Vec::new(),
            version: 1,
        }
    }

    pub(super) fn add(&mut self, resource: usize, name: &str, change: impl FnOnce(&mut ObjectMeta)) {
        let mut meta = meta(name);
        change(&mut meta);
        self.objects.push((resource, meta));
    }

    /// Somebody takes all finalizers off, and what was being deleted goes.
    pub(super) fn release(&mut self) {
        for (_, meta) in &mut self.objects {
            meta.finalizers.clear();
        }
        self.objects.retain(|(_, meta)| !meta.is_deleting());
    }

    /// One reconcile, as the framework does it.
    pub(super) fn reconcile(&mut self) -> Ended {
        let mut done = Executed::default();
        for _ in 0..4 {
            let Some(plan) = self.decide(&done) else { return Ended::Nothing };
            let (retry, requeue, again) = (plan.retry, plan.requeue_after, plan.look_again);
            self.execute(plan.steps, &mut done);
            let failed = done.failures.first().map(|failure| failure.message.clone());
            if done.stopped || !again || retry.is_some() {
                return failed.or(retry).map_or(Ended::Done(requeue), Ended::Failed);
            }
        }
        unreachable!("a fifth look")
    }

    fn decide(&mut self, done: &Executed) -> Option<Plan> {
        let room = Controller {
            namespaces: Lister::new(Arc::clone(&self.store)),
            pods_first: self.pods_first,
            sync_period: Duration::from_mins(5),
        };
        let key = Key::new("", NAME);
        let mut reads = Reads::default();
        for effect in &done.effects {
            reads = reads.after(effect.clone());
        }
        for _ in 0..4 {
            let needs = match room.observe(&key, &done.failures, &reads).unwrap() {
                Observation::Nothing => return None,
                Observation::View(view) => {
                    if std::mem::take(&mut self.swapped) {
                        self.namespace.as_mut().unwrap().metadata.uid = "another".into();
                    }
                    let now = Timestamp::from_second(DELETED_AT + self.age).unwrap();
                    return Some(plan(&view, now));
                }
                Observation::Needs(needs) => needs,
            };
            assert!(!needs.is_empty());
            for read in needs {
                reads = self.read(reads, read);
            }
        }
        panic!("it goes round in circles")
    }

    fn read(&self, reads: Reads, read: Read) -> Reads {
        match read {
            Read::Object(kind, key) => {
                assert_eq!((kind, &key), (&ENDING_NAMESPACES, &Key::new("", NAME)));
                let object = self
                    .namespace
                    .as_ref()
                    .map(|namespace| (ENDING_NAMESPACES.decode)(&namespace.to_bytes().into()).unwrap());
                reads.with_object(kind, key, Ok(object))
            }
            Read::LatestResources => {
                let unknown = self.stale.iter();
                let unknown = unknown.map(|name| DiscoveryError::Stale { group_version: (*name).to_owned() });
                let resources = ApiResources::of(self.resources.clone(), unknown.collect());
                reads.with_resources(Ok(Arc::new(resources)))
            }
            Read::List(kind, namespace) => {
                assert_eq!(namespace, NAME);
                let at = self.index(kind);
                let refused = self.unlistable.iter().find(|(resource, _)| *resource == at);
                let objects = match refused {
                    Some((_, code)) => Err(refusal(*code, &format!("no {kind}"))),
                    None => Ok(self.of(at).map(object).collect()),
                };
                reads.with_list(kind, namespace, objects)
            }
            other => panic!("what is not needed, or not as it is now: {other:?}"),
        }
    }

    fn index(&self, kind: &'static Kind) -> usize {
        let found = self.resources.iter().position(|each| std::ptr::eq(each.metadata_kind(), kind));
        found.unwrap_or_else(|| panic!("there is no {kind}"))
    }

    fn of(&self, resource: usize) -> impl Iterator<Item = &ObjectMeta> {
        self.objects.iter().filter(move |(held, _)| *held == resource).map(|(_, meta)| meta)
    }

    /// Carries steps out, until something fails without which nothing goes on.
    fn execute(&mut self, steps: Vec<Step>, done: &mut Executed) {
        for step in steps {
            match step {
                Step::Verify(verify) => {
                    let uid = self.namespace.as_ref().map(|live| live.metadata.uid.clone());
                    let holds =
                        matches!(&verify.expect, Expect::Exists(expected) if uid.as_ref() == Some(expected));
                    let failure = Failure {
                        what: format!("read {} {}", verify.kind, verify.key),
                        message: "another uid".to_owned(),
                        ..failure()
                    };
                    if !holds {
                        done.failures.push(failure);
                        done.stopped = true;
                    }
                }
                Step::Write(write) => self.perform(&write, done),
                Step::Each(writes) => writes.iter().for_each(|write| self.perform(write, done)),
                other => panic!("{other:?}"),
            }
            if done.stopped {
                return;
            }
        }
    }

    fn perform(&mut self, write: &Write, done: &mut Executed) {
        let effect = |change| Effect {
            kind: write.kind,
            key: write.key.clone(),
            subresource: write.subresource,
            change,
            answer: None,
        };
        match self.write(write) {
            None => done.effects.push(effect(WriteEffect::Swept)),
            Some(failure) if write.tolerate.unsupported && matches!(failure.code, 404 | 405) => {
                done.effects.push(effect(WriteEffect::Nothing));
            }
            Some(failure) => {
                done.failures.push(failure);
                done.stopped |= !write.keep_going;
            }
        }
    }

    fn write(&mut self, write: &Write) -> Option<Failure> {
        self.writes.push(write.to_string());
        match &write.verb {
            Verb::DeleteCollection { propagation } => {
                assert_eq!(*propagation, Some(coxswain_machinery::model::plan::Propagation::Background));
                let at = self.index(write.kind);
                let unsupported = self.not_at_once.iter().find(|(resource, _)| *resource == at);
                if let Some((_, code)) = unsupported {
                    let message = format!("{} can't be deleted at once", write.kind.resource);
                    return Some(Failure {
                        verb: write.verb.name(),
                        kind: write.kind,
                        code: *code,
                        message,
                        ..failure()
                    });
                }
                self.delete(write, |_| true)
            }
            Verb::Delete { uid, .. } => self.delete(write, |meta| meta.uid == *uid),
            Verb::Update(bytes) => {
                let new: Arc<EndingNamespace> = downcast((ENDING_NAMESPACES.decode)(bytes).unwrap()).unwrap();
                self.update(write.subresource, &new);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, write: &Write, chosen: impl Fn(&ObjectMeta) -> bool) -> Option<Failure> {
        let at = self.index(write.kind);
        if self.refused.contains(&at) {
            let message = format!("{} \"Unknown\" is forbidden: no", write.kind.resource);
            let (what, kind, key) = (write.to_string(), write.kind, write.key.clone());
            return Some(Failure {
                what,
                verb: write.verb.name(),
                kind,
                key,
                message,
                code: self.code,
                ..failure()
            });
        }
        if self.deaf {
            return None;
        }
        for (resource, meta) in &mut self.objects {
            if *resource == at && chosen(meta) {
                if !meta.is_deleting() {
                    meta.deletion_timestamp = Time::from_seconds(DELETED_AT);
                }
                meta.finalizers.retain(|held| held != "orphan" && held != "foregroundDeletion");
            }
        }
        self.objects.retain(|(resource, meta)| {
            *resource != at
                || !chosen(meta)
                || !meta.finalizers.is_empty()
                || meta.deletion_grace_period_seconds.unwrap_or(0) > 0
        });
        None
    }

    fn update(&mut self, subresource: &str, new: &EndingNamespace) {
        let live = self.namespace.as_mut().unwrap();
        assert_eq!(new.metadata, live.metadata, "metadata is not touched, and it is the latest");
        match subresource {
            "status" => live.status = new.status.clone(),
            "finalize" => {
                assert!(self.objects.is_empty(), "nothing is left behind: {:?}", self.objects);
                assert_eq!(new.status, live.status);
                live.spec = new.spec.clone();
            }
            other => panic!("{other}"),
        }
        self.version += 1;
        live.metadata.resource_version = self.version.to_string().into();
        if live.spec.finalizers.is_empty() && live.metadata.finalizers.is_empty() {
            self.namespace = None;
        }
    }

    /// What a condition says: its status, reason and message.
    pub(super) fn condition(&self, kind: &str) -> [String; 3] {
        let conditions = &self.namespace.as_ref().unwrap().status.conditions;
        let found = conditions.iter().find(|held| held.r#type == kind).unwrap();
        [&found.status, &found.reason, &found.message].map(ToString::to_string)
    }
}

fn object(meta: &ObjectMeta) -> AnyObject {
    Arc::new(PartialObjectMetadata { metadata: meta.clone() }) as Arc<dyn Object>
}

fn failure() -> Failure {
    Failure {
        what: String::new(),
        verb: "",
        subresource: "",
        kind: &NAMESPACES,
        key: Key::new("", NAME),
        code: 403,
        reason: "Forbidden".into(),
        message: String::new(),
        existing: None,
    }
}

fn refusal(code: u16, message: &str) -> ApiError {
    ApiError::Refused {
        request: "GET".to_owned(),
        code,
        reason: "".into(),
        message: message.to_owned(),
        status: Box::default(),
        retry_after: None,
    }
}
