//! One thing with all that is known of it, as kubectl describes things: a line per fact, tables below.

use std::fmt::Write as _;

use super::clean;

/// How far what belongs to a heading is moved in.
const INDENT: &str = "  ";

enum Line {
    Fact { depth: usize, name: String, value: String },
    Block { text: String },
}

/// Facts in order.
#[derive(Default)]
pub(in crate::cli) struct Sheet {
    lines: Vec<Line>,
    depth: usize,
}

impl Sheet {
    /// Adds a fact.
    pub(in crate::cli) fn fact(&mut self, name: &str, value: impl AsRef<str>) -> &mut Self {
        let value = clean(value.as_ref());
        self.lines.push(Line::Fact { depth: self.depth, name: name.to_owned(), value });
        self
    }

    /// Adds a fact, if there is anything to say.
    pub(in crate::cli) fn fact_if(&mut self, name: &str, value: impl AsRef<str>) -> &mut Self {
        if value.as_ref().is_empty() { self } else { self.fact(name, value) }
    }

    /// Adds a heading with facts below.
    pub(in crate::cli) fn under(&mut self, name: &str, add: impl FnOnce(&mut Self)) -> &mut Self {
        self.fact(name, "");
        self.depth += 1;
        add(self);
        self.depth -= 1;
        self
    }

    /// Adds a heading with lines below, as they are.
    pub(in crate::cli) fn block(&mut self, name: &str, text: &str) -> &mut Self {
        self.fact(name, "");
        let indent = INDENT.repeat(self.depth + 1);
        let mut block = String::new();
        for line in text.lines() {
            // Writing to a string does not fail.
            let _ = writeln!(block, "{indent}{line}");
        }
        self.lines.push(Line::Block { text: block });
        self
    }

    /// All of it.
    pub(in crate::cli) fn text(&self) -> String {
        let start = |depth: usize, name: &str| format!("{}{name}:", INDENT.repeat(depth));
        let widths = self.lines.iter().map(|line| match line {
            Line::Fact { depth, name, value } if !value.is_empty() => start(*depth, name).chars().count(),
            _ => 0,
        });
        let width = widths.max().unwrap_or(0) + 2;
        let lines = self.lines.iter().map(|line| match line {
            Line::Fact { depth, name, value } if value.is_empty() => start(*depth, name) + "\n",
            Line::Fact { depth, name, value } => format!("{:width$}{value}\n", start(*depth, name)),
            Line::Block { text } => text.clone(),
        });
        lines.collect()
    }
}
