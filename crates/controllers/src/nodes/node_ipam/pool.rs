//! What is known of all ranges: who has which blocks, where the search goes on, and who waits. Nodes are the record: the pool follows
//! them as the cache shows them, and nothing is reserved. Decides nothing.

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

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Blocks that the plan gives, one of each range.
    pub(super) given: Vec<Free>,
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
    Gets(Vec<(Free, IpNet)>),
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
    /// Number of patches in a row that have failed, by node.
    failures: BTreeMap<Key, u32>,
}

#[derive(Debug)]
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

    /// What a node's own ranges are.
    pub(super) fn standing(&self, node: &Node) -> Standing {
        let held = self.held.lock();
        if !node.spec.pod_cidrs.is_empty() {
            return held.spans(node).1.map_or(Standing::Fits, Standing::Misfits);
        }
        if let Some((stranger, why)) = held.strangers.first_key_value() {
            return Standing::Held(format!("the existing node {stranger} {why}"));
        }
        let mut gets = Vec::new();
        for Ranged { blocks, cursor } in &held.ranges {
            match blocks.free(*cursor) {
                Some(free) => gets.push((free, blocks.block(free.block))),
                None => return Standing::Full(blocks.range()),
            }
        }
        Standing::Gets(gets)
    }
}

impl Held {
    /// The blocks of a node, those of each range up to the first that does not fit; and why it does not.
    fn spans(&self, node: &Node) -> (Vec<Span>, Option<String>) {
        let mut spans = Vec::new();
        for (at, text) in node.spec.pod_cidrs.iter().enumerate() {
            let Some(ranged) = self.ranges.get(at) else {
                return (
                    spans,
                    Some(format!("has the Pod CIDR {text}, and --cluster-cidr has fewer ranges")),
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
    fn commit(&self, key: &Key, note: Note) {
        let mut held = self.held.lock();
        for (ranged, given) in held.ranges.iter_mut().zip(&note.given) {
            ranged.cursor = given.block + 1;
            self.metrics.given(ranged.blocks.range(), given.tries);
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
