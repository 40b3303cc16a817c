//! Which controllers there are, by the registry.

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::Descriptor;

/// The controllers that are built, all of which run by default.
pub(crate) fn built() -> impl Iterator<Item = &'static Descriptor> {
    REGISTRY.iter().filter(|row| row.build.is_some())
}

/// The flag with which a manager, of either kind, runs all of them and no others.
pub(crate) fn all_built() -> String {
    let names: Vec<&str> = built().map(|row| row.name).collect();
    format!("--controllers={}", names.join(","))
}
