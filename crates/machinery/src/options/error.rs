//! What can be wrong with a command line. Every error names its flag, says what is wrong and what is allowed, and all
//! of them are reported together.

use std::fmt;

use super::value::ValueError;

/// One thing wrong with the command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such flag.
    #[error("unknown flag {flag}{}", suggestion(.nearest))]
    UnknownFlag {
        /// As it was written.
        flag: String,
        /// The known flags most like it.
        nearest: Vec<String>,
    },
    /// An argument begins with a dash and is no flag.
    #[error("{argument:?} is not a flag: expected --NAME or --NAME=VALUE")]
    Syntax {
        /// As it was written.
        argument: String,
    },
    /// An argument that is not text.
    #[error("{argument:?} is not valid UTF-8")]
    Encoding {
        /// As well as it can be shown.
        argument: String,
    },
    /// An argument that is neither a flag nor its value.
    #[error(
        "unexpected argument {argument:?}: only flags are allowed; write the value of a boolean flag as --FLAG=false"
    )]
    Positional {
        /// As it was written.
        argument: String,
    },
    /// A flag stands last and needs a value.
    #[error("{flag}: missing value ({kind})")]
    MissingValue {
        /// The flag.
        flag: String,
        /// The type of its value.
        kind: &'static str,
    },
    /// A value that can't be read.
    #[error("{flag}: invalid value {value:?}: {problem}")]
    Value {
        /// The flag.
        flag: String,
        /// As it was written.
        value: String,
        /// What was expected.
        problem: ValueError,
    },
    /// A value that can be read, and that the manager can't work with.
    #[error("{flag}: {problem}; allowed: {allowed}")]
    Invalid {
        /// The flag.
        flag: String,
        /// What is wrong.
        problem: String,
        /// What would be right.
        allowed: String,
    },
    /// A file that this process cannot read. Another process, such as that of a container, may be able to.
    #[error("{flag}: {problem}; allowed: {allowed}")]
    Unreadable {
        /// The flag that names the file.
        flag: String,
        /// The path and the cause.
        problem: String,
        /// The content that the file must have.
        allowed: String,
    },
    /// A variable of the environment that the manager can't work with.
    #[error("{variable}: {problem}; allowed: {allowed}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What is wrong.
        problem: String,
        /// What would be right.
        allowed: String,
    },
}

impl OptionError {
    /// A value that the manager can't work with. `flag` is a name without dashes.
    pub(super) fn invalid(flag: &str, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Invalid { flag: format!("--{flag}"), problem: problem.into(), allowed: allowed.into() }
    }

    /// A file that the manager cannot read. `flag` is a name without dashes.
    pub(super) fn unreadable(flag: &str, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Unreadable { flag: format!("--{flag}"), problem: problem.into(), allowed: allowed.into() }
    }

    /// A file that the manager cannot read, or whose content it can't work with. `flag` is a name without dashes.
    pub(super) fn file(
        flag: &str,
        path: &str,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        match std::fs::read(path) {
            Ok(_) => Self::invalid(flag, problem, allowed),
            Err(_) => Self::unreadable(flag, problem, allowed),
        }
    }

    /// The flag that it is about, with its dashes.
    pub fn flag(&self) -> Option<&str> {
        match self {
            Self::UnknownFlag { flag, .. }
            | Self::MissingValue { flag, .. }
            | Self::Value { flag, .. }
            | Self::Invalid { flag, .. }
            | Self::Unreadable { flag, .. } => Some(flag),
            Self::Syntax { .. } | Self::Encoding { .. } | Self::Positional { .. } | Self::Variable { .. } => {
                None
            }
        }
    }
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() {
        "; see --help for all flags".to_owned()
    } else {
        format!("; did you mean {}?", nearest.join(" or "))
    }
}

/// Everything wrong with a command line. Shown as one line if it is one thing, else as a line for each under a heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionErrors(pub Vec<OptionError>);

impl fmt::Display for OptionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(f, "{only}");
        }
        write!(f, "the command line has {} errors:", self.0.len())?;
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OptionErrors {}

/// Something that does not keep the manager from starting, and that its operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionWarning {
    /// The flag, with its dashes.
    pub flag: String,
    /// What there is to know.
    pub message: String,
}

impl OptionWarning {
    /// `flag` is a name without dashes.
    pub(super) fn new(flag: &str, message: impl Into<String>) -> Self {
        Self { flag: format!("--{flag}"), message: message.into() }
    }
}

impl fmt::Display for OptionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.flag, self.message)
    }
}

/// The names most like `name`, best first: at most three, and none that is not like it at all.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|candidate| {
            // A part of a name, or the beginning of one, is likelier meant than its spelling alone would say.
            let bonus = if name.len() > 2 && candidate.contains(name) { 0.15 } else { 0.0 };
            (strsim::jaro_winkler(name, candidate) + bonus, candidate)
        })
        .filter(|(score, _)| *score > 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, candidate)| candidate.to_owned()).collect()
}
