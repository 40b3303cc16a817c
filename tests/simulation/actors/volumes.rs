//! Volumes that somebody makes by hand, claims for them, and pods that mount them.

use serde_json::{Value as Json, json};

use super::users::NAMESPACES;
use super::wishes::{self, BY_HAND};
use crate::invariants::KEEPSAKE;
use apiserver_model::dice::Dice;
use apiserver_model::{Deletion, Model, Place, Refusal, items, text};

/// More free volumes, and more claims that users make themselves, are not there at a time.
const MANY: usize = 8;
/// What users' own claims are called.
const OWN: &str = "own-";
/// The label of pods that mount them.
pub(super) const MOUNTS: &str = "mounts";

/// A free volume; sometimes it is kept for a claim that may come.
pub(super) fn make(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let free = model.all("persistentvolumes", "").filter(|held| text(&held.json, "/status/phase") != "Bound");
    if free.count() >= MANY {
        return Ok(());
    }
    let size = *dice.pick(&["1Gi", "2Gi"]).unwrap_or(&"1Gi");
    let claim = dice.permille(150).then(|| {
        let namespace = *dice.pick(NAMESPACES).unwrap_or(&"default");
        json!({ "namespace": namespace, "name": format!("{OWN}{}", dice.below(MANY)) })
    });
    volume(model, size, claim)
}

fn volume(model: &mut Model, size: &str, claim: Option<Json>) -> Result<(), Refusal> {
    let mut volume = json!({
        "metadata": { "generateName": "volume-", "annotations": { KEEPSAKE: "volume" } },
        "spec": {
            "storageClassName": BY_HAND,
            "capacity": { "storage": size },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": "csi.example.com", "volumeHandle": format!("handle-{}", model.version()) },
        },
    });
    if let Some(claim) = claim {
        volume["spec"]["claimRef"] = claim;
    }
    model.create("user", "persistentvolumes", "", volume).map(drop)
}

/// A volume that nobody has goes.
pub(super) fn delete(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let unused =
        model.all("persistentvolumes", "").filter(|held| text(&held.json, "/status/phase") != "Bound");
    let places: Vec<Place> = unused.map(|held| held.place.clone()).collect();
    let Some(place) = dice.pick(&places) else { return Ok(()) };
    model.delete("user", place, &Deletion::default()).map(drop)
}

pub(super) fn claim(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(&namespace) = dice.pick(NAMESPACES) else { return Ok(()) };
    let size = *dice.pick(&["1Gi", "2Gi"]).unwrap_or(&"1Gi");
    let claim = json!({
        "metadata": { "name": format!("{OWN}{}", dice.below(MANY)), "annotations": { KEEPSAKE: "claim" } },
        "spec": wishes::claim(size),
    });
    model.create("user", "persistentvolumeclaims", namespace, claim).map(drop)
}

fn own_claims(model: &Model) -> Vec<Place> {
    let own = model.all("persistentvolumeclaims", "").filter(|held| held.place.name.starts_with(OWN));
    own.map(|held| held.place.clone()).collect()
}

pub(super) fn delete_claim(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&own_claims(model)).cloned() else { return Ok(()) };
    model.delete("user", &place, &Deletion::default()).map(drop)
}

/// A pod that mounts a claim, and ends by itself.
pub(super) fn mount(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&own_claims(model)).cloned() else { return Ok(()) };
    let mut pod = wishes::template(MOUNTS, 0, "Never");
    pod["metadata"]["generateName"] = json!("mounts-");
    pod["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": place.name } }]);
    model.create("user", "pods", &place.namespace, pod).map(drop)
}

/// The claims that a pod mounts.
pub(crate) fn claims_of(pod: &Json) -> impl Iterator<Item = &str> {
    let volumes = items(pod, "/spec/volumes").iter();
    volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty())
}

/// Whether the scheduler may bind a pod: its claims are bound, and stay.
pub(super) fn are_bound(model: &Model, pod: &Json) -> bool {
    let namespace = text(pod, "/metadata/namespace");
    claims_of(pod).all(|name| {
        let claim = model.look("persistentvolumeclaims", namespace, name);
        text(claim, "/status/phase") == "Bound" && claim["metadata"]["deletionTimestamp"].is_null()
    })
}

/// Somebody makes a volume now and then as long as claims wait and there is none that they could have.
pub(super) fn provide(model: &mut Model, dice: &mut Dice) {
    let waits = |claim: &&std::sync::Arc<apiserver_model::Stored>| {
        text(&claim.json, "/spec/volumeName").is_empty()
            && claim.json["metadata"]["deletionTimestamp"].is_null()
    };
    let waiting = model.all("persistentvolumeclaims", "").filter(waits).count();
    let is_free = |volume: &&std::sync::Arc<apiserver_model::Stored>| {
        volume.json["spec"]["claimRef"].is_null()
            && volume.json["metadata"]["deletionTimestamp"].is_null()
            && volume.json["spec"]["capacity"]["storage"] == "2Gi"
    };
    let free = model.all("persistentvolumes", "").filter(is_free).count();
    if waiting > free && dice.permille(100) {
        drop(volume(model, "2Gi", None));
    }
}
