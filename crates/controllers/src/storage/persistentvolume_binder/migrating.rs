//! What is brought in order first, at every look: annotations that name the CSI driver that took over a volume's type, and who
//! deletes what was provisioned. Pure.

use bytes::Bytes;

use super::facts::{BETA_PROVISIONER, MIGRATED_TO, PROVISIONED_BY, PROVISIONER, annotation};
use crate::storage::migration::{self, InTree};
use coxswain_machinery::api::Object as _;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::model::finalizers;
use coxswain_machinery::model::metadata::annotation_edit;
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Str, WireError};

/// Keeps a volume that the manager provisioned until the manager has deleted what is behind it.
pub(super) const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";
/// The same for external provisioners.
const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// What names of the manager's own plugins begin with.
pub(super) const IN_TREE: &str = "kubernetes.io/";

/// The claim with the annotations that it should have; `None` if it has them.
///
/// # Errors
/// It is malformed.
pub(super) fn of_claim(claim: &PersistentVolumeClaim) -> Result<Option<Bytes>, WireError> {
    let annotations = &claim.metadata.annotations;
    let Some(provisioner) = annotations.get(PROVISIONER).or_else(|| annotations.get(BETA_PROVISIONER)) else {
        return Ok(None);
    };
    match driver_edit(&claim.metadata, migration::of_plugin(provisioner)) {
        Some(change) => edit(&claim.raw(), &[change]).map(|bytes| Some(bytes.into())),
        None => Ok(None),
    }
}

/// The volume with the annotations and finalizers that it should have; `None` if it has them. A finalizer is not put on a volume that is
/// being deleted: the API server would refuse the whole update, each time.
///
/// # Errors
/// It is malformed.
pub(super) fn of_volume(volume: &PersistentVolume) -> Result<Option<Bytes>, WireError> {
    let meta = &volume.metadata;
    let Some(provisioner) = meta.annotations.get(PROVISIONED_BY) else { return Ok(None) };
    let driver = migration::of_plugin(provisioner);
    let change = driver_edit(meta, driver);
    let has = |finalizer: &str| meta.finalizers.iter().any(|held| held == finalizer);
    let is_in_tree = driver.is_none() && provisioner.as_str().starts_with(IN_TREE);
    let deletes = volume.spec.persistent_volume_reclaim_policy == "Delete";
    let takes_own = has(IN_TREE_FINALIZER) && (driver.is_some() || is_in_tree && !deletes);
    let puts_own = !has(IN_TREE_FINALIZER) && is_in_tree && deletes && !meta.is_deleting();
    let takes_others = has(EXTERNAL_FINALIZER) && is_in_tree;
    if change.is_none() && !takes_own && !puts_own && !takes_others {
        return Ok(None);
    }
    let mut bytes: Bytes = edit(&volume.raw(), change.as_slice())?.into();
    for (applies, finalizer) in [(takes_own, IN_TREE_FINALIZER), (takes_others, EXTERNAL_FINALIZER)] {
        if applies {
            bytes = finalizers::without(&bytes, finalizer)?;
        }
    }
    if puts_own {
        bytes = finalizers::with(&bytes, IN_TREE_FINALIZER)?;
    }
    Ok(Some(bytes))
}

/// How the annotation that names a driver has to change, if at all.
fn driver_edit(meta: &ObjectMeta, driver: Option<&'static InTree>) -> Option<Edit> {
    let said = annotation(meta, MIGRATED_TO).map(Str::as_str);
    let wanted = driver.map(|of| of.driver);
    (said != wanted).then(|| annotation_edit(MIGRATED_TO, wanted.map(str::to_owned)))
}
