//! Counts what a quota limits, and decides whether its status must be written. Pure.
//!
//! Everything is counted anew from the objects; what was counted before is kept only of what can't be counted now. The
//! status is written over the quota as it was seen: if admission has charged something meanwhile, the API server refuses,
//! and it is counted again.

mod scopes;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::measure::measures;
use super::memory::Recount;
use super::view::View;
use coxswain_machinery::api::kinds::RESOURCE_QUOTAS;
use coxswain_machinery::api::quota::ResourceQuota;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Quantities, Str, WireError, path};

pub(super) use scopes::volume_attributes_classes;
use usage::{Count, Usage};
pub(super) use usage::{storage, storage_class, takes};

/// How long after its status was written, here or by admission, a quota is counted once more: what admission had charged by
/// then is stored, or will never be.
const COUNT_AGAIN: Duration = Duration::from_secs(5);

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let quota = &view.quota;
    let mut plan = Plan::default();
    if view.recount == Some(Recount::Late) {
        plan.look_again_after(COUNT_AGAIN);
        return plan;
    }
    let usage = Usage::of(view, now);
    let mut used: BTreeMap<&Str, Str> = BTreeMap::new();
    for (name, _) in quota.spec.hard.iter() {
        let before = quota.status.used.get(name);
        match usage.count(name, &measures(name)) {
            Count::Total(total) => {
                // An amount that is as it was stays as it was written.
                let same = before.filter(|before| amount(before).is_some_and(|held| held.equals(total)));
                used.insert(name, same.cloned().unwrap_or_else(|| Str::interned(&total.to_string())));
                continue;
            }
            Count::NotYet => {
                plan.retry = Some(format!("{name} cannot be counted yet: its cache is not synced"));
            }
            // The quota is counted again when the resource is served.
            Count::NotServed | Count::Unknown => {}
        }
        if let Some(before) = before {
            used.insert(name, before.clone());
        }
    }
    if let Some(after) = usage.changes_after {
        plan.look_again_after(after);
    }
    let used: Quantities = used.iter().map(|(name, amount)| (name.as_str(), amount.as_str())).collect();
    if same_amounts(&used, &quota.status.used) && same_amounts(&quota.spec.hard, &quota.status.hard) {
        return plan;
    }
    match status(quota, &used) {
        Ok(object) => {
            let verb = Verb::Update(object.into());
            let mut write = Write::new(&RESOURCE_QUOTAS, Key::of(&quota.metadata), verb).on("status");
            write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
            plan.steps.push(Step::Write(write));
            // A webhook may undo the write. Then the next change or resync counts again.
            plan.recheck_after = Some(COUNT_AGAIN);
        }
        Err(error) => plan.retry = Some(format!("decode ResourceQuota: {error}")),
    }
    plan
}

/// The quota with a status that says so.
fn status(quota: &ResourceQuota, used: &Quantities) -> Result<Vec<u8>, WireError> {
    let (hard_path, used_path) = (path!(ResourceQuota, status.hard), path!(ResourceQuota, status.used));
    let mut edits = vec![Edit::Clear(hard_path), Edit::Clear(used_path)];
    for (path, amounts) in [(hard_path, &quota.spec.hard), (used_path, used)] {
        let entries = amounts.iter().map(|(name, amount)| Quantities::entry(name, amount));
        edits.extend(entries.map(|entry| Edit::Push(path, entry)));
    }
    edit(&quota.raw, &edits)
}

fn amount(text: &str) -> Option<Quantity> {
    text.parse().ok()
}

/// Whether both name the same resources and as much of each, in whatever form.
pub(super) fn same_amounts(one: &Quantities, other: &Quantities) -> bool {
    let same = |((name, amount), (other_name, other)): ((&Str, &Str), (&Str, &Str))| {
        name == other_name && (amount == other || is_as_much(amount, other))
    };
    one.len() == other.len() && one.iter().zip(other.iter()).all(same)
}

fn is_as_much(one: &str, other: &str) -> bool {
    matches!((amount(one), amount(other)), (Some(one), Some(other)) if one.equals(other))
}
