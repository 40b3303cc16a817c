//! Into which slices endpoints go.
//!
//! Every write of a slice goes to every node of the cluster, so the number of writes matters more than full slices
//! (KEP-752): endpoints stay where they are; new ones go where something is written anyway, or else all together into the
//! one slice that they fill best, or into new slices. Nothing is moved to even out. Endpoints are taken in the order of
//! their pods' names, slices in that of their own.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use super::super::view::View;
use super::Count;
use super::demand::{Group, Wanted};
use super::draft::{self, Draft, Placed};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::discovery::Endpoint;
use coxswain_machinery::api::kinds::SERVICES;
use coxswain_machinery::model::slices::{self, EncodedEndpoint, HeldSlice, Ports};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Labels, Time, WireError};

/// What becomes of the slices of one family.
#[derive(Debug, Default)]
pub(super) struct Packed<'a> {
    pub(super) create: Vec<Draft<'a>>,
    pub(super) update: Vec<(&'a HeldSlice, Draft<'a>)>,
    pub(super) unchanged: Vec<&'a HeldSlice>,
    pub(super) delete: Vec<&'a HeldSlice>,
    /// When the first of the endpoints that are new, or whose readiness changed, changed.
    pub(super) since: Option<Time>,
    /// Endpoints, and what becomes of them; slices are counted in the end.
    pub(super) tally: Count,
}

/// Decides about all slices of a family. Those of others and of an earlier Service of the name are in nobody's way: they
/// are deleted.
pub(super) fn pack<'a>(
    view: &'a View,
    family: &str,
    held: Vec<&'a HeldSlice>,
    groups: Vec<Group<'a>>,
) -> Result<Packed<'a>, WireError> {
    let service = &view.service;
    let labels = draft::labels(service);
    let known = OnceCell::new();
    let mut packed = Packed::default();
    let mut by_ports: BTreeMap<Ports, Vec<&HeldSlice>> = BTreeMap::new();
    let existing = held.len();
    for slice in held {
        if slice.is_owned_by(&SERVICES, &service.metadata) {
            by_ports.entry(slices::key_of(&slice.slice.ports)).or_default().push(slice);
        } else {
            packed.delete.push(slice);
        }
    }
    for group in groups {
        let slices = by_ports.remove(&group.key).unwrap_or_default();
        Packing { view, family, labels: &labels, known: &known, packed: &mut packed }.group(slices, group)?;
    }
    for held in by_ports.into_values().flatten() {
        for seen in held.seen() {
            packed.note(since_it_ended(view, &seen?));
        }
        packed.delete.push(held);
    }
    if packed.delete.len() == existing && packed.create.is_empty() {
        packed.keep_a_placeholder(family, &labels, service);
    }
    Ok(packed)
}

/// Packs one group.
struct Packing<'p, 'a> {
    view: &'a View,
    family: &'p str,
    labels: &'p Labels,
    known: &'p OnceCell<HashMap<Cow<'a, str>, Option<bool>>>,
    packed: &'p mut Packed<'a>,
}

impl<'a> Packing<'_, 'a> {
    fn group(mut self, slices: Vec<&'a HeldSlice>, mut group: Group<'a>) -> Result<(), WireError> {
        self.packed.tally.endpoints += group.wanted.len();
        self.packed.tally.ideal += group.wanted.len().div_ceil(self.view.settings.max_per_slice);
        let mut update = Vec::new();
        let mut unchanged = Vec::new();
        for held in slices {
            match self.keep(held, &mut group)? {
                Kept::All => unchanged.push(held),
                Kept::None => self.packed.delete.push(held),
                Kept::Changed(draft) => update.push((held, draft)),
            }
        }
        let missing = group.wanted.into_iter().filter(|wanted| wanted.is_missing);
        let mut left = missing.map(|wanted| self.place(wanted)).collect::<Result<VecDeque<_>, _>>()?;
        self.packed.tally.added += left.len();
        // Where something is written anyway.
        update
            .sort_by_key(|(held, draft)| (Reverse(draft.endpoints.len()), held.slice.metadata.name.clone()));
        for (_, draft) in &mut update {
            self.fill(draft, &mut left);
        }
        while !left.is_empty() {
            if let Some(at) = self.room_for(left.len(), &unchanged) {
                let held = unchanged.remove(at);
                let mut draft = Draft::of(held)?;
                self.fill(&mut draft, &mut left);
                update.push((held, draft));
            } else {
                let mut draft =
                    Draft { family: self.family.into(), ports: group.ports.clone(), endpoints: Vec::new() };
                self.fill(&mut draft, &mut left);
                self.packed.create.push(draft);
            }
        }
        self.packed.update.extend(update);
        self.packed.unchanged.extend(unchanged);
        Ok(())
    }

    /// Takes those of the wanted endpoints that the slice holds.
    fn keep(&mut self, held: &'a HeldSlice, group: &mut Group<'a>) -> Result<Kept<'a>, WireError> {
        let service = &self.view.service;
        let mut stay = Vec::with_capacity(held.len);
        let (mut kept, mut changed) = (0, false);
        for seen in held.seen() {
            let seen = seen?;
            // One that is held twice is wanted once.
            let wanted = group.find(service, self.family, &seen);
            stay.push(wanted);
            let Some(wanted) = wanted else {
                self.packed.note(since_it_ended(self.view, &seen));
                continue;
            };
            kept += 1;
            changed |= !wanted.is_shown(service, &seen);
            if seen.conditions.serving != Some(wanted.pod.is_ready()) {
                self.packed.note(wanted.since());
            }
        }
        self.packed.tally.removed += held.len - kept;
        changed |= kept != held.len;
        if changed && kept == 0 {
            return Ok(Kept::None);
        }
        if !changed && !draft::is_relabeled(&held.slice.metadata.labels, self.labels) {
            return Ok(Kept::All);
        }
        let placed = held.endpoints()?.iter().zip(stay).filter_map(|(placed, wanted)| {
            Some(Placed { endpoint: wanted?.endpoint(service, self.family), held: Some(placed) })
        });
        Ok(Kept::Changed(Draft { endpoints: placed.collect(), ..Draft::empty_of(held) }))
    }

    fn place(&mut self, wanted: Wanted<'a>) -> Result<Placed<'a>, WireError> {
        let known = match self.known.get() {
            Some(known) => known,
            None => self.known.get_or_init({
                let known = known(self.view)?;
                || known
            }),
        };
        // One that only goes to another slice has not changed.
        if known.get(&*wanted.pod.metadata.uid.to_str()) != Some(&Some(wanted.pod.is_ready())) {
            self.packed.note(wanted.since());
        }
        Ok(Placed { endpoint: wanted.endpoint(&self.view.service, self.family), held: None })
    }

    fn fill(&self, draft: &mut Draft<'a>, left: &mut VecDeque<Placed<'a>>) {
        let room = self.view.settings.max_per_slice.saturating_sub(draft.endpoints.len()).min(left.len());
        draft.endpoints.extend(left.drain(..room));
    }

    /// The slice that these endpoints all fit into and leave least room in. A full slice's worth gets a slice of its own.
    fn room_for(&self, endpoints: usize, slices: &[&HeldSlice]) -> Option<usize> {
        let max = self.view.settings.max_per_slice;
        if endpoints >= max {
            return None;
        }
        let fitting = slices.iter().enumerate().filter(|(_, held)| held.len + endpoints <= max);
        fitting.min_by_key(|(_, held)| Reverse(held.len)).map(|(at, _)| at)
    }
}

/// The pods that have endpoints in any slice, by UID, and whether these serve.
fn known(view: &View) -> Result<HashMap<Cow<'_, str>, Option<bool>>, WireError> {
    let mut known = HashMap::default();
    for seen in view.slices.iter().flat_map(HeldSlice::seen) {
        let seen = seen?;
        known.extend(seen.target.map(|target| (target.uid, seen.conditions.serving)));
    }
    Ok(known)
}

/// When the pod of an endpoint ended, if that is what happened to it.
fn since_it_ended(view: &View, seen: &EncodedEndpoint<'_>) -> Option<Time> {
    let target = seen.target.as_ref()?;
    let at = view.pods.binary_search_by(|pod| pod.metadata.name.as_str().cmp(&target.name)).ok()?;
    let pod = &view.pods[at];
    let has_ended = pod.metadata.uid == *target.uid && pod.is_finished();
    if has_ended && Some(pod.is_ready()) != seen.conditions.serving {
        pod.condition("Ready").and_then(|ready| ready.last_transition_time)
    } else {
        None
    }
}

/// What a slice keeps of its endpoints.
enum Kept<'a> {
    /// All, as they are.
    All,
    /// Nothing.
    None,
    /// Something, or all with changes, or under other labels.
    Changed(Draft<'a>),
}

impl<'a> Packed<'a> {
    fn note(&mut self, since: Option<Time>) {
        self.since = self.since.into_iter().chain(since).min();
    }

    /// A Service without endpoints has one empty slice, by which others see that it has been looked at.
    fn keep_a_placeholder(&mut self, family: &str, labels: &Labels, service: &Service) {
        let is_placeholder = |held: &HeldSlice| {
            held.is_empty()
                && held.slice.ports.is_empty()
                && held.is_owned_by(&SERVICES, &service.metadata)
                && held.slice.metadata.labels == *labels
        };
        match self.delete.as_slice() {
            [only] if is_placeholder(only) => self.unchanged.append(&mut self.delete),
            _ => {
                self.create.push(Draft { family: family.into(), ports: Vec::new(), endpoints: Vec::new() });
            }
        }
    }

    /// Rewrites slices that would be deleted instead of making new ones.
    pub(super) fn settle(&mut self, service: &Service) {
        let (mut reusable, gone): (Vec<&'a HeldSlice>, Vec<&'a HeldSlice>) = std::mem::take(&mut self.delete)
            .into_iter()
            .partition(|held| held.is_owned_by(&SERVICES, &service.metadata));
        reusable.reverse();
        while !self.create.is_empty()
            && let Some(held) = reusable.pop()
        {
            self.update.push((held, self.create.remove(0)));
        }
        reusable.reverse();
        self.delete = reusable;
        self.delete.extend(gone);
    }

    /// What all this comes to.
    pub(super) fn count(&self) -> Count {
        let made_or_rewritten = self.create.len() + self.update.len();
        Count {
            // The slice that a Service without endpoints has is as it should be.
            ideal: self.tally.ideal.max(1),
            slices: made_or_rewritten + self.unchanged.len(),
            written: made_or_rewritten + self.delete.len(),
            ..self.tally
        }
    }

    /// Whether anything is written.
    pub(super) fn is_change(&self) -> bool {
        !(self.create.is_empty() && self.update.is_empty() && self.delete.is_empty())
    }

    /// Moves those of the unchanged slices that `stays` does not accept to those that are written.
    pub(super) fn reopen(
        &mut self,
        mut stays: impl FnMut(&HeldSlice) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        for held in std::mem::take(&mut self.unchanged) {
            if stays(held)? {
                self.unchanged.push(held);
            } else {
                self.update.push((held, Draft::of(held)?));
            }
        }
        Ok(())
    }

    /// All endpoints that are written.
    pub(super) fn to_write(&self) -> impl Iterator<Item = &Endpoint> {
        let drafts = self.create.iter().chain(self.update.iter().map(|(_, draft)| draft));
        drafts.flat_map(|draft| &draft.endpoints).map(|placed| &placed.endpoint)
    }

    /// All endpoints that are written.
    pub(super) fn written(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        let drafts = self.create.iter_mut().chain(self.update.iter_mut().map(|(_, draft)| draft));
        drafts.flat_map(|draft| &mut draft.endpoints).map(|placed| &mut placed.endpoint)
    }
}
