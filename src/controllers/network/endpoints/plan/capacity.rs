//! How many addresses Endpoints may hold, for every change of one is sent to every node with all the others (KEP-752).

use crate::api::endpoints::EndpointAddress;
use crate::model::subsets::Subset;

/// Addresses that Endpoints hold at most.
pub(super) const CAPACITY: usize = 1000;

/// Cuts down to [`CAPACITY`], and says whether that was necessary. Addresses that are ready stay before those that are
/// not; of those of which not all can stay, each subset keeps its share.
pub(super) fn truncate(subsets: &mut Vec<Subset>) -> bool {
    let ready: usize = subsets.iter().map(|subset| subset.ready.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready.len()).sum();
    if ready + not_ready <= CAPACITY {
        return false;
    }
    if ready > CAPACITY {
        share(subsets.iter_mut().map(|subset| &mut subset.ready), ready, CAPACITY);
        for subset in subsets.iter_mut() {
            subset.not_ready.clear();
        }
    } else {
        share(subsets.iter_mut().map(|subset| &mut subset.not_ready), not_ready, CAPACITY - ready);
    }
    // The server takes no subset that has no address.
    subsets.retain(|subset| !subset.is_empty());
    true
}

/// Leaves `room` of `total` addresses, in each list its share, rounded up; what is too much is the last ones' loss.
fn share<'a>(lists: impl Iterator<Item = &'a mut Vec<EndpointAddress>>, total: usize, room: usize) {
    let mut left = room;
    for list in lists {
        let keep = (list.len() * room).div_ceil(total.max(1)).min(left);
        list.truncate(keep);
        left -= list.len();
    }
}
