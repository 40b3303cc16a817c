//! root-ca-certificate-publisher-controller: every namespace has a ConfigMap `kube-root-ca.crt` with the bundle by which
//! pods verify the API server.
//!
//! Keys are namespaces. Only ConfigMaps of that name are watched. It never touches any other, and never deletes.

mod metrics;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use crate::api::kinds::{CONFIG_MAPS, NAMESPACES};
use crate::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, RoomAdapter, Watch,
};
use crate::informer::Lister;
use crate::model::Key;
use metrics::Metrics;
use view::Publisher;

/// Name of the ConfigMap.
const CONFIG_MAP: &str = "kube-root-ca.crt";
/// Restricts the watch to it.
const CONFIG_MAP_SELECTOR: &str = "metadata.name=kube-root-ca.crt";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "root-ca-certificate-publisher-controller",
    aliases: &["root-ca-cert-publisher"],
    description: "Publishes the API server's CA bundle to every namespace as the ConfigMap kube-root-ca.crt.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("root-ca-cert-publisher"),
    event_source: None,
    writes: &[Grant { group: "", resource: "configmaps", verbs: &["create", "update"] }, EVENTS_GRANT],
    build: Some(build),
};

fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let bundle = build.root_ca.clone().ok_or_else(|| {
        BuildError::Invalid(
            "there is no CA bundle to publish: set --root-ca-file, or use a kubeconfig with a certificate authority"
                .to_owned(),
        )
    })?;
    let room = Publisher {
        bundle,
        metrics: Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?,
        namespaces: Lister::new((build.store)(&NAMESPACES, None)),
        config_maps: Lister::new((build.store)(&CONFIG_MAPS, Some(CONFIG_MAP_SELECTOR))),
    };
    let namespaces = Watch {
        kind: &NAMESPACES,
        field_selector: None,
        keys: Arc::new(|delta, add| {
            if let Some(namespace) = delta.new {
                add(Key::new("", namespace.meta().name.clone()));
            }
        }),
    };
    let config_maps = Watch {
        kind: &CONFIG_MAPS,
        field_selector: Some(CONFIG_MAP_SELECTOR),
        keys: Arc::new(|delta, add| {
            // What is there from the start is looked at when its namespace is.
            if let Some(config_map) = delta.latest().filter(|_| !delta.initial) {
                add(Key::new("", config_map.meta().namespace.clone()));
            }
        }),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "root_ca_cert_publisher",
            kind: Some(&NAMESPACES),
            workers: 1,
            watches: vec![namespaces, config_maps],
            reconcile: Arc::new(RoomAdapter(room)),
        }],
    })
}
