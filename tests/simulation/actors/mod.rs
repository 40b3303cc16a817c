//! Who else there is in a cluster: nodes and their kubelets, the scheduler, users, admins with their keys; and who makes trouble.
//! They act on the model directly, at once and without faults.

mod attaching;
mod authority;
mod autoscalers;
mod budgets;
mod chaos;
mod clock;
mod freeze;
mod keys;
mod nodes;
mod published;
mod quotas;
mod requests;
mod tokens;
mod users;
mod volumes;
mod wishes;

pub(crate) use attaching::{is_wanted, lists, unique_name, volumes_of, wants_volumes};
pub(crate) use authority::{BUNDLE, Files, authority};
pub(crate) use autoscalers::autoscalers;
pub(crate) use chaos::{bookmarks, chaos, mishaps};
pub(crate) use clock::WallClock;
pub(crate) use keys::keys;
pub(crate) use nodes::{Nodes, add_to, change, make_ready, renew, start_nodes};
pub(crate) use published::{BUNDLE_NAME, CLUSTER_INFO, signature};
pub(crate) use requests::{BAD, KUBELET, has, kubelet_request, permit_kubelets};
pub(crate) use tokens::{is_bootstrap, names};
pub(crate) use users::users;
pub(crate) use volumes::claims_of;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

use crate::server::Server;

/// The names of all that somebody does.
pub(crate) fn acts() -> impl Iterator<Item = &'static str> {
    let scaled = autoscalers::ACTS.iter().map(|(_, name, _)| *name);
    users::acts().chain(keys::acts()).chain(scaled)
}

/// Whether there is still trouble: afterwards actors only help what is there to become what it should be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calm(Arc<AtomicBool>);

impl Calm {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The time as fields of objects have it.
fn stamp(server: &Server) -> String {
    Timestamp::from_second(server.now().as_second()).unwrap_or_default().to_string()
}
