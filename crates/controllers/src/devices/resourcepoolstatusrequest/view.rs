//! A request, and what the caches know of the pools that it asks about. Decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Answers;
use coxswain_machinery::api::resource::{ResourceClaim, ResourcePoolStatusRequest, ResourceSlice};
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Slices by their driver.
pub(super) static BY_DRIVER: Index = Index { name: "driver", keys: by_driver };

/// A request without an answer.
#[derive(Debug)]
pub(super) struct View {
    pub(super) request: Arc<ResourcePoolStatusRequest>,
    /// The pools that it asks about, by name.
    pub(super) pools: BTreeMap<Str, Pool>,
}

/// A pool, as far as slices of its newest generation tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pool {
    pub(super) generation: i64,
    /// Slices that are there.
    pub(super) observed: usize,
    /// Slices that there are to be.
    pub(super) expected: i64,
    /// The node of all its slices, if they have the same one; empty otherwise.
    pub(super) node: Str,
    /// Its devices.
    pub(super) devices: usize,
    /// Devices that were given to claims, as often as they were.
    pub(super) allocated: usize,
}

impl Pool {
    /// Whether slices are missing.
    pub(super) fn is_incomplete(&self) -> bool {
        i64::try_from(self.observed).is_ok_and(|observed| observed < self.expected)
    }
}

/// `None` if there is nothing to answer.
pub(super) fn observe(room: &Answers, key: &Key) -> Option<View> {
    let request = room.requests.get(key).filter(|request| request.status.is_none())?;
    let driver = &request.spec.driver;
    let mut pools = pools(&room.slices.filed(driver), request.spec.pool_name.as_ref());
    if !pools.is_empty() {
        count_allocated(&mut pools, driver, &room.claims.list());
    }
    Some(View { request, pools })
}

fn pools(slices: &[Arc<ResourceSlice>], wanted: Option<&Str>) -> BTreeMap<Str, Pool> {
    let mut pools: BTreeMap<Str, Pool> = BTreeMap::new();
    for slice in slices {
        let (spec, of) = (&slice.spec, &slice.spec.pool);
        if wanted.is_some_and(|wanted| *wanted != of.name) {
            continue;
        }
        let new = || Pool {
            generation: of.generation,
            expected: of.resource_slice_count,
            node: spec.node_name.clone(),
            ..Pool::default()
        };
        let pool = pools.entry(of.name.clone()).or_insert_with(new);
        if of.generation > pool.generation {
            *pool = new();
        }
        if of.generation == pool.generation {
            pool.observed += 1;
            pool.devices += spec.devices.len();
            if pool.node != spec.node_name {
                pool.node = Str::EMPTY;
            }
        }
    }
    pools
}

fn count_allocated(pools: &mut BTreeMap<Str, Pool>, driver: &Str, claims: &[Arc<ResourceClaim>]) {
    let allocated = claims.iter().filter_map(|claim| claim.status.allocation.as_ref());
    for device in allocated.flat_map(|allocation| &allocation.devices.results) {
        if device.driver == *driver
            && let Some(pool) = pools.get_mut(&device.pool)
        {
            pool.allocated += 1;
        }
    }
}

fn by_driver(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    any.downcast_ref::<ResourceSlice>().map(|slice| slice.spec.driver.clone()).into_iter().collect()
}
