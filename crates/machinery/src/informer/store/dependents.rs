//! [`Dependents`]: the objects of a store by the controllers that they name.

use std::fmt;
use std::sync::Arc;

use super::{Indexed, Store};
use crate::api::Object;
use crate::api::indexes::{BY_CONTROLLER, controller_key};
use crate::api::meta::ObjectMeta;
use crate::model::owners::ControllerKey;

/// The objects of a store by the controllers that they name. A user writes owner references, so an object depends on a controller
/// only if it is in the controller's namespace: there is no lookup by a UID alone.
pub struct Dependents<T>(Indexed<T>);

impl<T> Clone for Dependents<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Dependents<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dependents").field(&self.0.index.store).finish()
    }
}

impl<T: Object> Dependents<T> {
    /// Has `store` file its objects by their controllers. Objects that it holds are filed now.
    pub fn new(store: &Arc<Store>) -> Self {
        Self(Indexed::new(store, &BY_CONTROLLER))
    }

    /// The objects that name `controller` by kind, name and UID, in no order.
    pub fn of(&self, controller: ControllerKey<'_>) -> Vec<Arc<T>> {
        self.filed(controller, |held| controller.is_named_by(held))
    }

    /// The objects that name `controller` by its UID, under whatever kind and name, in no order.
    pub fn with_uid_of(&self, controller: ControllerKey<'_>) -> Vec<Arc<T>> {
        self.filed(controller, |held| controller.has_uid_in(held))
    }

    fn filed(&self, controller: ControllerKey<'_>, wanted: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<T>> {
        self.0.filed_if(&controller_key(controller.namespace, Some(controller.uid)), wanted)
    }

    /// The objects of a namespace that name no controller, in no order.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<T>> {
        let is_orphan = |held: &ObjectMeta| held.namespace == *namespace && held.controller().is_none();
        self.0.filed_if(&controller_key(namespace, None), is_orphan)
    }
}
