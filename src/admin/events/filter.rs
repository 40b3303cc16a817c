//! Which events a reader wants.

use std::collections::BTreeSet;

use super::record::{LogEvent, ObjectRef, RARE, Severity};
use crate::admin::proto;

/// A compiled filter. The default lets everything through.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Permanent names; `None` for any.
    pub(crate) controllers: Option<BTreeSet<&'static str>>,
    /// A bit per type; `None` for any.
    pub(crate) types: Option<u32>,
    /// Namespaces; `None` for any.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    /// Objects; empty for any.
    pub(crate) objects: Vec<proto::ObjectReference>,
    /// At least this severe.
    pub(crate) min_severity: Option<Severity>,
}

impl Filter {
    /// Whether the reader wants the event.
    pub fn matches(&self, event: &LogEvent) -> bool {
        self.min_severity.is_none_or(|least| event.severity >= least)
            && self.types.is_none_or(|types| types & bit(event.body.event_type()) != 0)
            && self
                .controllers
                .as_ref()
                .is_none_or(|names| event.controller.is_some_and(|name| names.contains(name)))
            && self.namespaces.as_ref().is_none_or(|namespaces| {
                event.object.as_ref().is_some_and(|object| namespaces.contains(object.key.namespace.as_str()))
            })
            && (self.objects.is_empty()
                || event
                    .object
                    .as_ref()
                    .is_some_and(|object| self.objects.iter().any(|wanted| is_meant(wanted, object))))
    }

    /// Whether the reader wants any but rare events.
    pub(super) fn wants_frequent(&self) -> bool {
        let rare = RARE.into_iter().fold(0, |bits, each| bits | bit(each));
        self.types.is_none_or(|types| types & !rare != 0)
    }
}

/// The bit of a type.
pub(crate) fn bit(event_type: proto::EventType) -> u32 {
    1 << (event_type as u32)
}

/// Empty fields mean anything.
fn is_meant(wanted: &proto::ObjectReference, object: &ObjectRef) -> bool {
    let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
    is(&wanted.name, &object.key.name)
        && is(&wanted.namespace, &object.key.namespace)
        && is(&wanted.uid, &object.uid.to_str())
        && (wanted.resource.is_empty() || object.kind.is_some_and(|kind| kind.to_string() == wanted.resource))
}
