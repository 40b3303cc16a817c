//! The claims that were made for an owner, by entry. One pass over the claims serves all entries, because users choose the number of
//! both.

use std::sync::Arc;

use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::resource::ResourceClaim;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// Names of the claims that were made for one owner, by the names of its entries.
pub(super) struct ClaimsByEntry(HashMap<Str, Str>);

impl ClaimsByEntry {
    /// Files those of `claims` that `owner` controls. Of several claims for one entry the first by name counts.
    pub(super) fn of(
        owner: &ObjectMeta,
        kind: &Kind,
        claims: impl Iterator<Item = Arc<ResourceClaim>>,
    ) -> Self {
        // The name and the version in the reference do not matter, as in kube-controller-manager.
        let names_owner = |named: &OwnerReference| {
            let group = named.api_version.split_once('/').map_or("", |(group, _)| group);
            named.kind == kind.kind && *group == *kind.group
        };
        let mut by_entry: HashMap<Str, Str> = HashMap::default();
        for claim in claims {
            let metadata = &claim.metadata;
            let Some(entry) = metadata.annotations.get(super::ENTRY) else { continue };
            if metadata.is_controlled_by(owner) && metadata.controller().is_some_and(names_owner) {
                let first = by_entry.entry(entry.clone()).or_insert_with(|| metadata.name.clone());
                if metadata.name < *first {
                    first.clone_from(&metadata.name);
                }
            }
        }
        Self(by_entry)
    }

    /// Returns the name of the claim that was made for the entry of this name.
    pub(super) fn claim(&self, entry: &str) -> Option<Str> {
        self.0.get(entry).cloned()
    }
}
