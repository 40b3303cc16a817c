//! Estimates from live bytes at successive moments whether memory grows with names.

/// Bytes by which moments may differ without a leak: tables hold a few entries more or less, messages differ in length.
const NOISE: f64 = 16.0 * 1024.0;
/// Bytes by which tables may grow once, to the next power of two.
const TABLES: f64 = 512.0 * 1024.0;
/// Bytes per name that are a leak however many names there are. A leaked string takes 40 bytes or more, and each sort of objects has one
/// name in 57, so a million names show a leak of one sort. A table without strings for the names of one sort takes less than [`TABLES`]; only
/// a soak with this sort alone shows it.
const LEAST: f64 = 0.5;

/// Estimates of the growth from live bytes at successive moments, with the same number of names between each two of them.
#[derive(Debug)]
pub(super) struct Growth {
    /// Names between the first moment and the last.
    names: f64,
    /// The median of the growth between two successive moments, in bytes per name. A table that grows once does not change it.
    median: f64,
    /// The median of the slopes between all pairs of moments (Theil and Sen), in bytes per name. Noise changes it little.
    slope: f64,
    /// Bytes between the first moment and the last.
    total: f64,
    /// Bytes between the highest moment and the lowest, less what the slope explains.
    spread: f64,
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[half - 1], values[half]) } else { values[half] }
}

impl Growth {
    /// Estimates the growth from `held`, the bytes at three moments or more, with `names` names between each two.
    pub(super) fn of(held: &[i64], names: usize) -> Self {
        let (points, names) = (held.iter().map(|bytes| *bytes as f64), names as f64);
        let points: Vec<(f64, f64)> =
            points.enumerate().map(|(at, bytes)| (at as f64 * names, bytes)).collect();
        let slope = |(from, to): ((f64, f64), (f64, f64))| (to.1 - from.1) / (to.0 - from.0);
        let pairs =
            points.iter().enumerate().flat_map(|(at, from)| points[at + 1..].iter().map(|to| (*from, *to)));
        let median = middle(points.windows(2).map(|pair| slope((pair[0], pair[1]))).collect());
        let all = middle(pairs.map(slope).collect());
        let residues: Vec<f64> = points.iter().map(|(names, bytes)| bytes - all * names).collect();
        let most = residues.iter().copied().fold(f64::MIN, f64::max);
        let spread = most - residues.iter().copied().fold(f64::MAX, f64::min);
        let (first, last) = (points[0], points[points.len() - 1]);
        Self { names: last.0, median, slope: all, total: last.1 - first.1, spread }
    }

    /// Returns the bytes per name above which memory grows.
    fn limit(&self) -> f64 {
        NOISE / self.names + LEAST
    }

    /// Returns whether memory grows with each name: both estimates are above the limit.
    pub(super) fn is_steady(&self) -> bool {
        self.median.min(self.slope) > self.limit()
    }

    /// Returns whether memory grows, with each name or in a few large steps.
    pub(super) fn is_a_leak(&self) -> bool {
        self.is_steady() || self.total > TABLES + LEAST * self.names
    }
}

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { names, median, slope, total, spread } = self;
        write!(
            f,
            "{median:.2} and {slope:.2} bytes per name by median and by slope, at most {:.2}; {total} bytes for {names} names, \
             spread {spread:.0} bytes",
            self.limit()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::churn::sorts::SORTS;
    use crate::churn::{FEW, LEAKING, PARTS, WARM};

    /// Names between two moments of the soak in `make unit`.
    const NAMES: usize = FEW / PARTS;

    fn moments(count: usize, bytes: impl Fn(usize) -> i64) -> Vec<i64> {
        (0..count).map(|at| 30_000_000 + bytes(at)).collect()
    }

    #[test]
    fn one_string_for_each_name_is_a_leak() {
        let noise = [0, 900, -1200, 300, 1500, -700, 0, 400];
        // The bytes of `name-00000000` alone, and with 24 bytes in a table. The planted leak has fewer moments and a table.
        for (count, bytes) in [(PARTS - WARM - LEAKING + 1, 13), (LEAKING + 1, 37)] {
            let held = moments(count, |at| (at * NAMES * bytes) as i64 + noise[at]);
            assert!(Growth::of(&held, NAMES).is_steady(), "{}", Growth::of(&held, NAMES));
        }
    }

    #[test]
    fn noise_and_a_table_that_doubles_are_no_leak() {
        let noise = [0, 4000, -3000, 2500, -4000, 3500, -2000, 1000];
        let held = moments(8, |at| noise[at]);
        assert!(!Growth::of(&held, NAMES).is_a_leak(), "{}", Growth::of(&held, NAMES));
        for doubled_at in 0..8 {
            let held = moments(8, |at| noise[at] / 10 + if at > doubled_at { 90_000 } else { 0 });
            assert!(!Growth::of(&held, NAMES).is_a_leak(), "{}", Growth::of(&held, NAMES));
        }
    }

    #[test]
    fn a_million_names_show_a_leak_of_one_sort() {
        let names = 1_000_000 / PARTS;
        let held = moments(8, |at| (at * names * 40 / SORTS.len()) as i64);
        assert!(Growth::of(&held, names).is_steady(), "40 bytes for each name of one sort");
        // A table without strings grows in steps.
        let held = moments(8, |at| if at < 4 { 0 } else { 1 << 20 });
        assert!(Growth::of(&held, names).is_a_leak() && !Growth::of(&held, names).is_steady());
    }
}
