//! What a decision about a claim or a volume rests on: caches, what was written a moment ago, and live reads before anything is called
//! lost or is destroyed. Decides nothing.

use std::sync::Arc;

use super::facts::{self, BIND_COMPLETED, SELECTED_NODE, claimed_by, has};
use super::free::FreeVolumes;
use super::matching::Wish;
use super::memory::Ledger;
use super::metrics::Metrics;
use super::provisioning::{self, Provisioner};
use super::reclaiming::{Reclaim, reclaim};
use super::recycler::{self, Begun, Recipes, Recycler, Release};
use crate::live_reads::{BINDER_CLAIM, BINDER_RECYCLER, BINDER_VOLUME};
use crate::storage::claims::claim_key;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use coxswain_machinery::api::{AnyObject, Index, IndexKeys, Kind, Object};
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::framework::{
    ApiError, DeclaredRead, LiveRead, Observation, ObserveError, Query, Read, Reads, RequestPath,
};
use coxswain_machinery::informer::{Indexed, Lister, downcast};
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::wire::Str;

/// What both rooms read.
pub(super) struct Binder {
    /// Volumes that no claim has.
    pub(super) free: Arc<FreeVolumes>,
    /// Those that are meant for a claim, by its key.
    pub(super) meant: Indexed<PersistentVolume>,
    pub(super) classes: Lister<StorageClass>,
    pub(super) pods: Lister<Pod>,
    pub(super) users: Indexed<Pod>,
    /// Nodes, where the manager makes directories.
    pub(super) nodes: Option<Lister<Node>>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) settings: Arc<Settings>,
}

/// What flags say.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provisions: bool,
    pub(super) makes_directories: bool,
    /// The gate `VolumeAttributesClass`.
    pub(super) knows_attributes: bool,
    pub(super) recipes: Recipes,
}

/// A claim.
#[derive(Debug)]
pub(super) struct ClaimView {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// The volume that it names, if that is there.
    pub(super) volume: Option<Arc<PersistentVolume>>,
    /// Volumes that it might get, if it names none: those that are meant for it, and the best of those that are free.
    pub(super) candidates: Vec<Arc<PersistentVolume>>,
    /// How many volumes of its class are free, if one of them is looked for.
    pub(super) free: usize,
    /// Its class, if that is there.
    pub(super) class: Option<Arc<StorageClass>>,
    /// The class that it would get, if it says none.
    pub(super) default_class: Option<Str>,
    /// Pods that use it and have no node yet, in order.
    pub(super) unscheduled: Vec<Str>,
    /// Whether the node that the scheduler chose is there.
    pub(super) node_is_there: bool,
    /// Whether the volume that is made for it is there already.
    pub(super) is_made: bool,
    /// Whether its backoff runs after something has failed.
    pub(super) backs_off: bool,
    pub(super) settings: Arc<Settings>,
    /// What has failed in this reconcile.
    pub(super) failures: Vec<Failure>,
    /// What this reconcile has written.
    pub(super) answers: Vec<AnyObject>,
}

/// A volume, or what is left of it.
#[derive(Debug)]
pub(super) enum VolumeView {
    /// It is gone, and was being reclaimed; with the recycling that had begun.
    Gone(Option<Begun>),
    /// A claim's reconcile is writing it.
    BeingBound,
    /// Reclaiming it has failed, and its backoff runs. It was not read live.
    BacksOff,
    /// It is there.
    There(Box<Held>),
}

/// A volume that is there.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) claim: Claimant,
    /// How metrics name who deletes it.
    pub(super) plugin: Str,
    /// Pods that have not ended and use a claim of the name that it was bound to, in order.
    pub(super) users: Vec<Key>,
    /// Whether a claim of that name is there.
    pub(super) name_is_taken: bool,
    pub(super) recycler: Option<RecyclerPod>,
    /// The recycling that this process has begun, for this release or an earlier one.
    pub(super) begun: Option<Begun>,
    /// Whether its backoff runs after reclaiming it has failed.
    pub(super) backs_off: bool,
    pub(super) failures: Vec<Failure>,
    pub(super) settings: Arc<Settings>,
    pub(super) answers: Vec<AnyObject>,
}

/// Whom a volume is bound to.
#[derive(Debug)]
pub(super) enum Claimant {
    /// Nobody in particular: it has no claim, or none with a UID.
    Nobody,
    /// A claim that is gone. `live` says that the API server was asked.
    Gone { live: bool },
    /// This claim. `live` says that it was read from the API server.
    There(Arc<PersistentVolumeClaim>, bool),
}

/// The Pod of the name that empties a volume.
#[derive(Debug)]
pub(super) struct RecyclerPod {
    pub(super) pod: Arc<Pod>,
    /// What its status says went wrong.
    pub(super) message: String,
}

/// What is still missing of a view.
enum Pending {
    /// This must be read live.
    Read(DeclaredRead),
    /// That could not be read.
    Failed(ObserveError),
}

/// An observation of what could be seen so far.
fn observed<V>(seen: Result<Option<V>, Pending>) -> Result<Observation<V>, ObserveError> {
    match seen {
        Ok(view) => Ok(view.into()),
        Err(Pending::Read(read)) => Ok(Observation::Needs(vec![read])),
        Err(Pending::Failed(error)) => Err(error),
    }
}

impl Binder {
    pub(super) fn claim(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<ClaimView>, ObserveError> {
        observed(self.see_claim(key, failures, read))
    }

    pub(super) fn volume(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<VolumeView>, ObserveError> {
        observed(self.see_volume(key, failures, read))
    }

    fn see_claim(&self, key: &Key, failures: &[Failure], read: &Reads) -> Result<Option<ClaimView>, Pending> {
        let answered = read.answer(&PERSISTENT_VOLUME_CLAIMS, key).cloned().and_then(downcast);
        let known: Option<Arc<PersistentVolumeClaim>> = answered.or_else(|| self.ledger.claim(key));
        let Some(claim) = known else { return Ok(None) };
        let volume = self.volume_of(&claim, read)?;
        let name = facts::class_of_claim(&claim);
        let class = self.classes.get(&Key::new("", name.clone()));
        let is_open = claim.spec.volume_name.is_empty() && !has(&claim.metadata, BIND_COMPLETED);
        let waits = facts::waits_for_consumer(class.as_deref());
        let of_directory =
            is_open && provisioning::provisioner(&name, class.as_deref()) == Provisioner::HostPath;
        let made = of_directory.then(|| Key::new("", provisioning::volume_name(&claim)));
        let is_made = match made {
            Some(at) => live::<PersistentVolume>((&BINDER_VOLUME, &PERSISTENT_VOLUMES), &at, read)?.is_some(),
            None => false,
        };
        let lacks_class = is_open && !facts::has_class(&claim);
        let default_class = lacks_class.then(|| {
            let classes = self.classes.list();
            facts::default_class(classes.iter().map(AsRef::as_ref))
        });
        let node = claim.metadata.annotations.get(SELECTED_NODE);
        let is_there = |name: &Str| {
            self.nodes.as_ref().is_some_and(|nodes| nodes.get(&Key::new("", name.clone())).is_some())
        };
        Ok(Some(ClaimView {
            free: if is_open && !waits { self.free.count(&name) } else { 0 },
            candidates: if is_open { self.candidates(&claim, waits) } else { Vec::new() },
            unscheduled: if is_open { self.unscheduled(key) } else { Vec::new() },
            node_is_there: node.is_none_or(is_there),
            backs_off: self.ledger.backs_off(key, &claim.metadata.uid),
            failures: failures.to_vec(),
            answers: answers(read),
            settings: Arc::clone(&self.settings),
            default_class: default_class.flatten(),
            claim,
            volume,
            class,
            is_made,
        }))
    }

    /// The volume that a claim names. Of one that was bound and is not any more by the caches, the API server has the last word.
    fn volume_of(
        &self,
        claim: &PersistentVolumeClaim,
        read: &Reads,
    ) -> Result<Option<Arc<PersistentVolume>>, Pending> {
        let name = &claim.spec.volume_name;
        if name.is_empty() {
            return Ok(None);
        }
        let at = Key::new("", name.clone());
        let answered = read.answer(&PERSISTENT_VOLUMES, &at).cloned().and_then(downcast);
        let known: Option<Arc<PersistentVolume>> = answered.or_else(|| self.ledger.volume(&at));
        let is_fine = |volume: &PersistentVolume| {
            let held = volume.spec.claim_ref.as_ref();
            held.is_none_or(|held| held.uid == claim.metadata.uid)
        };
        // A claim that is Lost already stays so until the cache shows its volume: nothing is to be decided that a live read could change.
        let is_lost = claim.status.phase == "Lost";
        if is_lost || !has(&claim.metadata, BIND_COMPLETED) || known.as_deref().is_some_and(is_fine) {
            return Ok(known);
        }
        // The API server checks the names of volumes, and does not check this reference: no volume has a name that is not
        // legal in a path. The original, which looks into its cache alone, calls such a claim lost.
        // Differs: live-before-data-loss.
        if let Some(Err(error)) = read.object(&PERSISTENT_VOLUMES, &at)
            && error.is_unaddressable()
        {
            return Ok(None);
        }
        live((&BINDER_VOLUME, &PERSISTENT_VOLUMES), &at, read)
    }

    /// The volumes that a claim might get, as they were written last; those that other claims are taking are left out. Where the claim
    /// waits for its first consumer, only those that are meant for it. Of the free ones the first that suits is the best: another
    /// can only lose to it.
    fn candidates(&self, claim: &PersistentVolumeClaim, waits: bool) -> Vec<Arc<PersistentVolume>> {
        let key = Key::of(&claim.metadata);
        let latest =
            |volume: Arc<PersistentVolume>| self.ledger.volume(&Key::of(&volume.metadata)).unwrap_or(volume);
        let meant = self.meant.filed(&meant_key(&key)).into_iter().map(latest);
        let mut found: Vec<_> = meant.chain(self.ledger.written_for(&claim.metadata)).collect();
        found.retain(|volume| !self.ledger.is_taken(volume, &key));
        // A selector that makes no sense is told by the plan.
        if !waits && let Ok(wish) = Wish::of(claim) {
            found.extend(self.free.first(&wish, |volume| {
                let volume = self.ledger.volume(&Key::of(&volume.metadata))?;
                (wish.suits(&volume) && !self.ledger.is_taken(&volume, &key)).then_some(volume)
            }));
        }
        found
    }

    fn unscheduled(&self, claim: &Key) -> Vec<Str> {
        let pods = self.users.filed(&claim_key(claim));
        let waits = |pod: &&Arc<Pod>| !pod.has_ended() && pod.spec.node_name.is_empty();
        let mut names: Vec<Str> = pods.iter().filter(waits).map(|pod| pod.metadata.name.clone()).collect();
        names.sort_unstable();
        names
    }

    fn see_volume(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Option<VolumeView>, Pending> {
        let answered = read.answer(&PERSISTENT_VOLUMES, key).cloned().and_then(downcast);
        let known: Option<Arc<PersistentVolume>> = answered.or_else(|| self.ledger.volume(key));
        let begun = self.ledger.recycler(key).map(|recycler| self.begun(recycler, read));
        // Whether a recycling has lost its reason, so that its Pod is deleted, rests on the volume as the API server has it.
        let known =
            if begun.is_some() { live((&BINDER_VOLUME, &PERSISTENT_VOLUMES), key, read)? } else { known };
        let Some(mut volume) = known else {
            let is_known = begun.is_some() || self.metrics.is_reclaiming(key);
            return Ok(is_known.then_some(VolumeView::Gone(begun)));
        };
        if self.ledger.is_being_bound(&key.name) {
            return Ok(Some(VolumeView::BeingBound));
        }
        let mut claim = self.claimant(&volume, read)?;
        // What destroys data rests on the volume, and on the claim, as the API server has them now.
        if is_released(&volume, &claim) && is_destroyed_by(&volume) {
            if failures.is_empty() && is_over(&volume) && self.ledger.backs_off(key, &volume.metadata.uid) {
                return Ok(Some(VolumeView::BacksOff));
            }
            let Some(found) = live((&BINDER_VOLUME, &PERSISTENT_VOLUMES), key, read)? else {
                return Ok(None);
            };
            volume = found;
            claim = claimant_live(&volume, read)?;
        }
        let (users, name_is_taken) = self.users_of(&volume);
        let recycler = self.recycler(&volume, begun.as_ref(), failures.iter().any(is_replaced), read)?;
        let class = self.classes.get(&Key::new("", facts::class_of_volume(&volume).clone()));
        let is_directory = matches!(reclaim(&volume), Reclaim::DeleteDirectory(_) | Reclaim::NoDirectory);
        let plugin =
            if is_directory { provisioning::HOST_PATH.into() } else { provisioning::label(class.as_deref()) };
        Ok(Some(VolumeView::There(Box::new(Held {
            begun,
            backs_off: self.ledger.backs_off(key, &volume.metadata.uid),
            failures: failures.to_vec(),
            settings: Arc::clone(&self.settings),
            answers: answers(read),
            plugin,
            volume,
            claim,
            users,
            name_is_taken,
            recycler,
        }))))
    }

    /// A recycling that has begun.
    fn begun(&self, recycler: Recycler, read: &Reads) -> Begun {
        let pods = || read.written().iter().filter(|effect| effect.kind == &PODS);
        let created = pods().filter(|effect| matches!(effect.change, WriteEffect::Stored(_)));
        Begun {
            cached: self.pods.get(recycler.at()),
            created: created
                .filter_map(|effect| effect.answer.as_ref())
                .map(|pod| pod.meta().uid.clone())
                .next(),
            is_deleted: pods().any(|effect| matches!(effect.change, WriteEffect::Deleted(_))),
            age: self.ledger.age(&recycler),
            recycler,
        }
    }

    /// Whom a volume is bound to. What the cache does not have, or has with another UID, is asked for, unless the volume is known to be
    /// released.
    fn claimant(&self, volume: &PersistentVolume, read: &Reads) -> Result<Claimant, Pending> {
        let Some(key) = claimed_by(volume) else { return Ok(Claimant::Nobody) };
        let cached = self.ledger.claim(&key);
        let is_other = cached.as_ref().is_some_and(|claim| !is_claim_of(volume, claim));
        match cached.filter(|_| !is_other) {
            Some(claim) if !is_elsewhere(volume, &claim) => Ok(Claimant::There(claim, false)),
            None if !is_other && is_over(volume) => Ok(Claimant::Gone { live: false }),
            _ => claimant_live(volume, read),
        }
    }

    /// Pods that use a claim of the name that a volume was bound to, and whether there is one.
    fn users_of(&self, volume: &PersistentVolume) -> (Vec<Key>, bool) {
        let Some(claim) = claimed_by(volume) else { return (Vec::new(), false) };
        let pods = self.users.filed(&claim_key(&claim));
        let running = pods.iter().filter(|pod| !pod.has_ended());
        let mut users: Vec<Key> = running.map(|pod| Key::of(&pod.metadata)).collect();
        users.sort_unstable();
        (users, self.ledger.claim(&claim).is_some())
    }

    /// Returns the Pod that empties a volume, with the message of its status if the Pod has failed. The Pod is read live if a delete found
    /// another Pod of its name. It is also read live before a volume is freed because the cache shows no Pod: another Pod may have the name.
    fn recycler(
        &self,
        volume: &PersistentVolume,
        begun: Option<&Begun>,
        is_replaced: bool,
        read: &Reads,
    ) -> Result<Option<RecyclerPod>, Pending> {
        let Reclaim::Recycle(sort) = reclaim(volume) else { return Ok(None) };
        let key = recycler::pod_key(self.settings.recipes.of(sort), &volume.metadata.name);
        let cached = self.pods.get(&key);
        let release = Release::of(volume);
        let is_emptied = begun.is_some_and(|begun| {
            release.is_some() && begun.recycler.is_for(release.as_ref()) && begun.recycler.has_succeeded()
        });
        let is_read = is_replaced || is_emptied && cached.is_none();
        let pod = if is_read { live((&BINDER_RECYCLER, &PODS), &key, read)? } else { cached };
        let Some(pod) = pod else { return Ok(None) };
        if pod.status.phase != "Failed" {
            return Ok(Some(RecyclerPod { pod, message: String::new() }));
        }
        let path = RequestPath::object(&PODS, &key.namespace, &key.name);
        let unaddressable = |error| Pending::Failed(ObserveError::Retry(format!("the Pod {key}: {error}")));
        let uri = path.uri(Query::NONE).map_err(unaddressable)?;
        match read.json(&uri) {
            None => Err(Pending::Read(BINDER_RECYCLER.of(Read::Json(uri)))),
            Some(Ok(found)) => {
                let message = found["status"]["message"].as_str().unwrap_or_default().to_owned();
                Ok(Some(RecyclerPod { pod, message }))
            }
            Some(Err(error)) if error.is_object_not_found() => Ok(None),
            Some(Err(error)) => Err(unreadable(&format!("the Pod {key}"), error)),
        }
    }
}

/// Whether the delete of a Pod was refused because another Pod has its name.
pub(super) fn is_replaced(failure: &Failure) -> bool {
    failure.kind == &PODS && failure.verb == "delete" && failure.is_conflict()
}

/// An object as the API server has it.
fn live<T: Object>(
    (row, kind): (&'static LiveRead, &'static Kind),
    key: &Key,
    read: &Reads,
) -> Result<Option<Arc<T>>, Pending> {
    match read.object(kind, key) {
        None => Err(Pending::Read(row.of(Read::Object(kind, key.clone())))),
        Some(Ok(found)) => Ok(found.cloned().and_then(downcast)),
        Some(Err(error)) => Err(unreadable(&format!("{kind} {key}"), error)),
    }
}

fn unreadable(what: &str, error: &ApiError) -> Pending {
    Pending::Failed(ObserveError::Retry(format!("read {what}: {}", error.message())))
}

/// Whom a volume is bound to, as the API server has it.
fn claimant_live(volume: &PersistentVolume, read: &Reads) -> Result<Claimant, Pending> {
    let Some(key) = claimed_by(volume) else { return Ok(Claimant::Nobody) };
    let found = live::<PersistentVolumeClaim>((&BINDER_CLAIM, &PERSISTENT_VOLUME_CLAIMS), &key, read)?;
    Ok(match found.filter(|claim| is_claim_of(volume, claim)) {
        Some(claim) => Claimant::There(claim, true),
        None => Claimant::Gone { live: true },
    })
}

fn is_claim_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|held| held.uid == claim.metadata.uid)
}

/// Whether a claim is bound to another volume.
pub(super) fn is_elsewhere(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty() && claim.spec.volume_name != volume.metadata.name
}

/// Whether a volume is known to be released.
pub(super) fn is_over(volume: &PersistentVolume) -> bool {
    matches!(volume.status.phase.as_str(), "Released" | "Failed")
}

/// Whether reclaiming a volume may destroy data, so that it takes a live read. A volume that has failed because nobody can recycle it
/// stays as it is.
pub(super) fn is_destroyed_by(volume: &PersistentVolume) -> bool {
    let what = reclaim(volume);
    what.destroys() && !(what == Reclaim::NotRecyclable && volume.status.phase == "Failed")
}

/// Whether the claim of a volume is gone, or bound to another volume.
pub(super) fn is_released(volume: &PersistentVolume, claim: &Claimant) -> bool {
    match claim {
        Claimant::Nobody => false,
        Claimant::Gone { .. } => true,
        Claimant::There(claim, _) => is_elsewhere(volume, claim) && facts::is_dynamic(volume),
    }
}

/// What this reconcile has written of claims and volumes, as it was answered.
fn answers(read: &Reads) -> Vec<AnyObject> {
    let is_ours = |kind: &'static Kind| kind == &PERSISTENT_VOLUMES || kind == &PERSISTENT_VOLUME_CLAIMS;
    read.written()
        .iter()
        .filter(|effect| is_ours(effect.kind))
        .filter_map(|effect| effect.answer.clone())
        .collect()
}

/// Volumes by the key of the claim that they are meant for.
pub(super) static MEANT: Index = Index { name: "meant", keys: meant_keys };

fn meant_key(claim: &Key) -> Str {
    format!("meant/{claim}").into()
}

fn meant_keys(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let claim = any.downcast_ref::<PersistentVolume>().and_then(|volume| volume.spec.claim_ref.as_ref());
    let key = claim.map(|held| meant_key(&Key::new(held.namespace.clone(), held.name.clone())));
    key.into_iter().collect()
}
