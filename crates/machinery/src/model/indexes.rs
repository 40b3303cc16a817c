//! Sets of indexes as Indexed Jobs and their policies write them: `1,3-5,7`.
//!
//! A set is kept as it is written, in ranges: a Job of 100,000 indexes of which all have succeeded is one range. Reading is
//! lenient, as statuses of others have to be read: a part that is no number or range is passed over.

use std::fmt;
use std::ops::RangeInclusive;

/// A set of indexes, in ranges that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet(Vec<RangeInclusive<u32>>);

impl IndexSet {
    /// Reads a list. The first part that begins at or above `end` ends it, and a range that reaches further is cut there.
    pub fn parse(list: &str, end: u32) -> Self {
        let mut set = Self::default();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
            if first >= end {
                break;
            }
            if first <= last {
                set.insert_range(first..=last.min(end - 1));
            }
        }
        set
    }

    /// How many indexes are in it.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `index` is in it.
    pub fn contains(&self, index: u32) -> bool {
        let at = self.0.partition_point(|range| *range.end() < index);
        self.0.get(at).is_some_and(|range| *range.start() <= index)
    }

    /// Puts an index into it; says whether it was new.
    pub fn insert(&mut self, index: u32) -> bool {
        let is_new = !self.contains(index);
        if is_new {
            self.insert_range(index..=index);
        }
        is_new
    }

    /// The indexes that are in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        for range in &other.0 {
            union.insert_range(range.clone());
        }
        union
    }

    /// The indexes that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            let (first, last) = (our.start().max(their.start()), our.end().min(their.end()));
            if first <= last {
                both.0.push(*first..=*last);
            }
            if our.end() <= their.end() {
                ours.next();
            } else {
                theirs.next();
            }
        }
        both
    }

    /// All indexes, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(Clone::clone)
    }

    /// The indexes below `end` that are not in it, the lowest first.
    pub fn missing(&self, end: u32) -> impl Iterator<Item = u32> {
        let begins = std::iter::once(Some(0)).chain(self.0.iter().map(|range| range.end().checked_add(1)));
        let ends = self.0.iter().map(|range| *range.start()).chain([end]);
        begins.zip(ends).flat_map(move |(begin, gap_end)| begin.map_or(0..0, |begin| begin..gap_end.min(end)))
    }

    fn insert_range(&mut self, range: RangeInclusive<u32>) {
        let touches_before = |held: &RangeInclusive<u32>| held.end().saturating_add(1) < *range.start();
        let begin = self.0.partition_point(touches_before);
        let past = |held: &RangeInclusive<u32>| *held.start() <= range.end().saturating_add(1);
        let end = begin + self.0[begin..].partition_point(past);
        let first =
            self.0[begin..end].first().map_or(*range.start(), |held| *held.start().min(range.start()));
        let last = self.0[begin..end].last().map_or(*range.end(), |held| *held.end().max(range.end()));
        self.0.splice(begin..end, [first..=last]);
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indexes: I) -> Self {
        let mut set = Self::default();
        for index in indexes {
            set.insert(index);
        }
        set
    }
}

impl fmt::Display for IndexSet {
    /// As Jobs write them: two neighbors one by one, three and more as a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            let (first, last) = (range.start(), range.end());
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        let read = |list: &str, end| IndexSet::parse(list, end).to_string();
        for (list, end, expected) in [
            ("", 10, ""),
            ("3", 10, "3"),
            ("3,4", 10, "3,4"),
            ("3,4,5", 10, "3-5"),
            ("1,3-5,7", 10, "1,3-5,7"),
            // A part that is none is passed over; one that begins too high ends the list.
            ("x,2,-,5-3,1-y,4", 10, "2,4"),
            ("0-2,8-20,3", 10, "0-3,8,9"),
            ("0-2,8-20,3", 9, "0-3,8"),
            ("2,11,3", 10, "2"),
            ("0-4294967295", u32::MAX, "0-4294967294"),
            ("0-3", 0, ""),
            ("99999999999,1", 5, "1"),
        ] {
            assert_eq!(read(list, end), expected, "{list:?} below {end}");
        }
    }

    #[test]
    fn the_lowest_that_are_missing_come_first() {
        let missing = |list: &str, end| IndexSet::parse(list, end).missing(end).collect::<Vec<_>>();
        assert_eq!(missing("", 3), [0, 1, 2]);
        assert_eq!(missing("0,2-4", 7), [1, 5, 6]);
        assert_eq!(missing("0-2", 3), [] as [u32; 0]);
        let all: IndexSet = [u32::MAX].into_iter().collect();
        assert_eq!(all.missing(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(IndexSet::parse("5-9", 10).missing(3).collect::<Vec<_>>(), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            ours in prop::collection::vec(0_u32..40, 0..40),
            theirs in prop::collection::vec(0_u32..40, 0..40),
            end in 0_u32..45,
        ) {
            let (our_set, their_set): (IndexSet, IndexSet) =
                (ours.iter().copied().collect(), theirs.iter().copied().collect());
            let (ours, theirs): (BTreeSet<u32>, BTreeSet<u32>) =
                (ours.into_iter().collect(), theirs.into_iter().collect());
            prop_assert!(our_set.iter().eq(ours.iter().copied()));
            prop_assert_eq!(our_set.len(), ours.len() as u64);
            prop_assert_eq!(our_set.is_empty(), ours.is_empty());
            prop_assert!((0..45).all(|index| our_set.contains(index) == ours.contains(&index)));
            prop_assert!(our_set.union(&their_set).iter().eq(ours.union(&theirs).copied()));
            prop_assert!(our_set.intersection(&their_set).iter().eq(ours.intersection(&theirs).copied()));
            prop_assert!(our_set.missing(end).eq((0..end).filter(|index| !ours.contains(index))));
            // What is written is read back, and is the shortest way to say it: ranges don't touch.
            prop_assert_eq!(&IndexSet::parse(&our_set.to_string(), 45), &our_set);
            prop_assert!(our_set.0.windows(2).all(|pair| pair[0].end() + 1 < *pair[1].start()));
        }

        #[test]
        fn arbitrary_text_is_no_trouble(text in "[0-9,x-]{0,40}", end: u32) {
            let set = IndexSet::parse(&text, end);
            prop_assert!(set.0.iter().all(|range| range.start() <= range.end() && *range.end() < end));
            prop_assert_eq!(IndexSet::parse(&set.to_string(), end), set);
        }
    }
}
