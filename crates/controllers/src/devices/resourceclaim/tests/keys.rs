//! Which keys a change concerns.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::departed::Departed;
use super::super::keys::{self, *};
use super::fixtures::*;
use coxswain_machinery::api::kinds::{PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{KeyMap, wake};
use coxswain_machinery::informer::{Indexed, Store};
use coxswain_machinery::model::Key;

/// A store, and the keys that its changes concern.
struct Watched {
    store: Arc<Store>,
    keys: Arc<Mutex<Vec<Key>>>,
}

impl Watched {
    fn new(kind: &'static Kind, map: KeyMap) -> Self {
        let store = Arc::new(Store::new(kind));
        let keys = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&keys);
        store.add_handler(
            "resourceclaim",
            Arc::new(move |delta| map(delta, &mut |key| told.lock().push(key))),
        );
        Self { store, keys }
    }

    #[expect(clippy::needless_pass_by_value, reason = "made for the call")]
    fn put(&self, object: AnyObject) -> Vec<String> {
        self.store.upsert(&object);
        self.told()
    }

    #[expect(clippy::needless_pass_by_value, reason = "made for the call")]
    fn remove(&self, object: AnyObject) -> Vec<String> {
        self.store.remove(&object);
        self.told()
    }

    fn told(&self) -> Vec<String> {
        let mut told: Vec<String> = self.keys.lock().drain(..).map(|key| key.name.to_string()).collect();
        told.sort();
        told.dedup();
        told
    }
}

fn plain(_: &mut Pod) {}

fn newer(change: fn(&mut Pod)) -> impl FnOnce(&mut Pod) {
    move |pod| {
        change(pod);
        pod.metadata.resource_version = "8".into();
    }
}

#[test]
fn pods_with_claims_concern_themselves_until_they_are_done() {
    let watched = Watched::new(&PODS, own_pod());
    let nothing = Vec::<String>::new();
    assert_eq!(watched.put(pod("none", &[], &[], plain)), nothing);
    assert_eq!(watched.put(pod("p", &[("a", "c")], &[], plain)), ["p"]);
    assert_eq!(watched.put(pod("p", &[("a", "c")], &[], newer(finished))), nothing);
    assert_eq!(watched.remove(pod("p", &[("a", "c")], &[], plain)), nothing);
}

#[test]
fn pods_that_are_done_or_gone_concern_their_claims() {
    let watched = Watched::new(&PODS, left_by_pods(Arc::default()));
    let entries = [("a", "named"), ("b", "from t")];
    let made = [("b", "made")];
    let nothing = Vec::<String>::new();
    assert_eq!(watched.put(pod("p", &entries, &made, plain)), nothing);
    assert_eq!(watched.put(pod("p", &entries, &made, newer(bound))), nothing);
    let ended = |version: &'static str| {
        pod("p", &entries, &made, move |pod| {
            finished(pod);
            pod.metadata.resource_version = version.into();
        })
    };
    assert_eq!(watched.put(ended("9")), ["made", "named"]);
    assert_eq!(watched.put(ended("10")), nothing);
    assert_eq!(watched.remove(ended("10")), ["made", "named"]);
    // One that was made anew while nobody looked.
    watched.put(pod("q", &entries, &made, plain));
    let anew = pod("q", &entries, &made, |pod| {
        pod.metadata.uid = "other".into();
        pod.metadata.resource_version = "11".into();
    });
    assert_eq!(watched.put(anew), ["made", "named"]);
}

#[test]
fn deletion_of_a_pod_with_claims_is_noted_until_the_pod_is_there_again() {
    let departed = Arc::new(Departed::default());
    let watched = Watched::new(&PODS, left_by_pods(Arc::clone(&departed)));
    let held = || pod("p", &[("a", "c")], &[], plain);
    let uid = held().metadata.uid.clone();
    watched.put(held());
    assert!(!departed.has(&uid));
    watched.remove(held());
    assert!(departed.has(&uid));
    // etcd was restored from a backup.
    watched.put(held());
    assert!(!departed.has(&uid));
    let anew = pod("p", &[("a", "c")], &[], |pod| {
        pod.metadata.uid = "other".into();
        pod.metadata.resource_version = "11".into();
    });
    watched.put(anew);
    assert!(departed.has(&uid));
    let bare = pod("bare", &[], &[], |pod| pod.metadata.uid = "other-uid".into());
    let uid = bare.metadata.uid.clone();
    watched.put(bare.clone());
    watched.remove(bare);
    assert!(!departed.has(&uid), "it is no consumer");
}

/// The watch was broken while the pod ran: a list shows it for the first time when it is done.
#[test]
fn a_pod_that_a_later_list_shows_done_concerns_its_claims() {
    let watched = Watched::new(&PODS, left_by_pods(Arc::default()));
    let (entries, made) = ([("a", "named"), ("b", "from t")], [("b", "made")]);
    let short = |name: &str| pod(name, &entries, &made, finished);
    let list = |pods: Vec<AnyObject>, version: &str| {
        watched.store.replace(pods, version);
        watched.told()
    };
    let nothing = Vec::<String>::new();
    assert_eq!(list(vec![short("first")], "8"), nothing, "all claims are looked at at the start");
    assert_eq!(list(vec![short("first"), short("p")], "9"), ["made", "named"]);
    assert_eq!(list(vec![short("first"), short("p")], "10"), nothing);
}

#[test]
fn claims_and_templates_concern_the_pods_that_name_them() {
    let pods = Arc::new(Store::new(&PODS));
    for held in [
        pod("by-name", &[("a", "c")], &[], plain),
        pod("by-record", &[("a", "from t")], &[("a", "c")], plain),
        pod("by-template", &[("a", "from t")], &[], plain),
        pod("without", &[], &[], plain),
    ] {
        let held: AnyObject = held;
        pods.upsert(&held);
    }
    let by_claim = wake::by_index(Indexed::<Pod>::new(&pods, &PODS_BY_CLAIM), keys::of_claim);
    let watched = Watched::new(&RESOURCE_CLAIMS, by_claim);
    assert_eq!(watched.put(claim("c", |_| {})), ["by-name", "by-record"]);
    assert_eq!(watched.put(claim("d", |_| {})), Vec::<String>::new());
    assert_eq!(watched.remove(claim("c", |_| {})), ["by-name", "by-record"]);

    let by_template = of_templates(Indexed::<Pod>::new(&pods, &PODS_BY_TEMPLATE));
    let watched = Watched::new(&RESOURCE_CLAIM_TEMPLATES, by_template);
    assert_eq!(watched.put(template("t", false)), ["by-record", "by-template"]);
    assert_eq!(watched.remove(template("t", false)), Vec::<String>::new());
}
