//! A namespace, what there is of it, and the model of the API server, which refuses what a test says.

use std::collections::BTreeSet;
use std::sync::Arc;

use apiserver_model::http::Asked;
use apiserver_model::{Deletion, OnTheWay, Place, Refusal, Served, Stored, codec, message, stored_kind};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::super::plan::plan;
use super::super::*;
use super::resource;
use coxswain_machinery::api::core::{EndingNamespace, EndingNamespaceStatus, NamespaceSpec};
use coxswain_machinery::api::kinds::ENDING_NAMESPACES;
use coxswain_machinery::api::meta::{ObjectMeta, PartialObjectMetadata};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::executor::Executed;
use coxswain_machinery::framework::{ApiResource, ApiResources, DiscoveryError, Read};
use coxswain_machinery::informer::{Store, downcast};
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
    api: Served,
    store: Arc<Store>,
    pub(super) resources: Vec<ApiResource>,
    /// Group versions that are not known.
    pub(super) stale: Vec<&'static str>,
    wrong: Arc<Mutex<Wrong>>,
    /// The namespace is another one, with the same content, when it has been observed.
    pub(super) swapped: bool,
    pub(super) pods_first: bool,
    /// Seconds since the deletion began.
    pub(super) age: i64,
    /// What was written, refusals included.
    pub(super) writes: Vec<String>,
}

/// What the API server does not do as it should. Resources are told by their index.
#[derive(Default)]
pub(super) struct Wrong {
    /// Resources whose deletion is refused.
    pub(super) refused: BTreeSet<usize>,
    /// No answer comes instead.
    pub(super) silent: bool,
    /// Resources that can't be deleted at once, whatever is advertised, and how that is answered.
    pub(super) not_at_once: Vec<(usize, u16)>,
    /// Resources that can't be listed, and why.
    pub(super) unlistable: Vec<(usize, u16)>,
    /// Deletes are answered, and nothing comes of them.
    pub(super) deaf: bool,
    /// The resources, by their index.
    names: Vec<String>,
    /// What was sent as the namespace, in this look.
    sent: Vec<serde_json::Value>,
}

impl Wrong {
    fn becomes(&mut self, asked: &Asked) -> OnTheWay {
        let resource = asked.path.split('/').skip_while(|word| *word != NAME).nth(1).unwrap_or_default();
        let at = self.names.iter().position(|name| name == resource);
        let of =
            |list: &[(usize, u16)]| list.iter().find(|(held, _)| Some(*held) == at).map(|(_, code)| *code);
        let refused = |code: u16, why: String| OnTheWay::Refused(Refusal::new(code, "Refused", why));
        let is_list = asked.verb() == "get" && asked.name.is_empty();
        if let Some(code) = of(&self.unlistable).filter(|_| is_list) {
            return refused(code, format!("no {resource}"));
        }
        if !asked.verb().starts_with("delete") {
            let sent = asked.is_write().then(|| asked.object(&NAMESPACES).expect("a namespace"));
            self.sent.extend(sent);
            return OnTheWay::Arrives;
        }
        if let Some(code) = of(&self.not_at_once).filter(|_| asked.verb() == "deletecollection") {
            return refused(code, format!("{resource} can't be deleted at once"));
        }
        match at {
            Some(at) if self.refused.contains(&at) && self.silent => OnTheWay::Lost,
            Some(at) if self.refused.contains(&at) => {
                refused(403, format!("{resource} \"Unknown\" is forbidden: no"))
            }
            _ if self.deaf => OnTheWay::Forgotten,
            _ => OnTheWay::Arrives,
        }
    }
}

/// How a reconcile ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    Nothing,
    Failed(String),
    Done(Option<Duration>),
}

fn time(age: i64) -> Timestamp {
    Timestamp::from_second(DELETED_AT + age).unwrap()
}

/// The resource of this index.
fn kind(resource: usize) -> &'static Kind {
    stored_kind(["pods", "configmaps", "controllerrevisions"][resource])
}

impl World {
    /// Pods, config maps, and revisions.
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
        let wrong = Arc::<Mutex<Wrong>>::default();
        let api = Served::new("namespace-controller", time(0));
        let held = Arc::clone(&wrong);
        api.on_the_way(move |asked| held.lock().becomes(asked));
        api.model().restore(&NAMESPACES, &namespace.to_bytes());
        Self {
            api,
            store,
            resources: vec![
                resource("", "pods"),
                resource("", "configmaps"),
                resource("apps", "controllerrevisions"),
            ],
            stale: Vec::new(),
            wrong,
            swapped: false,
            pods_first: true,
            age: 10,
            writes: Vec::new(),
        }
    }

    /// What the API server does wrong.
    pub(super) fn wrong(&self) -> MutexGuard<'_, Wrong> {
        self.wrong.lock()
    }

    /// An object of a resource is there. Of one that is not being deleted, `deletion_grace_period_seconds` is what it will be given.
    pub(super) fn add(&mut self, resource: usize, name: &str, change: impl FnOnce(&mut ObjectMeta)) {
        let mut meta = meta(name);
        change(&mut meta);
        let given = meta.deletion_grace_period_seconds.filter(|_| !meta.is_deleting());
        if given.is_some() {
            meta.deletion_grace_period_seconds = None;
        }
        let kind = self::kind(resource);
        let bytes = PartialObjectMetadata { metadata: meta }.to_bytes();
        let mut object = codec::decode(message(kind).unwrap(), &bytes).unwrap();
        if let Some(grace) = given {
            object["spec"] = json!({ "nodeName": "node", "terminationGracePeriodSeconds": grace });
        }
        self.api.model().restore(kind, &codec::encode(message(kind).unwrap(), &object));
    }

    /// An object goes, whoever waits for it.
    pub(super) fn remove(&mut self, resource: usize, name: &str) {
        let place = Place::new(kind(resource).resource, NAME, name);
        let how = Deletion { grace: Some(0), ..Deletion::default() };
        let mut model = self.api.model();
        model.change("user", &place, "", |object| object["metadata"]["finalizers"] = json!([])).unwrap();
        drop(model.delete("user", &place, &how));
    }

    /// What is in the namespace, with the indexes of its resources.
    pub(super) fn objects(&self) -> Vec<(usize, Arc<Stored>)> {
        let model = self.api.model();
        let of = |resource: usize| {
            model.all(kind(resource).resource, NAME).map(move |held| (resource, Arc::clone(held)))
        };
        (0..3).flat_map(of).collect()
    }

    pub(super) fn namespace(&self) -> Option<Arc<EndingNamespace>> {
        let stored = self.api.model().get(&Place::new("namespaces", "", NAME)).cloned();
        stored.and_then(|stored| downcast(stored.object(&ENDING_NAMESPACES)))
    }

    /// The namespace has been otherwise all the time.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut EndingNamespace)) {
        let mut namespace = EndingNamespace::clone(&self.namespace().unwrap());
        change(&mut namespace);
        self.api.model().restore(&NAMESPACES, &namespace.to_bytes());
    }

    /// Somebody takes all finalizers off, and what was being deleted goes.
    pub(super) fn release(&mut self) {
        for (resource, held) in self.objects() {
            if held.json["metadata"]["deletionTimestamp"].is_string() {
                self.remove(resource, &held.place.name);
            } else {
                let free = |object: &mut serde_json::Value| object["metadata"]["finalizers"] = json!([]);
                self.api.model().change("user", &held.place, "", free).unwrap();
            }
        }
    }

    /// One reconcile, as the framework does it.
    pub(super) fn reconcile(&mut self) -> Ended {
        self.api.model().set_time(time(self.age));
        self.wrong.lock().names = self.resources.iter().map(|each| each.resource.to_string()).collect();
        let ended = self.looks();
        let written = self.api.log().into_iter().filter(|line| !line.starts_with("get "));
        let bare = |line: String| line.trim_end_matches(" refused").trim_end_matches(" lost").to_owned();
        self.writes.extend(written.map(bare));
        ended
    }

    fn looks(&mut self) -> Ended {
        let mut done = Executed::default();
        for _ in 0..4 {
            let Some(plan) = self.decide(&done) else { return Ended::Nothing };
            let (retry, requeue, again) = (plan.retry.clone(), plan.requeue_after, plan.look_again);
            self.api.model().changes.clear();
            let executed = self.api.execute(plan);
            self.check_updates();
            done.effects.extend(executed.effects);
            done.failures.extend(executed.failures);
            done.stopped |= executed.stopped;
            let failed = done.failures.first().map(|failure| failure.message.clone());
            if done.stopped || !again || retry.is_some() {
                return failed.or(retry).map_or(Ended::Done(requeue), Ended::Failed);
            }
        }
        unreachable!("a fifth look")
    }

    /// An update is of the latest namespace, and only of what is its own; it lets it go when nothing is left behind.
    fn check_updates(&self) {
        let changes = std::mem::take(&mut self.api.model().changes);
        for sent in std::mem::take(&mut self.wrong.lock().sent) {
            let version = &sent["metadata"]["resourceVersion"];
            let found = changes.iter().find_map(|change| {
                let before = change
                    .before
                    .as_ref()
                    .filter(|before| before.json["metadata"]["resourceVersion"] == *version);
                Some((before?, change))
            });
            let (live, change) = found.expect("it is the latest");
            assert_eq!(sent["metadata"], live.json["metadata"], "metadata is not touched");
            if change.subresource == "finalize" {
                assert_eq!(sent["status"], live.json["status"]);
                assert_eq!(self.objects().len(), 0, "nothing is left behind");
            }
        }
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
                        self.edit(|namespace| namespace.metadata.uid = "another".into());
                    }
                    return Some(plan(&view, time(self.age)));
                }
                Observation::Needs(needs) => needs,
            };
            assert!(!needs.is_empty());
            for read in needs {
                reads = self.read(reads, read.into());
            }
        }
        panic!("it goes round in circles")
    }

    fn read(&self, reads: Reads, read: Read) -> Reads {
        match read {
            Read::Object(kind, key) => {
                assert_eq!((kind, &key), (&ENDING_NAMESPACES, &Key::new("", NAME)));
                let found = self.api.read(kind, &key);
                reads.with_object(kind, key, found)
            }
            Read::LatestResources => {
                let unknown = self.stale.iter();
                let unknown = unknown.map(|name| DiscoveryError::Stale { group_version: (*name).to_owned() });
                let resources = ApiResources::of(self.resources.clone(), unknown.collect());
                reads.with_resources(Ok(Arc::new(resources)))
            }
            Read::List(kind, namespace) => {
                assert_eq!(namespace, NAME);
                let objects = self.api.list(kind, &namespace);
                reads.with_list(kind, namespace, objects)
            }
            other => panic!("what is not needed, or not as it is now: {other:?}"),
        }
    }

    /// What a condition says: its status, reason and message.
    pub(super) fn condition(&self, kind: &str) -> [String; 3] {
        let namespace = self.namespace().unwrap();
        let found = namespace.status.conditions.iter().find(|held| held.r#type == kind).unwrap();
        [&found.status, &found.reason, &found.message].map(ToString::to_string)
    }
}
