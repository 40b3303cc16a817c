//! Zones: how many of a zone's nodes are ready, what state that is, and how fast its nodes may be tainted then. Pure.
//!
//! | ready nodes | state | nodes tainted per second |
//! |---|---|---|
//! | none, of at least one | fully disrupted | the primary rate |
//! | too few, and at least three are not | partially disrupted | the secondary rate in a large zone, none in a small one |
//! | else | normal | the primary rate |
//!
//! Where all zones are fully disrupted it is we who are cut off: nothing is tainted.

use std::time::Duration;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::model::bucket::{BucketLevel, TokenBucket};
use coxswain_machinery::wire::Str;

/// Nodes with this label do not count.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// Labels that name region and zone, those that count first.
const REGION: [&str; 2] = ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
/// So many nodes must be not ready for a zone to be partially disrupted.
const LEAST_UNREADY: usize = 3;

/// What the flags say of zones.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneRules {
    pub(super) primary: f64,
    pub(super) secondary: f64,
    /// A zone of more nodes is large.
    pub(super) large: usize,
    /// The fraction of nodes that are not ready from which on a zone is partially disrupted.
    pub(super) threshold: f32,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    Normal,
    Partial,
    Full,
}

/// Nodes of a zone that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneSize {
    pub(super) ready: usize,
    pub(super) unready: usize,
}

/// What is known of a zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Zone {
    pub(super) size: ZoneSize,
    /// As of the last look; none before the first.
    pub(super) state: Option<ZoneState>,
    /// Nodes that may be tainted per second; the primary rate before the first look.
    pub(super) rate: Option<f64>,
    pub(super) level: BucketLevel,
}

impl ZoneSize {
    pub(super) fn all(self) -> usize {
        self.ready + self.unready
    }

    pub(super) fn state(self, rules: &ZoneRules) -> ZoneState {
        let fraction = self.unready as f32 / self.all().max(1) as f32;
        if self.ready == 0 && self.unready > 0 {
            ZoneState::Full
        } else if self.unready >= LEAST_UNREADY && fraction >= rules.threshold {
            ZoneState::Partial
        } else {
            ZoneState::Normal
        }
    }

    fn rate(self, state: ZoneState, rules: &ZoneRules) -> f64 {
        match state {
            ZoneState::Normal | ZoneState::Full => rules.primary,
            ZoneState::Partial if self.all() > rules.large => rules.secondary,
            ZoneState::Partial => 0.0,
        }
    }
}

impl Zone {
    /// Takes up a state that it has now, if it is another one; `anew` if it had none while nothing was tainted anywhere.
    pub(super) fn enter(&mut self, state: ZoneState, rules: &ZoneRules, anew: bool, now: Duration) {
        if self.state == Some(state) && !anew {
            return;
        }
        let rate = self.size.rate(state, rules);
        let before = self.rate.unwrap_or(rules.primary);
        self.level = match (bucket(before), bucket(rate)) {
            (Some(old), Some(new)) => old.retuned(new, self.level, now),
            (None, Some(new)) => empty(new, now),
            (_, None) => self.level,
        };
        (self.state, self.rate) = (Some(state), Some(rate));
    }

    /// Taints nothing from here on.
    pub(super) fn stop(&mut self) {
        (self.state, self.rate) = (Some(ZoneState::Full), Some(0.0));
    }

    /// How long it is from one tainted node to the next; `None` if none may be tainted.
    pub(super) fn interval(&self, rules: &ZoneRules) -> Option<Duration> {
        let rate = self.rate(rules);
        (rate > 0.0).then(|| Duration::try_from_secs_f64(rate.recip()).unwrap_or(Duration::MAX))
    }

    fn rate(&self, rules: &ZoneRules) -> f64 {
        self.rate.unwrap_or(rules.primary)
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, rules: &ZoneRules, now: Duration) -> bool {
        bucket(self.rate(rules)).is_some_and(|bucket| bucket.take(&mut self.level, now))
    }

    /// Gives back a token that was taken and not used.
    pub(super) fn give_back(&mut self, rules: &ZoneRules) {
        if let Some(bucket) = bucket(self.rate(rules)) {
            bucket.give_back(&mut self.level);
        }
    }

    /// How long until there is a token; `None` if none will come.
    pub(super) fn wait(&self, rules: &ZoneRules, now: Duration) -> Option<Duration> {
        bucket(self.rate(rules)).map(|bucket| bucket.wait_for(self.level, now, 1))
    }
}

fn bucket(rate: f64) -> Option<TokenBucket> {
    (rate > 0.0).then(|| TokenBucket::per_second(rate, 1))
}

/// A bucket whose one token was taken just now.
fn empty(bucket: TokenBucket, now: Duration) -> BucketLevel {
    let mut level = BucketLevel::default();
    bucket.take(&mut level, now);
    level
}

/// Whether a node counts.
pub(super) fn counts(node: &Node) -> bool {
    node.metadata.labels.get(EXCLUDED).is_none()
}

/// Where a node is, as metrics name it.
pub(super) fn zone_of(node: &Node) -> Str {
    let label = |names: [&str; 2]| {
        names.iter().find_map(|name| node.metadata.labels.get(name)).map_or("", Str::as_str)
    };
    let (region, zone) = (label(REGION), label(ZONE));
    if region.is_empty() && zone.is_empty() {
        return Str::EMPTY;
    }
    Str::from(format!("{region}:\0:{zone}"))
}
