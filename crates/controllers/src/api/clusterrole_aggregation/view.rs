//! A role that aggregates, and the roles that it selects.

use std::sync::Arc;

use super::Controller;
use coxswain_machinery::api::rbac::ClusterRole;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::selector::{Selector, SelectorError};

/// The role, and whose rules it is to have.
#[derive(Debug)]
pub(super) struct View {
    pub(super) role: Arc<ClusterRole>,
    /// What each of its selectors selects, by name; never itself.
    pub(super) selected: Vec<Vec<Arc<ClusterRole>>>,
}

/// Its selectors, in order.
pub(super) fn selectors(role: &ClusterRole) -> Result<Vec<Selector>, SelectorError> {
    let all = role.aggregation_rule.iter().flat_map(|rule| &rule.cluster_role_selectors);
    all.map(Selector::compile).collect()
}

pub(super) fn observe(room: &Controller, key: &Key) -> Result<Option<View>, ObserveError> {
    let Some(role) = room.roles.get(key).filter(|role| role.aggregation_rule.is_some()) else {
        return Ok(None);
    };
    // The API server lets nobody store such a one; what comes may be a newer release's.
    let selectors =
        selectors(&role).map_err(|error| ObserveError::Retry(format!("clusterrole {key}: {error}")))?;
    let selected = selectors.iter().map(|selector| {
        let mut selected = room.roles.select("", |meta| selector.matches(&meta.labels));
        selected.retain(|each| each.metadata.name != role.metadata.name);
        selected.sort_unstable_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        selected
    });
    Ok(Some(View { selected: selected.collect(), role }))
}
