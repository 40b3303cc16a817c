//! How many addresses Endpoints may hold, for every change of one is sent to every node with all the others (KEP-752).

use coxswain_machinery::api::endpoints::EndpointAddress;
use coxswain_machinery::model::subsets::Subset;

/// Addresses that Endpoints hold at most.
pub(super) const CAPACITY: usize = 1000;

/// Cuts down to [`CAPACITY`], and says whether that was necessary. Addresses that are ready are given room first, those that
/// are not what is left of it.
pub(super) fn truncate(subsets: &mut Vec<Subset>) -> bool {
    if subsets.iter().map(Subset::len).sum::<usize>() <= CAPACITY {
        return false;
    }
    let left = fit(subsets.iter_mut().map(|subset| &mut subset.ready).collect(), CAPACITY);
    fit(subsets.iter_mut().map(|subset| &mut subset.not_ready).collect(), left);
    // The server takes no subset that has no address.
    subsets.retain(|subset| !subset.is_empty());
    true
}

/// Cuts the ends of the lists off, so that together they fit into the room; how much of it they leave.
fn fit(lists: Vec<&mut Vec<EndpointAddress>>, room: usize) -> usize {
    let lengths: Vec<usize> = lists.iter().map(|list| list.len()).collect();
    let kept = quotas(&lengths, room);
    let taken: usize = kept.iter().sum();
    lists.into_iter().zip(kept).for_each(|(list, kept)| list.truncate(kept));
    room - taken
}

/// How many of each list stay: all, where the room is enough for all; else as large a part of each as the room is of them
/// all. Parts are rounded up, and what that takes too much is missing at the end.
fn quotas(lengths: &[usize], room: usize) -> Vec<usize> {
    let needed = lengths.iter().sum::<usize>().max(room).max(1);
    let mut end = 0;
    let part = |length: &usize| {
        let begin = end;
        end = room.min(begin + (length * room).div_ceil(needed));
        end - begin
    };
    lengths.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::quotas;

    #[test]
    fn each_list_keeps_its_part_of_the_room() {
        for (lengths, room, kept) in [
            (vec![], 5, vec![]),
            (vec![0, 0], 0, vec![0, 0]),
            (vec![2, 3], 5, vec![2, 3]),
            (vec![2, 3], 9, vec![2, 3]),
            (vec![2, 3], 0, vec![0, 0]),
            (vec![6, 2], 4, vec![3, 1]),
            // 3.75, 2.5 and 3.75 of ten.
            (vec![6, 4, 6], 10, vec![4, 3, 3]),
            (vec![1, 1, 1, 1], 2, vec![1, 1, 0, 0]),
            (vec![0, 9, 0, 9], 9, vec![0, 5, 0, 4]),
        ] {
            assert_eq!(quotas(&lengths, room), kept, "{lengths:?} in {room}");
        }
    }

    proptest! {
        #[test]
        fn the_room_is_filled_and_fairly(lengths in prop::collection::vec(0..50_usize, 0..8), room in 0..200_usize) {
            let kept = quotas(&lengths, room);
            let total: usize = lengths.iter().sum();
            prop_assert_eq!(kept.iter().sum::<usize>(), total.min(room));
            for (length, kept) in lengths.iter().zip(&kept) {
                prop_assert!(kept <= length);
                prop_assert!(kept * total.max(room) < length * room + total.max(room).max(1), "no more than rounded up");
            }
        }
    }
}
