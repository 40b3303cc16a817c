//! Volumes that are attached: what kubelets say of those that they use, and an external attacher that serves VolumeAttachments.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{change, claims_of};
use apiserver_model::dice::Dice;
use apiserver_model::{Model, Place, Stored, items, text};

/// With what the attacher holds VolumeAttachments and volumes until it is done with them.
const FINALIZER: &str = "external-attacher/csi-example-com";

/// The name by which nodes and controllers know a volume.
pub(crate) fn unique_name(volume: &Json) -> String {
    format!(
        "kubernetes.io/csi/{}^{}",
        text(volume, "/spec/csi/driver"),
        text(volume, "/spec/csi/volumeHandle")
    )
}

/// The volumes that the claims of a pod are bound to.
pub(crate) fn volumes_of<'a>(model: &'a Model, pod: &'a Json) -> impl Iterator<Item = &'a Json> {
    let namespace = text(pod, "/metadata/namespace");
    claims_of(pod).filter_map(move |claim| {
        let claim = model.look("persistentvolumeclaims", namespace, claim);
        let volume = model.look("persistentvolumes", "", text(claim, "/spec/volumeName"));
        volume.is_object().then_some(volume)
    })
}

/// Whether the volumes of a pod are wanted on its node: it has one, and has not ended.
pub(crate) fn wants_volumes(pod: &Json) -> bool {
    !text(pod, "/spec/nodeName").is_empty()
        && !matches!(text(pod, "/status/phase"), "" | "Succeeded" | "Failed")
}

/// Whether a pod on this node wants the volume of this name.
pub(crate) fn is_wanted(model: &Model, node: &str, volume: &str) -> bool {
    let pods = model.all("pods", "").map(|pod| &pod.json);
    let mut there = pods.filter(|pod| text(pod, "/spec/nodeName") == node && wants_volumes(pod));
    there.any(|pod| volumes_of(model, pod).any(|held| unique_name(held) == volume))
}

/// Whether a node lists a volume as attached.
pub(crate) fn lists(node: &Json, volume: &str) -> bool {
    items(node, "/status/volumesAttached").iter().any(|held| held["name"] == volume)
}

/// A kubelet says which volumes it uses: those of its pods from before they are mounted on, others until they are unmounted.
pub(super) fn report(model: &mut Model, dice: &mut Dice, node: &str, pods: &[Arc<Stored>]) {
    let own = pods.iter().filter(|pod| wants_volumes(&pod.json));
    let wanted: Vec<String> =
        own.flat_map(|pod| volumes_of(model, &pod.json).map(unique_name).collect::<Vec<_>>()).collect();
    let place = Place::new("nodes", "", node);
    let held: Vec<String> = items(model.look("nodes", "", node), "/status/volumesInUse")
        .iter()
        .filter_map(Json::as_str)
        .map(str::to_owned)
        .collect();
    let mut used: Vec<String> =
        held.iter().filter(|name| wanted.contains(name) || !dice.permille(300)).cloned().collect();
    for name in wanted {
        if !used.contains(&name) {
            used.push(name);
        }
    }
    if used != held {
        drop(change(model, &place, "status", |node| node["status"]["volumesInUse"] = json!(used)));
    }
}

/// Whether a kubelet may start a pod: it has said that it uses the pod's volumes, and its node lists them as attached.
pub(super) fn are_attached(model: &Model, pod: &Json) -> bool {
    let node = model.look("nodes", "", text(pod, "/spec/nodeName"));
    volumes_of(model, pod).map(unique_name).all(|name| {
        let is_used = items(node, "/status/volumesInUse").iter().any(|held| *held == name);
        is_used && lists(node, &name)
    })
}

/// A look of the external attacher: each VolumeAttachment comes a step further, or not yet.
pub(super) fn attach(model: &mut Model, dice: &mut Dice, is_calm: bool) {
    let all: Vec<Arc<Stored>> = model.all("volumeattachments", "").cloned().collect();
    for attachment in &all {
        if dice.permille(400) {
            let fails = !is_calm && dice.permille(150);
            serve(model, attachment, fails);
        }
    }
    let is_named =
        |volume: &str| all.iter().any(|held| held.json["spec"]["source"]["persistentVolumeName"] == volume);
    let held =
        |volume: &&Arc<Stored>| items(&volume.json, "/metadata/finalizers").contains(&json!(FINALIZER));
    let given_up: Vec<Place> = model
        .all("persistentvolumes", "")
        .filter(held)
        .map(|volume| volume.place.clone())
        .filter(|place| !is_named(&place.name))
        .collect();
    for place in given_up {
        drop(edit(model, &place, "", |volume| hold(volume, false)));
    }
}

fn serve(model: &mut Model, attachment: &Stored, fails: bool) {
    let (place, object) = (&attachment.place, &attachment.json);
    let error = json!({ "message": "the storage is busy" });
    let is_held = items(object, "/metadata/finalizers").contains(&json!(FINALIZER));
    if object["metadata"]["deletionTimestamp"].is_string() {
        if fails {
            drop(edit(model, place, "status", |object| object["status"]["detachError"] = error));
        } else {
            drop(edit(model, place, "", |object| hold(object, false)));
        }
    } else if !is_held {
        let volume = Place::new("persistentvolumes", "", text(object, "/spec/source/persistentVolumeName"));
        if edit(model, &volume, "", |volume| hold(volume, true)).is_ok() {
            drop(edit(model, place, "", |object| hold(object, true)));
        }
    } else if object["status"]["attached"] != true {
        let status = if fails {
            json!({ "attached": false, "attachError": error })
        } else {
            json!({ "attached": true })
        };
        drop(edit(model, place, "status", |object| object["status"] = status));
    }
}

/// The object with the attacher's finalizer, or without.
fn hold(object: &mut Json, held: bool) {
    let mut finalizers = items(object, "/metadata/finalizers").to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if held {
        finalizers.push(json!(FINALIZER));
    }
    object["metadata"]["finalizers"] = Json::Array(finalizers);
}

fn edit(
    model: &mut Model,
    place: &Place,
    subresource: &str,
    edit: impl FnOnce(&mut Json),
) -> Result<(), apiserver_model::Refusal> {
    model.change("attacher", place, subresource, edit).map(drop)
}
