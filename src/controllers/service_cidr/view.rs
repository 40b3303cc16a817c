//! What is known of a ServiceCIDR, and of the addresses that hang on it. Decides nothing.

use std::net::IpAddr;
use std::sync::Arc;

use super::{ALLOCATOR, Controller, MANAGED_BY, address_of, contains, ranges};
use crate::api::networking::ServiceCidr;
use crate::model::{Failure, Key};

/// A ServiceCIDR.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) cidr: Arc<ServiceCidr>,
    /// If it is being deleted: the addresses in its ranges that the allocators have given out, in order.
    pub(super) addresses: Vec<IpAddr>,
    /// If it is being deleted: all others, by name.
    pub(super) others: Vec<Arc<ServiceCidr>>,
}

/// Nothing is planned for a failure: there is nowhere to write it down.
pub(super) fn observe(room: &Controller, key: &Key, failures: &[Failure]) -> Option<View> {
    let cidr = room.cidrs.get(key).filter(|_| failures.is_empty())?;
    let mut view = View { cidr, addresses: Vec::new(), others: Vec::new() };
    if !view.cidr.metadata.is_deleting() {
        return Some(view);
    }
    let own = ranges(&view.cidr);
    let given_out = room.addresses.list().into_iter().filter(|address| {
        address.metadata.labels.get(MANAGED_BY).is_some_and(|manager| *manager == ALLOCATOR)
    });
    view.addresses = given_out
        .filter_map(|address| address_of(&address))
        .filter(|address| contains(&own, *address))
        .collect();
    view.addresses.sort_unstable();
    view.others = room.cidrs.list().into_iter().filter(|other| other.metadata.name != key.name).collect();
    view.others.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Some(view)
}
