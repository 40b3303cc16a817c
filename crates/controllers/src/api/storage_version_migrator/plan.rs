//! What each loop decides. Pure.

pub(super) mod migrator;
pub(super) mod runner;
mod status;
pub(super) mod version;

use coxswain_machinery::framework::ApiResource;

/// A resource as the original's messages name it.
fn named(resource: &ApiResource) -> String {
    format!("{}/{}, Resource={}", resource.group, resource.version, resource.resource)
}
