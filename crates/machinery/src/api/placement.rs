//! What of a pod template says on which nodes its pods may run: read by who places them. See [`crate::model::fitting`].

use super::pod::PlacedBy;
use super::shape::ShapedToleration;
use crate::wire::{Labels, Str, message};

message! {
    schema SCHEMA;

    /// A template, as far as it says where its pods may run.
    pub(crate) struct PlacedTemplate = "k8s.io.api.core.v1.PodTemplateSpec" {
        2 => spec: PlacedSpec,
    }

    /// The spec of pods, as far as it says where they may run.
    pub(crate) struct PlacedSpec = "k8s.io.api.core.v1.PodSpec" {
        /// Labels that the node must have.
        7 => node_selector: Labels,
        /// The only node; any if empty.
        10 => node_name: Str,
        /// Whether they have the node's network.
        11 => host_network: bool,
        /// Which nodes are required.
        18 => affinity: Option<Box<PlacedBy>>,
        /// Taints that they tolerate.
        22 => tolerations: Vec<ShapedToleration>,
    }
}
