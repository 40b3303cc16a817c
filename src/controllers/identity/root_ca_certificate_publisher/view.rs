//! What is known of a namespace's copy of the bundle.

use std::sync::Arc;

use super::CONFIG_MAP;
use super::metrics::Metrics;
use crate::api::core::{ConfigMap, Namespace};
use crate::framework::{ObserveError, ReconcileEnd, Room};
use crate::informer::Lister;
use crate::model::{Failure, Key, Plan};
use crate::wire::Str;

/// Reads namespaces and the ConfigMap.
pub(super) struct Publisher {
    pub(super) bundle: Str,
    pub(super) metrics: Metrics,
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

    fn observe(&self, key: &Key, _: &[Failure]) -> Result<Option<View>, ObserveError> {
        Ok(self.namespaces.get(key).map(|namespace| View {
            namespace: key.name.clone(),
            active: namespace.status.phase != "Terminating",
            bundle: self.bundle.clone(),
            published: self.config_maps.get(&Key::new(key.name.clone(), CONFIG_MAP)),
        }))
    }

    fn plan(view: &View, _: jiff::Timestamp) -> Plan {
        super::plan::plan(view)
    }

    fn ended(&self, _: &Key, ended: ReconcileEnd<'_>) {
        self.metrics.ended(ended);
    }
}
