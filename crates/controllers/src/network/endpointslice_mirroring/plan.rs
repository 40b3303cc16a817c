//! Which slices mirror some Endpoints. Pure.
//!
//! Each subset's addresses of one family are one slice ([`demand`]). A slice that has the ports of one stays, and is
//! rewritten if something in it is other; one whose ports nobody has any more becomes that of ports that have none
//! ([`draft`] says how). In which order they are written, and which of them go on where one is refused, is said in
//! [`slice_writes`](super::super::slice_writes).

mod demand;
mod draft;

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::super::slice_writes::SliceWrites;
use super::view::{MirroredEndpoints, View};
use coxswain_machinery::api::kinds::{ENDPOINT_SLICES, ENDPOINTS};
use coxswain_machinery::model::plan::{EventSpec, Regarding, Tolerate, Verb};
use coxswain_machinery::model::slices::{HeldSlice, identity, key_of};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, WireError};

use demand::{Demand, Group};
use draft::Author;

/// What a plan comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Endpoints that there should be.
    pub(super) endpoints: usize,
    /// Slices that these would fill.
    pub(super) ideal: usize,
    /// Slices that there will be.
    pub(super) slices: usize,
    /// Endpoints that are new in their slice.
    pub(super) added: usize,
    /// Endpoints that stay in their slice and are written anew.
    pub(super) updated: usize,
    /// Endpoints that are taken out of their slice.
    pub(super) removed: usize,
    /// Addresses that are left out.
    pub(super) skipped: usize,
}

/// What is to be done, and what that comes to.
pub(super) fn plan(view: &View) -> (Plan, Count) {
    let mut plan = Plan::default();
    let count = reconcile(view, &mut plan).unwrap_or_else(|error| {
        plan.retry = Some(error.to_string());
        Count::default()
    });
    (plan, count)
}

fn reconcile(view: &View, plan: &mut Plan) -> Result<Count, WireError> {
    let Some(mirrored) = &view.mirrored else {
        plan.steps.push(Step::Each(view.slices.iter().map(delete).collect()));
        let removed = view.slices.iter().map(|held| held.len).sum();
        return Ok(Count { removed, ..Count::default() });
    };
    let demand = demand::of(mirrored, view.max_per_subset);
    let events = skipped(mirrored, &demand, view.max_per_subset);
    let mut count = Count { skipped: demand.invalid + demand.surplus, ..Count::default() };
    let author = Author { endpoints: &mirrored.endpoints };
    let matched = Matched::of(view, mirrored, demand.groups);
    matched.count(&mut count, view.max_per_subset)?;
    let namespace = &mirrored.endpoints.metadata.namespace;
    // What is to go with its Endpoints is not added to.
    let goes = mirrored.endpoints.metadata.is_deleting();
    let mut writes = SliceWrites::default();
    for group in matched.create.iter().filter(|_| !goes) {
        let key = Key::new(namespace.clone(), Str::EMPTY);
        let create = Write {
            // Whatever is made there goes with the namespace.
            tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
            ..Write::new(&ENDPOINT_SLICES, key, Verb::Create(author.create(group).into()))
        };
        writes.push(create, None, group.addresses());
    }
    for (held, group) in &matched.update {
        if author.is(held, group)? {
            continue;
        }
        let verb = Verb::Update(author.update(held, group)?.into());
        let update = Write::new(&ENDPOINT_SLICES, Key::of(&held.slice.metadata), verb);
        writes.push(update, Some(held), group.addresses());
    }
    for held in matched.delete {
        writes.push(delete(held), Some(held), std::iter::empty());
    }
    let step = writes.into_step()?;
    // Said once, with what is written for it.
    if step.is_some() || view.slices.is_empty() {
        plan.steps.extend(events.map(Step::Emit));
    }
    plan.steps.extend(step);
    Ok(count)
}

/// What becomes of the slices.
#[derive(Default)]
struct Matched<'a> {
    create: Vec<Group>,
    /// Slices with what they should hold, which they may hold already.
    update: Vec<(&'a HeldSlice, Group)>,
    delete: Vec<&'a HeldSlice>,
}

impl<'a> Matched<'a> {
    fn of(view: &'a View, mirrored: &MirroredEndpoints, mut groups: BTreeMap<demand::Place, Group>) -> Self {
        let owner = &mirrored.endpoints.metadata;
        let mut matched = Self::default();
        let mut spare: HashMap<&Str, VecDeque<(usize, &HeldSlice)>> = HashMap::default();
        for (at, held) in view.slices.iter().enumerate() {
            let place = (held.slice.address_type.clone(), key_of(&held.slice.ports));
            // Backup tools restore slices without owner references. The update adopts such a slice.
            if !(held.is_owned_by(&ENDPOINTS, owner) || draft::is_free(held)) {
                matched.delete.push(held);
            } else if let Some(group) = groups.remove(&place) {
                matched.update.push((held, group));
            } else {
                spare.entry(&held.slice.address_type).or_default().push_back((at, held));
            }
        }
        for ((family, _), group) in groups {
            let next = spare.get_mut(&family).and_then(VecDeque::pop_front);
            match next {
                Some((_, held)) => matched.update.push((held, group)),
                None => matched.create.push(group),
            }
        }
        let mut spare: Vec<(usize, &HeldSlice)> = spare.into_values().flatten().collect();
        spare.sort_unstable_by_key(|(at, _)| *at);
        matched.delete.extend(spare.into_iter().map(|(_, held)| held));
        matched
    }

    fn count(&self, count: &mut Count, max_per_subset: usize) -> Result<(), WireError> {
        let groups = self.create.iter().chain(self.update.iter().map(|(_, group)| group));
        for size in groups.map(|group| group.endpoints.len()) {
            count.endpoints += size;
            count.ideal += size.div_ceil(max_per_subset.max(1));
            count.slices += 1;
        }
        count.added += self.create.iter().map(|group| group.endpoints.len()).sum::<usize>();
        for (held, group) in &self.update {
            let kept = held
                .endpoints()?
                .iter()
                .filter_map(|(endpoint, _)| Some((endpoint, group.endpoints.get(&identity(endpoint))?)));
            let kept: Vec<_> = kept.collect();
            count.updated += kept.iter().filter(|(held, wanted)| !draft::is_mirrored(held, wanted)).count();
            count.added += group.endpoints.len().saturating_sub(kept.len());
            count.removed += held.len - kept.len();
        }
        count.removed += self.delete.iter().map(|held| held.len).sum::<usize>();
        Ok(())
    }
}

fn delete(held: &HeldSlice) -> Write {
    let meta = &held.slice.metadata;
    let verb = Verb::delete(meta.uid.clone());
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&ENDPOINT_SLICES, Key::of(meta), verb)
    }
}

/// What is to be said of addresses that are not mirrored.
fn skipped<'a>(
    mirrored: &'a MirroredEndpoints,
    demand: &Demand,
    max: usize,
) -> impl Iterator<Item = EventSpec> + use<'a> {
    let (invalid, surplus) = (demand.invalid, demand.surplus);
    let invalid = (invalid > 0).then(|| {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        ("InvalidIPAddress", message)
    });
    let surplus = (surplus > 0).then(|| {
        // As in kube-controller-manager, invalid addresses count as well.
        let skipped = surplus + demand.invalid;
        let message = format!(
            "A max of {max} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} \
             addresses were skipped"
        );
        ("TooManyAddressesToMirror", message)
    });
    let regarding = || Regarding::of(&ENDPOINTS, &mirrored.endpoints.metadata);
    invalid.into_iter().chain(surplus).map(move |(reason, message)| EventSpec {
        regarding: regarding(),
        warning: true,
        reason,
        message,
    })
}
