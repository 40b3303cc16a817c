//! `core/v1` Events, as far as the manager writes them, and reads those of a pod that empties a volume.
//!
//! `eventTime`, `series`, `action` and `related` belong to events of the newer API (`events.k8s.io`); they stay unset, as
//! in the original's events.

use super::core::ObjectReference;
use super::kind::{ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use crate::wire::{Str, Time, message};

kinds! {
    /// Events.
    EVENTS = ApiVersion::CORE.namespaced::<Event>("Event", "events");
}

objects! {
    Event;
}

message! {
    schema SCHEMA;

    /// An event.
    pub struct Event = "k8s.io.api.core.v1.Event" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What it is about.
        2 => involved_object: ObjectReference,
        /// For machines.
        3 => reason: Str,
        /// For people.
        4 => message: Str,
        /// Who saw it.
        5 => source: EventSource,
        /// When it happened first.
        6 => first_timestamp: Option<Time>,
        /// When it happened last.
        7 => last_timestamp: Option<Time>,
        /// How often it happened.
        8 => count: i32,
        /// `Normal` or `Warning`.
        9 => r#type: Str,
        /// The controller that reports it.
        14 => reporting_component: Str,
        /// The instance of the controller.
        15 => reporting_instance: Str,
    }

    /// Who saw an event.
    pub struct EventSource = "k8s.io.api.core.v1.EventSource" {
        /// Component.
        1 => component: Str,
        /// Node.
        2 => host: Str,
    }
}
