//! What becomes of a volume: it is available, bound, released, and then kept, deleted or recycled.

use std::iter;
use std::time::Duration;

use jiff::Timestamp;

use super::facts::{self, is_dynamic, same_mode, size};
use super::migrating::{self, IN_TREE_FINALIZER};
use super::note::{Counted, Note, Operation, Recycling};
use super::plan::{again, settled, steps};
use super::reclaiming::{self, FAILED_DELETE, FAILED_RECYCLE, Reclaim, Recyclable, reclaim};
use super::recycler::{self, Begun, Leftover, Release};
use super::view::{
    Claimant, Held, RecyclerPod, VolumeView, is_destroyed_by, is_elsewhere, is_over, is_replaced,
};
use super::writes::{self, Chain};
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::api::{Kind, Object as _};
use coxswain_machinery::model::plan::{EventSpec, FinishOrder, Regarding, Tolerate, UNPREPARED, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write, finalizers};
use coxswain_machinery::wire::{Uid, WireError};

/// How long a volume is left alone that a claim's reconcile is writing.
const BINDING_TAKES: Duration = Duration::from_millis(100);
/// When a volume is looked at again whose recycler Pod was deleted a moment ago, should nothing tell that the Pod is gone.
const LEAVES_WITHIN: Duration = Duration::from_mins(1);

/// The message about a volume whose recycler Pod cannot be created or deleted because another Pod has its name.
const OLD_POD: &str = "Recycle failed: old recycler pod found, will retry later";

/// What is done about a volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Its annotations and finalizers are brought in order first.
    Migrate(bytes::Bytes),
    /// Nobody has it.
    Available,
    /// Its claim is of another mode, and never gets it.
    WrongMode,
    /// Its claim is about to be bound to it.
    ClaimIsNext,
    /// Its claim has it.
    Bound,
    /// Its claim is bound to another volume, and somebody linked this one.
    Unbind,
    /// Its claim is gone: this becomes of it.
    Reclaim(Reclaim),
    /// Its claim seems to be gone, and nobody asked the API server.
    Unsure,
    /// It is malformed.
    Broken(String),
}

pub(super) fn verdict(held: &Held) -> Verdict {
    match migrating::of_volume(&held.volume) {
        Ok(Some(changed)) => return Verdict::Migrate(changed),
        Ok(None) => {}
        Err(error) => return Verdict::Broken(error.to_string()),
    }
    match &held.claim {
        Claimant::Nobody => Verdict::Available,
        Claimant::Gone { live } => released(held, *live),
        Claimant::There(claim, live) if is_elsewhere(&held.volume, claim) => {
            if is_dynamic(&held.volume) {
                released(held, *live)
            } else {
                Verdict::Unbind
            }
        }
        Claimant::There(claim, _) if !claim.spec.volume_name.is_empty() => Verdict::Bound,
        Claimant::There(claim, _) if !same_mode(&held.volume, claim) => Verdict::WrongMode,
        Claimant::There(..) => Verdict::ClaimIsNext,
    }
}

/// A volume is released, and what destroys data is done, on a live word only.
fn released(held: &Held, live: bool) -> Verdict {
    if live || is_over(&held.volume) && !is_destroyed_by(&held.volume) {
        Verdict::Reclaim(reclaim(&held.volume))
    } else {
        Verdict::Unsure
    }
}

pub(super) fn plan(view: &VolumeView, now: Timestamp) -> Plan<Note> {
    let held = match view {
        VolumeView::Gone(begun) => {
            let counted = vec![Counted::Gone(now)];
            let recycling = begun.as_ref().map(|_| Recycling::Ended);
            let all = match begun.as_ref().map(Begun::leftover) {
                Some(Leftover::Running(at, pod)) => vec![without_pod(at, pod)],
                Some(Leftover::Leaving(_) | Leftover::Gone) | None => Vec::new(),
            };
            return steps(all).with_note(Note { recycling, counted, ..Note::default() });
        }
        VolumeView::BeingBound => {
            let plan = Plan { requeue_after: Some(BINDING_TAKES), ..Plan::default() };
            return plan.with_note(Note::default());
        }
        VolumeView::BacksOff => return Plan::default().with_note(Note::default()),
        VolumeView::There(held) => held,
    };
    let mut note = Note { answers: held.answers.clone(), ..Note::default() };
    let planned = if let Some(failure) = held.failures.first() {
        record(held, failure, now, &mut note)
    } else {
        decide(held, now, &mut note)
    };
    let planned = planned.unwrap_or_else(|error| Plan { retry: Some(error.to_string()), ..Plan::default() });
    planned.with_note(note)
}

fn decide(held: &Held, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    let verdict = verdict(held);
    let Some(begun) = without_reason(held, &verdict) else {
        let created = held.begun.as_ref().and_then(|begun| begun.created.clone());
        note.recycling = created.map(Recycling::Created);
        return carry_out(held, verdict, now, note);
    };
    let (leftover, ends) = match begun.leftover() {
        Leftover::Gone => {
            note.recycling = Some(Recycling::Ended);
            return carry_out(held, verdict, now, note);
        }
        Leftover::Running(at, pod) => (Some(without_pod(at, pod)), None),
        Leftover::Leaving(ends) => (None, ends),
    };
    // Nobody else gets the volume while the Pod may still empty it, and the next Pod has the same name. A link that somebody has set is
    // heeded at once, unless it is one to take back.
    let waits = frees(&verdict) || is_recycled(&verdict);
    let left = ends.map_or(LEAVES_WITHIN, |ends| ends.duration_since(now).unsigned_abs());
    let is_late = ends.is_some_and(|ends| ends <= now);
    let mut plan = if is_late {
        note.recycling = Some(Recycling::Ended);
        carry_out(held, verdict, now, note)?
    } else if waits {
        Plan { requeue_after: Some(left), ..Plan::default() }
    } else {
        carry_out(held, verdict, now, note)?
    };
    plan.steps.splice(0..0, leftover);
    Ok(plan)
}

/// Whether anybody may bind the volume afterwards.
fn frees(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Available | Verdict::Unbind)
}

fn is_recycled(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Reclaim(Reclaim::Recycle(_)))
}

/// The recycling that has begun, if the volume is not to be recycled for that release any longer: it was bound again, its link or its
/// policy was changed, or it is another volume. `None` if that is not known.
fn without_reason<'a>(held: &'a Held, verdict: &Verdict) -> Option<&'a Begun> {
    let release = match verdict {
        Verdict::Migrate(_) | Verdict::Unsure | Verdict::Broken(_) => return None,
        Verdict::Reclaim(Reclaim::Recycle(_)) => Release::of(&held.volume),
        _ => None,
    };
    held.begun.as_ref().filter(|begun| !begun.recycler.is_for(release.as_ref()))
}

fn carry_out(held: &Held, verdict: Verdict, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    match verdict {
        Verdict::Migrate(changed) => {
            let update = Write::new(&PERSISTENT_VOLUMES, key(held), Verb::Update(changed));
            Ok(again(vec![Step::Write(update)]))
        }
        Verdict::Available => phase(held, "Available"),
        Verdict::Bound => phase(held, "Bound"),
        Verdict::Unbind => unbind(held).map(again),
        Verdict::WrongMode => Ok(steps(wrong_mode(held))),
        Verdict::ClaimIsNext => Ok(Plan::default()),
        Verdict::Reclaim(what) => reclaimed(held, &what, now, note),
        Verdict::Unsure => {
            let retry =
                "the deletion of the volume's claim is not confirmed with the API server yet".to_owned();
            Ok(Plan { retry: Some(retry), ..Plan::default() })
        }
        Verdict::Broken(why) => Ok(Plan { retry: Some(why), ..Plan::default() }),
    }
}

/// The status is brought to this phase, and the answer looked at, so that the other loop knows it.
fn phase(held: &Held, phase: &str) -> Result<Plan, WireError> {
    let edits = writes::volume_phase(&held.volume, phase, "");
    Ok(settled(Chain::of_volume(&held.volume).then("status", edits)?.steps()))
}

/// The link to the claim is taken back, and then the volume is available.
fn unbind(held: &Held) -> Result<Vec<Step>, WireError> {
    let chain = Chain::of_volume(&held.volume).then("", writes::volume_unlink(&held.volume))?;
    Ok(chain.then("status", writes::volume_phase(&held.volume, "Available", ""))?.steps())
}

fn wrong_mode(held: &Held) -> Vec<Step> {
    let Claimant::There(claim, _) = &held.claim else { return Vec::new() };
    let (volume, name) = (&held.volume.metadata.name, &claim.metadata.name);
    let of_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {name:?} due to incompatible volumeMode."
    );
    let of_claim = format!(
        "Cannot bind PersistentVolume {volume:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
    );
    let on_claim = |claim: &PersistentVolumeClaim| EventSpec {
        regarding: Regarding::of(&PERSISTENT_VOLUME_CLAIMS, &claim.metadata),
        warning: true,
        reason: "VolumeMismatch",
        message: of_claim,
    };
    vec![told(held, true, "VolumeMismatch", of_volume), Step::Emit(on_claim(claim))]
}

/// A volume whose claim is gone: it is released, and then reclaimed.
fn reclaimed(held: &Held, what: &Reclaim, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    if !is_over(&held.volume) {
        return phase(held, "Released");
    }
    let is_migrated = facts::annotation(&held.volume.metadata, facts::MIGRATED_TO).is_some();
    if held.volume.spec.persistent_volume_reclaim_policy == "Delete" && !is_migrated {
        let (uid, plugin) = (held.volume.metadata.uid.clone(), held.plugin.clone());
        note.counted.push(Counted::Began(Operation::Delete, uid, plugin, now));
    }
    match what {
        Reclaim::Nothing => Ok(Plan::default()),
        Reclaim::Fail(reason, why) => fail(held, reason, why),
        _ if held.backs_off => Ok(Plan::default()),
        Reclaim::DeleteDirectory(path) => delete(held, path, note),
        Reclaim::NoDirectory => {
            let (uid, name) = (held.volume.metadata.uid.clone(), &held.volume.metadata.name);
            note.counted.push(Counted::Failed(Operation::Delete, held.plugin.clone()));
            note.failed = Some(uid);
            let why = format!(
                "failed to create deleter for volume {name:?}: spec.PersistentVolumeSource.HostPath is nil"
            );
            fail(held, FAILED_DELETE, &why)
        }
        Reclaim::NotRecyclable => match in_use(held) {
            Some(event) => Ok(steps(vec![event])),
            None => fail(held, FAILED_RECYCLE, "No recycler plugin found for the volume!"),
        },
        Reclaim::Recycle(sort) => recycle(held, *sort, note),
    }
}

/// The directory goes, then the finalizer that kept the volume for that, then the volume.
fn delete(held: &Held, path: &str, note: &mut Note) -> Result<Plan, WireError> {
    let volume = &held.volume;
    if let Some(why) = reclaiming::refused_path(path) {
        note.counted.push(Counted::Refused(Operation::Delete));
        note.failed = Some(volume.metadata.uid.clone());
        return fail(held, FAILED_DELETE, &why);
    }
    let meta = &volume.metadata;
    let is_kept = meta.finalizers.iter().any(|held| held == IN_TREE_FINALIZER);
    if meta.is_deleting() && !is_kept {
        // It was all done, and others keep it still.
        return Ok(Plan::default());
    }
    note.counted.push(Counted::Directory(Operation::Delete));
    let prepare =
        Some(FinishOrder { finisher: super::DIRECTORIES, details: serde_json::json!({ "remove": path }) });
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let gone = |verb: Verb| Write { tolerate, ..Write::new(&PERSISTENT_VOLUMES, key(held), verb) };
    let all = if is_kept {
        let freed = finalizers::without(&volume.raw(), IN_TREE_FINALIZER)?;
        let freed = Step::Write(Write { prepare, ..gone(Verb::Update(freed)) });
        let deleted = (!meta.is_deleting()).then(|| Step::Write(gone(Verb::delete(meta.uid.clone()))));
        iter::once(freed).chain(deleted).collect()
    } else {
        vec![Step::Write(Write { prepare, ..gone(Verb::delete_as_seen(meta)) })]
    };
    Ok(steps(all))
}

/// What is told of a volume that pods still use, by a claim of a name that is gone.
fn in_use(held: &Held) -> Option<Step> {
    if held.users.is_empty() || held.name_is_taken {
        return None;
    }
    let users: Vec<String> = held.users.iter().map(Key::to_string).collect();
    Some(told(held, false, FAILED_RECYCLE, format!("Volume is used by pods: {}", users.join(","))))
}

/// A Pod empties the volume: it is made, waited for and deleted.
fn recycle(held: &Held, sort: Recyclable, note: &mut Note) -> Result<Plan, WireError> {
    let recipe = held.settings.recipes.of(sort);
    let at = recycler::pod_key(recipe, &held.volume.metadata.name);
    let Some(release) = Release::of(&held.volume) else { return Ok(Plan::default()) };
    let created = held.begun.as_ref().and_then(|begun| begun.created.as_ref());
    let begun = held.begun.as_ref().and_then(|begun| begun.recycler.pod_for(&release));
    let Some(expected) = created.or(begun) else {
        if let Some(event) = in_use(held) {
            return Ok(steps(vec![event]));
        }
        if let Some(old) = &held.recycler {
            return fail_without_pod(held, at, old.pod.metadata.uid.clone(), OLD_POD);
        }
        return match recycler::pod(recipe, &held.volume) {
            Err(why) => fail(held, FAILED_RECYCLE, &format!("Recycle failed: {why}")),
            Ok(_) if at.namespace.is_empty() => {
                let why = "Recycle failed: unexpected error creating recycler pod:  an empty namespace may not be set during creation";
                fail(held, FAILED_RECYCLE, why)
            }
            Ok(pod) => {
                note.recycling = Some(Recycling::Begins(release, at.clone()));
                Ok(again(vec![Step::Write(Write::new(&PODS, at, Verb::Create(pod.into())))]))
            }
        };
    };
    if created.is_some() {
        return Ok(Plan::default());
    }
    let ended = |note: &mut Note| note.recycling = Some(Recycling::Ended);
    let failed = |why: &str| format!("Recycle failed: failed to recycle volume: {why}");
    let failed_by = |own: &RecyclerPod| failed(&pod_error(own));
    let Some(own) = held.recycler.as_ref().filter(|own| own.pod.metadata.uid == *expected) else {
        if held.begun.as_ref().is_some_and(|begun| begun.recycler.has_succeeded()) {
            // An earlier delete of the Pod took effect although it failed.
            return match &held.recycler {
                Some(other) => delete_other_pod(held, at, &other.pod.metadata),
                None => free_emptied(held, None, note),
            };
        }
        ended(note);
        // It is tried again when this is seen, and not at once.
        return Ok(steps(fail(held, FAILED_RECYCLE, &failed("recycler pod was deleted"))?.steps));
    };
    match own.pod.status.phase.as_str() {
        "Succeeded" => {
            // The volume is freed only when no Pod has this name, so a delete that finds another Pod must fail.
            let tolerate = Tolerate { gone: true, ..Tolerate::default() };
            let delete = Write { tolerate, ..Write::new(&PODS, at, Verb::delete(expected.clone())) };
            free_emptied(held, Some(Step::Write(delete)), note)
        }
        "Failed" => {
            ended(note);
            fail_without_pod(held, at, expected.clone(), &failed_by(own))
        }
        _ => {
            let started = own.pod.status.start_time.is_some();
            let deadline = started.then(|| recycler::deadline(recipe, size(&held.volume)));
            let Some(begun) = &held.begun else { return Ok(Plan::default()) };
            let left = begun.time_left(deadline);
            if !left.is_zero() {
                return Ok(Plan { requeue_after: Some(left), ..Plan::default() });
            }
            ended(note);
            fail_without_pod(held, at, expected.clone(), &failed_by(own))
        }
    }
}

/// Returns why a Pod that has not succeeded did not empty its volume.
fn pod_error(own: &RecyclerPod) -> String {
    let pod = &own.pod;
    match pod.status.phase.as_str() {
        "Failed" if own.message.is_empty() => "pod failed, pod.Status.Message unknown".to_owned(),
        "Failed" => own.message.clone(),
        _ => format!("recycler pod {:?} watch channel had been closed", pod.metadata.name),
    }
}

/// Returns the error of a recycler Pod that was not deleted: the delete's error if the Pod was in the way or had succeeded, otherwise the
/// Pod's own.
fn undeleted(held: &Held, failure: &Failure) -> String {
    let (release, begun, why) = (Release::of(&held.volume), held.begun.as_ref(), &failure.message);
    let expected = release.as_ref().and_then(|release| begun?.recycler.pod_for(release));
    let own = held.recycler.as_ref().filter(|own| Some(&own.pod.metadata.uid) == expected);
    match own {
        None => format!("failed to delete old recycler pod {}: {why}", failure.key),
        Some(own) if own.pod.status.phase == "Succeeded" => format!("failed to delete recycler pod: {why}"),
        Some(own) => format!("failed to recycle volume: {}", pod_error(own)),
    }
}

/// Frees an emptied volume. Deletes the recycler Pod first if it still exists.
fn free_emptied(held: &Held, gone: Option<Step>, note: &mut Note) -> Result<Plan, WireError> {
    note.recycling = Some(Recycling::Succeeded);
    let event = told(held, false, "VolumeRecycled", "Volume recycled".to_owned());
    let freed = unbind(held)?;
    Ok(again(match gone {
        Some(gone) => [gone, event].into_iter().chain(freed).collect(),
        // The update of the volume may fail, and is tried again.
        None => freed.into_iter().chain([event]).collect(),
    }))
}

/// Deletes another Pod of the recycler's name, which may still empty the volume. The volume is freed when that Pod is gone. The event is
/// emitted once, with the update of the volume's status.
fn delete_other_pod(held: &Held, at: Key, other: &ObjectMeta) -> Result<Plan, WireError> {
    let mut all = if other.is_deleting() { Vec::new() } else { vec![without_pod(at, other.uid.clone())] };
    all.extend(fail(held, FAILED_RECYCLE, OLD_POD)?.steps);
    Ok(Plan { requeue_after: Some(LEAVES_WITHIN), ..steps(all) })
}

/// Returns the plan after the delete of the Pod that has emptied a volume was refused because another Pod has its name. The cache does not
/// show that Pod yet.
fn record_other_pod(held: &Held, at: &Key, note: &mut Note) -> Result<Plan, WireError> {
    let release = Release::of(&held.volume);
    let begun = held.begun.as_ref().filter(|begun| begun.recycler.has_succeeded());
    let emptied_by = release.as_ref().and_then(|release| begun?.recycler.pod_for(release));
    let plan = match (emptied_by, &held.recycler) {
        (Some(_), None) => free_emptied(held, None, note)?,
        (Some(expected), Some(live)) if live.pod.metadata.uid != *expected => {
            delete_other_pod(held, at.clone(), &live.pod.metadata)?
        }
        // The Pod itself still has the name, or the recycling is over: the delete is retried.
        _ => return Ok(Plan::default()),
    };
    Ok(Plan { end: true, ..plan })
}

/// Deletes a Pod and records that the recycling has failed.
fn fail_without_pod(held: &Held, at: Key, uid: Uid, why: &str) -> Result<Plan, WireError> {
    let mut all = vec![without_pod(at, uid)];
    all.extend(fail(held, FAILED_RECYCLE, why)?.steps);
    Ok(steps(all))
}

fn without_pod(at: Key, uid: Uid) -> Step {
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    Step::Write(Write { tolerate, ..Write::new(&PODS, at, Verb::delete(uid)) })
}

/// What has failed, as far as the volume says so: its directory could not be removed, or the Pod that empties it could not be made.
fn record(held: &Held, failure: &Failure, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    let verdict = verdict(held);
    if let Some(begun) = without_reason(held, &verdict) {
        // The Pod of an earlier release could not be deleted, which is retried. Once it has run to its end, only another recycling waits
        // for that.
        let waits = is_recycled(&verdict) || frees(&verdict) && !begun.has_ended();
        return if waits { Ok(Plan::default()) } else { carry_out(held, verdict, now, note) };
    }
    if is_replaced(failure) {
        return record_other_pod(held, &failure.key, note);
    }
    let is_about = |kind: &'static Kind| failure.kind == kind;
    let told = if is_about(&PERSISTENT_VOLUMES) && failure.reason == UNPREPARED {
        Some((FAILED_DELETE, failure.message.clone()))
    } else if is_about(&PODS) && failure.is_already_exists() {
        Some((FAILED_RECYCLE, OLD_POD.to_owned()))
    } else if is_about(&PODS) && failure.verb == "create" {
        let why = &failure.message;
        Some((FAILED_RECYCLE, format!("Recycle failed: unexpected error creating recycler pod:  {why}")))
    } else if is_about(&PODS) && failure.verb == "delete" {
        Some((FAILED_RECYCLE, format!("Recycle failed: {}", undeleted(held, failure))))
    } else {
        None
    };
    let Some((reason, why)) = told else { return Ok(Plan::default()) };
    let mut all = Vec::new();
    if let Some(old) = failure.existing.as_ref() {
        all.push(without_pod(failure.key.clone(), old.meta().uid.clone()));
    }
    note.failed = (reason == FAILED_DELETE).then(|| held.volume.metadata.uid.clone());
    all.extend(fail(held, reason, &why)?.steps);
    // The next resync, or a change, tries again.
    Ok(Plan { end: true, ..steps(all) })
}

/// The volume could not be reclaimed. That is told once.
fn fail(held: &Held, reason: &'static str, why: &str) -> Result<Plan, WireError> {
    let edits = writes::volume_phase(&held.volume, "Failed", why);
    let is_news = !edits.is_empty();
    let mut all = Chain::of_volume(&held.volume).then("status", edits)?.steps();
    if is_news {
        all.push(told(held, true, reason, why.to_owned()));
    }
    Ok(settled(all))
}

fn key(held: &Held) -> Key {
    Key::of(&held.volume.metadata)
}

fn told(held: &Held, warning: bool, reason: &'static str, message: String) -> Step {
    let regarding = Regarding::of(&PERSISTENT_VOLUMES, &held.volume.metadata);
    Step::Emit(EventSpec { regarding, warning, reason, message })
}
