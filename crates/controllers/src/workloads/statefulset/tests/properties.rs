//! Properties: whatever happens to the pods of a set, it ends at what was asked for, one ordinal after the other.

use std::sync::Arc;

use apiserver_model::{Caches, Deletion, Place, Served};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::fixtures::*;
use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISION_DOCUMENTS, PODS, STATEFUL_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::Reads;
use coxswain_machinery::model::plan::{Step, Verb};

/// What happens to the cluster between two reconciles.
#[derive(Clone, Copy, Debug)]
enum Event {
    Reconcile,
    Ready(usize),
    Unready(usize),
    Fail(usize),
    /// Somebody deletes one.
    Evict(usize),
    /// One that is being deleted is gone.
    Gone(usize),
    Scale(i32),
    Image(usize),
    Partition(i32),
}

const IMAGES: [&str; 3] = ["web:1", "web:2", "web:3"];

/// The model of the API server, with the set and its pods, and caches that know what is there: the framework sees to that.
struct Cluster {
    api: Served,
    caches: Caches,
    is_parallel: bool,
    bench: Bench,
    /// The versions of the documents at hand.
    documents: Vec<u64>,
}

fn set_place() -> Place {
    Place::new("statefulsets", "default", "web")
}

fn place_of(pod: &Pod) -> Place {
    Place::new("pods", "default", &pod.metadata.name)
}

impl Cluster {
    fn new(is_parallel: bool) -> Self {
        let set = set(|set| {
            if is_parallel {
                set.spec.pod_management_policy = "Parallel".into();
            }
        });
        let bench = Bench::empty();
        let stores = [&bench.sets, &bench.pods, &bench.claims, &bench.revisions].map(Arc::clone);
        let api = Served::new("statefulset-controller", now());
        api.model().create_encoded("user", &STATEFUL_SETS, &set.raw).expect("a set");
        let mut cluster =
            Self { api, caches: Caches::new(stores), is_parallel, bench, documents: Vec::new() };
        cluster.follow();
        cluster
    }

    /// The caches see what there is, and documents are at hand.
    fn follow(&mut self) {
        let model = self.api.model();
        self.caches.deliver(&model, usize::MAX);
        let versions = model.all(CONTROLLER_REVISION_DOCUMENTS.resource, "").map(|stored| stored.version);
        let versions: Vec<u64> = versions.collect();
        if versions == self.documents {
            return;
        }
        self.documents = versions;
        let revisions = model.all(CONTROLLER_REVISION_DOCUMENTS.resource, "");
        self.bench.documents =
            revisions.map(|stored| (stored.place.name.clone(), stored.encoded(false).to_vec())).collect();
    }

    fn set(&self) -> Arc<StatefulSet> {
        typed(self.bench.sets.find("default", "web").expect("nobody deletes it"))
    }

    /// The pods that there are, by name.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.bench.pods.list().into_iter().map(typed).collect();
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    fn replicas(&self) -> i32 {
        self.set().spec.replicas.unwrap()
    }

    fn pick(&self, which: usize, suits: impl Fn(&Pod) -> bool) -> Option<Place> {
        let places: Vec<Place> =
            self.pods().iter().filter(|pod| suits(pod)).map(|pod| place_of(pod)).collect();
        places.get(which.checked_rem(places.len())?).cloned()
    }

    fn change(&mut self, place: &Place, subresource: &str, change: impl FnOnce(&mut Json)) {
        self.api.model().change("somebody", place, subresource, change).expect("nothing is wrong with it");
        self.follow();
    }

    /// A kubelet has something to say of one of the pods that live.
    fn report(&mut self, which: usize, phase: &str, is_ready: bool) {
        let lives = |pod: &Pod| !pod.metadata.is_deleting() && !pod.is_finished();
        let Some(place) = self.pick(which, lives) else { return };
        let since = now().to_string();
        let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": since });
        self.change(&place, "", |pod| pod["spec"]["nodeName"] = json!("node"));
        self.change(&place, "status", |pod| {
            pod["status"]["phase"] = json!(phase);
            pod["status"]["conditions"] = if is_ready { json!([ready]) } else { json!([]) };
        });
    }

    fn delete(&mut self, place: Option<Place>, grace: Option<i64>) {
        let Some(place) = place else { return };
        let how = Deletion { grace, ..Deletion::default() };
        self.api.model().delete("somebody", &place, &how).expect("it is there");
        self.follow();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Reconcile => self.reconcile(),
            Event::Ready(which) => self.report(which, "Running", true),
            Event::Unready(which) => self.report(which, "Running", false),
            Event::Fail(which) => self.report(which, "Failed", false),
            Event::Evict(which) => self.delete(self.pick(which, |_| true), None),
            Event::Gone(which) => self.delete(self.pick(which, |pod| pod.metadata.is_deleting()), Some(0)),
            Event::Scale(replicas) => {
                self.change(&set_place(), "", |set| set["spec"]["replicas"] = json!(replicas));
            }
            Event::Image(which) => self.change(&set_place(), "", |set| {
                set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(IMAGES[which % 3]);
            }),
            Event::Partition(number) => self.change(&set_place(), "", |set| {
                set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(number);
            }),
        }
    }

    /// One sync, in as many looks as it takes.
    fn reconcile(&mut self) {
        let mut read = Reads::default();
        for _ in 0..4 {
            let plan = super::plan::plan(&self.bench.view_after(&[], std::mem::take(&mut read)), now()).0;
            self.check(&plan.steps);
            let looks_again = plan.look_again;
            let done = self.api.execute(plan);
            assert!(done.failures.is_empty(), "{:?}", done.failures);
            self.follow();
            if !looks_again {
                return;
            }
            read = done.effects.into_iter().fold(read, Reads::after);
        }
        panic!("it looks again and again");
    }

    /// One after the other: nothing is made or replaced while one below is not ready.
    fn check(&self, steps: &[Step]) {
        let pods = self.pods();
        let find = |name: &str| pods.iter().find(|pod| pod.metadata.name == name);
        let is_ready = |ordinal: i32| {
            find(&format!("web-{ordinal}"))
                .is_some_and(|pod| pod.is_ready() && !pod.metadata.is_deleting() && !pod.is_finished())
        };
        let of_pods = steps.iter().flat_map(Step::writes).filter(|write| write.kind == &PODS);
        for write in of_pods {
            let name = write.key.name.as_str();
            let ordinal: i32 = name.strip_prefix("web-").unwrap().parse().unwrap();
            let is_create = matches!(write.verb, Verb::Create(_));
            assert!(is_create != find(name).is_some(), "one pod of a name");
            if !self.is_parallel && is_create {
                assert!((0..ordinal).all(is_ready), "{name} before its time");
            }
            if !self.is_parallel && ordinal >= self.replicas() {
                assert!((0..self.replicas()).all(is_ready), "{name} goes before its time");
            }
        }
        let deletes = steps
            .iter()
            .flat_map(Step::writes)
            .filter(|write| write.kind == &PODS && matches!(write.verb, Verb::Delete { .. }));
        assert!(self.is_parallel || deletes.count() <= 1, "one at a time");
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Reconcile),
        6 => any::<usize>().prop_map(Event::Ready),
        1 => any::<usize>().prop_map(Event::Unready),
        1 => any::<usize>().prop_map(Event::Fail),
        1 => any::<usize>().prop_map(Event::Evict),
        3 => any::<usize>().prop_map(Event::Gone),
        1 => (0..5_i32).prop_map(Event::Scale),
        1 => any::<usize>().prop_map(Event::Image),
        1 => (0..4_i32).prop_map(Event::Partition),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever happened: once pods become ready and go, there are those asked for, of the revision asked for, and the status
    /// says so.
    #[test]
    fn it_ends_at_what_was_asked_for(is_parallel in any::<bool>(), events in prop::collection::vec(event(), 0..60)) {
        let mut cluster = Cluster::new(is_parallel);
        for event in events {
            cluster.happen(event);
        }
        cluster.happen(Event::Partition(0));
        for _ in 0..80 {
            let before = cluster.api.model().version();
            cluster.reconcile();
            // One that is surplus and has failed waits for somebody to delete it.
            cluster.delete(cluster.pick(0, Pod::is_finished), Some(0));
            for at in 0..cluster.pods().len() {
                cluster.happen(Event::Ready(at));
                cluster.happen(Event::Gone(at));
            }
            if cluster.api.model().version() == before {
                break;
            }
        }
        let replicas = cluster.replicas();
        let (set, pods) = (cluster.set(), cluster.pods());
        let names: Vec<String> = pods.iter().map(|pod| pod.metadata.name.to_string()).collect();
        prop_assert_eq!(names, (0..replicas).map(|ordinal| format!("web-{ordinal}")).collect::<Vec<_>>());
        let wanted = &set.status.update_revision;
        let carried = |pod: &Pod| pod.metadata.labels.get("controller-revision-hash").cloned();
        prop_assert!(pods.iter().all(|pod| carried(pod).as_ref() == Some(wanted)));
        let status = &set.status;
        prop_assert_eq!(status.observed_generation, set.metadata.generation);
        prop_assert_eq!([status.replicas, status.ready_replicas, status.updated_replicas, status.current_replicas], [replicas; 4]);
        prop_assert_eq!(&status.current_revision, wanted);
    }
}
