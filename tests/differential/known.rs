//! Differences that are known: `wanted.tsv` lists deliberate differences between kube-controller-manager and Coxswain, `noise.tsv` lists
//! fields in which kube-controller-manager differs from itself.

use parking_lot::Mutex;

use crate::compare::Difference;
use crate::tables::rows;

/// A row of a table. In both patterns `*` stands for any text.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Pattern of the path.
    path: String,
    /// Pattern of `KCM -> OURS`.
    change: String,
    /// Texts of the lists that show the difference, one of which is in the operations.
    needs: Vec<String>,
    pub(crate) reason: String,
}

/// A table, and the number of matches of each row.
pub(crate) struct Table {
    rows: Vec<Known>,
    met: Mutex<Vec<usize>>,
}

impl Known {
    fn new(path: &str, change: &str, needs: &str, reason: &str) -> Self {
        let needs = needs.split(" or ").map(str::to_owned).collect();
        Self { path: path.to_owned(), change: change.to_owned(), needs, reason: reason.to_owned() }
    }
}

impl Table {
    /// Returns the deliberate differences. Their last column is a link to the documentation of the difference.
    pub(crate) fn wanted() -> Self {
        let rows = rows::<5>(include_str!("wanted.tsv")).into_iter();
        Self::new(rows.map(|[path, change, needs, reason, _link]| Known::new(path, change, needs, reason)))
    }

    /// Returns the noise of kube-controller-manager.
    pub(crate) fn noise() -> Self {
        let rows = rows::<3>(include_str!("noise.tsv")).into_iter();
        Self::new(rows.map(|[path, change, reason]| Known::new(path, change, "", reason)))
    }

    fn new(rows: impl Iterator<Item = Known>) -> Self {
        let rows: Vec<Known> = rows.collect();
        for row in &rows {
            assert!(!row.reason.trim().is_empty(), "{} has no reason", row.path);
        }
        Self { met: Mutex::new(vec![0; rows.len()]), rows }
    }

    /// Counts and returns the row that a difference of a list with these operations matches.
    pub(crate) fn find(&self, difference: &Difference, lines: &str) -> Option<&Known> {
        let change = difference.change();
        let fits = |row: &Known| {
            matches(&row.path, &difference.path)
                && matches(&row.change, &change)
                && row.needs.iter().any(|text| lines.contains(text.as_str()))
        };
        let at = self.rows.iter().position(fits)?;
        self.met.lock()[at] += 1;
        Some(&self.rows[at])
    }

    /// Returns the patterns of the rows that no difference matched.
    pub(crate) fn unmet(&self) -> Vec<String> {
        let met = self.met.lock();
        let rows = self.rows.iter().zip(met.iter()).filter(|(_, count)| **count == 0);
        rows.map(|(row, _)| format!("{} {}", row.path, row.change)).collect()
    }
}

/// Returns whether a text has the form of a pattern.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(begin) else { return false };
    if rest.is_empty() {
        return true;
    }
    loop {
        if matches(rest, text) {
            return true;
        }
        let mut letters = text.chars();
        if letters.next().is_none() {
            return false;
        }
        text = letters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("a.*", "a.", true),
            ("a.*.c", "a.b.b.c", true),
            ("a.*.c", "a.b.b.d", false),
            ("*c*", "abcd", true),
            ("*", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn row_is_met_by_its_path_its_change_and_its_list() {
        let row = |path: &str, change: &str| Known::new(path, change, "Job", "better");
        let table = Table::new([row("Pod", "*"), row("Job.*.status.failed", "1 -> *")].into_iter());
        let difference = |path: &str, ours: u32| Difference {
            round: 0,
            path: path.to_owned(),
            kcm: json!(1),
            ours: json!(ours),
        };
        let lines = "user apply {\"kind\":\"Job\"}";
        assert!(table.find(&difference("Job.web.status.failed", 2), lines).is_some());
        assert!(table.find(&difference("Job.web.status.ready", 2), lines).is_none());
        assert!(table.find(&difference("Job.web.status.failed", 2), "").is_none(), "the list has no Job");
        assert_eq!(table.unmet(), ["Pod *"]);
    }

    #[test]
    fn tables_are_read() {
        assert_eq!(Table::noise().unmet().len(), Table::noise().rows.len());
        assert_eq!(Table::wanted().unmet().len(), Table::wanted().rows.len());
    }
}
