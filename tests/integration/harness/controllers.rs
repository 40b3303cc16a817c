//! Which controllers there are, by the registry.

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::{DefaultState, Descriptor};
use coxswain_machinery::options::gates::TABLE;

/// Runs with a flag that tests do not give, unless they are about it: `--allocate-node-cidrs`.
const BY_FLAG: [&str; 1] = ["node-ipam-controller"];

/// The controllers that are built and run by default.
pub(crate) fn built() -> impl Iterator<Item = &'static Descriptor> {
    let runs =
        |row: &&Descriptor| row.default == DefaultState::On && !is_gated(row) && !BY_FLAG.contains(&row.name);
    REGISTRY.iter().filter(|row| row.build.is_some()).filter(runs)
}

/// Whether a controller needs a gate that is off by default.
pub(crate) fn is_gated(row: &Descriptor) -> bool {
    row.gates.iter().any(|gate| {
        let found = TABLE.iter().find(|row| row.name == *gate);
        found.and_then(|row| row.history.last()).is_some_and(|today| !today.default)
    })
}

/// The flag with which a manager, of either kind, runs all of them and no others.
pub(crate) fn all_built() -> String {
    let names: Vec<&str> = built().map(|row| row.name).collect();
    format!("--controllers={}", names.join(","))
}
