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
    /// Single blocks, and how many have them.
    single: BTreeMap<u64, u32>,
    /// Ranges of several blocks. They are few: nobody but people gives them.
    wide: Vec<Span>,
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
        Self { range: range.trunc(), prefix, single: BTreeMap::new(), wide: Vec::new() }
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
        let mut wide = self.wide.clone();
        wide.sort_unstable();
        let (mut covered, mut end) = (0, 0);
        for (first, last) in wide {
            let first = first.max(end);
            covered += (last + 1).saturating_sub(first);
            end = end.max(last + 1);
        }
        let single = self.single.keys().filter(|block| self.wide_over(**block).is_none()).count();
        covered + single as u64
    }

    /// The end of the wide ranges over a block, if there are any.
    fn wide_over(&self, block: u64) -> Option<u64> {
        let over = self.wide.iter().filter(|(first, last)| (*first..=*last).contains(&block));
        over.map(|(_, last)| *last).max()
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
    pub(super) fn occupy(&mut self, span: Span) {
        if span.0 == span.1 {
            *self.single.entry(span.0).or_default() += 1;
        } else {
            self.wide.push(span);
        }
    }

    /// Somebody has them no more.
    pub(super) fn release(&mut self, span: Span) {
        if span.0 == span.1 {
            if let Some(count) = self.single.get_mut(&span.0) {
                *count -= 1;
                if *count == 0 {
                    self.single.remove(&span.0);
                }
            }
        } else if let Some(at) = self.wide.iter().position(|held| *held == span) {
            self.wide.swap_remove(at);
        }
    }

    /// The first free block at `cursor` or after it, or, when there is none up to the end, from the beginning on.
    pub(super) fn free(&self, cursor: u64) -> Option<Free> {
        let count = self.count();
        let cursor = if cursor < count { cursor } else { 0 };
        let mut tries = 0;
        for (mut block, end) in [(cursor, count), (0, cursor)] {
            while block < end {
                let next = match self.wide_over(block) {
                    Some(last) => last.saturating_add(1),
                    None if self.single.contains_key(&block) => block + 1,
                    None => return Some(Free { block, tries }),
                };
                tries += next.min(end) - block;
                block = next;
            }
        }
        None
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
