//! The version of the present state, or why there is none.

use jiff::Timestamp;

use super::super::migration::is_young;
use super::super::view::{Found, VersionView};
use super::named;
use super::status::{failed, only, versioned, waits};
use coxswain_machinery::model::Plan;

pub(in super::super) fn plan(view: &VersionView, now: Timestamp) -> Plan {
    let VersionView { migration, found } = view;
    let why = match found {
        Found::Unserved if is_young(migration, now) => return waits(migration),
        Found::Unserved => "resource does not exist in discovery".to_owned(),
        Found::Unfit(resource) => {
            let resource = named(resource);
            format!("resource {resource:?} does not support discovery operations: [update patch list]")
        }
        Found::Version(_, version) if is_comparable(version) => {
            return only(migration, versioned(migration, version));
        }
        Found::Version(resource, version) => {
            let resource = named(resource);
            format!(
                "latest resourceVersion for {resource} is not valid: {version:?} is not a positive number"
            )
        }
    };
    only(migration, failed(migration, why, now))
}

/// Whether a version can be compared with others: see KEP-5504.
pub(in super::super) fn is_comparable(version: &str) -> bool {
    version.starts_with(|first: char| ('1'..='9').contains(&first)) && version.parse::<u64>().is_ok()
}
