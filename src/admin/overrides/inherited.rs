//! Overrides that a new leader inherits from replicas that are all gone, as after an earlier installation.

use jiff::Timestamp;

use super::entry::Order;
use super::set::OverrideSet;

/// The overrides in force that are older than each running replica, for people; `None` if there are none. `started` are the
/// times when the running replicas started.
pub fn inherited(
    set: &OverrideSet,
    started: impl IntoIterator<Item = Timestamp>,
    now: Timestamp,
) -> Option<String> {
    let first = started.into_iter().min()?;
    let old = set.entries().filter(|(_, entry)| entry.is_in_force(now) && entry.time < first);
    let lines: Vec<String> = old
        .map(|(name, entry)| {
            let order = if entry.order == Order::Enabled { "enabled" } else { "disabled" };
            format!("{name} ({order} by {:?} at {})", entry.user, entry.time)
        })
        .collect();
    (!lines.is_empty()).then(|| {
        let overrides = lines.join(", ");
        format!(
            "overrides that are older than every running replica are active: {overrides}; use coxswain reset NAME to remove an override \
             that is no longer needed"
        )
    })
}
