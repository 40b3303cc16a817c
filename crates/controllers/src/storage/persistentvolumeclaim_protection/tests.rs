//! Tables of the plan, on stores that are filled by hand and with lists that were read live.

use std::time::Duration;

use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::{ContainerStatus, PodClaim};
use coxswain_machinery::api::storage::PersistentVolumeClaimCondition;
use coxswain_machinery::framework::{ApiError, Memory, Read};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::Step;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::text::held_text;
use coxswain_machinery::wire::{Message as _, Raw, Str, Time};

fn claim(finalizers: &[&str], is_deleting: bool) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = "ns".into();
    claim.metadata.name = "web-data".into();
    claim.metadata.uid = "claim".into();
    claim.metadata.resource_version = "7".into();
    claim.metadata.finalizers = finalizers.iter().map(|held| Str::from(*held)).collect();
    claim.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
    claim
}

fn made_for(pod: &str, claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    let owner = OwnerReference { uid: pod.into(), controller: Some(true), ..OwnerReference::default() };
    let mut claim = claim;
    claim.metadata.owner_references = vec![owner];
    claim
}

/// A running pod on a node that names the claim.
fn pod(change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = "ns".into();
    pod.metadata.name = "web".into();
    pod.metadata.uid = "web".into();
    pod.spec.node_name = "node".into();
    pod.status.phase = "Running".into();
    pod.claims = named("web-data");
    change(&mut pod);
    pod
}

fn named(claim: &str) -> coxswain_machinery::api::pod::PodClaims {
    [PodClaim { volume: "data".into(), source: PodClaimSource::Named(claim.into()) }].into_iter().collect()
}

fn ephemeral(pod: &mut Pod) {
    let source = PodClaimSource::Ephemeral(Raw::default());
    pod.claims = [PodClaim { volume: "data".into(), source }].into_iter().collect();
}

fn ends(grace: i64) -> impl FnOnce(&mut Pod) {
    move |pod| {
        pod.metadata.deletion_timestamp = Time::from_seconds(1);
        pod.metadata.deletion_grace_period_seconds = Some(grace);
    }
}

fn room(claim: &PersistentVolumeClaim, pods: &[Pod], tells_use: bool) -> Controller {
    let [claims, known] = [&PERSISTENT_VOLUME_CLAIMS, &PODS].map(|kind| Arc::new(Store::new(kind)));
    claims.upsert(&(PERSISTENT_VOLUME_CLAIMS.decode)(&claim.to_bytes().into()).unwrap());
    for pod in pods {
        known.upsert(&(Arc::new(pod.clone()) as AnyObject));
    }
    let unheard = Arc::default();
    Controller { claims: Lister::new(claims), pods: Indexed::new(&known, &BY_CLAIM), unheard, tells_use }
}

fn live(pods: &[Pod]) -> Reads {
    let pods = pods.iter().map(|pod| Arc::new(pod.clone()) as AnyObject).collect();
    Reads::default().with_list(&PODS, "ns".into(), Ok(pods))
}

fn observed(room: &Controller, read: &Reads) -> Result<Observation<View>, ObserveError> {
    room.observe(&Key::new("ns", "web-data"), &[], read)
}

fn plan_of(room: &Controller, read: &Reads) -> Plan<UnheardNote> {
    let Ok(Observation::View(view)) = observed(room, read) else { panic!("it is decided") };
    Controller::plan(&view, Timestamp::from_second(1000).unwrap())
}

fn written(verb: &Verb) -> Arc<PersistentVolumeClaim> {
    let Verb::Update(bytes) = verb else { panic!("{verb:?}") };
    downcast((PERSISTENT_VOLUME_CLAIMS.decode)(bytes).unwrap()).unwrap()
}

/// Whether the finalizer is taken off a claim that is being deleted, where the cache and a live list know these pods.
fn may_go(claim: &PersistentVolumeClaim, cached: &[Pod], there: &[Pod]) -> bool {
    let plan = plan_of(&room(claim, cached, false), &live(there));
    let first = plan.writes().next().map(|write| written(&write.verb));
    first.is_some_and(|claim| !claim.metadata.finalizers.iter().any(|held| held == FINALIZER))
}

#[test]
fn a_pod_on_a_node_holds_its_claim_until_it_is_gone() {
    let going = claim(&["x", FINALIZER], true);
    let phase = |phase: &'static str| pod(|pod| pod.status.phase = phase.into());
    let forced = pod(ends(0));
    for (what, pod, goes) in [
        ("runs", phase("Running"), false),
        ("has completed", phase("Succeeded"), false),
        ("has failed", phase("Failed"), false),
        ("ends", pod(ends(30)), false),
        ("was ended by force, and finalizers keep it", forced, false),
        ("is on no node", pod(|pod| pod.spec.node_name = Str::EMPTY), true),
        ("names another claim", pod(|pod| pod.claims = named("web")), true),
        ("is in another namespace", pod(|pod| pod.metadata.namespace = "other".into()), true),
    ] {
        assert_eq!(
            may_go(&going, std::slice::from_ref(&pod), std::slice::from_ref(&pod)),
            goes,
            "a pod that {what}"
        );
    }
    assert!(may_go(&going, &[], &[]));
    let others = plan_of(&room(&going, &[], false), &live(&[]));
    assert_eq!(written(&others.writes().next().unwrap().verb).metadata.finalizers, ["x"]);
}

#[test]
fn an_ephemeral_volume_holds_the_claim_that_was_made_for_its_pod() {
    let ours = made_for("web", claim(&[FINALIZER], true));
    let strangers = made_for("other", claim(&[FINALIZER], true));
    let ephemeral = |change: &dyn Fn(&mut Pod)| {
        pod(|pod| {
            ephemeral(pod);
            change(pod);
        })
    };
    let end = |grace: i64| move |pod: &mut Pod| ends(grace)(pod);
    for (what, claim, pod, goes) in [
        ("its own", &ours, ephemeral(&|_| {}), false),
        ("its own, completed", &ours, ephemeral(&|pod| pod.status.phase = "Succeeded".into()), false),
        ("its own, while it ends", &ours, ephemeral(&end(30)), false),
        ("its own, once it was ended", &ours, ephemeral(&end(0)), true),
        ("another pod's", &strangers, ephemeral(&|_| {}), true),
        ("nobody's", &claim(&[FINALIZER], true), ephemeral(&|_| {}), true),
        (
            "its own, of a later pod of the name",
            &ours,
            ephemeral(&|pod| pod.metadata.uid = "later".into()),
            true,
        ),
    ] {
        assert_eq!(may_go(claim, std::slice::from_ref(&pod), std::slice::from_ref(&pod)), goes, "{what}");
    }
}

/// A StatefulSet that deletes claims with their pods makes the pod the claim's controller.
#[test]
fn a_claim_that_goes_with_its_pod_does_not_wait_for_one_that_was_ended() {
    let with_its_pod = made_for("web", claim(&[FINALIZER], true));
    let of_another = made_for("other", claim(&[FINALIZER], true));
    let with_finalizers = |finalizers: &[&str]| {
        let mut pod = pod(ends(0));
        pod.metadata.finalizers = finalizers.iter().map(|&finalizer| finalizer.into()).collect();
        pod
    };
    for (what, claim, pod, goes) in [
        (
            "once only its foreground deletion keeps it",
            &with_its_pod,
            with_finalizers(&["foregroundDeletion"]),
            true,
        ),
        (
            "while others keep it",
            &with_its_pod,
            with_finalizers(&["foregroundDeletion", "example.com/hold"]),
            false,
        ),
        ("while it runs", &with_its_pod, pod(|_| {}), false),
        ("while it ends", &with_its_pod, pod(ends(30)), false),
        ("once it was ended", &with_its_pod, pod(ends(0)), true),
        ("of another pod", &of_another, pod(ends(0)), false),
        ("of nobody", &claim(&[FINALIZER], true), pod(ends(0)), false),
    ] {
        assert_eq!(may_go(claim, std::slice::from_ref(&pod), std::slice::from_ref(&pod)), goes, "{what}");
    }
}

#[test]
fn only_a_live_list_says_that_nobody_uses_a_claim() {
    let going = claim(&[FINALIZER], true);
    let held = room(&going, &[pod(|_| {})], false);
    assert!(
        matches!(observed(&held, &Reads::default()), Ok(Observation::View(_))),
        "one in the cache is enough"
    );
    let free = room(&going, &[], false);
    let Ok(Observation::Needs(reads)) = observed(&free, &Reads::default()) else { panic!("it reads live") };
    assert_eq!(reads, [Read::List(&PODS, "ns".into())], "all pods of the namespace, once for all its claims");
    let unheard_of = plan_of(&free, &live(&[pod(|_| {})]));
    assert!(unheard_of.is_empty() && unheard_of.requeue_after.is_some());
    let failed = Reads::default().with_list(
        &PODS,
        "ns".into(),
        Err(ApiError::Malformed { request: "GET".to_owned(), what: "no".to_owned() }),
    );
    let error = observed(&free, &failed).unwrap_err();
    assert!(matches!(&error, ObserveError::Retry(text) if text.starts_with("live list of pods failed: ")));
    for settled in [claim(&[], false), claim(&[FINALIZER], false), claim(&["x"], true)] {
        let room = room(&settled, &[], false);
        assert!(matches!(observed(&room, &Reads::default()), Ok(Observation::View(_))), "{settled:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn users_that_the_cache_lacks_are_read_again_soon_however_old_the_deletion_is() {
    let free = room(&claim(&[FINALIZER], true), &[], false);
    let mut waits = Vec::new();
    for passed in [0, 10, 90, 1000] {
        tokio::time::advance(Duration::from_secs(passed)).await;
        let plan = plan_of(&free, &live(&[pod(|_| {})]));
        waits.push(plan.requeue_after.unwrap().as_secs());
        Memory::commit(&*free.unheard, &Key::new("ns", "web-data"), plan.note);
    }
    assert_eq!(waits, [10, 10, 100, 600]);
    // The user has ended.
    let plan = plan_of(&free, &live(&[]));
    assert!(plan.requeue_after.is_none() && !plan.is_empty());
    Memory::commit(&*free.unheard, &Key::new("ns", "web-data"), plan.note);
    assert_eq!(plan_of(&free, &live(&[pod(|_| {})])).requeue_after, Some(Duration::from_secs(10)));
}

#[test]
fn a_claim_that_stays_gets_the_finalizer_behind_those_of_others() {
    let put = |held: &[&str], is_deleting| {
        let plan = plan_of(&room(&claim(held, is_deleting), &[], false), &live(&[]));
        plan.writes().next().map(|write| written(&write.verb).metadata.finalizers.clone())
    };
    assert_eq!(put(&["x"], false), Some(vec!["x".into(), FINALIZER.into()]));
    assert_eq!(put(&[FINALIZER], false), None);
    assert_eq!(put(&["x"], true), None);
    let gone = room(&claim(&[], false), &[], false).observe(&Key::new("ns", "gone"), &[], &Reads::default());
    assert!(matches!(gone, Ok(Observation::Nothing)));
}

fn saying(status: Option<&'static str>) -> PersistentVolumeClaim {
    let mut claim = claim(&[FINALIZER], false);
    let condition = |kind: &str, status: &str| PersistentVolumeClaimCondition {
        r#type: kind.into(),
        status: status.into(),
        ..PersistentVolumeClaimCondition::default()
    };
    claim.status.conditions = vec![condition("Resizing", "True")];
    claim.status.conditions.extend(status.map(|status| condition(UNUSED, status)));
    claim
}

#[test]
fn with_the_gate_a_claim_says_since_when_it_is_unused() {
    let (used, ended) = (pod(|_| {}), pod(|pod| pod.status.phase = "Succeeded".into()));
    let unbound = pod(|pod| pod.spec.node_name = Str::EMPTY);
    for (status, pod, expected) in [
        (None, Some(&used), Some(("False", "PodUsingPVC", "A pod is currently referencing this PVC"))),
        (None, Some(&unbound), Some(("False", "PodUsingPVC", "A pod is currently referencing this PVC"))),
        (
            Some("True"),
            Some(&used),
            Some(("False", "PodUsingPVC", "A pod is currently referencing this PVC")),
        ),
        (Some("False"), Some(&used), None),
        (Some("Unknown"), Some(&used), None),
        (None, None, Some(("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"))),
        (
            Some("False"),
            Some(&ended),
            Some(("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")),
        ),
        (
            Some("Unknown"),
            None,
            Some(("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")),
        ),
        (Some("True"), None, None),
    ] {
        let pods: Vec<Pod> = pod.into_iter().cloned().collect();
        let plan = plan_of(&room(&saying(status), &pods, true), &live(&pods));
        let writes: Vec<_> = plan.writes().collect();
        let Some((status, reason, message)) = expected else {
            assert!(writes.is_empty(), "{status:?}");
            continue;
        };
        assert_eq!((writes.len(), writes[0].subresource), (1, "status"));
        let told = written(&writes[0].verb);
        let [other, held] = told.status.conditions.as_slice() else { panic!("{told:?}") };
        assert_eq!((other.r#type.as_str(), other.status.as_str()), ("Resizing", "True"), "others stay");
        assert_eq!(
            (held.status.as_str(), held.reason.as_str(), held.message.as_str()),
            (status, reason, message)
        );
        assert_eq!(held.last_transition_time, Time::from_seconds(1000));
    }
    let off = plan_of(&room(&saying(None), &[], false), &Reads::default());
    assert!(off.is_empty(), "not without the gate");
}

#[test]
fn that_nobody_uses_it_is_said_after_a_live_list_and_never_of_what_goes() {
    let cached = room(&saying(Some("False")), &[], true);
    assert!(matches!(observed(&cached, &Reads::default()), Ok(Observation::Needs(_))));
    assert!(plan_of(&cached, &live(&[pod(|_| {})])).is_empty(), "the list knows a user");
    let going = PersistentVolumeClaim { metadata: claim(&[FINALIZER], true).metadata, ..saying(None) };
    let plan = plan_of(&room(&going, &[], true), &live(&[]));
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.writes().next().unwrap().subresource, "", "it only goes");
}

#[test]
fn condition_and_finalizer_are_written_one_after_the_other() {
    let mut bare = saying(None);
    bare.metadata.finalizers.clear();
    let plan = plan_of(&room(&bare, &[], true), &live(&[]));
    let [Step::Write(told), Step::Write(put)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(told.subresource, "status");
    assert!(matches!(&put.verb, Verb::UpdateLast(edits) if edits.len() == 1), "it builds on the answer");
}

fn keys(map: &KeyMap, old: Option<&AnyObject>, new: Option<&AnyObject>) -> Vec<String> {
    let mut keys = Vec::new();
    map(Delta { old, new, initial: false, resync: false }, &mut |key| keys.push(key.to_string()));
    keys
}

#[test]
fn a_claim_concerns_itself_when_there_is_something_to_decide() {
    let woken = |claim: PersistentVolumeClaim, tells_use| {
        keys(&claims_to_decide(tells_use), None, Some(&(Arc::new(claim) as AnyObject))).len()
    };
    assert_eq!([claim(&[], false), claim(&[FINALIZER], true)].map(|claim| woken(claim, false)), [1, 1]);
    assert_eq!([claim(&[FINALIZER], false), claim(&[], true)].map(|claim| woken(claim, false)), [0, 0]);
    assert_eq!([saying(None), saying(Some("False"))].map(|claim| woken(claim, true)), [1, 0]);
    assert_eq!(woken(claim(&[], true), true), 0);
    let gone: AnyObject = Arc::new(claim(&[], false));
    assert_eq!(keys(&claims_to_decide(true), Some(&gone), None).len(), 0);
}

#[test]
fn a_pod_concerns_its_claims_when_it_may_let_go_of_them() {
    let woken = |claim: &PersistentVolumeClaim, old: Option<Pod>, new: Option<Pod>, tells_use| {
        let room = room(claim, &[], tells_use);
        let (old, new) =
            (old.map(|old| Arc::new(old) as AnyObject), new.map(|new| Arc::new(new) as AnyObject));
        keys(&claims_of_pods(room.claims, tells_use), old.as_ref(), new.as_ref()).len()
    };
    let going = claim(&[FINALIZER], true);
    let running = |pod: &mut Pod| pod.status.container_statuses = vec![ContainerStatus::default()];
    let ephemeral_ending = pod(|pod| {
        running(pod);
        ends(0)(pod);
    });
    let ending = |container: fn(&mut Pod)| {
        pod(|pod| {
            ends(30)(pod);
            container(pod);
        })
    };
    for (what, old, new, expected) in [
        ("is new", None, Some(pod(|_| {})), 0),
        ("runs on", Some(pod(|_| {})), Some(pod(|_| {})), 0),
        ("is on no node", None, Some(pod(|pod| pod.spec.node_name = Str::EMPTY)), 1),
        ("has completed", Some(pod(|_| {})), Some(pod(|pod| pod.status.phase = "Succeeded".into())), 1),
        (
            "ends, and runs",
            None,
            Some(ending(|pod| pod.status.container_statuses = vec![ContainerStatus::default()])),
            0,
        ),
        (
            "ends, an init container runs",
            None,
            Some(ending(|pod| {
                pod.status.init_container_statuses = [ContainerStatus::default()].into_iter().collect();
            })),
            0,
        ),
        (
            "ends, an ephemeral container runs",
            None,
            Some(ending(|pod| {
                pod.status.ephemeral_container_statuses = [ContainerStatus::default()].into_iter().collect();
            })),
            0,
        ),
        ("ends, and nothing runs", None, Some(ending(|_| {})), 1),
        ("was ended", None, Some(ephemeral_ending), 1),
        ("is gone", Some(pod(|_| {})), None, 1),
        ("was replaced", Some(pod(|_| {})), Some(pod(|pod| pod.metadata.uid = "later".into())), 1),
    ] {
        assert_eq!(woken(&going, old.clone(), new.clone(), false), expected, "a pod that {what}");
        let settled = claim(&[FINALIZER], false);
        assert_eq!(woken(&settled, old.clone(), new.clone(), false), 0, "there is nothing to decide");
        assert!(woken(&settled, old, new, true) > 0, "with the gate every change counts");
    }
    let elsewhere = pod(|pod| pod.claims = named("not-there"));
    assert_eq!(woken(&going, Some(elsewhere), None, true), 0, "a claim that is not there");
}

#[test]
fn it_says_who_holds_a_claim() {
    let said = |cached: &[Pod], there: &[Pod], tells_use, claim: &PersistentVolumeClaim| {
        let Ok(Observation::View(view)) = observed(&room(claim, cached, tells_use), &live(there)) else {
            panic!("it is decided")
        };
        Controller::reasons(&view, Timestamp::UNIX_EPOCH).join(" ")
    };
    let going = claim(&[FINALIZER], true);
    let told = said(&[pod(|_| {})], &[], false, &going);
    assert!(told.contains("pvc-protection because web is bound to a node and uses it"), "{told}");
    let told = said(&[], &[], false, &going);
    assert!(told.contains("nothing uses it") && told.contains("listed live to confirm it"), "{told}");
    assert!(said(&[pod(|_| {})], &[], true, &saying(None)).contains("the claim is marked as used"));
    assert!(said(&[], &[], true, &saying(None)).contains("the claim is marked as unused"));
}

#[test]
fn a_pod_that_cannot_be_decoded_may_use_the_claim() {
    let free = room(&claim(&[FINALIZER], true), &[], false);
    let encoded = |pod: &Pod, rest: &[u8]| bytes::Bytes::from([&pod.to_bytes(), rest].concat());
    let other = pod(|pod| {
        pod.metadata.name = "other".into();
        pod.metadata.annotations = [("a", &*held_text(b"\xff"))].into_iter().collect();
        pod.claims = named("another");
    });
    let live = |rest| Reads::default().with_encoded(&PODS, "ns".into(), &[encoded(&other, rest)]);
    let released = plan_of(&free, &live(&[]));
    assert_eq!(released.writes().count(), 1, "the bytes of another pod keep nothing");
    // A spec that is a number.
    let error = observed(&free, &live(&[16, 1])).unwrap_err();
    assert!(matches!(&error, ObserveError::Retry(text) if text.contains("ns/other")), "{error:?}");
}
