//! What was done to the overrides past the API: by somebody's hand, in the Lease.
//!
//! Each entry that a replica writes says which replica. So one that does not was written by somebody else, and so was what is
//! gone or can't be read, for replicas remove nothing. This tells an order from a slip, and has the order noticed; who
//! may write the Lease can write a replica's name into it as well (docs/security.md).

use jiff::Timestamp;

use super::entry::Order;
use super::set::OverrideSet;

/// Something that no replica did to the overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandEdit {
    /// The controller concerned; empty if the entry names none.
    pub controller: String,
    /// What was done, for people.
    pub message: String,
}

/// What was done by hand between two states of the Lease.
pub fn by_hand(before: &OverrideSet, after: &OverrideSet, now: Timestamp) -> Vec<HandEdit> {
    let mut edits = Vec::new();
    let mut add = |controller: &str, message: String| {
        edits.push(HandEdit { controller: controller.to_owned(), message });
    };
    for (name, entry) in after.entries() {
        let known = before.entry(name);
        let counts = entry.is_in_force(now) || known.is_some_and(|known| known.is_in_force(now));
        if known == Some(entry) || !entry.replica.is_empty() || !counts {
            continue;
        }
        let order = match entry.order {
            Order::Enabled => "enabled",
            Order::Disabled => "disabled",
            Order::Default => "reset to the state that the flags select",
        };
        let user = &entry.user;
        add(name, format!("the override of {name} was edited outside the admin API: {order}, user {user:?}"));
    }
    for (name, entry) in before.entries() {
        if after.entry(name).is_none() && entry.is_in_force(now) {
            add(name, format!("the override of {name} was removed outside the admin API"));
        }
    }
    for problem in after.problems().iter().filter(|problem| !before.problems().contains(problem)) {
        let (key, message) = (&problem.key, &problem.message);
        add(&problem.controller, format!("the override {key:?} has no effect: {message}"));
    }
    edits
}
