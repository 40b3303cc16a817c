//! The difference of two texts in the unified format of `diff -u`.

use std::fmt::Write as _;
use std::ops::Range;

/// Equal lines that are shown around a change.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Equal(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

impl Line<'_> {
    fn is_change(&self) -> bool {
        !matches!(self, Self::Equal(_))
    }
}

/// Returns the difference of two texts, which have these names; empty if they are equal.
pub(in crate::cli) fn unified(before: (&str, &str), after: (&str, &str)) -> String {
    let lines = compare(before.1, after.1);
    let mut text = String::new();
    for hunk in hunks(&lines) {
        if text.is_empty() {
            let _ = writeln!(text, "--- {}\n+++ {}", before.0, after.0);
        }
        let count = |lines: &[Line<'_>]| {
            let removed = lines.iter().filter(|line| !matches!(line, Line::Added(_))).count();
            let added = lines.iter().filter(|line| !matches!(line, Line::Removed(_))).count();
            (removed, added)
        };
        let (old, new) = count(&lines[..hunk.start]);
        let (removed, added) = count(&lines[hunk.clone()]);
        let first = |before: usize, count: usize| if count == 0 { before } else { before + 1 };
        let _ = writeln!(text, "@@ -{},{removed} +{},{added} @@", first(old, removed), first(new, added));
        for line in &lines[hunk] {
            let (sign, line) = match line {
                Line::Equal(line) => (' ', line),
                Line::Removed(line) => ('-', line),
                Line::Added(line) => ('+', line),
            };
            let _ = writeln!(text, "{sign}{line}");
        }
    }
    text
}

/// Returns the ranges of lines with a change in them and the lines around it.
fn hunks(lines: &[Line<'_>]) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| line.is_change()) {
        let (start, end) = (at.saturating_sub(CONTEXT), (at + 1 + CONTEXT).min(lines.len()));
        match hunks.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => hunks.push(start..end),
        }
    }
    hunks
}

/// Compares two texts by their longest common subsequence of lines.
fn compare<'a>(before: &'a str, after: &'a str) -> Vec<Line<'a>> {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(before, after)| before == after).count();
    let (head, before, after) = (&before[..same], &before[same..], &after[same..]);
    // The length of the longest common subsequence of what follows two positions.
    let width = after.len() + 1;
    let mut longest = vec![0_u32; (before.len() + 1) * width];
    for old in (0..before.len()).rev() {
        for new in (0..after.len()).rev() {
            longest[old * width + new] = if before[old] == after[new] {
                longest[(old + 1) * width + new + 1] + 1
            } else {
                longest[(old + 1) * width + new].max(longest[old * width + new + 1])
            };
        }
    }
    let mut lines: Vec<Line<'a>> = head.iter().copied().map(Line::Equal).collect();
    let (mut old, mut new) = (0, 0);
    while old < before.len() || new < after.len() {
        if old < before.len() && new < after.len() && before[old] == after[new] {
            lines.push(Line::Equal(before[old]));
            (old, new) = (old + 1, new + 1);
        } else if new == after.len()
            || (old < before.len() && longest[(old + 1) * width + new] >= longest[old * width + new + 1])
        {
            lines.push(Line::Removed(before[old]));
            old += 1;
        } else {
            lines.push(Line::Added(after[new]));
            new += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn difference_is_that_of_diff() {
        let numbers = |skip: &[usize], extra: &str| {
            let lines = (1..=20).filter(|number| !skip.contains(number)).map(|number| format!("{number}\n"));
            lines.collect::<String>() + extra
        };
        let expected =
            "--- a\n+++ b\n@@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n@@ -18,3 +17,4 @@\n 18\n 19\n 20\n+21\n";
        assert_eq!(unified(("a", &numbers(&[], "")), ("b", &numbers(&[2], "21\n"))), expected);
        assert_eq!(
            unified(("a", "x: 1\n"), ("b", "x: 2\n")),
            "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-x: 1\n+x: 2\n"
        );
        assert_eq!(unified(("a", ""), ("b", "x\n")), "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+x\n");
        assert_eq!(unified(("a", "x\ny\n"), ("b", "x\ny\n")), "");
    }
}
