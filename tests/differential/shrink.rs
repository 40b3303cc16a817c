//! Makes a list shorter while it still shows its difference: without halves of it, without quarters, without single items.

use std::ops::Range;

/// The search for a short list. Several candidates are tried at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Shrinker {
    /// Indexes of the shortest list so far.
    kept: Vec<usize>,
    /// Number of items that a candidate lacks.
    chunk: usize,
    /// Beginning of the next chunk.
    at: usize,
    /// Whether this pass made the list shorter.
    shorter: bool,
    done: bool,
    tried: Vec<Vec<usize>>,
}

impl Shrinker {
    pub(crate) fn new(length: usize) -> Self {
        Self {
            kept: (0..length).collect(),
            chunk: length.div_ceil(2).max(1),
            at: 0,
            shorter: false,
            done: length < 2,
            tried: Vec::new(),
        }
    }

    /// Returns the shortest list so far.
    pub(crate) fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// Returns up to `limit` shorter lists to try, none when the search is over.
    pub(crate) fn candidates(&mut self, limit: usize) -> &[Vec<usize>] {
        self.tried.clear();
        if !self.done {
            let starts = (self.at..self.kept.len()).step_by(self.chunk).take(limit);
            self.tried = starts.map(|start| without(&self.kept, start..start + self.chunk)).collect();
        }
        &self.tried
    }

    /// Takes the index of a candidate that shows the difference, if one does.
    pub(crate) fn record(&mut self, hit: Option<usize>) {
        match hit {
            Some(index) => {
                self.at += index * self.chunk;
                self.kept = self.tried.swap_remove(index);
                self.shorter = true;
            }
            None => self.at += self.tried.len() * self.chunk,
        }
        self.done = self.kept.len() < 2;
        if self.at >= self.kept.len() && !self.done {
            self.done = self.chunk == 1 && !self.shorter;
            if self.chunk > 1 {
                self.chunk = self.chunk.div_ceil(2).min(self.kept.len().div_ceil(2));
            }
            (self.at, self.shorter) = (0, false);
        }
    }
}

fn without(items: &[usize], dropped: Range<usize>) -> Vec<usize> {
    let kept = items.iter().enumerate().filter(|(at, _)| !dropped.contains(at));
    kept.map(|(_, item)| *item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn shrink(length: usize, at_a_time: usize, shows: impl Fn(&[usize]) -> bool) -> (Vec<usize>, usize) {
        let (mut shrinker, mut tries) = (Shrinker::new(length), 0);
        loop {
            let candidates = shrinker.candidates(at_a_time);
            if candidates.is_empty() {
                return (shrinker.kept().to_vec(), tries);
            }
            tries += candidates.len();
            let hit = candidates.iter().position(|candidate| shows(candidate));
            shrinker.record(hit);
        }
    }

    #[test]
    fn only_items_that_a_difference_needs_are_left() {
        let mut random = Random::new(1);
        for _ in 0..500 {
            let length = random.between(1, 40);
            let needed: Vec<usize> = (0..random.between(1, 4)).map(|_| random.below(length)).collect();
            let shows = |list: &[usize]| needed.iter().all(|item| list.contains(item));
            let (mut expected, at_a_time) = (needed.clone(), random.between(1, 9));
            expected.sort_unstable();
            expected.dedup();
            let (kept, tries) = shrink(length, at_a_time, shows);
            assert_eq!(kept, expected, "{length} items, {at_a_time} at a time");
            assert!(tries < 8 * length + 40, "{tries} tries for {length} items");
        }
    }

    #[test]
    fn list_without_a_shorter_one_stays() {
        assert_eq!(shrink(7, 3, |_| false).0, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shrink(1, 3, |_| true).0, [0]);
        assert_eq!(shrink(0, 3, |_| true).0, [0; 0]);
    }
}
