//! What is known of a ServiceCIDR, and of the addresses that hang on it. Decides nothing.

use std::net::IpAddr;
use std::sync::Arc;

use super::{ALLOCATOR, Controller, FINALIZER, MANAGED_BY, address_of, gives_out, ranges};
use crate::live_reads::SERVICE_ADDRESSES;
use coxswain_machinery::api::kinds::IP_ADDRESSES;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::networking::ServiceCidr;
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// A ServiceCIDR.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) cidr: Arc<ServiceCidr>,
    /// If it is being deleted: the addresses in its ranges that the allocators have given out, in order. Those of the
    /// cache are enough to keep it; it is not let go but by those that are there now.
    pub(super) addresses: Vec<IpAddr>,
    /// If it is being deleted: all others, by name.
    pub(super) others: Vec<Arc<ServiceCidr>>,
    /// Whether the addresses were read live. What the cache has not shown may go without its telling.
    pub(super) is_live: bool,
}

/// Nothing is planned for a failure: there is nowhere to write it down.
pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let Some(cidr) = room.cidrs.get(key) else {
        return Ok(Observation::Nothing);
    };
    let mut view = View { cidr, addresses: Vec::new(), others: Vec::new(), is_live: false };
    if !view.cidr.metadata.is_deleting() {
        return Ok(Observation::View(view));
    }
    view.others = room.cidrs.list().into_iter().filter(|other| other.metadata.name != key.name).collect();
    view.others.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let own = ranges(&view.cidr);
    let cached = room.addresses.list();
    view.addresses = given_out(cached.iter().map(|address| &address.metadata), &own);
    let is_held = view.cidr.metadata.finalizers.iter().any(|held| held == FINALIZER);
    if !is_held || super::plan::heirs(&view).is_none() {
        return Ok(Observation::View(view));
    }
    match read.list(&IP_ADDRESSES, &Str::EMPTY) {
        None => Ok(Observation::Needs(vec![SERVICE_ADDRESSES.of(Read::List(&IP_ADDRESSES, Str::EMPTY))])),
        Some(Err(error)) => Err(ObserveError::Retry(error.to_string())),
        Some(Ok(live)) => {
            let live = live.complete().map_err(|error| ObserveError::Retry(error.to_string()))?;
            view.addresses = given_out(live.iter().map(|address| address.meta()), &own);
            view.is_live = true;
            Ok(Observation::View(view))
        }
    }
}

/// The addresses in these ranges that the allocators have given out, in order.
fn given_out<'a>(addresses: impl Iterator<Item = &'a ObjectMeta>, ranges: &[ipnet::IpNet]) -> Vec<IpAddr> {
    let by_allocators =
        |address: &&ObjectMeta| address.labels.get(MANAGED_BY).is_some_and(|manager| *manager == ALLOCATOR);
    let mut given_out: Vec<IpAddr> = addresses
        .filter(by_allocators)
        .filter_map(address_of)
        .filter(|address| gives_out(ranges, *address))
        .collect();
    given_out.sort_unstable();
    given_out
}
