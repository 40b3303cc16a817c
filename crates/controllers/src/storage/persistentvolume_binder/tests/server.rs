//! A small API server, and the controller on caches that show what the test has them show.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::model::Write;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::path;
use coxswain_machinery::wire::splice::{Edit, edit, get};
use serde_json::{Value, json};

type Place = (&'static str, Key);

/// The API server and the controller.
pub(super) struct World {
    objects: RefCell<BTreeMap<Place, AnyObject>>,
    version: RefCell<u64>,
    stores: BTreeMap<&'static str, Arc<Store>>,
    pub(super) binder: Arc<Binder>,
    counter: Counter,
    pub(super) registry: Registry,
    /// What was written and told, in order.
    pub(super) log: RefCell<Vec<String>>,
    /// So many writes are carried out, and then the process ends.
    pub(super) writes_left: RefCell<usize>,
    /// Writes that are refused: by how they are displayed.
    pub(super) refused: RefCell<Vec<(String, Failure)>>,
    /// What Pods say went wrong.
    pub(super) message: RefCell<&'static str>,
    at: RefCell<Timestamp>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let kinds: [&'static Kind; 5] =
            [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES, &STORAGE_CLASSES, &PODS, &NODES];
        let stores: BTreeMap<&'static str, Arc<Store>> =
            kinds.iter().map(|kind| (kind.resource, Arc::new(Store::new(kind)))).collect();
        let registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&RoomMetrics::new(registry.clone())).unwrap());
        let claims = Lister::new(Arc::clone(&stores["persistentvolumeclaims"]));
        let volumes = Lister::new(Arc::clone(&stores["persistentvolumes"]));
        let ledger = Arc::new(Ledger::new(claims, volumes));
        let recipe = |minimum| Recipe { template: recycler::built_in(), minimum, increment: 30 };
        let mut settings = Settings {
            provisions: true,
            makes_directories: false,
            recipes: Recipes { host_path: recipe(60), nfs: recipe(300) },
        };
        change(&mut settings);
        let binder = Arc::new(Binder {
            candidates: Indexed::new(&stores["persistentvolumes"], &CANDIDATES),
            classes: Lister::new(Arc::clone(&stores["storageclasses"])),
            pods: Lister::new(Arc::clone(&stores["pods"])),
            users: Indexed::new(&stores["pods"], &BY_CLAIM),
            nodes: Some(Lister::<Node>::new(Arc::clone(&stores["nodes"]))),
            ledger: Arc::clone(&ledger),
            metrics: Arc::clone(&metrics),
            settings: Arc::new(settings),
        });
        Self {
            objects: RefCell::default(),
            version: RefCell::new(10),
            stores,
            binder,
            counter: Counter { metrics, ledger },
            registry,
            log: RefCell::default(),
            writes_left: RefCell::new(usize::MAX),
            refused: RefCell::default(),
            message: RefCell::new(""),
            at: RefCell::new(now()),
        }
    }

    /// The same API server, and a controller that has just started, with full caches.
    pub(super) fn restarted(&self) -> Self {
        let next = Self::new();
        *next.objects.borrow_mut() = self.objects.borrow().clone();
        *next.version.borrow_mut() = *self.version.borrow();
        next.show_all();
        next
    }

    pub(super) fn pod(&self, key: &Key) -> Arc<Pod> {
        self.find(&PODS, key).and_then(downcast).unwrap()
    }

    /// Time goes on.
    pub(super) fn later(&self, seconds: i64) {
        let at = self.at.borrow().as_second() + seconds;
        *self.at.borrow_mut() = Timestamp::from_second(at).unwrap();
    }

    pub(super) fn put_claim(&self, claim: &PersistentVolumeClaim) -> &Self {
        self.put(&PERSISTENT_VOLUME_CLAIMS, &stored(&PERSISTENT_VOLUME_CLAIMS, claim).raw());
        self
    }

    pub(super) fn put_volume(&self, volume: &PersistentVolume) -> &Self {
        self.put(&PERSISTENT_VOLUMES, &stored(&PERSISTENT_VOLUMES, volume).raw());
        self
    }

    pub(super) fn put_class(&self, class: &StorageClass) -> &Self {
        self.keep(&STORAGE_CLASSES, Arc::new(class.clone()));
        self
    }

    pub(super) fn put_pod(&self, pod: &Pod) -> &Self {
        let mut pod = pod.clone();
        *self.version.borrow_mut() += 1;
        pod.metadata.resource_version = self.version.borrow().to_string().as_str().into();
        self.keep(&PODS, Arc::new(pod));
        self
    }

    pub(super) fn put_node(&self, node: &Node) {
        self.keep(&NODES, Arc::new(node.clone()));
    }

    fn keep(&self, kind: &'static Kind, object: AnyObject) {
        let place = (kind.resource, Key::of(object.meta()));
        self.objects.borrow_mut().insert(place, object);
    }

    fn put(&self, kind: &'static Kind, bytes: &[u8]) -> AnyObject {
        let mut version = self.version.borrow_mut();
        *version += 1;
        let at = path!(PersistentVolume, metadata.resourceVersion);
        let bytes = edit(bytes, &[Edit::SetBytes(at, version.to_string().into_bytes())]).unwrap();
        let object = (kind.decode)(&bytes.into()).unwrap();
        self.keep(kind, Arc::clone(&object));
        object
    }

    /// An object goes, from the server.
    pub(super) fn remove(&self, kind: &'static Kind, key: &Key) {
        *self.version.borrow_mut() += 1;
        self.objects.borrow_mut().remove(&(kind.resource, key.clone()));
    }

    /// The caches of these kinds show what is there.
    pub(super) fn show(&self, kinds: &[&'static Kind]) {
        for kind in kinds {
            let objects = self.objects.borrow();
            let all = objects.iter().filter(|((resource, _), _)| *resource == kind.resource);
            let all = all.map(|(_, object)| Arc::clone(object)).collect();
            self.stores[kind.resource].replace(all, &self.version.borrow().to_string());
        }
    }

    /// All caches show what is there.
    pub(super) fn show_all(&self) -> &Self {
        self.show(&[&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES, &STORAGE_CLASSES, &PODS, &NODES]);
        self
    }

    fn find(&self, kind: &'static Kind, key: &Key) -> Option<AnyObject> {
        self.objects.borrow().get(&(kind.resource, key.clone())).cloned()
    }

    pub(super) fn claim(&self, name: &str) -> Arc<PersistentVolumeClaim> {
        self.find(&PERSISTENT_VOLUME_CLAIMS, &Key::new("ns", name)).and_then(downcast).unwrap()
    }

    pub(super) fn volume(&self, name: &str) -> Arc<PersistentVolume> {
        self.find(&PERSISTENT_VOLUMES, &Key::new("", name)).and_then(downcast).unwrap()
    }

    pub(super) fn has(&self, kind: &'static Kind, key: &Key) -> bool {
        self.find(kind, key).is_some()
    }

    /// What was written and told since the last look.
    pub(super) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.log.borrow_mut())
    }

    /// Reconciles a claim, and says what was written and told.
    pub(super) fn claims(&self, name: &str) -> Vec<String> {
        self.reconcile(&ClaimRoom(Arc::clone(&self.binder)), &Key::new("ns", name));
        self.told()
    }

    /// Reconciles a volume, and says what was written and told.
    pub(super) fn volumes(&self, name: &str) -> Vec<String> {
        self.reconcile(&VolumeRoom(Arc::clone(&self.binder)), &Key::new("", name));
        self.told()
    }

    /// What the controller says of a claim.
    pub(super) fn why(&self, name: &str) -> String {
        match self.observe(&ClaimRoom(Arc::clone(&self.binder)), &Key::new("ns", name), &[], &[]) {
            Ok(Some(view)) => ClaimRoom::reasons(&view, now()).join(" "),
            other => panic!("{:?}", other.is_ok()),
        }
    }

    /// What the controller says of a volume.
    pub(super) fn why_volume(&self, name: &str) -> String {
        match self.observe(&VolumeRoom(Arc::clone(&self.binder)), &Key::new("", name), &[], &[]) {
            Ok(Some(view)) => VolumeRoom::reasons(&view, now()).join(" "),
            other => panic!("{:?}", other.is_ok()),
        }
    }

    pub(super) fn observe<R: Room<Note>>(
        &self,
        room: &R,
        key: &Key,
        failures: &[Failure],
        written: &[Effect],
    ) -> Result<Option<R::View>, ObserveError> {
        let mut asked: Vec<Read> = Vec::new();
        for _ in 0..8 {
            let mut reads = Reads::default();
            for effect in written {
                reads = reads.after(effect.clone());
            }
            for read in &asked {
                reads = match read {
                    Read::Object(kind, key) => reads.with_object(kind, key.clone(), Ok(self.find(kind, key))),
                    Read::Json(path) => {
                        let message = *self.message.borrow();
                        reads.with_json(path, Ok(json!({ "status": { "message": message } })))
                    }
                    other => panic!("{other:?}"),
                };
            }
            match room.observe(key, failures, &reads)? {
                Observation::Nothing => return Ok(None),
                Observation::View(view) => return Ok(Some(view)),
                Observation::Needs(more) => {
                    for read in &more {
                        self.log.borrow_mut().extend(told_of(read));
                    }
                    asked.extend(more);
                }
            }
        }
        panic!("it goes round in circles");
    }

    fn reconcile<R: Room<Note>>(&self, room: &R, key: &Key) {
        let (mut written, mut outcome) = (Vec::new(), Outcome::Absent);
        for look in 1.. {
            assert!(look <= 4, "{key} is looked at too often");
            let view = match self.observe(room, key, &[], &written) {
                Ok(Some(view)) => view,
                Ok(None) => break,
                Err(error) => {
                    self.log.borrow_mut().push(format!("error {error}"));
                    outcome = failed(&error.to_string());
                    break;
                }
            };
            let plan = R::plan(&view, *self.at.borrow());
            self.counter.planned(key, &plan.note);
            let looks_again = plan.look_again;
            let retry = plan.retry.clone();
            let (effects, failure) = self.carry_out(&plan);
            written.extend(effects);
            outcome = Outcome::Done {
                writes: written.len(),
                requeue_after: None,
                cooldown: coxswain_machinery::model::plan::Cooldown::NONE,
            };
            if let Some(failure) = failure {
                outcome = failed(&failure.message);
                if R::HEEDS_FAILURES
                    && let Ok(Some(view)) = self.observe(room, key, &[failure], &written)
                {
                    let plan = R::plan(&view, *self.at.borrow());
                    if self.carry_out(&plan).1.is_none() {
                        self.counter.ledger.commit(key, plan.note);
                    }
                }
                break;
            }
            self.counter.ledger.commit(key, plan.note);
            if let Some(retry) = retry {
                self.log.borrow_mut().push(format!("retry {retry}"));
                outcome = failed(&retry);
                break;
            }
            if !looks_again {
                break;
            }
        }
        let end = ReconcileEnd { outcome: &outcome, actions: &[], took: std::time::Duration::ZERO };
        self.counter.ended(key, end);
    }

    fn carry_out(&self, plan: &Plan<Note>) -> (Vec<Effect>, Option<Failure>) {
        let mut effects: Vec<Effect> = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Emit(event) => self.tell(event.warning, event.reason, &event.message),
                Step::Write(write) => {
                    if *self.writes_left.borrow() == 0 {
                        return (effects, Some(failure(write, 0, "the process has ended")));
                    }
                    *self.writes_left.borrow_mut() -= 1;
                    match self.write(write, &effects) {
                        Ok(effect) => {
                            self.log.borrow_mut().push(write.to_string());
                            if let Some(event) = &write.on_success {
                                self.tell(event.warning, event.reason, &event.message);
                            }
                            effects.push(effect);
                        }
                        Err(failure) => {
                            self.log.borrow_mut().push(format!("{write} refused"));
                            if let Some(event) = &write.on_failure {
                                let message = event.message.replace("{error}", &failure.message);
                                self.tell(event.warning, event.reason, &message);
                            }
                            return (effects, Some(*failure));
                        }
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        (effects, None)
    }

    fn tell(&self, warning: bool, reason: &str, message: &str) {
        let sort = if warning { "Warning" } else { "Normal" };
        self.log.borrow_mut().push(format!("{sort} {reason} {message}"));
    }

    fn write(&self, write: &Write, effects: &[Effect]) -> Result<Effect, Box<Failure>> {
        if let Some((_, failure)) =
            self.refused.borrow().iter().find(|(refused, _)| *refused == write.to_string())
        {
            return Err(Box::new(failure.clone()));
        }
        let place = (write.kind.resource, write.key.clone());
        let held = self.objects.borrow().get(&place).cloned();
        let effect = |change, answer| Effect {
            kind: write.kind,
            key: write.key.clone(),
            subresource: write.subresource,
            change,
            answer,
        };
        let stored_as = |object: AnyObject| {
            effect(WriteEffect::Stored(object.meta().resource_version.clone()), Some(object))
        };
        let body = match &write.verb {
            Verb::Create(_) if held.is_some() && write.tolerate.exists => {
                return Ok(effect(WriteEffect::Nothing, None));
            }
            Verb::Create(_) if held.is_some() => {
                return Err(Box::new(Failure { existing: held, ..failure(write, 409, "AlreadyExists") }));
            }
            Verb::Create(body) => {
                let uid = format!("uid-{}", self.version.borrow());
                let body = edit(body, &[Edit::SetBytes(path!(PersistentVolume, metadata.uid), uid.into())]);
                return Ok(stored_as(self.put(write.kind, &body.unwrap())));
            }
            Verb::Delete { uid, .. } => {
                return match held.filter(|held| held.meta().uid == *uid) {
                    Some(_) => {
                        self.remove(write.kind, &write.key);
                        Ok(effect(WriteEffect::Deleted(uid.clone()), None))
                    }
                    None if write.tolerate.absent => Ok(effect(WriteEffect::Nothing, None)),
                    None => Err(Box::new(failure(write, 404, "NotFound"))),
                };
            }
            Verb::Update(body) => body.to_vec(),
            Verb::UpdateLast(edits) => {
                let last = effects.iter().rev().find(|effect| effect.kind == write.kind);
                edit(&last.and_then(|last| last.answer.clone()).unwrap().raw(), edits).unwrap()
            }
            other => panic!("{other:?}"),
        };
        let Some(held) = held else { return Err(Box::new(failure(write, 404, "NotFound"))) };
        let object = (write.kind.decode)(&body.clone().into()).unwrap();
        assert!(body.windows(4).any(|bytes| bytes == [0xfa, 0x3f, 1, b'x']), "what is unknown stays");
        if object.meta().resource_version != held.meta().resource_version {
            return Err(Box::new(failure(write, 409, "Conflict")));
        }
        // A status is written by its own subresource, and nothing else is.
        let (status, held) = (path!(PersistentVolume, status), held.raw());
        let kept = get(&held, status).unwrap().map(|value| value.bytes().unwrap().to_vec());
        let body = if write.subresource == "status" {
            body
        } else {
            edit(&body, &[Edit::SetBytes(status, kept.unwrap_or_default())]).unwrap()
        };
        Ok(stored_as(self.put(write.kind, &body)))
    }

    /// The value of a metric with these label values, in the text that is served.
    pub(super) fn metric(&self, name: &str) -> Vec<String> {
        let families = self.registry.gather();
        let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
        let is_it = |line: &&str| line.starts_with(name) && !line.contains("_bucket{");
        text.lines().filter(is_it).map(str::to_owned).collect()
    }
}

fn told_of(read: &Read) -> Option<String> {
    match read {
        Read::Object(kind, key) => Some(format!("get {kind} {key}")),
        _ => None,
    }
}

pub(super) fn failure(write: &Write, code: u16, reason: &str) -> Failure {
    Failure {
        what: write.to_string(),
        verb: write.verb.name(),
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code,
        reason: reason.into(),
        message: reason.to_owned(),
        existing: None,
    }
}

fn failed(error: &str) -> Outcome {
    Outcome::Failed {
        error: error.to_owned(),
        retry: true,
        quiet: false,
        refused: true,
        requeue_after: None,
        not_before: None,
    }
}

/// What is in a written Pod.
pub(super) fn json_of(pod: &[u8]) -> Value {
    let document = coxswain_machinery::model::revisions::TemplateDocument::of(
        pod,
        coxswain_machinery::model::revisions::Numbers::Exact,
    );
    serde_json::from_slice(document.unwrap().as_bytes()).unwrap()
}
