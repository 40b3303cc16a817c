//! Tables of the plan, on stores that are filled by hand.

use super::*;
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::storage::PersistentVolumeClaimCondition;
use coxswain_machinery::api::volumes::{
    AwsElasticBlockStore, CsiPersistent, FlexVolume, PersistentVolumeSource,
};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::executor::{Effect, WriteEffect, planned};
use coxswain_machinery::framework::{ApiError, Meter as _, Outcome, Read, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::plan::{Cooldown, Patch, Verb};
use coxswain_machinery::model::{Step, Write};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::Time;
use serde_json::{Value, json};

mod flex;

const DRIVER: &str = "example.com/d";

fn claim(wanted: &str, has: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = "ns".into();
    claim.metadata.name = "data".into();
    claim.metadata.uid = "claim".into();
    claim.metadata.resource_version = "7".into();
    claim.spec.volume_name = "vol".into();
    claim.spec.resources.requests.insert("storage", wanted);
    claim.status.phase = "Bound".into();
    if !has.is_empty() {
        claim.status.capacity.insert("storage", has);
    }
    claim
}

fn volume(source: PersistentVolumeSource, size: &str) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = "vol".into();
    volume.metadata.uid = "volume".into();
    volume.metadata.resource_version = "9".into();
    volume.spec.capacity.insert("storage", size);
    volume.spec.persistent_volume_source = source;
    volume.spec.claim_ref = Some(Box::new(ObjectReference {
        namespace: "ns".into(),
        name: "data".into(),
        uid: "claim".into(),
        ..ObjectReference::default()
    }));
    volume
}

fn flexible(size: &str) -> PersistentVolume {
    let flex_volume = Some(Box::new(FlexVolume { driver: DRIVER.into() }));
    volume(PersistentVolumeSource { flex_volume, ..PersistentVolumeSource::default() }, size)
}

fn marked(mut volume: PersistentVolume) -> PersistentVolume {
    volume.metadata.annotations = [(writes::PRE_RESIZE, "1Gi")].into_iter().collect();
    volume
}

fn csi(size: &str) -> PersistentVolume {
    let csi = Some(Box::new(CsiPersistent { driver: "d".into(), volume_handle: "h".into() }));
    volume(PersistentVolumeSource { csi, ..PersistentVolumeSource::default() }, size)
}

fn in_tree(size: &str) -> PersistentVolume {
    let aws_elastic_block_store = Some(Box::new(AwsElasticBlockStore::default()));
    volume(PersistentVolumeSource { aws_elastic_block_store, ..PersistentVolumeSource::default() }, size)
}

fn room(claims: &[&PersistentVolumeClaim], volumes: &[&PersistentVolume]) -> Controller {
    let [held, known] =
        [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES].map(|kind| Arc::new(Store::new(kind)));
    for claim in claims {
        held.upsert(&(Arc::new((*claim).clone()) as AnyObject));
    }
    for volume in volumes {
        known.upsert(&(Arc::new((*volume).clone()) as AnyObject));
    }
    Controller { claims: Lister::new(held), volumes: Lister::new(known) }
}

fn key() -> Key {
    Key::new("ns", "data")
}

fn view(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> View {
    match room(&[claim], &[volume]).observe(&key(), &[], &Reads::default()).unwrap() {
        Observation::View(view) => view,
        other => panic!("{other:?}"),
    }
}

fn planned_for(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Plan<Note> {
    Controller::plan(&view(claim, volume), now())
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

/// What is written and told, in order.
fn steps(plan: &Plan<Note>) -> Vec<String> {
    let step = |step: &Step| match step {
        Step::Write(write) => write.to_string(),
        Step::Emit(event) => {
            assert_eq!(
                (event.regarding.kind, event.regarding.key.clone()),
                (&PERSISTENT_VOLUME_CLAIMS, key())
            );
            format!("{} {} {}", event.warning, event.reason, event.message)
        }
        other => panic!("{other:?}"),
    };
    plan.steps.iter().map(step).collect()
}

fn patch(write: &Write) -> Value {
    let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
    patch.clone()
}

const WAITS: &str = "false ExternalExpanding waiting for an external controller to expand this PVC";
const MIGRATED: &str = "false ExternalExpanding CSI migration enabled for kubernetes.io/aws-ebs; waiting for external \
                        resizer to expand the pvc";

#[test]
fn a_claim_that_asks_for_more_is_told_that_somebody_else_is_waited_for() {
    let other = volume(PersistentVolumeSource::default(), "1Gi");
    for volume in [csi("1Gi"), csi("3Gi"), other] {
        let plan = planned_for(&claim("2Gi", "1Gi"), &volume);
        assert_eq!(steps(&plan), [WAITS]);
        assert!(plan.retry.is_none() && plan.note == Note::default());
        for has in ["2Gi", "3Gi", "2147483648"] {
            assert_eq!(steps(&planned_for(&claim("2Gi", has), &volume)), [""; 0], "it has {has}");
        }
        assert_eq!(steps(&planned_for(&claim("1Gi", ""), &volume)), [WAITS], "it has nothing yet");
        let marked = marked(volume);
        assert_eq!(steps(&planned_for(&claim("1Gi", "1Gi"), &marked)), [WAITS], "the annotation is enough");
    }
}

#[test]
fn a_migrated_volume_has_its_resizer_named_on_the_claim() {
    let plan = planned_for(&claim("2Gi", "1Gi"), &in_tree("1Gi"));
    let write = "patch persistentvolumeclaims/status ns/data";
    assert_eq!(steps(&plan), [MIGRATED, write]);
    let Step::Write(write) = &plan.steps[1] else { panic!() };
    let expected = json!({ "metadata": {
        "uid": "claim", "resourceVersion": "7",
        "annotations": { "volume.kubernetes.io/storage-resizer": "ebs.csi.aws.com" },
    } });
    assert_eq!(patch(write), expected);
    let failed = write.on_failure.as_ref().unwrap();
    assert!(failed.warning && failed.reason == "ExternalExpanding");
    assert_eq!(
        failed.message,
        "error setting resizer annotation to pvc ns/data, with error patchPVCStatus failed to patch PVC \"data\": {error}"
    );
    assert_eq!(steps(&planned_for(&claim("1Gi", "1Gi"), &marked(in_tree("1Gi")))).len(), 2);
    let mut named = claim("2Gi", "1Gi");
    named.metadata.annotations = [(writes::RESIZER, "ebs.csi.aws.com")].into_iter().collect();
    assert_eq!(steps(&planned_for(&named, &in_tree("1Gi"))), [MIGRATED], "it is named already");
    named.metadata.annotations = [(writes::RESIZER, "another")].into_iter().collect();
    assert_eq!(steps(&planned_for(&named, &in_tree("1Gi"))).len(), 2);
}

#[test]
fn a_volume_that_the_cache_lacks_is_read_live() {
    let at = Key::new("", "vol");
    let claim = claim("2Gi", "1Gi");
    let observed =
        |volumes: &[&PersistentVolume], read: &Reads| room(&[&claim], volumes).observe(&key(), &[], read);
    let live = |found: Result<Option<PersistentVolume>, ApiError>| {
        let found = found.map(|found| found.map(|volume| Arc::new(volume) as AnyObject));
        Reads::default().with_object(&PERSISTENT_VOLUMES, at.clone(), found)
    };
    let asks = |observation: Observation<View>| match observation {
        Observation::Needs(reads) => assert_eq!(reads, [Read::Object(&PERSISTENT_VOLUMES, at.clone())]),
        other => panic!("{other:?}"),
    };
    asks(observed(&[], &Reads::default()).unwrap());
    // One that is another claim's, or nobody's, may be old.
    let (mut another, mut of_elsewhere, mut nobodys) = (csi("1Gi"), csi("1Gi"), csi("1Gi"));
    another.spec.claim_ref.as_mut().unwrap().uid = "another".into();
    of_elsewhere.spec.claim_ref.as_mut().unwrap().namespace = "elsewhere".into();
    nobodys.spec.claim_ref = None;
    for stale in [&another, &of_elsewhere, &nobodys] {
        asks(observed(&[stale], &Reads::default()).unwrap());
        let Observation::View(view) = observed(&[stale], &live(Ok(Some(csi("1Gi"))))).unwrap() else {
            panic!()
        };
        assert!(view.volume.unwrap().metadata.uid == "volume");
        let error = observed(&[stale], &live(Ok(Some(stale.clone())))).unwrap_err();
        assert!(
            matches!(&error, ObserveError::Retry(why) if why.contains("not bound to the claim")),
            "{error}"
        );
    }
    let gone = observed(&[], &live(Ok(None))).unwrap_err();
    assert_eq!(
        gone,
        ObserveError::Retry("failed to get PV \"vol\": persistentvolumes \"vol\" not found".to_owned())
    );
}

#[test]
fn what_is_gone_or_unbound_has_nothing_to_grow() {
    let nobody = room(&[], &[]).observe(&key(), &[], &Reads::default()).unwrap();
    assert!(matches!(nobody, Observation::Nothing));
    let mut pending = claim("2Gi", "");
    pending.status.phase = "Pending".into();
    assert_eq!(steps(&planned_for(&pending, &csi("1Gi"))), [""; 0]);
}

fn woken(old: Option<PersistentVolumeClaim>, new: Option<PersistentVolumeClaim>) -> usize {
    let (old, new) = (old.map(|old| Arc::new(old) as AnyObject), new.map(|new| Arc::new(new) as AnyObject));
    let mut keys = Vec::new();
    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
    grown()(delta, &mut |key| keys.push(key));
    keys.len()
}

#[test]
fn only_growth_wakes_a_claim() {
    let table = [
        (claim("1Gi", "1Gi"), claim("2Gi", "1Gi"), 1, "it asks for more"),
        (claim("2Gi", "1Gi"), claim("2Gi", "2Gi"), 1, "it has more"),
        (claim("1Gi", ""), claim("1Gi", "1Gi"), 1, "it has something"),
        (claim("2Gi", "1Gi"), claim("1Gi", "1Gi"), 0, "it asks for less"),
        (claim("2Gi", "2Gi"), claim("2Gi", "1Gi"), 0, "it has less"),
        (claim("1Gi", "1Gi"), claim("1024Mi", "1Gi"), 0, "it asks for the same"),
        (claim("1Gi", "1Gi"), claim("1Gi", "1Gi"), 0, "nothing, as at a resync"),
    ];
    for (old, new, expected, what) in table {
        assert_eq!(woken(Some(old), Some(new)), expected, "{what}");
    }
    assert_eq!(woken(None, Some(claim("1Gi", "1Gi"))), 1, "it is there");
    let unbound = |mut claim: PersistentVolumeClaim| {
        claim.status.phase = "Pending".into();
        claim
    };
    assert_eq!(woken(None, Some(unbound(claim("1Gi", "")))), 0);
    assert_eq!(woken(Some(claim("1Gi", "1Gi")), Some(unbound(claim("2Gi", "1Gi")))), 0);
    assert_eq!(woken(Some(unbound(claim("1Gi", ""))), Some(claim("1Gi", "1Gi"))), 1, "it was bound");
    let mut another = claim("1Gi", "1Gi");
    another.metadata.uid = "another".into();
    assert_eq!(woken(Some(claim("1Gi", "1Gi")), Some(another)), 1, "it is another one");
    assert_eq!(woken(Some(claim("1Gi", "1Gi")), None), 0, "there is nothing to tell of one that is gone");
}

#[test]
fn it_says_what_is_waited_for() {
    let said = |claim: &PersistentVolumeClaim, volume: &PersistentVolume| {
        Controller::reasons(&view(claim, volume), now()).remove(0)
    };
    assert!(
        said(&claim("2Gi", "1Gi"), &csi("1Gi"))
            .contains("requests 2Gi and has a capacity of 1Gi. An external controller")
    );
    assert!(said(&claim("1Gi", "1Gi"), &csi("1Gi")).contains("no expansion is needed"));
    assert!(said(&claim("2Gi", "1Gi"), &in_tree("1Gi")).contains("the resizer of ebs.csi.aws.com"));
    assert!(
        said(&claim("2Gi", "1Gi"), &flexible("1Gi"))
            .contains("uses the driver example.com/d: the volume is expanded to 2Gi")
    );
    let mut pending = claim("2Gi", "");
    pending.status.phase = "Pending".into();
    assert!(said(&pending, &csi("1Gi")).contains("not bound"));
}

#[test]
fn growing_is_counted_by_driver_and_end() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let ends = |plan: Plan<Note>, outcome: &Outcome| {
        let (plan, note) = plan.into_parts();
        metrics.planned(&key(), &note);
        let took = std::time::Duration::from_secs(3);
        metrics.ended(&key(), ReconcileEnd { outcome, actions: &planned(&plan), took });
    };
    let done = Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE };
    let failed = Outcome::Failed {
        error: "no".to_owned(),
        retry: true,
        quiet: false,
        refused: true,
        requeue_after: None,
        not_before: None,
    };
    ends(planned_for(&claim("2Gi", "1Gi"), &flexible("1Gi")), &done);
    ends(planned_for(&claim("2Gi", "1Gi"), &flexible("1Gi")), &failed);
    ends(planned_for(&claim("2Gi", "1Gi"), &csi("1Gi")), &done);
    ends(planned_for(&claim("1Gi", "1Gi"), &marked(flexible("1Gi"))), &done);
    let families = registry.gather();
    let family =
        families.iter().find(|family| family.name() == "storage_operation_duration_seconds").unwrap();
    let found: Vec<(Vec<&str>, u64)> = family
        .get_metric()
        .iter()
        .map(|metric| {
            let labels = metric.get_label().iter().map(prometheus::proto::LabelPair::value).collect();
            (labels, metric.get_histogram().get_sample_count())
        })
        .collect();
    // Labels by name: migrated, operation_name, status, volume_plugin.
    let labels = |status| vec!["false", "expand_volume", status, DRIVER];
    assert_eq!(found, [(labels("fail-unknown"), 1), (labels("success"), 1)]);
}
