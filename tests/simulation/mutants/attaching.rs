//! Planted bugs of volumes that are attached.

use std::sync::Arc;

use http::Method;
use serde_json::{Value as Json, json};

use super::{Mutant, NONE, is};
use crate::actors::{lists, unique_name, volumes_of};
use crate::invariants::is_ready;
use apiserver_model::http::Asked;
use apiserver_model::{Deletion, Model, Place, Stored, text};

const CONTROLLER: &str = "persistentvolume-attach-detach-controller";

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "a volume is detached while it is mounted",
        breaks: "no volume is detached that is mounted",
        after: detach_mounted,
        ..NONE
    },
    Mutant {
        name: "a volume is detached that its node lists",
        breaks: "a volume leaves its node's list first",
        after: detach_listed,
        ..NONE
    },
    Mutant {
        name: "a volume is taken from a node as soon as that is silent",
        breaks: "no volume is taken by force before its time",
        after: detach_silent,
        ..NONE
    },
    Mutant {
        name: "a volume is attached on two nodes",
        breaks: "no volume is attached where another node mounts it",
        after: attach_twice,
        ..NONE
    },
];

/// A VolumeAttachment whose volume a pod mounts, on a node of which this is true.
fn mounted(model: &Model, on: impl Fn(&Json) -> bool) -> Option<Arc<Stored>> {
    let runs = |node: &str, volume: &str| {
        let pods = model.all("pods", "").map(|pod| &pod.json);
        let mut there =
            pods.filter(|pod| pod["spec"]["nodeName"] == node && pod["status"]["phase"] == "Running");
        there.any(|pod| volumes_of(model, pod).any(|held| held["metadata"]["name"] == volume))
    };
    let found = model.all("volumeattachments", "").find(|held| {
        let node = text(&held.json, "/spec/nodeName");
        on(model.look("nodes", "", node))
            && held.json["metadata"]["deletionTimestamp"].is_null()
            && runs(node, text(&held.json, "/spec/source/persistentVolumeName"))
    });
    found.cloned()
}

/// With each volume that is attached another is taken away.
fn detach_mounted(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with(CONTROLLER)
        && is(asked, &Method::POST, "volumeattachments")
        && let Some(found) = mounted(model, is_ready)
    {
        drop(model.delete(by, &found.place, &Deletion::default()));
    }
}

/// With each list of a node that is written, a volume is taken away that a node lists.
fn detach_listed(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with(CONTROLLER) || !is(asked, &Method::PATCH, "nodes") {
        return;
    }
    let is_listed = |held: &&Arc<Stored>| {
        let node = model.look("nodes", "", text(&held.json, "/spec/nodeName"));
        let volume = text(&held.json, "/spec/source/persistentVolumeName");
        let volume = model.look("persistentvolumes", "", volume);
        held.json["metadata"]["deletionTimestamp"].is_null() && lists(node, &unique_name(volume))
    };
    let found = model.all("volumeattachments", "").find(is_listed).map(|held| held.place.clone());
    if let Some(found) = found {
        drop(model.delete(by, &found, &Deletion::default()));
    }
}

/// What a node mounts that has just fallen silent is taken away.
fn detach_silent(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-lifecycle-controller") else { return };
    if !asked.is_write() {
        return;
    }
    let is_silent = |node: &Json| node.is_object() && !is_ready(node);
    if let Some(found) = mounted(model, is_silent) {
        drop(model.delete(&format!("{manager}/{CONTROLLER}"), &found.place, &Deletion::default()));
    }
}

/// A volume that one node mounts is attached to another.
fn attach_twice(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with(CONTROLLER) || !is(asked, &Method::POST, "volumeattachments") {
        return;
    }
    let Some(found) = mounted(model, Json::is_object) else { return };
    let node = text(&found.json, "/spec/nodeName");
    let other = model.all("nodes", "").map(|held| held.place.name.clone()).find(|held| held != node);
    let mut second = json!({ "metadata": { "name": "second" }, "spec": found.json["spec"] });
    second["spec"]["nodeName"] = json!(other);
    let place = Place::new("volumeattachments", "", "second");
    if model.get(&place).is_none() {
        drop(model.create(by, "volumeattachments", "", second));
    }
}
