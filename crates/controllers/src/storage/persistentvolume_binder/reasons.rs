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
            "Its annotations are to name the CSI driver that took over its provisioner.".to_owned()
        }
        OfClaim::Bind(volume) => {
            let name = &volume.metadata.name;
            if view.claim.status.phase == "Bound" {
                format!("The claim is bound to the volume {name}.")
            } else {
                format!("The volume {name} suits the claim: it is bound to it.")
            }
        }
        OfClaim::SetClass(class) => format!(
            "No volume without a class suits the claim, and it says no class: it gets the default class {class}."
        ),
        OfClaim::WaitForConsumer if view.unscheduled.is_empty() => {
            format!("The class {class} waits for the first pod that uses the claim, and there is none.")
        }
        OfClaim::WaitForConsumer => format!(
            "The class {class} waits for the first pod that uses the claim to be scheduled: {}.",
            words::names(&view.unscheduled)
        ),
        OfClaim::Provision(_) if !view.settings.provisions => {
            "No volume suits the claim, and --enable-dynamic-provisioning=false has none made.".to_owned()
        }
        OfClaim::Provision(Provisioner::External(name)) => {
            format!("No volume suits the claim: the provisioner {name} of its class {class} is waited for.")
        }
        OfClaim::Provision(Provisioner::HostPath) => {
            "No volume suits the claim: the manager is to make a directory for it.".to_owned()
        }
        OfClaim::Provision(Provisioner::Nobody(why)) => {
            format!("No volume suits the claim, and none can be made: {why}.")
        }
        OfClaim::NoVolume => {
            "No volume suits the claim, and it has no class by which one could be made.".to_owned()
        }
        OfClaim::Missing => {
            format!("The volume {} that the claim names is not there.", view.claim.spec.volume_name)
        }
        OfClaim::Unsuitable(volume, why) => {
            let name = &volume.metadata.name;
            format!("The volume {name} that the claim names does not suit it: {}.", why.text(name))
        }
        OfClaim::Taken(volume) => {
            let held = volume.spec.claim_ref.as_ref();
            let by = held.map_or_else(String::new, |held| format!(", {}/{}", held.namespace, held.name));
            format!("The volume {} that the claim names is bound to another claim{by}.", volume.metadata.name)
        }
        OfClaim::Lost(Loss::Reference) => {
            "The claim was bound and names no volume any more: it is lost.".to_owned()
        }
        OfClaim::Lost(Loss::Volume) => {
            format!(
                "The claim was bound to the volume {}, which is gone: it is lost.",
                view.claim.spec.volume_name
            )
        }
        OfClaim::Lost(Loss::Misbound) => format!(
            "The claim was bound to the volume {}, which is another claim's: it is lost.",
            view.claim.spec.volume_name
        ),
        OfClaim::Broken(why) => format!("The claim cannot be read: {why}."),
    };
    let mut reasons = vec![said];
    if view.free > 0 && !matches!(claim::verdict(view), OfClaim::Bind(_)) {
        let free = words::count(view.free, "volume");
        let is = words::verb(view.free, "is", "are");
        let suits = words::verb(view.free, "it does not suit", "none of them suits");
        reasons.push(format!("{free} of its class {is} free; {suits}."));
    }
    reasons
}

pub(super) fn of_volume(view: &VolumeView) -> Vec<String> {
    let said = match view {
        VolumeView::Gone(_) => "The volume is gone.".to_owned(),
        VolumeView::BacksOff => {
            "The claim of the volume is gone. Reclaiming the volume has failed, and is tried again after a while.".to_owned()
        }
        VolumeView::BeingBound => "The volume is being bound at this moment.".to_owned(),
        VolumeView::There(held) => there(held),
    };
    vec![said]
}

fn there(held: &Held) -> String {
    let claim = held.volume.spec.claim_ref.as_ref();
    let claim = claim.map_or_else(String::new, |held| format!("{}/{}", held.namespace, held.name));
    match volume::verdict(held) {
        OfVolume::Migrate(_) => "Its annotations and finalizers are brought in order.".to_owned(),
        OfVolume::Available if claim.is_empty() => "No claim has the volume: it is available.".to_owned(),
        OfVolume::Available => {
            format!("The volume is kept for the claim {claim}, which is not bound to it yet.")
        }
        OfVolume::WrongMode => {
            format!("The volume and its claim {claim} are of different volume modes: they are not bound.")
        }
        OfVolume::ClaimIsNext => {
            format!("The volume is linked to the claim {claim}, which is about to be bound to it.")
        }
        OfVolume::Bound => format!("The volume is bound to the claim {claim}."),
        OfVolume::Unbind => {
            format!("The claim {claim} is bound to another volume: this one is available again.")
        }
        OfVolume::Unsure => format!("Whether the claim {claim} is there is not known."),
        OfVolume::Broken(why) => format!("The volume cannot be read: {why}."),
        OfVolume::Reclaim(what) => {
            format!("The claim {claim} of the volume is gone. {}", reclaimed(held, &what))
        }
    }
}

fn reclaimed(held: &Held, what: &Reclaim) -> String {
    let policy = &held.volume.spec.persistent_volume_reclaim_policy;
    match what {
        Reclaim::Nothing if policy == "Delete" => {
            "Whoever provides the volume deletes it: that is waited for.".to_owned()
        }
        Reclaim::Nothing => "The volume is kept, with all that is in it.".to_owned(),
        Reclaim::Fail(_, why) => format!("It cannot be reclaimed: {why}."),
        Reclaim::DeleteDirectory(path) => format!("The directory {path} and the volume are deleted."),
        Reclaim::NoDirectory => {
            "It cannot be reclaimed: it says that it is a directory, and has no path.".to_owned()
        }
        Reclaim::NotRecyclable => "It says to be recycled, which its type cannot be.".to_owned(),
        Reclaim::Recycle(_) if !held.users.is_empty() && !held.name_is_taken => {
            format!("Pods still use it: {}.", words::names(&held.users))
        }
        Reclaim::Recycle(Recyclable::HostPath | Recyclable::Nfs) => {
            "A Pod empties it: that is waited for.".to_owned()
        }
    }
}
