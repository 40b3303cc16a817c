//! Rules about volumes that are attached: what is mounted stays, and each is on one node only.
//!
//! A kubelet says that it uses a volume, then sees to it that the node lists it, and only then mounts it. So whoever takes a
//! volume off the list first, and asks the node then, takes nothing away that is mounted, however late what it wrote arrives.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::memory::is_ready;
use super::{Look, ON_ITS_WAY};
use crate::actors::{is_wanted, lists, unique_name, volumes_of, wants_volumes};
use apiserver_model::{Change, Model, items, text};

/// For how long nobody may have wanted what is taken from a node that is silent.
const PATIENCE: SignedDuration = SignedDuration::from_mins(6);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node, and a volume by its unique name.
type Mount = (String, String);

/// What is remembered of mounts.
#[derive(Default)]
pub(crate) struct Mounts {
    mounted: BTreeSet<Mount>,
    /// Since when no pod there wants a volume that one has wanted.
    unwanted: BTreeMap<Mount, Timestamp>,
    /// Since when nodes are ready.
    ready: BTreeMap<String, Timestamp>,
}

fn volume_of<'a>(model: &'a Model, attachment: &Json) -> &'a Json {
    model.look("persistentvolumes", "", text(attachment, "/spec/source/persistentVolumeName"))
}

impl Mounts {
    /// Takes a change in.
    pub(super) fn note(&mut self, model: &Model, change: &Change) {
        let none = Json::Null;
        let before = change.before.as_ref().map_or(&none, |stored| &stored.json);
        let after = change.after.as_ref().map_or(&none, |stored| &stored.json);
        let Some(stored) = change.after.as_ref().or(change.before.as_ref()) else { return };
        match stored.place.resource {
            "pods" => self.note_pod(model, change.at, before, after),
            "nodes" => {
                let (name, used) = (&stored.place.name, items(after, "/status/volumesInUse"));
                self.mounted.retain(|(node, volume)| node != name || used.iter().any(|held| held == volume));
                if is_ready(after) && !is_ready(before) {
                    self.ready.insert(name.clone(), change.at);
                }
            }
            "volumeattachments" if after.is_null() => {
                let node = text(before, "/spec/nodeName").to_owned();
                self.mounted.remove(&(node, unique_name(volume_of(model, before))));
            }
            _ => {}
        }
    }

    fn note_pod(&mut self, model: &Model, at: Timestamp, before: &Json, after: &Json) {
        let pod = if after.is_null() { before } else { after };
        let node = text(pod, "/spec/nodeName");
        for volume in volumes_of(model, pod).map(unique_name) {
            let mount = (node.to_owned(), volume);
            if wants_volumes(after) {
                self.unwanted.remove(&mount);
            } else if wants_volumes(before) && !is_wanted(model, node, &mount.1) {
                self.unwanted.insert(mount.clone(), at);
            }
            if after["status"]["phase"] == "Running" && before["status"]["phase"] != "Running" {
                self.mounted.insert(mount);
            }
        }
    }
}

/// The VolumeAttachment that begins to be deleted, its node, and its volume by its unique name.
fn detached<'a>(look: &'a Look<'_>) -> Option<(&'a Json, String)> {
    let attachment = look.before();
    if !look.deletes("volumeattachments") || attachment["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let node = look.model.look("nodes", "", text(attachment, "/spec/nodeName"));
    let volume = volume_of(look.model, attachment);
    (node.is_object() && volume.is_object()).then(|| (node, unique_name(volume)))
}

fn is_mounted(look: &Look<'_>, node: &Json, volume: &str) -> bool {
    let mount = (text(node, "/metadata/name").to_owned(), volume.to_owned());
    look.memory.mounts.mounted.contains(&mount)
}

fn is_out_of_service(node: &Json) -> bool {
    items(node, "/spec/taints").iter().any(|taint| taint["key"] == OUT_OF_SERVICE)
}

/// A volume is detached: if its node is ready, nothing there mounts it.
pub(super) fn mounted(look: &Look<'_>) -> Result<(), String> {
    let Some((node, volume)) = detached(look) else { return Ok(()) };
    let since = look.memory.mounts.ready.get(text(node, "/metadata/name"));
    let was_ready = is_ready(node) && since.is_some_and(|since| *since < look.change.at - ON_ITS_WAY);
    if was_ready && !is_out_of_service(node) && is_mounted(look, node, &volume) {
        return Err(format!("{} goes, and {volume} is mounted", look.named()));
    }
    Ok(())
}

/// A volume is detached: its node does not list it any more.
pub(super) fn listed(look: &Look<'_>) -> Result<(), String> {
    match detached(look) {
        Some((node, volume)) if lists(node, &volume) => {
            Err(format!("{} goes, and its node lists {volume}", look.named()))
        }
        _ => Ok(()),
    }
}

/// A volume is taken by force: its node is not ready, and for six minutes nobody has wanted it there.
pub(super) fn by_force(look: &Look<'_>) -> Result<(), String> {
    let Some((node, volume)) = detached(look) else { return Ok(()) };
    if is_ready(node) || is_out_of_service(node) || !is_mounted(look, node, &volume) {
        return Ok(());
    }
    let mount = (text(node, "/metadata/name").to_owned(), volume);
    let since = look.memory.mounts.unwanted.get(&mount);
    if since.is_some_and(|since| *since <= look.change.at - PATIENCE + look.memory.ahead) {
        return Ok(());
    }
    Err(format!("{} goes by force, and {} was wanted until {since:?}", look.named(), mount.1))
}

/// A volume is attached: it is mounted nowhere else, but where it is taken away already.
pub(super) fn elsewhere(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("volumeattachments") {
        return Ok(());
    }
    let (node, volume) = (text(look.after(), "/spec/nodeName"), volume_of(look.model, look.after()));
    let name = text(volume, "/metadata/name");
    let stays = |other: &str| {
        let mut held = look.model.all("volumeattachments", "").map(|held| &held.json);
        held.any(|held| {
            held["spec"]["nodeName"] == other
                && held["spec"]["source"]["persistentVolumeName"] == name
                && held["metadata"]["deletionTimestamp"].is_null()
        })
    };
    let mounted = look.memory.mounts.mounted.iter().filter(|(_, held)| *held == unique_name(volume));
    let mut others = mounted.map(|(other, _)| other).filter(|other| *other != node);
    match others.find(|other| look.model.look("nodes", "", other).is_object() && stays(other)) {
        Some(other) => Err(format!("{} comes to {node}, and {name} is mounted on {other}", look.named())),
        None => Ok(()),
    }
}

/// In the end what is attached is wanted where it is, and nothing else.
pub(super) fn end(model: &Model, resource: &str, object: &Json) -> Option<String> {
    match resource {
        "volumeattachments" => {
            let volume = volume_of(model, object);
            // One whose volume is gone nobody deletes, the original neither.
            if volume.is_null() {
                return None;
            }
            if !is_wanted(model, text(object, "/spec/nodeName"), &unique_name(volume)) {
                return Some("nobody wants it".to_owned());
            }
            (object["status"]["attached"] != true).then(|| "it is not attached".to_owned())
        }
        "nodes" => {
            let name = text(object, "/metadata/name");
            let mut listed = items(object, "/status/volumesAttached").iter().map(|held| text(held, "/name"));
            let unwanted = listed.find(|volume| !is_wanted(model, name, volume))?;
            Some(format!("it lists {unwanted}, which nobody wants there"))
        }
        _ => None,
    }
}
