//! What is wrong with an expression, and how that is said.

use std::fmt;

/// More mistakes than this are only counted.
const MAX_SHOWN: usize = 100;
/// A line of the source that is longer, in bytes, is not shown.
const MAX_SHOWN_LINE: usize = 16384;

/// Where an expression is too much to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Nested deeper than `cel-go`'s parser goes.
    Depth,
    /// Longer than `cel-go` reads.
    Length,
    /// Its check takes more steps than an expression that somebody wrote.
    Steps,
}

/// What sort of mistake it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueKind {
    /// It is no CEL. The message is this crate's own.
    Syntax,
    /// A name is not declared, or types do not fit. The message is `cel-go`'s.
    Types,
    /// It was not checked to its end.
    Limit(Limit),
}

/// A mistake, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// What sort of mistake.
    pub kind: IssueKind,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 0, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// The mistakes of an expression, in the order of their places, and the expression. Displayed as `cel-go` does: its first
/// hundred, each with its line and a caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issues {
    expression: String,
    issues: Vec<Issue>,
}

/// A mistake at an offset, in characters, which has no line yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: IssueKind,
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl Found {
    pub(crate) fn types(at: usize, message: String) -> Self {
        Self { kind: IssueKind::Types, at, message }
    }

    pub(crate) fn syntax(at: usize, message: impl Into<String>) -> Self {
        Self { kind: IssueKind::Syntax, at, message: message.into() }
    }

    pub(crate) fn limit(limit: Limit, message: impl Into<String>) -> Self {
        Self { kind: IssueKind::Limit(limit), at: 0, message: message.into() }
    }
}

impl Issues {
    pub(crate) fn new(expression: &str, found: Vec<Found>) -> Self {
        let mut starts = vec![0];
        starts.extend(
            expression.chars().enumerate().filter(|(_, letter)| *letter == '\n').map(|(at, _)| at + 1),
        );
        let mut issues: Vec<_> = found
            .into_iter()
            .map(|found| {
                let line = starts.partition_point(|start| *start <= found.at);
                let column = found.at - starts.get(line - 1).copied().unwrap_or(0);
                Issue { kind: found.kind, line, column, message: found.message }
            })
            .collect();
        issues.sort_by_key(|issue| (issue.line, issue.column));
        Self { expression: expression.to_owned(), issues }
    }

    /// The mistakes, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter()
    }

    /// Whether the expression was not checked to its end.
    pub fn is_limit(&self) -> bool {
        self.issues.iter().any(|issue| matches!(issue.kind, IssueKind::Limit(_)))
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.expression.split('\n').collect();
        for (at, issue) in self.issues.iter().take(MAX_SHOWN).enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            if matches!(issue.kind, IssueKind::Limit(_)) {
                write!(formatter, "{newline}ERROR: <input>:-1:0: {}", issue.message)?;
                continue;
            }
            write!(
                formatter,
                "{newline}ERROR: <input>:{}:{}: {}",
                issue.line,
                issue.column + 1,
                issue.message
            )?;
            if let Some(line) = lines.get(issue.line - 1).filter(|line| line.len() <= MAX_SHOWN_LINE) {
                let line = line.replace('\t', " ");
                write!(formatter, "\n | {line}\n | {}", caret(&line, issue.column))?;
            }
        }
        if let Some(more) = self.issues.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
            write!(formatter, "\n{more} more errors were truncated")?;
        }
        Ok(())
    }
}

/// A dot below each character before the column, and a caret; wide ones below what takes more than one byte.
fn caret(line: &str, column: usize) -> String {
    let mut letters = line.chars();
    let mut below: String =
        letters.by_ref().take(column).map(|letter| if letter.len_utf8() > 1 { '．' } else { '.' }).collect();
    let wide = letters.next().is_some_and(|letter| letter.len_utf8() > 1);
    below.push(if wide { '＾' } else { '^' });
    below
}

impl std::error::Error for Issues {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_its_line_and_a_caret() {
        let found = vec![Found::types(8, "second".to_owned()), Found::types(1, "first".to_owned())];
        let shown = Issues::new("a b\n\tcé d", found).to_string();
        assert_eq!(
            shown,
            "ERROR: <input>:1:2: first\n | a b\n | .^\nERROR: <input>:2:5: second\n |  cé d\n | ..．.^"
        );
        let wide = Issues::new("é", vec![Found::types(0, "wide".to_owned())]).to_string();
        assert!(wide.ends_with("\n | ＾"), "{wide}");
    }

    #[test]
    fn of_many_mistakes_a_hundred_are_shown() {
        let found = vec![Found::types(0, "m".to_owned()); 103];
        let shown = Issues::new("a", found).to_string();
        assert!(shown.ends_with(" | ^\n3 more errors were truncated"), "{shown}");
        assert_eq!(shown.matches("ERROR").count(), MAX_SHOWN);
    }

    #[test]
    fn a_line_that_is_too_long_is_not_shown() {
        let long = "a".repeat(MAX_SHOWN_LINE + 1);
        assert_eq!(
            Issues::new(&long, vec![Found::types(3, "m".to_owned())]).to_string(),
            "ERROR: <input>:1:4: m"
        );
    }
}
