//! The model of the API server, and the controller on caches that show what the test has them show.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use apiserver_model::http::Asked;
use apiserver_model::{Deletion, Model, OnTheWay, Place, Refusal, Served, text};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::executor::{Effect, FinishError, Finisher, Finishers};
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::wire::splice::{Edit, edit};
use futures::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

/// The kinds that the controller watches.
const WATCHED: [&Kind; 5] = [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES, &STORAGE_CLASSES, &PODS, &NODES];

/// The API server and the controller.
pub(super) struct World {
    api: Rc<Served>,
    stores: BTreeMap<&'static str, Arc<Store>>,
    pub(super) binder: Arc<Binder>,
    counter: Counter,
    pub(super) registry: Registry,
    /// What became of reconciles, beside what was asked and told.
    ends: RefCell<Vec<String>>,
    /// What is wrong with the directories of this machine.
    disk: Arc<Mutex<Option<&'static str>>>,
    at: RefCell<Timestamp>,
    steady: Cell<SteadyTime>,
}

/// The directories of this machine, of which there are none.
struct Disk(Arc<Mutex<Option<&'static str>>>);

impl Finisher for Disk {
    fn finish<'a>(&'a self, object: &'a [u8], _: &'a Value) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        let broken = self.0.lock().map(|why| FinishError::Failed(why.to_owned()));
        Box::pin(ready(broken.map_or_else(|| Ok(object.to_vec()), Err)))
    }
}

/// An update arrives with what the controller does not know of.
fn arrives(asked: &Asked) -> OnTheWay {
    if asked.verb() == "update" {
        let sent = asked.object(asked.kind.expect("a kind that is stored")).expect("an object");
        assert_eq!(text(&sent, "/metadata/selfLink"), "unknown", "{asked}");
    }
    OnTheWay::Arrives
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let disk = Arc::default();
        let finishers = Finishers::default().with(DIRECTORIES, Arc::new(Disk(Arc::clone(&disk))));
        let api = Served::new("persistent-volume-binder", now()).finished_by(finishers);
        let home = json!({ "metadata": { "name": "ns" } });
        api.model().create("user", "namespaces", "", home).expect("a namespace");
        api.on_the_way(arrives);
        Self::on(Rc::new(api), disk, change)
    }

    fn on(
        api: Rc<Served>,
        disk: Arc<Mutex<Option<&'static str>>>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let stores: BTreeMap<&'static str, Arc<Store>> =
            WATCHED.iter().map(|kind| (kind.resource, Arc::new(Store::new(kind)))).collect();
        let registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&RoomMetrics::new(registry.clone())).unwrap());
        let claims = Lister::new(Arc::clone(&stores["persistentvolumeclaims"]));
        let volumes = Lister::new(Arc::clone(&stores["persistentvolumes"]));
        let ledger = Arc::new(Ledger::new(claims, volumes));
        ledger.stop_clock(SteadyTime::default());
        let recipe = |minimum| Recipe { template: recycler::built_in(), minimum, increment: 30 };
        let mut settings = Settings {
            provisions: true,
            makes_directories: false,
            knows_attributes: true,
            recipes: Recipes { host_path: recipe(60), nfs: recipe(300) },
        };
        change(&mut settings);
        let free = Arc::new(FreeVolumes::default());
        let follow = free.follow();
        stores["persistentvolumes"].add_handler("free", Arc::new(move |delta| follow(delta, &mut |_| {})));
        let binder = Arc::new(Binder {
            free,
            meant: Indexed::new(&stores["persistentvolumes"], &MEANT),
            classes: Lister::new(Arc::clone(&stores["storageclasses"])),
            pods: Lister::new(Arc::clone(&stores["pods"])),
            users: Indexed::new(&stores["pods"], &BY_CLAIM),
            nodes: Some(Lister::<Node>::new(Arc::clone(&stores["nodes"]))),
            ledger: Arc::clone(&ledger),
            metrics: Arc::clone(&metrics),
            settings: Arc::new(settings),
        });
        Self {
            api,
            stores,
            binder,
            counter: Counter { metrics, ledger },
            registry,
            ends: RefCell::default(),
            disk,
            at: RefCell::new(now()),
            steady: Cell::default(),
        }
    }

    /// The same API server, and a controller that has just started, with full caches.
    pub(super) fn restarted(&self) -> Self {
        self.api.on_the_way(arrives);
        let next = Self::on(Rc::clone(&self.api), Arc::clone(&self.disk), |_| {});
        next.show_all();
        next
    }

    /// From now on requests of this sort are refused.
    pub(super) fn refuses(&self, what: &'static str) {
        self.api.on_the_way(move |asked: &Asked| {
            if asked.to_string().starts_with(what) {
                return OnTheWay::Refused(Refusal::new(403, "Forbidden", "no"));
            }
            arrives(asked)
        });
    }

    /// From the first such request on nothing can be read.
    pub(super) fn loses_reads_after(&self, what: &'static str) {
        let mut is_lost = false;
        self.api.on_the_way(move |asked: &Asked| {
            is_lost |= asked.to_string().starts_with(what);
            if is_lost && asked.verb() == "get" { OnTheWay::Lost } else { arrives(asked) }
        });
    }

    /// A Pod of the namespace default does not end when it is deleted.
    pub(super) fn keep_pod(&self, name: &str) {
        let place = Place::new("pods", "default", name);
        let keep = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
        self.model().change("user", &place, "", keep).expect("it is there");
        self.show_all();
    }

    /// The Pod of the namespace default that was kept ends.
    pub(super) fn let_pod_go(&self, name: &str) {
        let place = Place::new("pods", "default", name);
        let free = |pod: &mut Value| pod["metadata"]["finalizers"] = json!([]);
        self.model().change("user", &place, "", free).expect("it is there");
        self.show_all();
    }

    /// So many writes are carried out, and then the process ends.
    pub(super) fn dies_after(&self, writes: usize) {
        let mut left = writes;
        self.api.on_the_way(move |asked: &Asked| {
            if asked.is_write() && left == 0 {
                return OnTheWay::Lost;
            }
            left -= usize::from(asked.is_write());
            arrives(asked)
        });
    }

    /// From now on this is why nothing can be done with directories, if anything.
    pub(super) fn directories_fail(&self, why: Option<&'static str>) {
        *self.disk.lock() = why;
    }

    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.api.model()
    }

    /// Time goes on.
    pub(super) fn later(&self, seconds: u64) {
        self.set_clock(i64::try_from(seconds).unwrap());
        self.steady.set(self.steady.get().plus(Duration::from_secs(seconds)));
        self.binder.ledger.stop_clock(self.steady.get());
        self.model().set_time(*self.at.borrow());
    }

    /// Changes the clock of this machine by this number of seconds.
    pub(super) fn set_clock(&self, seconds: i64) {
        let at = self.at.borrow().as_second() + seconds;
        *self.at.borrow_mut() = Timestamp::from_second(at).unwrap();
    }

    pub(super) fn put_claim(&self, claim: &PersistentVolumeClaim) -> &Self {
        self.put(&PERSISTENT_VOLUME_CLAIMS, claim)
    }

    pub(super) fn put_volume(&self, volume: &PersistentVolume) -> &Self {
        self.put(&PERSISTENT_VOLUMES, volume)
    }

    pub(super) fn put_class(&self, class: &StorageClass) -> &Self {
        self.put(&STORAGE_CLASSES, class)
    }

    pub(super) fn put_node(&self, node: &Node) -> &Self {
        self.put(&NODES, node)
    }

    /// The object is there, with something in it of which the controller does not know.
    fn put(&self, kind: &'static Kind, object: &impl Message) -> &Self {
        // `metadata.selfLink`.
        let unknown = Edit::SetBytes(&[1, 4], b"unknown".to_vec());
        let stored = self.model().restore(kind, &edit(&object.to_bytes(), &[unknown]).expect("an object"));
        assert_eq!(text(&stored.json, "/metadata/selfLink"), "unknown");
        self
    }

    /// A pod is there, or becomes so; what is not said of it stays.
    pub(super) fn put_pod(&self, namespace: &str, name: &str, says: &Value) -> &Self {
        let mut model = self.model();
        let place = Place::new("pods", namespace, name);
        if model.get(&place).is_none() {
            let pod = json!({ "metadata": { "name": name }, "spec": says["spec"] });
            model.create("user", "pods", namespace, pod).expect("nothing is wrong with it");
        }
        for (part, subresource) in [("spec", ""), ("status", "status")] {
            for (member, value) in says[part].as_object().into_iter().flatten() {
                let set = |pod: &mut Value| pod[part][member] = value.clone();
                model.change("user", &place, subresource, set).expect("nothing is wrong with it");
            }
        }
        drop(model);
        self
    }

    /// An object goes, from the server, whoever it was to wait for.
    pub(super) fn remove(&self, kind: &'static Kind, key: &Key) {
        let place = Place::new(kind.resource, &key.namespace, &key.name);
        let how = Deletion { grace: Some(0), ..Deletion::default() };
        let mut model = self.model();
        let freed = model.change("user", &place, "", |object| object["metadata"]["finalizers"] = json!([]));
        freed.expect("it is there");
        model.delete("user", &place, &how).expect("it is there");
    }

    /// The caches of these kinds show what is there.
    pub(super) fn show(&self, kinds: &[&'static Kind]) {
        let model = self.model();
        for kind in kinds {
            let all = model.all(kind.resource, "").map(|stored| stored.object(kind)).collect();
            self.stores[kind.resource].replace(all, &model.version().to_string());
        }
    }

    /// All caches show what is there.
    pub(super) fn show_all(&self) -> &Self {
        self.show(&WATCHED);
        self
    }

    fn find(&self, kind: &'static Kind, key: &Key) -> Option<AnyObject> {
        let model = self.model();
        model.get(&Place::new(kind.resource, &key.namespace, &key.name)).map(|stored| stored.object(kind))
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

    /// What was asked and told since the last look, and what became of reconciles then.
    pub(super) fn told(&self) -> Vec<String> {
        let mut told = self.api.log();
        told.append(&mut self.ends.borrow_mut());
        told
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
        let mut reads = written.iter().cloned().fold(Reads::default(), Reads::after);
        for _ in 0..8 {
            match room.observe(key, failures, &reads)? {
                Observation::Nothing => return Ok(None),
                Observation::View(view) => return Ok(Some(view)),
                Observation::Needs(more) => {
                    for read in more {
                        reads = self.read(reads, read.into());
                    }
                }
            }
        }
        panic!("it goes round in circles");
    }

    fn read(&self, reads: Reads, read: Read) -> Reads {
        match read {
            Read::Object(kind, key) => {
                let found = self.api.read(kind, &key);
                reads.with_object(kind, key, found)
            }
            Read::Json(uri) => {
                let words: Vec<&str> = uri.as_str().split('/').collect();
                let ["", "api", "v1", "namespaces", namespace, "pods", name] = words[..] else {
                    panic!("{uri}")
                };
                let pod = self.model().look("pods", namespace, name).clone();
                reads.with_json(uri, Ok(pod))
            }
            other => panic!("{other:?}"),
        }
    }

    fn reconcile<R: Room<Note>>(&self, room: &R, key: &Key) {
        let (mut written, mut outcome) = (Vec::new(), Outcome::Absent);
        for look in 1.. {
            assert!(look <= 4, "{key} is looked at too often");
            let view = match self.observe(room, key, &[], &written) {
                Ok(Some(view)) => view,
                Ok(None) => break,
                Err(error) => {
                    self.ends.borrow_mut().push(format!("error {error}"));
                    outcome = failed(&error.to_string());
                    break;
                }
            };
            let plan = R::plan(&view, *self.at.borrow());
            self.counter.planned(key, &plan.note);
            let looks_again = plan.look_again;
            let retry = plan.retry.clone();
            let note = plan.note.clone();
            let executed = self.api.execute(plan);
            written.extend(executed.effects);
            outcome = Outcome::Done {
                writes: written.len(),
                requeue_after: None,
                cooldown: coxswain_machinery::model::plan::Cooldown::NONE,
            };
            if let Some(failure) = executed.failures.into_iter().next() {
                outcome = failed(&failure.message);
                if R::HEEDS_FAILURES
                    && let Ok(Some(view)) = self.observe(room, key, &[failure], &written)
                {
                    let plan = R::plan(&view, *self.at.borrow());
                    self.counter.planned(key, &plan.note);
                    let note = plan.note.clone();
                    if self.api.execute(plan).failures.is_empty() {
                        self.counter.ledger.commit(key, note);
                    }
                }
                break;
            }
            self.counter.ledger.commit(key, note);
            if let Some(retry) = retry {
                self.ends.borrow_mut().push(format!("retry {retry}"));
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

    /// The value of a metric with these label values, in the text that is served.
    pub(super) fn metric(&self, name: &str) -> Vec<String> {
        let families = self.registry.gather();
        let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
        let is_it = |line: &&str| line.starts_with(name) && !line.contains("_bucket{");
        text.lines().filter(is_it).map(str::to_owned).collect()
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
