//! Why entries leave, or stay, in words.

use super::view::{LeaseView, VersionView};
use coxswain_machinery::api::Among;
use coxswain_machinery::model::words::{names, verb};

pub(super) fn of_lease(view: &LeaseView) -> Vec<String> {
    let server = &view.server;
    let named: Vec<&str> = view.versions.iter().map(|version| version.metadata.name.as_str()).collect();
    vec![if view.is_back {
        format!("The Lease {server} is there: nothing that its API server said is taken away.")
    } else if named.is_empty() {
        format!("The Lease {server} is gone, and no StorageVersion names its API server.")
    } else {
        format!("The Lease {server} is gone: the entries of its API server go from {}.", names(named))
    }]
}

pub(super) fn of_version(view: &VersionView) -> Vec<String> {
    let VersionView { version, gone } = view;
    let entries = &version.status.storage_versions;
    if gone.is_empty() {
        return vec!["All API servers that it names have their Leases: nothing goes.".to_owned()];
    }
    let has = verb(gone.len(), "has", "have");
    let mut said = vec![format!("{} {has} no Lease: what was said by such API servers goes.", names(gone))];
    let gone = Among::of(gone);
    if entries.iter().all(|entry| gone.contains(&entry.api_server_id)) {
        said.push("Nothing is left of it then, so it is deleted.".to_owned());
    }
    said
}
