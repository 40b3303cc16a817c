//! How a pod mounts its volumes: by which unique names, with which label and policy. Reads caches, decides nothing else.

use super::Controller;
use super::conflict::Mounted;
use crate::storage::claims;
use crate::storage::names::{self, NamedVolume, Sort};
use coxswain_machinery::api::pod::PodClaim;
use coxswain_machinery::api::pod::selinux::{MountLabel, SelinuxPod};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Str;

const MOUNT_OPTION: &str = "MountOption";
const RECURSIVE: &str = "Recursive";

/// The volumes that a pod mounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mounts {
    /// Those of which the unique name is known.
    pub(super) known: Vec<Mount>,
    /// Those that its containers mount with several labels, by their names in the pod.
    pub(super) several: Vec<Str>,
    /// Why others cannot be told of now.
    pub(super) unresolved: Vec<String>,
}

/// A volume that a pod mounts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mount {
    /// Its unique name.
    pub(super) unique: Str,
    /// Its CSI driver, if it has one.
    pub(super) driver: Option<Str>,
    /// How it is mounted.
    pub(super) mounted: Mounted,
}

pub(super) fn mounts(room: &Controller, pod: &SelinuxPod) -> Mounts {
    let mut mounts = Mounts::default();
    let label_of = |volume: &Str| {
        let labels = &pod.mounts.volumes;
        labels.binary_search_by(|(name, _)| name.cmp(volume)).ok().map(|at| &labels[at].1)
    };
    let several = |label: &MountLabel| *label == MountLabel::Several && room.compares_labels;
    let several = pod.mounts.volumes.iter().filter(|(_, label)| several(label));
    let mut unresolvable: HashSet<Str> = HashSet::default();
    let mut resolved: Vec<(Str, Result<Option<NamedVolume>, String>)> = Vec::new();
    for claim in pod.claims.iter() {
        let found = of_claim(room, pod, claim);
        match (&found, label_of(&claim.volume)) {
            (Err(why), None) => mounts.unresolved.push(why.clone()),
            (Err(_), Some(_)) => {
                unresolvable.insert(claim.volume.clone());
            }
            _ => {}
        }
        resolved.push((claim.volume.clone(), found));
    }
    for volume in &pod.shape.inline_volumes {
        let namespace = &pod.metadata.namespace;
        let source = volume.source().map_err(|error| error.to_string());
        let found = source.and_then(|source| match &source.csi {
            // A CSI driver makes it for this pod alone, so no other pod can mount it. kube-controller-manager retries such pods for ever.
            // Differs: inline-csi-volumes.
            Some(_) => Ok(None),
            None => names::of_inline(&source, &volume.name, namespace).map_err(|error| error.to_string()),
        });
        resolved.push((volume.name.clone(), found));
    }
    // A volume that cannot be resolved is not judged, whatever mounts it.
    let judged = several.filter(|(name, _)| !unresolvable.contains(name));
    mounts.several = judged.map(|(name, _)| name.clone()).collect();
    for (volume, found) in resolved {
        let Some(label) = label_of(&volume) else { continue };
        match found {
            Err(why) => mounts.unresolved.push(format!("volume {volume}: {why}")),
            Ok(Some(named)) if *label != MountLabel::Several => {
                mounts.known.push(mount(room, pod, named, label));
            }
            Ok(_) => {}
        }
    }
    mounts
}

fn mount(room: &Controller, pod: &SelinuxPod, named: NamedVolume, label: &MountLabel) -> Mount {
    let (takes_labels, driver) = match named.sort {
        Sort::Csi(driver) => {
            let found = room.drivers.get(&Key::new("", driver.clone()));
            (found.is_some_and(|found| found.spec.se_linux_mount == Some(true)), Some(driver))
        }
        Sort::Disk => (true, None),
        Sort::Other => (false, None),
    };
    let said = match &pod.mounts.change_policy {
        policy if policy.is_empty() => Str::from(MOUNT_OPTION),
        policy => policy.clone(),
    };
    let label = match label {
        MountLabel::One(label) if takes_labels && room.compares_labels && said != RECURSIVE => label.clone(),
        _ => Str::EMPTY,
    };
    let policy = if takes_labels && !label.is_empty() { said } else { Str::from(RECURSIVE) };
    Mount { unique: Str::from(named.unique), driver, mounted: Mounted { label, policy } }
}

/// The volume of a claim that is bound both ways.
fn of_claim(room: &Controller, pod: &SelinuxPod, named: &PodClaim) -> Result<Option<NamedVolume>, String> {
    let found = claims::volume_of(&room.claims, &room.volumes, &pod.metadata, named)?;
    names::of_volume(&found).map_err(|error| error.to_string())
}
