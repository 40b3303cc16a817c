//! What is known of a namespace's accounts.

use super::DEFAULT_ACCOUNT;
use coxswain_machinery::api::core::{Namespace, ServiceAccount};
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::Str;

/// Reads namespaces and accounts.
pub(super) struct Accounts {
    pub(super) namespaces: Lister<Namespace>,
    pub(super) accounts: Lister<ServiceAccount>,
}

/// A namespace, as far as this controller cares.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) namespace: Str,
    pub(super) active: bool,
    pub(super) has_account: bool,
}

impl Room for Accounts {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        let view = self.namespaces.get(key).map(|namespace| View {
            namespace: key.name.clone(),
            active: namespace.status.phase == "Active",
            has_account: self.accounts.get(&Key::new(key.name.clone(), DEFAULT_ACCOUNT)).is_some(),
        });
        Ok(view.into())
    }

    fn plan(view: &View, _: jiff::Timestamp) -> Plan {
        super::plan::plan(view)
    }
}
