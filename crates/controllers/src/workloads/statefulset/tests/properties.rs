//! Properties: whatever happens to the pods of a set, it ends at what was asked for, one ordinal after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::api::kinds::{PODS, STATEFUL_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::Reads;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Step, Verb, Write};
use coxswain_machinery::wire::Str;
use coxswain_machinery::wire::splice::{Edit, edit};

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

/// A set with its pods. The caches know what is there: the framework sees to that.
struct Cluster {
    set: Arc<StatefulSet>,
    pods: BTreeMap<Str, Pod>,
    is_parallel: bool,
    bench: Bench,
    made: u32,
}

impl Cluster {
    fn new(is_parallel: bool) -> Self {
        let set = set(|set| {
            if is_parallel {
                set.spec.pod_management_policy = "Parallel".into();
            }
        });
        let bench = Bench::of(&set, &[]);
        Self { set, pods: BTreeMap::new(), is_parallel, bench, made: 0 }
    }

    fn replicas(&self) -> i32 {
        self.set.spec.replicas.unwrap()
    }

    fn change(&mut self, which: usize, suits: impl Fn(&Pod) -> bool, change: impl FnOnce(&mut Pod)) {
        let names: Vec<Str> =
            self.pods.values().filter(|pod| suits(pod)).map(|pod| pod.metadata.name.clone()).collect();
        if let Some(name) = names.get(which.checked_rem(names.len()).unwrap_or(0)) {
            let mut pod = self.pods[name].clone();
            change(&mut pod);
            self.store(pod);
        }
    }

    fn store(&mut self, pod: Pod) {
        self.bench.pods.upsert(&(Arc::new(pod.clone()) as AnyObject));
        self.pods.insert(pod.metadata.name.clone(), pod);
    }

    fn remove(&mut self, which: usize) {
        let going = self.pods.values().filter(|pod| pod.metadata.is_deleting());
        let names: Vec<Str> = going.map(|pod| pod.metadata.name.clone()).collect();
        if let Some(name) = names.get(which.checked_rem(names.len()).unwrap_or(0))
            && let Some(pod) = self.pods.remove(name)
        {
            self.bench.pods.remove(&(Arc::new(pod) as AnyObject));
        }
    }

    fn rewrite(&mut self, edits: &[Edit]) {
        let next = Edit::SetVarint(&[1, 7], self.set.metadata.generation as u64 + 1);
        let bytes = edit(&self.set.raw, &[edits, &[next]].concat()).unwrap();
        self.store_set(bytes);
    }

    fn store_set(&mut self, bytes: Vec<u8>) {
        self.set = decoded(bytes);
        self.bench.sets.upsert(&(Arc::clone(&self.set) as AnyObject));
    }

    fn happen(&mut self, event: Event) {
        let lives = |pod: &Pod| !pod.metadata.is_deleting() && !pod.is_finished();
        match event {
            Event::Reconcile => self.reconcile(),
            Event::Ready(which) => self.change(which, lives, |pod| {
                pod.status.phase = "Running".into();
                pod.status.conditions = vec![ready(ago(1))];
            }),
            Event::Unready(which) => self.change(which, lives, not_ready),
            Event::Fail(which) => self.change(which, lives, failed),
            Event::Evict(which) => self.change(which, |_| true, deleting),
            Event::Gone(which) => self.remove(which),
            Event::Scale(replicas) => self.rewrite(&[Edit::SetVarint(&[2, 1], replicas as u64)]),
            Event::Image(which) => {
                self.rewrite(&[Edit::SetBytes(&[2, 3], template(IMAGES[which % 3]).to_vec())]);
            }
            Event::Partition(number) => self.rewrite(&[Edit::SetVarint(&[2, 7, 2, 1], number as u64)]),
        }
    }

    /// One sync, in as many looks as it takes; whether it did anything.
    fn reconcile(&mut self) {
        let mut read = Reads::default();
        for _ in 0..4 {
            let plan = super::plan::plan(&self.bench.view_after(&[], std::mem::take(&mut read)), now()).0;
            self.check(&plan.steps);
            for write in plan.writes() {
                self.perform(write);
            }
            if !plan.look_again {
                return;
            }
            let made = plan.writes().next().unwrap().key.name.clone();
            let image = *IMAGES.iter().find(|image| revision_name(image) == *made).unwrap();
            let number = self.bench.documents.len() as i64 + 1;
            self.bench.documents.push((made.to_string(), revision_bytes(image, number)));
            read = read.after(Effect {
                kind: &super::CONTROLLER_REVISIONS,
                key: Key::new("default", made),
                subresource: "",
                change: WriteEffect::Stored("1".into()),
                answer: Some(revision(image, number) as AnyObject),
            });
            self.bench.revisions.upsert(&(revision(image, number) as AnyObject));
        }
        panic!("it looks again and again");
    }

    /// One after the other: nothing is made or replaced while one below is not ready.
    fn check(&self, steps: &[Step]) {
        let is_ready = |ordinal: i32| {
            let pod = self.pods.get(&Str::from(format!("web-{ordinal}")));
            pod.is_some_and(|pod| pod.is_ready() && !pod.metadata.is_deleting() && !pod.is_finished())
        };
        let of_pods = steps.iter().flat_map(Step::writes).filter(|write| write.kind == &PODS);
        for write in of_pods {
            let name = write.key.name.as_str();
            let ordinal: i32 = name.strip_prefix("web-").unwrap().parse().unwrap();
            let is_create = matches!(write.verb, Verb::Create(_));
            assert!(is_create != self.pods.contains_key(&write.key.name), "one pod of a name");
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

    fn perform(&mut self, write: &Write) {
        match &write.verb {
            Verb::Create(body) if write.kind == &PODS => {
                let mut pod = Pod::clone(&typed::<Pod>((PODS.decode)(body).unwrap()));
                self.made += 1;
                pod.metadata.uid = format!("made-{}", self.made).into();
                pod.status.phase = "Pending".into();
                self.store(pod);
            }
            Verb::Delete { uid, .. } if write.kind == &PODS => {
                let mut pod = self.pods[&write.key.name].clone();
                assert_eq!(pod.metadata.uid, *uid);
                deleting(&mut pod);
                self.store(pod);
            }
            Verb::Update(body) if write.kind == &STATEFUL_SETS => self.store_set(body.to_vec()),
            // Which revision has which number matters to its kind alone.
            _ => {}
        }
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
            cluster.reconcile();
            // One that is surplus and has failed waits for somebody to delete it.
            cluster.change(0, Pod::is_finished, deleting);
            for at in 0..cluster.pods.len() {
                cluster.happen(Event::Ready(at));
                cluster.happen(Event::Gone(at));
            }
        }
        let replicas = cluster.replicas();
        let names: Vec<String> = cluster.pods.keys().map(ToString::to_string).collect();
        prop_assert_eq!(names, (0..replicas).map(|ordinal| format!("web-{ordinal}")).collect::<Vec<_>>());
        let wanted = &cluster.set.status.update_revision;
        let carried = |pod: &Pod| pod.metadata.labels.get("controller-revision-hash").cloned();
        prop_assert!(cluster.pods.values().all(|pod| carried(pod).as_ref() == Some(wanted)));
        let status = &cluster.set.status;
        prop_assert_eq!(status.observed_generation, cluster.set.metadata.generation);
        prop_assert_eq!([status.replicas, status.ready_replicas, status.updated_replicas, status.current_replicas], [replicas; 4]);
        prop_assert_eq!(&status.current_revision, wanted);
    }
}
