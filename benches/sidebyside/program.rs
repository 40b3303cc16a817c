//! Which manager runs, whose turn it is, and which of the two are asked for.

pub(crate) use crate::harness::Program;
use crate::settings::text;

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) program: Program,
    pub(crate) round: usize,
}

/// Which managers are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    Both,
    Go,
    Coxswain,
}

impl Programs {
    /// As `ONLY` says.
    pub(crate) fn from_environment() -> Self {
        match text("ONLY").as_deref() {
            None => Self::Both,
            Some("go") => Self::Go,
            Some("coxswain") => Self::Coxswain,
            Some(other) => panic!("ONLY={other}: go or coxswain is wanted"),
        }
    }

    /// Whether this one is.
    pub(crate) fn has(self, program: Program) -> bool {
        match self {
            Self::Both => true,
            Self::Go => program == Program::Go,
            Self::Coxswain => program == Program::Coxswain,
        }
    }
}
