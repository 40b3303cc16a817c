//! What is known of a namespace's copy of the bundle.

use std::sync::Arc;

use super::CONFIG_MAP;
use coxswain_machinery::api::core::{ConfigMap, Namespace};
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::Str;

/// Reads namespaces and the ConfigMap.
pub(super) struct Publisher {
    pub(super) bundle: Str,
    pub(super) namespaces: Lister<Namespace>,
    pub(super) config_maps: Lister<ConfigMap>,
}

/// A namespace and its copy.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) namespace: Str,
    /// Whether the namespace takes new objects.
    pub(super) active: bool,
    pub(super) bundle: Str,
    pub(super) published: Option<Arc<ConfigMap>>,
}

impl Room for Publisher {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        let view = self.namespaces.get(key).map(|namespace| View {
            namespace: key.name.clone(),
            active: namespace.status.phase != "Terminating",
            bundle: self.bundle.clone(),
            published: self.config_maps.get(&Key::new(key.name.clone(), CONFIG_MAP)),
        });
        Ok(view.into())
    }

    fn plan(view: &View, _: jiff::Timestamp) -> Plan {
        super::plan::plan(view)
    }
}
