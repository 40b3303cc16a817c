//! A range of the cluster, cut into blocks of one size, of which each node gets one. Pure.
//!
//! What nodes have is counted, not marked: ranges that somebody gave by hand may overlap, and a block is free when nobody has it
//! any more.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Blocks by their numbers, the first and the last.
pub(super) type Span = (u64, u64);

/// The range and who has what of it.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    range: IpNet,
    /// The prefix length of a block.
    prefix: u8,
    /// Runs of blocks that somebody has, by their first block. They do not overlap, and adjacent runs have different counts.
    taken: BTreeMap<u64, Run>,
    /// The number of blocks in these runs.
    used: u64,
}

/// Neighboring blocks with the same number of owners.
#[derive(Clone, Copy, Debug)]
struct Run {
    last: u64,
    count: u32,
}

/// A block that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) block: u64,
    /// How many were looked at before it.
    pub(super) tries: u64,
}

impl Blocks {
    /// A range with blocks of a prefix length that is not shorter than its own.
    pub(super) fn new(range: IpNet, prefix: u8) -> Self {
        Self { range: range.trunc(), prefix, taken: BTreeMap::new(), used: 0 }
    }

    /// The range that is cut.
    pub(super) fn range(&self) -> IpNet {
        self.range
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        1_u64.checked_shl(u32::from(self.prefix.saturating_sub(self.range.prefix_len()))).unwrap_or(u64::MAX)
    }

    /// How many are taken.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// The last block of the run that a block is in, if it is taken.
    fn run_over(&self, block: u64) -> Option<u64> {
        let (_, run) = self.taken.range(..=block).next_back()?;
        Some(run.last).filter(|last| *last >= block)
    }

    /// The blocks that a range touches: those in it, or the one that it lies in. `None` if it is none of this range.
    pub(super) fn span(&self, range: &IpNet) -> Option<Span> {
        if range.max_prefix_len() != self.range.max_prefix_len() {
            return None;
        }
        if range.prefix_len() <= self.range.prefix_len() {
            return range.contains(&self.range).then(|| (0, self.count() - 1));
        }
        if !self.range.contains(range) {
            return None;
        }
        let offset = bits(range.network()) - bits(self.range.network());
        let size = 1_u128 << (range.max_prefix_len() - range.prefix_len());
        let block = |at: u128| u64::try_from(at >> self.shift()).ok();
        block(offset).zip(block(offset + (size - 1)))
    }

    /// Bits of addresses within a block.
    fn shift(&self) -> u8 {
        self.range.max_prefix_len() - self.prefix
    }

    /// Somebody has these.
    pub(super) fn occupy(&mut self, (first, last): Span) {
        self.split_around((first, last));
        let (mut next, mut gaps) = (first, Vec::new());
        for (start, run) in self.taken.range_mut(first..=last) {
            if next < *start {
                gaps.push((next, *start - 1));
            }
            run.count = run.count.saturating_add(1);
            next = run.last.saturating_add(1);
        }
        if next <= last {
            gaps.push((next, last));
        }
        for (first, last) in gaps {
            self.used += last - first + 1;
            self.taken.insert(first, Run { last, count: 1 });
        }
        self.join_around((first, last));
    }

    /// Somebody has them no more.
    pub(super) fn release(&mut self, (first, last): Span) {
        self.split_around((first, last));
        let runs: Vec<u64> = self.taken.range(first..=last).map(|(start, _)| *start).collect();
        for start in runs {
            let Some(run) = self.taken.get_mut(&start) else { continue };
            run.count = run.count.saturating_sub(1);
            if run.count == 0 {
                self.used -= run.last - start + 1;
                self.taken.remove(&start);
            }
        }
        self.join_around((first, last));
    }

    /// Splits the runs that reach over either end.
    fn split_around(&mut self, (first, last): Span) {
        for at in [first, last.saturating_add(1)] {
            let Some((_, run)) = self.taken.range_mut(..at).next_back() else { continue };
            if run.last >= at {
                let tail = *run;
                run.last = at - 1;
                self.taken.insert(at, tail);
            }
        }
    }

    /// Joins neighboring runs with the same count, within and at either end.
    fn join_around(&mut self, (first, last): Span) {
        let starts: Vec<u64> =
            self.taken.range(first..=last.saturating_add(1)).map(|(start, _)| *start).collect();
        for start in starts {
            let Some(run) = self.taken.get(&start).copied() else { continue };
            let is_joined = match self.taken.range_mut(..start).next_back() {
                Some((_, before)) if before.last + 1 == start && before.count == run.count => {
                    before.last = run.last;
                    true
                }
                _ => false,
            };
            if is_joined {
                self.taken.remove(&start);
            }
        }
    }

    /// The first free block at `cursor` or after it, or, when there is none up to the end, from the beginning on.
    pub(super) fn free(&self, cursor: u64) -> Option<Free> {
        let count = self.count();
        let cursor = if cursor < count { cursor } else { 0 };
        let mut tries = 0;
        for (mut block, end) in [(cursor, count), (0, cursor)] {
            while block < end {
                let Some(last) = self.run_over(block) else { return Some(Free { block, tries }) };
                let next = last.saturating_add(1);
                tries += next.min(end) - block;
                block = next;
            }
        }
        None
    }

    /// Returns the number of runs.
    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.taken.len()
    }

    /// The range that a block is.
    pub(super) fn block(&self, block: u64) -> IpNet {
        let address = bits(self.range.network()) + (u128::from(block) << self.shift());
        let address = match self.range {
            // It is an address of a range of IPv4, so it has as many bits.
            IpNet::V4(_) => IpAddr::from(Ipv4Addr::from_bits(u32::try_from(address).unwrap_or(u32::MAX))),
            IpNet::V6(_) => IpAddr::from(Ipv6Addr::from_bits(address)),
        };
        IpNet::new_assert(address, self.prefix)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}
