//! What a decision about one StatefulSet rests on: the caches, and the documents of revisions, read live where they are
//! needed. Decides nothing but what is still to be read.

use std::borrow::Cow;
use std::sync::Arc;

use super::Controller;
use super::memory::Sameness;
use super::plan::ordinals::{Ordinals, ordinal_of};
use super::revisions::Present;
use crate::live_reads::{STATEFUL_SET_DOCUMENT, STATEFUL_SET_TAKEN};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::apps::{ControllerRevision, RevisionDocument, StatefulSet};
use coxswain_machinery::api::kinds::{
    CONTROLLER_REVISION_DOCUMENTS, CONTROLLER_REVISIONS, PODS, STATEFUL_SETS,
};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{DeclaredRead, Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::owners::{Claim, ControllerKey, claim};
use coxswain_machinery::model::revisions::{self, Numbers, REVISION_LABEL, TemplateDocument};
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key, pods};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::splice::get;
use coxswain_machinery::wire::{Labels, Raw, Str, Value, WireError, path};

/// Pods that one plan makes at most; the rest follows when these have been seen.
pub(super) const BURST: usize = 500;
/// Bytes that a template of claims counts at least, because each one takes some time.
const SMALLEST_TEMPLATE: usize = 64;

/// Feature gates that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// `MaxUnavailableStatefulSet`
    pub(super) max_unavailable: bool,
    /// `StatefulSetSemanticRevisionComparison`
    pub(super) semantic_revisions: bool,
}

/// A template of claims.
#[derive(Clone, Debug)]
pub(super) struct ClaimTemplate {
    /// Its name, which is that of the volume, too.
    pub(super) name: Str,
    /// The claim, encoded.
    pub(super) raw: Raw,
}

impl ClaimTemplate {
    /// Name of the claim that is made of it for the pod of an ordinal.
    pub(super) fn claim_name(&self, set: &str, ordinal: i32) -> Str {
        Str::from(format!("{}-{set}-{ordinal}", self.name))
    }
}

/// A StatefulSet and what concerns it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) set: Arc<StatefulSet>,
    pub(super) templates: Vec<ClaimTemplate>,
    /// Labels that its template gives to a pod.
    pub(super) template_labels: Labels,
    /// The pods that it manages, and those without a controller that are members by name and labels.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Names of the pods and revisions whose adoption or release has been answered in this reconcile, whatever the answer.
    pub(super) settled: HashSet<(&'static Kind, Str)>,
    /// Whether the labels and name of each of these pods make it a member.
    pub(super) selector: Selector,
    /// Claims of its pods, those that are there, by name.
    pub(super) claims: HashMap<Str, Arc<PersistentVolumeClaim>>,
    /// Its revisions, sorted; those that it could adopt are among them.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// The document of its template.
    pub(super) document: TemplateDocument,
    pub(super) present: Present,
    /// Collisions of revision names so far: those in its status, and those that this reconcile met.
    pub(super) collisions: i32,
    /// Number of names of revisions that this reconcile found taken.
    pub(super) taken: usize,
    /// A revision that was found to mean the same as the template, if that had to be found out.
    pub(super) same: Option<Sameness>,
    /// The template of the current revision, if pods are to be made of it; `None` if they are made of the present one.
    pub(super) current_template: Option<Raw>,
    /// What earlier plans of this reconcile met.
    pub(super) failures: Vec<Failure>,
    pub(super) gates: Gates,
}

impl View {
    /// The collision count that its status shows.
    pub(super) fn known_collisions(&self) -> i32 {
        self.set.status.collision_count.unwrap_or(0)
    }

    /// The current revision: that which the status names, or else the present one.
    pub(super) fn current(&self) -> Option<&Arc<ControllerRevision>> {
        let named = &self.set.status.current_revision;
        self.revisions.iter().find(|held| held.metadata.name == *named).or_else(|| self.present.revision())
    }
}

/// The templates of a StatefulSet's claims.
pub(super) fn claim_templates(set: &StatefulSet) -> Result<Vec<ClaimTemplate>, WireError> {
    let template = |raw: &Raw| Ok(ClaimTemplate { name: template_name(raw)?.into(), raw: raw.clone() });
    set.spec.volume_claim_templates.iter().map(template).collect()
}

/// The name of a template of claims.
fn template_name(raw: &Raw) -> Result<Cow<'_, str>, WireError> {
    let name = get(raw, path!(PersistentVolumeClaim, metadata.name))?;
    Ok(name.map(Value::text).transpose()?.unwrap_or_default())
}

/// Returns whether a StatefulSet has a template of claims with this name. Each template takes its size from `budget`, and a StatefulSet
/// with more templates than that counts as one that has it.
pub(super) fn may_have_template(set: &StatefulSet, name: &str, budget: &mut usize) -> bool {
    for raw in &set.spec.volume_claim_templates {
        let Some(rest) = budget.checked_sub(raw.len().max(SMALLEST_TEMPLATE)) else { return true };
        *budget = rest;
        if template_name(raw).is_ok_and(|held| held == name) {
            return true;
        }
    }
    false
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Observation<View>, ObserveError> {
    let Some(set) = room.sets.get(key) else {
        return Ok(Observation::Nothing);
    };
    let unusable = |what: String| ObserveError::Terminal(format!("StatefulSet {key}: {what}"));
    let malformed = |error: WireError| unusable(error.to_string());
    let selector = Selector::compile(&set.spec.selector).map_err(|error| unusable(error.to_string()))?;
    if selector.is_empty() {
        return Err(unusable("the selector is empty and would match every pod".to_owned()));
    }
    let templates = claim_templates(&set).map_err(malformed)?;
    let template_labels = pods::template_metadata(&set.spec.template).map_err(malformed)?.labels;
    let document = TemplateDocument::of(&set.spec.template, Numbers::Doubles).map_err(malformed)?;
    let tried = room.memory.tried_names(key, &set, document.hash(0).as_str());
    let collisions = tried.or(set.status.collision_count).unwrap_or(0);
    let mut view = View {
        pods: members(room, &set, &selector, read),
        settled: settled(read),
        claims: HashMap::default(),
        revisions: revisions_of(room, &set, &selector, read),
        present: Present::Missing(1),
        same: None,
        current_template: None,
        failures: failures.to_vec(),
        gates: room.gates,
        set,
        templates,
        template_labels,
        selector,
        document,
        collisions,
        taken: taken(read).count(),
    };
    view.claims = claims(&view, &room.claims);
    view.present = Present::of(&view.revisions, &view.document);
    if view.present.revision().is_some() {
        // One that this reconcile has made: the names that it found taken were taken by others.
        view.collisions = view.collisions.wrapping_add(view.taken as i32);
    }
    let mut needs = Vec::new();
    if matches!(view.present, Present::Missing(_)) {
        needs.extend(find_taken(&mut view, read)?);
        if needs.is_empty() && matches!(view.present, Present::Missing(_)) {
            needs.extend(find_same(&mut view, room, read)?);
        }
    }
    if needs.is_empty() {
        needs.extend(read_current(&mut view, read)?);
    }
    Ok(if needs.is_empty() { Observation::View(view) } else { Observation::Needs(needs) })
}

/// The pods and revisions that this reconcile has patched. A request without an answer settles nothing.
fn settled(read: &Reads) -> HashSet<(&'static Kind, Str)> {
    let answered = read.written().iter().filter(|effect| effect.change != WriteEffect::Unknown);
    answered.map(|effect| (effect.kind, effect.key.name.clone())).collect()
}

/// The pods that it manages, whatever they are, and those that it could adopt. A pod that this reconcile has patched is as the
/// server answered, unless the cache is ahead of that.
fn members(room: &Controller, set: &StatefulSet, selector: &Selector, read: &Reads) -> Vec<Arc<Pod>> {
    let mut pods = room.pods.of(ControllerKey::of(&set.metadata, &STATEFUL_SETS));
    let orphans = room.pods.orphans(&set.metadata.namespace);
    pods.extend(orphans.into_iter().filter(|pod| is_member(&set.metadata.name, selector, pod)));
    let version = |pod: &Pod| pod.metadata.resource_version.parse::<u64>().ok();
    for effect in read.written().iter().filter(|effect| effect.kind == &PODS) {
        if let Some(written) = effect.answer.clone().and_then(typed::<Pod>)
            // Linear: a pass writes 500 pods at most.
            && let Some(held) = pods.iter_mut().find(|held| held.metadata.uid == written.metadata.uid)
            && version(held) < version(&written)
        {
            *held = written;
        }
    }
    pods
}

/// Whether a pod is one of the set's by its labels and its name.
pub(super) fn is_member(set: &str, selector: &Selector, pod: &Pod) -> bool {
    ordinal_of(set, &pod.metadata.name).is_some() && selector.matches(&pod.metadata.labels)
}

/// Its revisions and those without a controller that it selects, sorted. What this reconcile has written is among them as the
/// server answered.
fn revisions_of(
    room: &Controller,
    set: &StatefulSet,
    selector: &Selector,
    read: &Reads,
) -> Vec<Arc<ControllerRevision>> {
    let mut all = room.revisions.of(ControllerKey::of(&set.metadata, &STATEFUL_SETS));
    all.extend(room.revisions.orphans(&set.metadata.namespace));
    for effect in read.written().iter().filter(|effect| effect.kind == &CONTROLLER_REVISIONS) {
        if let Some(written) = effect.answer.clone().and_then(typed::<ControllerRevision>) {
            all.retain(|held| held.metadata.name != written.metadata.name);
            all.push(written);
        }
    }
    all.retain(|revision| {
        let matches = selector.matches(&revision.metadata.labels);
        matches!(claim(&set.metadata, &revision.metadata, matches), Claim::Keep | Claim::Adopt)
            || matches && revision.metadata.controller().is_none()
    });
    revisions::sort(&mut all);
    all
}

fn typed<T: Send + Sync + 'static>(object: coxswain_machinery::api::AnyObject) -> Option<Arc<T>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = object;
    any.downcast().ok()
}

/// Claims of the pods that are there, and of those that are to be made, as far as they are there themselves.
fn claims(view: &View, held: &Lister<PersistentVolumeClaim>) -> HashMap<Str, Arc<PersistentVolumeClaim>> {
    let mut claims = HashMap::default();
    if view.templates.is_empty() {
        return claims;
    }
    let set = &view.set.metadata;
    let ordinals = Ordinals::of(&view.set);
    let there: HashSet<i32> =
        view.pods.iter().filter_map(|pod| ordinal_of(&set.name, &pod.metadata.name)?).collect();
    let missing = ordinals.all().filter(|ordinal| !there.contains(ordinal)).take(BURST);
    for ordinal in there.iter().copied().chain(missing) {
        // Linear: each pair has a claim of its own.
        for template in &view.templates {
            let name = template.claim_name(&set.name, ordinal);
            if let Some(claim) = held.get(&Key::new(set.namespace.clone(), name.clone())) {
                claims.insert(name, claim);
            }
        }
    }
    claims
}

/// Creates of this reconcile that found the name taken.
fn taken(read: &Reads) -> impl Iterator<Item = &Effect> {
    let is_create =
        |effect: &&Effect| effect.kind == &CONTROLLER_REVISIONS && effect.change == WriteEffect::Nothing;
    read.written().iter().filter(is_create)
}

/// Whether the name that was tried last is taken by the same document, which is then the present one, or by another, and then the next
/// name is another one. The names before it belong to others, or it would not have been tried. What must be read to tell.
fn find_taken(view: &mut View, read: &Reads) -> Result<Option<DeclaredRead>, ObserveError> {
    let met: Vec<&Effect> = taken(read).collect();
    let Some(last) = met.last() else { return Ok(None) };
    let found = match read.object(&CONTROLLER_REVISIONS, &last.key) {
        None => {
            let key = last.key.clone();
            return Ok(Some(STATEFUL_SET_TAKEN.of(Read::Object(&CONTROLLER_REVISIONS, key))));
        }
        Some(Err(error)) => return Err(ObserveError::Retry(error.to_string())),
        // A webhook can refuse each create as existing. Another name would not help, so the same one is retried with a backoff.
        Some(Ok(None)) => {
            let name = &last.key.name;
            return Err(ObserveError::Retry(format!(
                "create ControllerRevision {name}: the API server responded AlreadyExists, but a read of this name \
                 responded NotFound"
            )));
        }
        Some(Ok(Some(found))) => typed::<ControllerRevision>(Arc::clone(found)),
    };
    let others = match found {
        Some(found) if view.document.is_in(&found) => {
            view.present = Present::Held(found);
            met.len() - 1
        }
        _ => met.len(),
    };
    // As in kube-controller-manager the count wraps around: the same name would be tried again otherwise.
    view.collisions = view.collisions.wrapping_add(others as i32);
    Ok(None)
}

/// The newest revision, if it means the same as the template. What must be read to tell.
fn find_same(view: &mut View, room: &Controller, read: &Reads) -> Result<Option<DeclaredRead>, ObserveError> {
    let has_created = taken(read).next().is_some();
    let Some(newest) = view.revisions.last().filter(|_| room.gates.semantic_revisions && !has_created) else {
        return Ok(None);
    };
    let newest = Arc::clone(newest);
    let same = Sameness {
        set: view.set.metadata.uid.clone(),
        generation: view.set.metadata.generation,
        revision: newest.metadata.resource_version.clone(),
    };
    if room.memory.knows(&same) {
        view.present = Present::Held(newest);
        return Ok(None);
    }
    match document_of(&newest, read)? {
        Found::NotRead(read) => Ok(Some(read)),
        Found::Read(document) => {
            if document.is_some_and(|held| view.document.means_the_same_as(&held.data.raw)) {
                view.present = Present::Held(newest);
                view.same = Some(same);
            }
            Ok(None)
        }
    }
}

/// The template of the current revision, if a pod is to be made of it. What must be read for that.
fn read_current(view: &mut View, read: &Reads) -> Result<Option<DeclaredRead>, ObserveError> {
    let (Some(present), Some(current)) = (view.present.revision(), view.current()) else { return Ok(None) };
    if present.metadata.name == current.metadata.name || !super::plan::makes_old_pods(view) {
        return Ok(None);
    }
    let current = Arc::clone(current);
    let name = &current.metadata.name;
    match document_of(&current, read)? {
        Found::NotRead(read) => Ok(Some(read)),
        Found::Read(None) => Err(ObserveError::Retry(format!("ControllerRevision {name} no longer exists"))),
        Found::Read(Some(document)) => {
            let template = revisions::template_of(&document.data.raw)
                .map_err(|error| ObserveError::Retry(format!("ControllerRevision {name}: {error}")))?;
            view.current_template = Some(Raw(template.into()));
            Ok(None)
        }
    }
}

/// The document of a revision, as far as it was read.
enum Found {
    NotRead(DeclaredRead),
    /// `None` if it is gone.
    Read(Option<Arc<RevisionDocument>>),
}

fn document_of(revision: &ControllerRevision, read: &Reads) -> Result<Found, ObserveError> {
    let key = Key::of(&revision.metadata);
    match read.object(&CONTROLLER_REVISION_DOCUMENTS, &key) {
        None => {
            Ok(Found::NotRead(STATEFUL_SET_DOCUMENT.of(Read::Object(&CONTROLLER_REVISION_DOCUMENTS, key))))
        }
        Some(Ok(found)) => Ok(Found::Read(found.cloned().and_then(typed::<RevisionDocument>))),
        Some(Err(error)) => Err(ObserveError::Retry(error.to_string())),
    }
}

/// Returns the label of a pod that names the revision from which it was created.
pub(super) fn revision_of(pod: &Pod) -> Option<&Str> {
    pod.metadata.labels.get(REVISION_LABEL)
}

/// Whether a pod was made from the revision of this name.
pub(super) fn is_made_of(pod: &Pod, revision: &str) -> bool {
    revision_of(pod).is_some_and(|held| held.as_str() == revisions::label_value(revision))
}
