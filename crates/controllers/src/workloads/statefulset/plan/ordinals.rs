//! Which ordinals a StatefulSet's replicas have, and the names of its pods.

use std::ops::RangeInclusive;

use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::wire::Str;

/// The ordinals of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Ordinals {
    first: i64,
    count: i64,
}

impl Ordinals {
    /// Those that the spec asks for. (The server fills in 1 replica where it is left out.)
    pub(in super::super) fn of(set: &StatefulSet) -> Self {
        let first = set.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start).max(0);
        let count = set.spec.replicas.unwrap_or(1).max(0);
        Self { first: first.into(), count: count.into() }
    }

    /// All of them, upwards.
    pub(in super::super) fn all(self) -> RangeInclusive<i32> {
        self.from(0)
    }

    /// Those that are not among the first `partition`, upwards.
    pub(in super::super) fn from(self, partition: i32) -> RangeInclusive<i32> {
        let first = self.first + i64::from(partition.max(0));
        let last = (self.first + self.count - 1).min(i32::MAX.into());
        match (i32::try_from(first), i32::try_from(last)) {
            (Ok(first), Ok(last)) => first..=last,
            #[expect(clippy::reversed_empty_ranges, reason = "none is meant")]
            _ => 1..=0,
        }
    }

    /// Whether a replica has this ordinal.
    pub(in super::super) fn contains(self, ordinal: i32) -> bool {
        self.all().contains(&ordinal)
    }

    /// Whether this ordinal is below the first by which replicas are counted up to `count`.
    pub(in super::super) fn is_below(self, ordinal: i32, count: i32) -> bool {
        i64::from(ordinal) < self.first + i64::from(count)
    }
}

/// `SET-ORDINAL`.
pub(in super::super) fn pod_name(set: &str, ordinal: i32) -> Str {
    Str::from(format!("{set}-{ordinal}"))
}

/// The ordinal in the name of a pod: `None` if it is not that of a pod of `set`, and `Some(None)` if it is one with a number that
/// no replica can have.
#[expect(clippy::option_option, reason = "a pod may be a member without an ordinal")]
pub(in super::super) fn ordinal_of(set: &str, pod: &str) -> Option<Option<i32>> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // One with leading zeros has not the name of any replica.
    let is_plain = digits == "0" || !digits.starts_with('0');
    is_number.then(|| digits.parse().ok().filter(|_| is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::api::apps::StatefulSetOrdinals;

    #[test]
    fn names_have_ordinals() {
        for (pod, ordinal) in [
            ("web-0", Some(Some(0))),
            ("web-17", Some(Some(17))),
            ("web-2147483647", Some(Some(i32::MAX))),
            ("web-2147483648", Some(None)),
            ("web-01", Some(None)),
            ("web-", None),
            ("web", None),
            ("web-a", None),
            ("web--1", None),
            ("web-1-1", None),
            ("webs-1", None),
        ] {
            assert_eq!(ordinal_of("web", pod), ordinal, "{pod}");
        }
        assert_eq!(pod_name("web", 3), "web-3");
    }

    #[test]
    fn replicas_are_counted_from_the_start() {
        let ordinals = |start: i32, replicas: i32| {
            let mut set = StatefulSet::default();
            set.spec.replicas = Some(replicas);
            set.spec.ordinals = Some(Box::new(StatefulSetOrdinals { start }));
            Ordinals::of(&set)
        };
        let all = |ordinals: Ordinals, partition| ordinals.from(partition).collect::<Vec<_>>();
        assert_eq!(all(ordinals(0, 3), 0), [0, 1, 2]);
        assert_eq!(all(ordinals(5, 3), 0), [5, 6, 7]);
        assert_eq!(all(ordinals(5, 3), 2), [7]);
        assert_eq!(all(ordinals(5, 3), 3), [0; 0]);
        assert_eq!(all(ordinals(0, 0), 0), [0; 0]);
        assert_eq!(all(ordinals(i32::MAX, 3), 0), [i32::MAX]);
        assert_eq!(all(ordinals(i32::MAX, 3), 1), [0; 0]);
        assert!(ordinals(5, 3).contains(5) && !ordinals(5, 3).contains(8) && !ordinals(5, 3).contains(4));
        assert!(ordinals(5, 3).is_below(5, 1) && !ordinals(5, 3).is_below(6, 1));
        assert_eq!(all(Ordinals::of(&StatefulSet::default()), 0), [0]);
    }
}
