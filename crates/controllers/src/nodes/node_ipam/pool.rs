//! What is known of all ranges: who has which blocks, where the search goes on, and who waits. Nodes are the record: the pool follows
//! them as the cache shows them, and nothing is reserved. One plan may give blocks to several nodes. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use parking_lot::Mutex;

use super::blocks::{Blocks, Free, Span};
use super::metrics::Metrics;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::addresses::parse_range;
use coxswain_machinery::wire::Str;

/// Nodes that get blocks in one plan at most. The next plan waits until the cache shows all of them, so a late watch delays batches and not
/// single nodes.
pub(super) const BATCH: usize = 64;

/// Blocks for a node, one of each range.
pub(super) type Allocation = Vec<(Free, IpNet)>;

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Blocks that the plan gives, by the items of its writes: a node, and one block of each range.
    pub(super) given: Vec<(Key, Vec<Free>)>,
    /// Further nodes whose patches have failed.
    pub(super) failed: Vec<Key>,
    /// Nothing can be given now: it is looked at again as soon as that may have changed.
    pub(super) waits: bool,
    /// Number of patches of the node in a row that have failed.
    pub(super) failures: u32,
}

/// What a node's own ranges are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// They lie in the ranges of the cluster.
    Fits,
    /// They do not, and this is why.
    Misfits(String),
    /// It has none, because of this node, which was there before and does not fit, none is given.
    Held(String),
    /// It has none, and of the range of this number no block is left.
    Full(IpNet),
    /// It has none, and these blocks are free.
    Gets(Allocation),
}

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    held: Mutex<Held>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Held {
    ranges: Vec<Ranged>,
    /// Nodes that were there before this instance and do not fit, and why.
    strangers: BTreeMap<Str, String>,
    waiting: BTreeSet<Key>,
    /// Nodes without ranges.
    bare: BTreeSet<Key>,
    /// Number of patches in a row that have failed, by node.
    failures: BTreeMap<Key, u32>,
}

#[derive(Clone, Debug)]
struct Ranged {
    blocks: Blocks,
    /// Where the search goes on: what was given back is not given again at once.
    cursor: u64,
}

impl Pool {
    /// Of ranges of the cluster, without what is for Services.
    pub(super) fn new(ranges: Vec<Blocks>, services: &[IpNet], metrics: Metrics) -> Self {
        let ranged = ranges.into_iter().map(|mut blocks| {
            for span in services.iter().filter_map(|range| blocks.span(range)).collect::<Vec<_>>() {
                blocks.occupy(span);
            }
            metrics.begins(blocks.range(), blocks.count(), blocks.used());
            Ranged { blocks, cursor: 0 }
        });
        let held = Held {
            ranges: ranged.collect(),
            strangers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            bare: BTreeSet::new(),
            failures: BTreeMap::new(),
        };
        Self { held: Mutex::new(held), metrics }
    }

    /// A node came, changed or went; whose turn may have come by that is added.
    pub(super) fn follow(
        &self,
        old: Option<&Node>,
        new: Option<&Node>,
        is_initial: bool,
        add: &mut dyn FnMut(Key),
    ) {
        let ranges_of = |node: Option<&Node>| node.map(|node| node.spec.pod_cidrs.clone());
        if ranges_of(old) == ranges_of(new) {
            return;
        }
        let mut held = self.held.lock();
        let mut is_free = false;
        if let Some(node) = new.filter(|node| node.spec.pod_cidrs.is_empty()) {
            held.bare.insert(Key::of(&node.metadata));
        } else if let Some(node) = old.or(new) {
            held.bare.remove(&Key::of(&node.metadata));
        }
        if let Some(old) = old {
            let (spans, _) = held.spans(old);
            for (at, span) in spans.iter().enumerate() {
                self.change(&mut held.ranges[at], |blocks| blocks.release(*span));
            }
            let was_stranger = held.strangers.remove(&old.metadata.name).is_some();
            is_free = was_stranger || !spans.is_empty();
        }
        if let Some(new) = new {
            let (spans, misfit) = held.spans(new);
            for (at, span) in spans.iter().enumerate() {
                self.change(&mut held.ranges[at], |blocks| blocks.occupy(*span));
            }
            if let Some(why) = misfit.filter(|_| is_initial) {
                held.strangers.insert(new.metadata.name.clone(), why);
            }
        }
        if is_free {
            std::mem::take(&mut held.waiting).into_iter().for_each(add);
        }
    }

    fn change(&self, ranged: &mut Ranged, change: impl FnOnce(&mut Blocks)) {
        let before = ranged.blocks.used();
        change(&mut ranged.blocks);
        self.metrics.changed(ranged.blocks.range(), before, ranged.blocks.used(), ranged.blocks.count());
    }

    /// Returns the number of patches of a node in a row that have failed.
    pub(super) fn failures(&self, key: &Key) -> u32 {
        self.held.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Returns other nodes without ranges, whose last patch has not failed.
    pub(super) fn bare(&self, key: &Key) -> Vec<Key> {
        let held = self.held.lock();
        let is_next = |other: &&Key| *other != key && !held.failures.contains_key(*other);
        // A few of them may be going.
        held.bare.iter().filter(is_next).take(2 * BATCH).cloned().collect()
    }

    /// Returns blocks for so many further nodes, fewer if fewer are free. The blocks in `given` are not free any longer.
    pub(super) fn allocate(&self, given: &[(Free, IpNet)], count: usize) -> Vec<Allocation> {
        if count == 0 {
            return Vec::new();
        }
        let mut ranges = self.held.lock().ranges.clone();
        let mut allocations = Vec::new();
        let mut last = given.to_vec();
        for _ in 0..count {
            // Linear: there are at most two ranges.
            for (ranged, (free, _)) in ranges.iter_mut().zip(&last) {
                ranged.blocks.occupy((free.block, free.block));
                ranged.cursor = free.block + 1;
            }
            let Ok(allocation) = free_of_each(&ranges) else { break };
            allocations.push(allocation.clone());
            last = allocation;
        }
        allocations
    }

    /// What a node's own ranges are.
    pub(super) fn standing(&self, node: &Node) -> Standing {
        let held = self.held.lock();
        if !node.spec.pod_cidrs.is_empty() {
            return held.spans(node).1.map_or(Standing::Fits, Standing::Misfits);
        }
        if let Some((stranger, why)) = held.strangers.first_key_value() {
            return Standing::Held(format!("the existing node {stranger} {why}"));
        }
        free_of_each(&held.ranges).map_or_else(Standing::Full, Standing::Gets)
    }
}

/// Returns a free block of each range, or else the range of which none is left.
fn free_of_each(ranges: &[Ranged]) -> Result<Allocation, IpNet> {
    let free = |Ranged { blocks, cursor }: &Ranged| -> Result<_, IpNet> {
        let free = blocks.free(*cursor).ok_or(blocks.range())?;
        Ok((free, blocks.block(free.block)))
    };
    ranges.iter().map(free).collect()
}

impl Held {
    /// The blocks of a node, those of each range up to the first that does not fit; and why it does not.
    fn spans(&self, node: &Node) -> (Vec<Span>, Option<String>) {
        let mut spans = Vec::new();
        for (at, text) in node.spec.pod_cidrs.iter().enumerate() {
            let Some(ranged) = self.ranges.get(at) else {
                return (
                    spans,
                    Some(format!(
                        "has the Pod CIDR {text}; the node has more Pod CIDRs than --cluster-cidr has ranges"
                    )),
                );
            };
            let Some(range) = parse_range(text) else {
                return (spans, Some(format!("has an invalid Pod CIDR: {text:?}")));
            };
            let Some(span) = ranged.blocks.span(&range) else {
                let of = ranged.blocks.range();
                return (
                    spans,
                    Some(format!("has the Pod CIDR {text}, which is not a block of {of} (--cluster-cidr)")),
                );
            };
            spans.push(span);
        }
        (spans, None)
    }
}

impl Memory<Note> for Pool {
    fn commit_item(&self, _: &Key, note: &Note, item: usize) {
        let Some((node, given)) = note.given.get(item) else { return };
        let mut held = self.held.lock();
        held.failures.remove(node);
        for (ranged, given) in held.ranges.iter_mut().zip(given) {
            ranged.cursor = given.block + 1;
            self.metrics.given(ranged.blocks.range(), given.tries);
        }
    }

    fn commit(&self, key: &Key, note: Note) {
        let mut held = self.held.lock();
        for failed in note.failed {
            *held.failures.entry(failed).or_default() += 1;
        }
        if note.waits {
            held.waiting.insert(key.clone());
        }
        if note.failures == 0 {
            held.failures.remove(key);
        } else {
            held.failures.insert(key.clone(), note.failures);
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if matches!(ended.outcome, Outcome::Absent) {
            let mut held = self.held.lock();
            held.failures.remove(key);
        }
    }
}
