//! What the client takes from its surroundings: variables, the clock, whether a person looks on.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use coxswain_machinery::environment::hostname;
use coxswain_machinery::model::clock::{SharedClock, SystemClock};
use coxswain_machinery::random::HashMap;

/// Names a replica, as `--server` does.
pub(super) const SERVER: &str = "COXSWAIN_SERVER";
/// Names a file with a bearer token, as `--token-file` does.
pub(super) const TOKEN_FILE: &str = "COXSWAIN_TOKEN_FILE";

const VARIABLES: [&str; 7] =
    [SERVER, TOKEN_FILE, "KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "NO_COLOR", "TERM"];

/// The surroundings.
#[derive(Clone)]
pub(super) struct Environment {
    variables: HashMap<&'static str, OsString>,
    /// Tells the time.
    pub(super) clock: SharedClock,
    /// Whether standard output is a terminal.
    pub(super) terminal: bool,
    /// The name of this machine, if it is known.
    pub(super) host: Option<String>,
}

impl Environment {
    /// Those of this process.
    pub(super) fn of_process() -> Self {
        let held = VARIABLES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        Self {
            variables: held.collect(),
            clock: Arc::new(SystemClock),
            terminal: std::io::stdout().is_terminal(),
            host: Some(hostname()),
        }
    }

    /// Made up.
    #[cfg(test)]
    pub(super) fn new(clock: SharedClock, variables: &[(&'static str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| (*name, OsString::from(value)));
        Self { variables: variables.collect(), clock, terminal: false, host: None }
    }

    /// A variable; an empty one counts as not set.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.path(name)?.into_os_string().into_string().ok()
    }

    /// A variable that is a path, or a list of them.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Whether output is colored when nobody says so: on a terminal that can, unless `NO_COLOR` is set.
    pub(super) fn wants_color(&self) -> bool {
        let dumb = self.text("TERM").is_some_and(|terminal| terminal == "dumb");
        self.terminal && !dumb && self.path("NO_COLOR").is_none()
    }
}
