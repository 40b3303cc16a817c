//! What happened, line by line, and a digest of all of it: the same seed gives the same lines.
//!
//! A run that is shown has further lines between these, of which the digest knows nothing: what the manager saw, planned and
//! logged ([`crate::listener`]), and what its writes changed.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use ring::digest::{Context, SHA256};

/// Lines that are kept of a run that is not shown.
const KEPT: usize = 400;

/// See the module.
pub(crate) struct Trace {
    digest: Context,
    lines: VecDeque<String>,
    all: bool,
    pub(crate) count: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Trace {
    /// One that keeps `all` lines, or the last ones.
    pub(crate) fn new(all: bool) -> Self {
        Self { digest: Context::new(&SHA256), lines: VecDeque::new(), all, count: 0 }
    }

    /// Adds a line, at this time of the run; where it is shown, with `more` behind it.
    pub(crate) fn line(&mut self, at: Duration, what: &str, more: impl FnOnce() -> String) {
        let mut line = format!("{:>12.6} {what}", at.as_secs_f64());
        self.digest.update(line.as_bytes());
        self.count += 1;
        if self.all {
            line.push_str(&more());
        } else if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Adds a line that is shown, and nothing else.
    pub(crate) fn aside(&mut self, at: Duration, what: &str) {
        if self.all {
            self.lines.push_back(format!("{:>12.6} {what}", at.as_secs_f64()));
        }
    }

    /// Drops the recorded lines. The digest still includes them.
    pub(crate) fn forget(&mut self) {
        self.lines.clear();
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// A digest of all lines, those too that are not kept.
    pub(crate) fn digest(&self) -> String {
        let digest = self.digest.clone().finish();
        digest.as_ref()[..8].iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}
