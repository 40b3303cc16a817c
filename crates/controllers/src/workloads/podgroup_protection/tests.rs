//! Tables of the plan, on stores that are filled by hand and with lists that were read live.

use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::shape::PodShape;
use coxswain_machinery::framework::{ApiError, Read};
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::{Message as _, Str, Time};

fn group(finalizers: &[&str], is_deleting: bool) -> PodGroup {
    let mut group = PodGroup::default();
    group.metadata.namespace = "ns".into();
    group.metadata.name = "web".into();
    group.metadata.resource_version = "7".into();
    group.metadata.finalizers = finalizers.iter().map(|held| Str::from(*held)).collect();
    group.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
    group
}

fn pod(namespace: &str, group: &str, phase: &str, is_deleting: bool) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = namespace.into();
    pod.metadata.name = "a".into();
    pod.metadata.uid = "a".into();
    pod.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
    pod.status.phase = phase.into();
    pod.shape = PodShape { pod_group: group.into(), ..PodShape::default() }.into();
    pod
}

fn room(group: &PodGroup, pods: &[Pod]) -> Controller {
    let [groups, known] = [&POD_GROUPS, &PODS].map(|kind| Arc::new(Store::new(kind)));
    groups.upsert(&(POD_GROUPS.decode)(&group.to_bytes().into()).unwrap());
    for pod in pods {
        known.upsert(&(Arc::new(pod.clone()) as AnyObject));
    }
    Controller {
        groups: Lister::new(groups),
        pods: Indexed::new(&known, &ACTIVE_BY_GROUP),
        unheard: Arc::default(),
    }
}

fn live(pods: &[Pod]) -> Reads {
    let pods = pods.iter().map(|pod| Arc::new(pod.clone()) as AnyObject).collect();
    Reads::default().with_list(&PODS, "ns".into(), Ok(pods))
}

fn observed(room: &Controller, read: &Reads) -> Result<Observation<View>, ObserveError> {
    room.observe(&Key::new("ns", "web"), &[], read)
}

/// The finalizers that are written, if anything is, and whether the group is looked at again.
fn decided(room: &Controller, read: &Reads) -> (Option<Vec<Str>>, bool) {
    let Ok(Observation::View(view)) = observed(room, read) else { panic!("it is decided") };
    let plan = Controller::plan(&view, Timestamp::UNIX_EPOCH);
    let written = plan.writes().next().map(|write| {
        let Verb::Update(bytes) = &write.verb else { panic!("{write}") };
        let changed = (POD_GROUPS.decode)(bytes).unwrap();
        assert_eq!(changed.meta().resource_version, "7", "the object that was judged is written");
        changed.meta().finalizers.clone()
    });
    (written, plan.requeue_after.is_some())
}

#[test]
fn active_pods_hold_their_group() {
    let going = group(&["x", FINALIZER, "y"], true);
    let (stays, goes) = ((None, false), (Some(vec!["x".into(), "y".into()]), false));
    for (what, pod, expected) in [
        ("runs", pod("ns", "web", "Running", false), &stays),
        ("waits for a node", pod("ns", "web", "Pending", false), &stays),
        ("ends", pod("ns", "web", "Running", true), &stays),
        ("has succeeded", pod("ns", "web", "Succeeded", false), &goes),
        ("has failed, and is there", pod("ns", "web", "Failed", true), &goes),
        ("is of another group", pod("ns", "db", "Running", false), &goes),
        ("is of none", pod("ns", "", "Running", false), &goes),
        ("is of that name in another namespace", pod("other", "web", "Running", false), &goes),
    ] {
        assert_eq!(
            decided(&room(&going, std::slice::from_ref(&pod)), &live(&[])),
            *expected,
            "in the cache, one that {what}"
        );
        let heard_of_later = (expected.0.clone(), expected.0.is_none());
        assert_eq!(
            decided(&room(&going, &[]), &live(&[pod])),
            heard_of_later,
            "in a live list, one that {what}"
        );
    }
}

#[test]
fn only_a_live_list_says_that_no_pod_is_left() {
    let free = room(&group(&[FINALIZER], true), &[]);
    let Ok(Observation::Needs(reads)) = observed(&free, &Reads::default()) else { panic!("it reads live") };
    assert_eq!(reads, [Read::List(&PODS, "ns".into())]);
    let refused = ApiError::Malformed { request: "GET".to_owned(), what: "no".to_owned() };
    let failed = Reads::default().with_list(&PODS, "ns".into(), Err(refused));
    let error = observed(&free, &failed).unwrap_err();
    assert!(matches!(&error, ObserveError::Retry(text) if text.starts_with("live list of pods failed: ")));
    let absent = free.observe(&Key::new("ns", "gone"), &[], &Reads::default());
    assert!(matches!(absent, Ok(Observation::Nothing)));
}

#[test]
fn nothing_is_written_but_to_a_group_that_goes_with_the_finalizer() {
    for group in [group(&[], false), group(&[FINALIZER], false), group(&["x"], true)] {
        assert_eq!(decided(&room(&group, &[]), &Reads::default()), (None, false), "{group:?}");
    }
}

fn keys(map: &KeyMap, old: Option<AnyObject>, new: Option<AnyObject>) -> Vec<String> {
    let (mut keys, change) = (Vec::new(), (old, new));
    let delta = Delta { old: change.0.as_ref(), new: change.1.as_ref(), initial: false, resync: false };
    map(delta, &mut |key| keys.push(key.to_string()));
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn groups_that_go_and_what_becomes_of_their_pods_wake_them() {
    let object = |group: PodGroup| Some(Arc::new(group) as AnyObject);
    assert_eq!(keys(&groups_that_go(), None, object(group(&[FINALIZER], true))), ["ns/web"]);
    for idle in [group(&[], false), group(&[FINALIZER], false), group(&["x"], true)] {
        assert_eq!(keys(&groups_that_go(), None, object(idle)), [""; 0]);
    }
    assert_eq!(keys(&groups_that_go(), object(group(&[FINALIZER], true)), None), [""; 0]);

    let woken = |group: &PodGroup, old: Option<Pod>, new: Option<Pod>| {
        let object = |pod: Pod| Arc::new(pod) as AnyObject;
        keys(&groups_of_pods(room(group, &[]).groups), old.map(object), new.map(object))
    };
    let going = group(&[FINALIZER], true);
    let running = || Some(pod("ns", "web", "Running", false));
    assert_eq!(
        woken(&going, running(), Some(pod("ns", "web", "Succeeded", false))),
        ["ns/web"],
        "it has finished"
    );
    assert_eq!(woken(&going, running(), None), ["ns/web"], "it is gone");
    assert_eq!(
        woken(&going, running(), Some(pod("ns", "db", "Running", false))),
        ["ns/web"],
        "it was replaced"
    );
    assert_eq!(woken(&going, None, Some(pod("ns", "db", "Running", false))), [""; 0]);
    assert_eq!(woken(&group(&[FINALIZER], false), running(), None), [""; 0], "the group stays");
}

#[test]
fn it_says_who_holds_a_group() {
    let said = |group: &PodGroup, pods: &[Pod]| {
        let Ok(Observation::View(view)) = observed(&room(group, pods), &live(&[])) else {
            panic!("it is decided")
        };
        Controller::reasons(&view, Timestamp::UNIX_EPOCH).remove(0)
    };
    let told = said(&group(&[FINALIZER], true), &[pod("ns", "web", "Running", false)]);
    assert!(told.contains("podgroup-protection because a belongs to it"), "{told}");
    assert!(said(&group(&[FINALIZER], true), &[]).contains("nothing uses it"));
    assert!(said(&group(&[], false), &[]).contains("only the API server adds"));
}
