//! Tables of the plan, on stores that are filled by hand.

use super::view::Found;
use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::PodClaim;
use coxswain_machinery::executor::{ActionResult, planned};
use coxswain_machinery::framework::{Meter as _, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::Step;
use coxswain_machinery::model::plan::{Cooldown, Verb};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Message as _, Raw, Time};

/// A template with everything in its metadata, a storage class, and a field of its spec that nobody here has heard of.
fn template() -> Raw {
    let mut template = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: "not-this".into(),
            labels: [("a", "1")].into_iter().collect(),
            annotations: [("b", "2")].into_iter().collect(),
            finalizers: vec!["example.com/not-this".into()],
            owner_references: vec![OwnerReference { uid: "not-this".into(), ..OwnerReference::default() }],
            ..ObjectMeta::default()
        },
        ..PersistentVolumeClaim::default()
    };
    template.spec.storage_class_name = Some("fast".into());
    template.spec.volume_attributes_class_name = "gold".into();
    let mut bytes = template.to_bytes();
    // The status of a claim is no part of a template; what is unknown is.
    bytes.extend([0xfa, 0x3f, 1, b'x']);
    bytes::Bytes::from(bytes).into()
}

fn pod(volumes: &[&str]) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = "ns".into();
    pod.metadata.name = "web".into();
    pod.metadata.uid = "web".into();
    let plain = PodClaim { volume: "plain".into(), source: PodClaimSource::Named("plain".into()) };
    let ephemeral = volumes
        .iter()
        .map(|name| PodClaim { volume: (*name).into(), source: PodClaimSource::Ephemeral(template()) });
    pod.claims = std::iter::once(plain).chain(ephemeral).collect();
    pod
}

fn claim(name: &str, controller: Option<&str>) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = "ns".into();
    claim.metadata.name = name.into();
    claim.metadata.uid = name.into();
    let owner =
        |uid: &str| OwnerReference { uid: uid.into(), controller: Some(true), ..OwnerReference::default() };
    claim.metadata.owner_references = controller.map(owner).into_iter().collect();
    claim
}

fn view(pod: &Pod, claims: &[PersistentVolumeClaim]) -> Option<View> {
    let [pods, known] = [&PODS, &PERSISTENT_VOLUME_CLAIMS].map(|kind| Arc::new(Store::new(kind)));
    pods.upsert(&(Arc::new(pod.clone()) as AnyObject));
    for claim in claims {
        known.upsert(&(Arc::new(claim.clone()) as AnyObject));
    }
    let room = Controller { pods: Lister::new(pods), claims: Lister::new(known) };
    view::observe(&room, &Key::of(&pod.metadata))
}

/// What is made, and what is told, in order.
fn steps(plan: &Plan) -> Vec<String> {
    let step = |step: &Step| match step {
        Step::Write(write) => write.to_string(),
        Step::Emit(event) => format!("{} {} {}", event.warning, event.reason, event.message),
        other => panic!("{other:?}"),
    };
    plan.steps.iter().map(step).collect()
}

const CREATE: &str = "create persistentvolumeclaims ns/web-";

#[test]
fn every_ephemeral_volume_without_a_claim_gets_one_in_order() {
    let all = pod(&["b", "a"]);
    let made = |claims: &[PersistentVolumeClaim]| steps(&plan::plan(&view(&all, claims).unwrap()));
    assert_eq!(made(&[]), [format!("{CREATE}b"), format!("{CREATE}a")]);
    assert_eq!(made(&[claim("web-b", Some("web"))]), [format!("{CREATE}a")]);
    let mut going = claim("web-a", Some("web"));
    going.metadata.deletion_timestamp = Time::from_seconds(1);
    assert_eq!(made(&[claim("web-b", Some("web")), going]), [""; 0], "one that is being deleted is there");
}

#[test]
fn pods_that_go_get_none_and_pods_that_ended_do() {
    let mut ended = pod(&["a"]);
    ended.status.phase = "Succeeded".into();
    assert!(view(&ended, &[]).is_some());
    ended.metadata.deletion_timestamp = Time::from_seconds(1);
    assert!(view(&ended, &[]).is_none());
    assert!(view(&pod(&[]), &[]).is_none(), "no ephemeral volume");
}

#[test]
fn a_claim_is_its_template_with_a_name_and_an_owner() {
    let plan = plan::plan(&view(&pod(&["data"]), &[]).unwrap());
    let write = plan.writes().next().unwrap();
    let Verb::Create(bytes) = &write.verb else { panic!("{write}") };
    let made: Arc<PersistentVolumeClaim> =
        downcast((PERSISTENT_VOLUME_CLAIMS.decode)(bytes).unwrap()).unwrap();
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: "web".into(),
        uid: "web".into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let metadata = ObjectMeta {
        name: "web-data".into(),
        namespace: "ns".into(),
        labels: [("a", "1")].into_iter().collect(),
        annotations: [("b", "2")].into_iter().collect(),
        owner_references: vec![owner],
        ..ObjectMeta::default()
    };
    assert_eq!(made.metadata, metadata);
    assert_eq!(made.spec.storage_class_name.as_deref(), Some("fast"));
    assert_eq!(made.spec.volume_attributes_class_name, "gold");
    assert!(bytes.ends_with(&[0xfa, 0x3f, 1, b'x']), "fields that are newer than this travel, too");
    let told = write.on_failure.as_ref().unwrap();
    assert_eq!(told.message, "ephemeral volume data: create PVC web-data: {error}");
    assert!(told.warning && told.reason == "FailedBinding" && told.regarding.kind == &PODS);
    assert_eq!(
        write.tolerate,
        coxswain_machinery::model::plan::Tolerate::default(),
        "a name that is taken is told"
    );
}

#[test]
fn a_stranger_stops_its_volume_and_those_behind_it() {
    let all = pod(&["a", "b", "c"]);
    for (what, stranger) in
        [("nobody's", claim("web-b", None)), ("another pod's of the name", claim("web-b", Some("before")))]
    {
        let plan = plan::plan(&view(&all, &[stranger]).unwrap());
        let error = "ephemeral volume b: PVC ns/web-b was not created for pod ns/web (pod is not owner)";
        assert_eq!(steps(&plan), [format!("{CREATE}a"), format!("true FailedBinding {error}")], "{what}");
        assert_eq!(plan.retry.as_deref(), Some(error), "told with every try");
    }
    let mut owned = claim("web-a", None);
    owned.metadata.owner_references = vec![OwnerReference { uid: "web".into(), ..OwnerReference::default() }];
    assert_eq!(
        view(&all, &[owned]).unwrap().volumes[0].found,
        Found::Stranger,
        "an owner that is no controller"
    );
}

#[test]
fn two_pods_may_mean_one_claim() {
    let mut other = pod(&["c"]);
    other.metadata.name = "a-b".into();
    assert_eq!(view(&other, &[]).unwrap().volumes[0].claim, "a-b-c");
    other.metadata.name = "a".into();
    other.claims = pod(&["b-c"]).claims;
    let found = view(&other, &[claim("a-b-c", Some("of-a-b"))]).unwrap();
    assert_eq!((found.volumes[0].claim.as_str(), found.volumes[0].found), ("a-b-c", Found::Stranger));
}

fn keys(map: &KeyMap, old: Option<AnyObject>, new: Option<AnyObject>) -> Vec<String> {
    let (mut keys, change) = (Vec::new(), (old, new));
    let delta = Delta { old: change.0.as_ref(), new: change.1.as_ref(), initial: false, resync: false };
    map(delta, &mut |key| keys.push(key.to_string()));
    keys
}

#[test]
fn pods_that_appear_and_claims_that_are_gone_wake_pods() {
    let object = |pod: Pod| Some(Arc::new(pod) as AnyObject);
    let (with, without) = (pod(&["a"]), pod(&[]));
    let mut later = with.clone();
    later.metadata.uid = "later".into();
    assert_eq!(keys(&new_pods(), None, object(with.clone())), ["ns/web"]);
    assert_eq!(keys(&new_pods(), None, object(without.clone())), [""; 0]);
    assert_eq!(keys(&new_pods(), object(with.clone()), object(with.clone())), [""; 0]);
    assert_eq!(keys(&new_pods(), object(with.clone()), object(later)), ["ns/web"]);
    assert_eq!(keys(&new_pods(), object(with.clone()), None), [""; 0]);

    let pods = Arc::new(Store::new(&PODS));
    pods.upsert(&(Arc::new(with) as AnyObject));
    let map = pods_of_claims(Indexed::new(&pods, &BY_CLAIM));
    let claim = |name: &str, uid: &str| {
        let mut claim = claim(name, None);
        claim.metadata.uid = uid.into();
        Some(Arc::new(claim) as AnyObject)
    };
    assert_eq!(keys(&map, claim("web-a", "1"), None), ["ns/web"]);
    assert_eq!(keys(&map, claim("plain", "1"), None), ["ns/web"], "plain ones count, as in the original");
    assert_eq!(keys(&map, claim("web-a", "1"), claim("web-a", "2")), ["ns/web"]);
    assert_eq!(keys(&map, claim("web-a", "1"), claim("web-a", "1")), [""; 0]);
    assert_eq!(keys(&map, None, claim("web-a", "1")), [""; 0]);
    assert_eq!(keys(&map, claim("web-b", "1"), None), [""; 0]);
    pods.upsert(&(Arc::new(without) as AnyObject));
    assert_eq!(keys(&map, claim("plain", "1"), None), [""; 0], "it has no ephemeral volume");
}

#[test]
fn creates_are_counted_and_so_are_those_that_fail() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let plan = plan::plan(&view(&pod(&["a", "b"]), &[]).unwrap());
    let outcome = Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE };
    let failed = ActionResult::Failed("no".to_owned());
    for results in [[ActionResult::Done, ActionResult::Done], [failed, ActionResult::Planned]] {
        let mut actions = planned(&plan);
        for (action, result) in actions.iter_mut().zip(results) {
            action.result = result;
        }
        let took = std::time::Duration::ZERO;
        metrics.ended(&Key::new("ns", "web"), ReconcileEnd { outcome: &outcome, actions: &actions, took });
    }
    let families = registry.gather();
    let value = |name: &str| {
        let family = families.iter().find(|family| family.name() == name).unwrap();
        family.get_metric()[0].get_counter().get_value()
    };
    assert!((value("ephemeral_volume_controller_create_total") - 3.0).abs() < 0.1);
    assert!((value("ephemeral_volume_controller_create_failures_total") - 1.0).abs() < 0.1);
}

#[test]
fn it_says_what_a_volume_waits_for() {
    let claims = [claim("web-a", Some("web")), claim("web-c", None)];
    let said =
        Controller::reasons(&view(&pod(&["a", "b", "c", "d"]), &claims).unwrap(), Timestamp::UNIX_EPOCH);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("web-a of the volume a exists"));
    assert!(said[1].contains("web-b is created from its template"));
    assert!(said[2].contains("is not controlled by this pod"));
}
