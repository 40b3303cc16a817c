//! With whom a pod conflicts, or why not, in words.

use super::conflict::conflicts;
use super::view::{Shared, View};
use coxswain_machinery::model::words::names;

pub(super) fn reasons(view: &View) -> Vec<String> {
    if view.pod.is_none() {
        return vec!["The pod has finished or does not exist; it mounts no volume.".to_owned()];
    }
    let mut said: Vec<String> = view.volumes.iter().map(of_volume).collect();
    said.extend(view.several.iter().map(|volume| {
        format!("The containers of the pod mount the volume {volume} with different SELinux labels; the volume is not \
             compared with the mounts of other pods.")
    }));
    said.extend(view.unresolved.iter().map(|why| format!("A volume cannot be checked yet: {why}.")));
    if said.is_empty() {
        said.push("The pod mounts no volume that could conflict.".to_owned());
    }
    said
}

fn of_volume(volume: &Shared) -> String {
    let mounted = &volume.mount.mounted;
    let label = if mounted.label.is_empty() { "no label" } else { mounted.label.as_str() };
    let how = format!("The volume {} is mounted with {label}, {}", volume.mount.unique, mounted.policy);
    let against = volume.others.iter().filter(|other| conflicts(mounted, &other.mounted).next().is_some());
    let against: Vec<String> = against.map(|other| other.key.to_string()).collect();
    match (volume.others.len(), against.len()) {
        (0, _) => format!("{how}, by no other pod."),
        (_, 0) => format!("{how}; the mounts of other pods are compatible."),
        _ => format!("{how}; this conflicts with {} on the same node.", names(against)),
    }
}
