//! Why a claim does not bind, and what a volume waits for, in words.

use coxswain_machinery::model::words;

use super::claim::{self, Loss, Verdict as OfClaim};
use super::facts::class_of_claim;
use super::provisioning::Provisioner;
use super::reclaiming::{Reclaim, Recyclable};
use super::view::{ClaimView, Held, VolumeView};
use super::volume::{self, Verdict as OfVolume};

pub(super) fn of_claim(view: &ClaimView) -> Vec<String> {
    let class = class_of_claim(&view.claim);
    let said = match claim::verdict(view) {
        OfClaim::Migrate(_) => {
            "The claim's provisioner was migrated to a CSI driver; the claim's annotations are updated first."
                .to_owned()
        }
        OfClaim::Bind(volume) => {
            let name = &volume.metadata.name;
            if view.claim.status.phase == "Bound" {
                format!("The claim is bound to the volume {name}.")
            } else {
                format!("The volume {name} matches the claim; the controller binds them now.")
            }
        }
        OfClaim::SetClass(class) => format!(
            "The claim has no class, and no volume without a class matches it; the default class {class} is \
             assigned."
        ),
        OfClaim::WaitForConsumer if view.unscheduled.is_empty() => {
            format!("The class {class} delays binding until a pod uses the claim, and no pod does.")
        }
        OfClaim::WaitForConsumer => format!(
            "The class {class} delays binding until a pod that uses the claim is scheduled; unscheduled: {}.",
            words::names(&view.unscheduled)
        ),
        OfClaim::Provision(_) if !view.settings.provisions => {
            "No volume matches the claim, and --enable-dynamic-provisioning=false disables provisioning."
                .to_owned()
        }
        OfClaim::Provision(Provisioner::External(name)) => {
            format!(
                "No volume matches the claim; the provisioner {name} of the class {class} must create one."
            )
        }
        OfClaim::Provision(Provisioner::HostPath) => {
            "No volume matches the claim; the manager creates a host path directory for it.".to_owned()
        }
        OfClaim::Provision(Provisioner::Nobody(why)) => {
            format!("No volume matches the claim, and none can be provisioned: {why}.")
        }
        OfClaim::NoVolume => {
            "No volume matches the claim, and the claim has no class to provision one.".to_owned()
        }
        OfClaim::Missing => {
            format!("The requested volume {} does not exist.", view.claim.spec.volume_name)
        }
        OfClaim::Unsuitable(volume, why) => {
            let name = &volume.metadata.name;
            format!("The requested volume {name} does not match the claim: {}.", why.text(name))
        }
        OfClaim::Taken(volume) => {
            let held = volume.spec.claim_ref.as_ref();
            let by = held.map_or_else(String::new, |held| format!(", {}/{}", held.namespace, held.name));
            format!("The requested volume {} is bound to another claim{by}.", volume.metadata.name)
        }
        OfClaim::Lost(Loss::Reference) => {
            "The claim was bound and its volumeName was removed; the claim is lost.".to_owned()
        }
        OfClaim::Lost(Loss::Volume) => {
            format!(
                "The claim was bound to the volume {}, which no longer exists; the claim is lost.",
                view.claim.spec.volume_name
            )
        }
        OfClaim::Lost(Loss::Misbound) => format!(
            "The claim was bound to the volume {}, which is bound to another claim; the claim is lost.",
            view.claim.spec.volume_name
        ),
        OfClaim::Broken(why) => format!("The claim cannot be decoded: {why}."),
    };
    let mut reasons = vec![said];
    if view.free > 0 && !matches!(claim::verdict(view), OfClaim::Bind(_)) {
        let free = words::count(view.free, "volume");
        let is = words::verb(view.free, "is", "are");
        let suits = words::verb(view.free, "it does not match", "none of them matches");
        reasons.push(format!("{free} of the claim's class {is} free; {suits}."));
    }
    reasons
}

pub(super) fn of_volume(view: &VolumeView) -> Vec<String> {
    let said = match view {
        VolumeView::Gone(_) => "The volume does not exist.".to_owned(),
        VolumeView::BacksOff => {
            "The claim of the volume was deleted. Reclaiming the volume failed and is retried with backoff."
                .to_owned()
        }
        VolumeView::BeingBound => "The volume is being bound now.".to_owned(),
        VolumeView::There(held) => there(held),
    };
    vec![said]
}

fn there(held: &Held) -> String {
    let claim = held.volume.spec.claim_ref.as_ref();
    let claim = claim.map_or_else(String::new, |held| format!("{}/{}", held.namespace, held.name));
    match volume::verdict(held) {
        OfVolume::Migrate(_) => "The volume's annotations and finalizers are updated.".to_owned(),
        OfVolume::Available if claim.is_empty() => "The volume has no claim; it is available.".to_owned(),
        OfVolume::Available => {
            format!("The volume is reserved for the claim {claim}, which is not bound to it yet.")
        }
        OfVolume::WrongMode => {
            format!("The volume and its claim {claim} have different volume modes; they cannot be bound.")
        }
        OfVolume::ClaimIsNext => {
            format!("The volume references the claim {claim}, which is bound to it next.")
        }
        OfVolume::Bound => format!("The volume is bound to the claim {claim}."),
        OfVolume::Unbind => {
            format!("The claim {claim} is bound to another volume; this volume becomes available again.")
        }
        OfVolume::Unsure => format!(
            "The claim {claim} is not in the cache; its deletion is not confirmed with the API server yet."
        ),
        OfVolume::Broken(why) => format!("The volume cannot be decoded: {why}."),
        OfVolume::Reclaim(what) => {
            format!("The claim {claim} of the volume was deleted. {}", reclaimed(held, &what))
        }
    }
}

fn reclaimed(held: &Held, what: &Reclaim) -> String {
    let policy = &held.volume.spec.persistent_volume_reclaim_policy;
    match what {
        Reclaim::Nothing if policy == "Delete" => {
            "The volume's external provisioner must delete it.".to_owned()
        }
        Reclaim::Nothing => "The volume and its data are retained.".to_owned(),
        Reclaim::Fail(_, why) => format!("The volume cannot be reclaimed: {why}."),
        Reclaim::DeleteDirectory(path) => format!("The directory {path} and the volume are deleted."),
        Reclaim::NoDirectory => "The volume cannot be reclaimed: its hostPath source has no path.".to_owned(),
        Reclaim::NotRecyclable => {
            "The volume's reclaim policy is Recycle, which its plugin does not support.".to_owned()
        }
        Reclaim::Recycle(_) if !held.users.is_empty() && !held.name_is_taken => {
            format!("The volume is still used by pods: {}.", words::names(&held.users))
        }
        Reclaim::Recycle(Recyclable::HostPath | Recyclable::Nfs) => {
            "A recycler pod deletes the volume's data; the controller waits for the pod.".to_owned()
        }
    }
}
