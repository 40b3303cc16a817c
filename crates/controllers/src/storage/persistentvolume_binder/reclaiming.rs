//! What becomes of a volume whose claim is gone. Pure.

use super::facts::{MIGRATED_TO, PROVISIONED_BY, annotation, has};
use super::migrating::IN_TREE;
use super::provisioning::{HOST_PATH, NFS};
use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::wire::Str;

/// What becomes of a released volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// It is kept, or somebody else sees to it.
    Nothing,
    /// The manager removes the directory, and the volume.
    DeleteDirectory(String),
    /// It was made as a directory of the manager's machine, and has no path.
    NoDirectory,
    /// A Pod empties it.
    Recycle(Recyclable),
    /// It cannot be reclaimed: the reason of the event, and what is wrong.
    Fail(&'static str, String),
    /// It says to be recycled, and nobody can.
    NotRecyclable,
}

/// What a Pod can empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recyclable {
    HostPath,
    Nfs,
}

/// Reasons of events about volumes that could not be reclaimed.
pub(super) const FAILED_DELETE: &str = "VolumeFailedDelete";
pub(super) const FAILED_RECYCLE: &str = "VolumeFailedRecycle";
const UNKNOWN_POLICY: &str = "VolumeUnknownReclaimPolicy";

impl Reclaim {
    /// Whether data is lost by it, so that it takes a live read.
    pub(super) fn destroys(&self) -> bool {
        matches!(self, Self::DeleteDirectory(_) | Self::Recycle(_) | Self::NotRecyclable)
    }
}

/// What becomes of a volume once its claim is gone.
pub(super) fn reclaim(volume: &PersistentVolume) -> Reclaim {
    if annotation(&volume.metadata, MIGRATED_TO).is_some() {
        return Reclaim::Nothing;
    }
    let source = &volume.spec.persistent_volume_source;
    match volume.spec.persistent_volume_reclaim_policy.as_str() {
        "Retain" => Reclaim::Nothing,
        "Delete" => delete(volume),
        "Recycle" if source.host_path.is_some() => Reclaim::Recycle(Recyclable::HostPath),
        "Recycle" if source.nfs.is_some() => Reclaim::Recycle(Recyclable::Nfs),
        "Recycle" => Reclaim::NotRecyclable,
        _ => {
            Reclaim::Fail(UNKNOWN_POLICY, "Volume has unrecognized PersistentVolumeReclaimPolicy".to_owned())
        }
    }
}

fn delete(volume: &PersistentVolume) -> Reclaim {
    let source = &volume.spec.persistent_volume_source;
    let fail = |what: String| Reclaim::Fail(FAILED_DELETE, what);
    let directory = source.host_path.as_ref().map(|held| Reclaim::DeleteDirectory(held.path.to_string()));
    match annotation(&volume.metadata, PROVISIONED_BY).map(Str::as_str) {
        Some(HOST_PATH) => directory.unwrap_or(Reclaim::NoDirectory),
        Some(NFS) => fail("no deletable volume plugin matched".to_owned()),
        Some(name) if name.starts_with(IN_TREE) => fail(format!("no volume plugin matched name: {name}")),
        Some(_) => Reclaim::Nothing,
        None if has(&volume.metadata, MIGRATED_TO) || source.csi.is_some() => Reclaim::Nothing,
        None => directory.unwrap_or_else(|| {
            let which = if source.nfs.is_some() { "deletable " } else { "" };
            let name = &volume.metadata.name;
            fail(format!(
                "error getting deleter volume plugin for volume {name:?}: no {which}volume plugin matched"
            ))
        }),
    }
}

/// Why the directory at a path is not deleted; `None` if it is.
pub(super) fn refused_path(path: &str) -> Option<String> {
    let is_temporary = path.split_once("/tmp/").is_some_and(|(_, rest)| !rest.is_empty());
    (!is_temporary).then(|| format!("host_path deleter only supports /tmp/.+ but received provided {path}"))
}
