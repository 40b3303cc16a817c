//! Which events a reader wants.

use std::cell::OnceCell;
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
    /// Objects, whose empty fields mean anything; empty for any.
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
                // A key without a kind, or of a kind without namespaces, may have another text as its namespace, such as an API group.
                event.object.as_ref().is_some_and(|object| {
                    object.kind.is_some_and(|kind| kind.namespaced)
                        && namespaces.contains(object.key.namespace.as_str())
                })
            })
            && (self.objects.is_empty() || event.object.as_ref().is_some_and(|object| self.names(object)))
    }

    /// Whether one of the references means the object. Its texts are made once at most, and only if they are needed.
    fn names(&self, object: &ObjectRef) -> bool {
        let (uid, kind) = (OnceCell::new(), OnceCell::new());
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        self.objects.iter().any(|wanted| {
            is(&wanted.name, &object.key.name)
                && is(&wanted.namespace, &object.key.namespace)
                && (wanted.uid.is_empty() || *wanted.uid == **uid.get_or_init(|| object.uid.to_str()))
                && (wanted.resource.is_empty()
                    || *kind.get_or_init(|| object.kind.map(ToString::to_string).unwrap_or_default())
                        == wanted.resource)
        })
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
