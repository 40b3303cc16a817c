//! Why entries leave, or stay, in words.

use super::view::{LeaseView, VersionView};
use coxswain_machinery::api::Among;
use coxswain_machinery::model::words::{names, verb};

pub(super) fn of_lease(view: &LeaseView) -> Vec<String> {
    let server = &view.server;
    let named: Vec<&str> = view.versions.iter().map(|version| version.metadata.name.as_str()).collect();
    vec![if view.is_back {
        format!("The Lease {server} exists; the entries of its API server are kept.")
    } else if named.is_empty() {
        format!("The Lease {server} no longer exists, and no StorageVersion has an entry of its API server.")
    } else {
        format!(
            "The Lease {server} no longer exists; the entries of its API server are removed from {}.",
            names(named)
        )
    }]
}

pub(super) fn of_version(view: &VersionView) -> Vec<String> {
    let VersionView { version, gone } = view;
    let entries = &version.status.storage_versions;
    if gone.is_empty() {
        return vec!["Every API server in the status has a Lease; all entries are kept.".to_owned()];
    }
    let has = verb(gone.len(), "has", "have");
    let mut said = vec![format!(
        "{} {has} no Lease; the entries of API servers without a Lease are removed.",
        names(gone)
    )];
    let gone = Among::of(gone);
    if entries.iter().all(|entry| gone.contains(&entry.api_server_id)) {
        said.push("No entry remains, so the StorageVersion is deleted.".to_owned());
    }
    said
}
