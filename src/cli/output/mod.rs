//! How answers look: tables as kubectl makes them, sheets of one thing, and the messages themselves in JSON or YAML.
//!
//! Everything here is a function of the message and of the time given: the same answer always looks the same.

pub(super) mod controllers;
pub(super) mod diff;
pub(super) mod events;
pub(super) mod human;
pub(super) mod leader;
pub(super) mod names;
pub(super) mod objects;
pub(super) mod queues;
pub(super) mod sheet;
pub(super) mod sync;
pub(super) mod table;

use std::io::Write;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use parking_lot::Mutex;

use super::error::CliError;
use coxswain_machinery::wire::text::is_unprintable;

/// The form that answers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For people with wide screens.
    Wide,
    /// The message as JSON.
    Json,
    /// The message as YAML.
    Yaml,
}

impl Format {
    /// Whether it is the message itself.
    pub(super) fn is_object(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Whether there is room for everything.
    pub(super) fn is_wide(self) -> bool {
        self == Self::Wide
    }
}

/// The colors, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Palette {
    /// Whether there are any.
    pub(super) colored: bool,
}

impl Palette {
    fn style(self, style: Style) -> Style {
        if self.colored { style } else { Style::new() }
    }

    /// For what is beside the point.
    pub(super) fn dim(self) -> Style {
        self.style(Style::new().dimmed())
    }

    /// For what is as it should be.
    pub(super) fn good(self) -> Style {
        self.style(AnsiColor::Green.on_default())
    }

    /// For what deserves a look.
    pub(super) fn warning(self) -> Style {
        self.style(AnsiColor::Yellow.on_default())
    }

    /// For what is wrong.
    pub(super) fn bad(self) -> Style {
        self.style(AnsiColor::Red.on_default().bold())
    }
}

/// A stream that is written to from several places.
type Stream = Arc<Mutex<dyn Write + Send>>;

/// Where output goes.
#[derive(Clone)]
pub(super) struct Screen {
    out: Stream,
    err: Stream,
}

impl Screen {
    /// Standard output and standard error.
    pub(super) fn of_process() -> Self {
        Self::new(Arc::new(Mutex::new(std::io::stdout())), Arc::new(Mutex::new(std::io::stderr())))
    }

    /// Any two streams.
    pub(super) fn new(out: Stream, err: Stream) -> Self {
        Self { out, err }
    }

    /// Puts out an answer, at once.
    pub(super) fn print(&self, text: &str) -> Result<(), CliError> {
        let mut out = self.out.lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
    }

    /// Says something beside the answer.
    pub(super) fn note(&self, text: &str) {
        // If there is nobody who reads this, there is nobody left to tell.
        let _ = writeln!(self.err.lock(), "coxswain: {text}");
    }

    /// Says something that is already complete.
    pub(super) fn complain(&self, text: &str) {
        // As above.
        let _ = self.err.lock().write_all(text.as_bytes());
    }
}

/// Returns the text with escapes for characters that a terminal obeys or that reorder the text around them. Answers may contain text of
/// others, such as the message of a webhook.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => cleaned.push(' '),
            letter if is_unprintable(letter) => cleaned.extend(letter.escape_default()),
            letter => cleaned.push(letter),
        }
    }
    cleaned
}
