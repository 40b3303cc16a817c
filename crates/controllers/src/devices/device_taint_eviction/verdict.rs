//! When a pod has to go for taints of devices, and for which. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use coxswain_machinery::api::resource::{
    AllocatedDevice, DeviceTaintRule, DeviceTaintSelector, DeviceToleration,
};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::{Str, Time, Uid};

/// The effect of taints that drive pods away.
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// Where a taint comes from. Rules come first, by name; then slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A rule.
    Rule { name: Str, uid: Uid },
    /// A device in a slice, and the place of the taint in its list.
    Slice { driver: Str, pool: Str, device: Str, at: usize, slice: Str },
}

/// A taint that drives pods away from a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evicting {
    pub(super) source: Source,
    pub(super) key: Str,
    pub(super) value: Str,
    /// Since when it is there. The API server fills that in.
    pub(super) since: Option<Time>,
}

/// When a pod has to go, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Not before.
    pub(super) at: Timestamp,
    /// All taints that are not tolerated for ever.
    pub(super) sources: BTreeSet<Source>,
    /// The claims on the devices that have them.
    pub(super) claims: BTreeSet<Key>,
}

impl Verdict {
    /// Whether a rule is among the reasons.
    pub(super) fn is_for(&self, rule: &Uid) -> bool {
        self.rules().any(|uid| uid == rule)
    }

    /// The rules among the reasons.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Uid> {
        self.sources.iter().filter_map(|source| match source {
            Source::Rule { uid, .. } => Some(uid),
            Source::Slice { .. } => None,
        })
    }
}

/// What comes of a taint for a pod, beside what others do.
pub(super) fn add(verdict: &mut Option<Verdict>, claim: &Key, taint: &Evicting, until: Timestamp) {
    let verdict = verdict.get_or_insert_with(|| Verdict {
        at: until,
        sources: BTreeSet::new(),
        claims: BTreeSet::new(),
    });
    verdict.at = verdict.at.min(until);
    verdict.sources.insert(taint.source.clone());
    verdict.claims.insert(claim.clone());
}

/// Until when tolerations hold off a taint; `None` is for ever. Of several times the shortest counts. A toleration of any effect
/// is none here, though the scheduler heeds it.
pub(super) fn until(taint: &Evicting, tolerations: &[DeviceToleration]) -> Option<Timestamp> {
    let mut shortest: Option<i64> = None;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let seconds = toleration.toleration_seconds?.max(0);
        shortest = Some(shortest.map_or(seconds, |earlier| earlier.min(seconds)));
    }
    let since = taint.since.map_or(Timestamp::UNIX_EPOCH, Timestamp::from);
    let time = SignedDuration::from_secs(shortest.unwrap_or(0));
    Some(since.checked_add(time).unwrap_or(Timestamp::MAX))
}

fn tolerates(toleration: &DeviceToleration, taint: &Evicting) -> bool {
    let is_of_key = toleration.key.is_empty() || toleration.key == taint.key;
    let is_of_value = match toleration.operator.as_str() {
        "Exists" => true,
        "" | "Equal" => toleration.value == taint.value,
        _ => false,
    };
    toleration.effect == NO_EXECUTE && is_of_key && is_of_value
}

/// Whether a rule selects a device. One without a selector selects none.
pub(super) fn selects(rule: &DeviceTaintRule, device: &AllocatedDevice) -> bool {
    is_selected(rule.spec.device_selector.as_deref(), &device.driver, &device.pool, &device.device)
}

/// Whether a selector selects a device.
pub(super) fn is_selected(
    selector: Option<&DeviceTaintSelector>,
    driver: &Str,
    pool: &Str,
    device: &Str,
) -> bool {
    let is = |wanted: &Option<Str>, name: &Str| wanted.as_ref().is_none_or(|wanted| wanted == name);
    selector.is_some_and(|selector| {
        is(&selector.driver, driver) && is(&selector.pool, pool) && is(&selector.device, device)
    })
}
