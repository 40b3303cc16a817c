//! Conditions that are taken back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::super::stale::{Controller, of_pods};
use super::fixtures::{NOW, ago, condition, deleting, lines, now, pod};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Observation, Reads, Room as _};
use coxswain_machinery::informer::{Delta, Lister, Store};
use coxswain_machinery::model::{Key, Plan};

/// A pod that is to be disrupted for so many seconds.
fn target(seconds: i64, change: fn(&mut Pod)) -> Arc<Pod> {
    pod("p", |pod| {
        pod.metadata.generation = 6;
        pod.status.conditions.push(condition(
            "DisruptionTarget",
            "True",
            ago(seconds),
            "EvictionByEvictionAPI",
        ));
        change(pod);
    })
}

/// What is planned for it; `None` if it is nobody's business.
fn planned(pod: Arc<Pod>) -> Option<Plan> {
    let store = Arc::new(Store::new(&PODS));
    store.upsert(&(pod as AnyObject));
    let room = Controller { pods: Lister::new(store) };
    match room.observe(&Key::new("default", "p"), &[], &Reads::default()).unwrap() {
        Observation::View(view) => Some(Controller::plan(&view, now())),
        Observation::Nothing => None,
        other @ Observation::Needs(_) => panic!("{other:?}"),
    }
}

#[test]
fn after_two_minutes_it_is_taken_back() {
    let early = planned(target(119, |_| {})).unwrap();
    assert!(early.is_empty());
    assert_eq!(early.requeue_after, Some(Duration::from_secs(1)));
    let due = planned(target(120, |_| {})).unwrap();
    assert_eq!(due.requeue_after, None);
    let [line] = lines(&due).try_into().unwrap();
    let patch: serde_json::Value =
        serde_json::from_str(line.strip_prefix("patch default/p/status ").unwrap()).unwrap();
    let time = jiff::Timestamp::from_second(NOW).unwrap().to_string();
    let expected = json!({
        "metadata": { "uid": "p-uid", "resourceVersion": "50" },
        "status": { "conditions": [{
            "type": "DisruptionTarget", "status": "False", "observedGeneration": 6, "lastTransitionTime": time,
            "lastProbeTime": null, "reason": null, "message": null,
        }] },
    });
    assert_eq!(patch, expected);
}

#[test]
fn who_ends_anyway_or_was_told_by_the_kubelet_keeps_it() {
    let cases: [fn(&mut Pod); 5] = [
        deleting,
        |pod| pod.status.phase = "Succeeded".into(),
        |pod| pod.status.phase = "Failed".into(),
        |pod| pod.status.conditions[1].reason = "TerminationByKubelet".into(),
        |pod| pod.status.conditions[1].status = "False".into(),
    ];
    for (at, change) in cases.into_iter().enumerate() {
        assert!(planned(target(500, change)).is_none(), "{at}");
    }
}

#[test]
fn only_they_are_looked_at() {
    let map = of_pods();
    let told = |pod: &Arc<Pod>, initial| {
        let new = Arc::clone(pod) as AnyObject;
        let mut count = 0;
        map(Delta { old: None, new: Some(&new), initial, resync: false }, &mut |_| count += 1);
        count
    };
    assert_eq!([told(&target(1, |_| {}), true), told(&target(1, |_| {}), false)], [1, 1]);
    assert_eq!(told(&pod("p", |_| {}), false), 0);
    assert_eq!(told(&target(1, deleting), false), 0);
}

#[test]
fn explanations_say_when() {
    let told = |seconds| Controller::reasons(&target(seconds, |_| {}), now());
    let begin = "The pod has the condition DisruptionTarget (EvictionByEvictionAPI) and was not deleted; ";
    assert_eq!(told(90), [format!("{begin}the condition is removed in 30s if the pod still exists.")]);
    assert_eq!(told(120), [format!("{begin}the condition is older than 2 minutes and is removed.")]);
}
