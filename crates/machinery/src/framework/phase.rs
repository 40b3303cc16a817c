//! What a controller is doing, in the words that users see.

/// What a controller is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Wanted, but another replica leads.
    Standby,
    /// Its caches are being filled.
    Starting,
    /// It reconciles.
    Running,
    /// It lets go.
    Stopping,
    /// It is not wanted.
    Disabled,
    /// It is wanted, but a flag, a feature gate or the cloud provider stands against it.
    Skipped(String),
    /// It failed and will be started again.
    Failed(String),
    /// It could not be started for a reason that a restart of the process would not remove: its configuration, its credentials or the API
    /// server. It will be started again.
    Unstarted(String),
    /// There is no such controller yet.
    NotImplemented,
}

impl Phase {
    /// The phase's permanent name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Standby => "STANDBY",
            Self::Starting => "STARTING",
            Self::Running => "RUNNING",
            Self::Stopping => "STOPPING",
            Self::Disabled => "DISABLED",
            Self::Skipped(_) => "SKIPPED",
            Self::Failed(_) | Self::Unstarted(_) => "FAILED",
            Self::NotImplemented => "NOT_IMPLEMENTED",
        }
    }
}
