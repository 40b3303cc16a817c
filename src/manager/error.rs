//! Why the manager did not start, or ended.

use std::path::PathBuf;

use crate::admin::RoutesError;
use coxswain_controllers::identity::serviceaccount_token::signer::SigningKeyError;
use coxswain_controllers::registry::RegistryError;
use coxswain_machinery::client::{ClientBuildError, ConfigError, NotReady};
use coxswain_machinery::serve::ServeError;
use coxswain_machinery::telemetry::MetricsError;
use coxswain_machinery::telemetry::tracing::TracingError;

/// Why the manager did not start, or ended. All are fatal.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The table of controllers contradicts itself.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The API server's address or credentials can't be made out.
    #[error(transparent)]
    Connection(#[from] ConfigError),
    /// A client can't be made.
    #[error(transparent)]
    Client(#[from] ClientBuildError),
    /// A metric is registered twice, or badly named.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A metric of the client is registered twice.
    #[error("register metrics: {0}")]
    Prometheus(#[from] prometheus::Error),
    /// The secure port can't be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The admin API can't be put together.
    #[error("serve the admin API: {0}")]
    Admin(#[from] RoutesError),
    /// Traces can't be sent.
    #[error(transparent)]
    Tracing(#[from] TracingError),
    /// The system gives no threads.
    #[error("start server threads: {0}")]
    Threads(std::io::Error),
    /// A file that a flag names can't be used.
    #[error("--{flag}: {}: {why}", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The authority of a signer can't be used.
    #[error("failed to init {signer} certificate controller: {}: {why}", path.display())]
    Authority {
        /// The signer's name.
        signer: &'static str,
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The API server did not become ready.
    #[error(transparent)]
    ApiServer(#[from] NotReady),
    /// The Lease could not be renewed, or another replica has it.
    #[error("leadership lost")]
    LeadershipLost,
    /// Reconciles or writes were cut off at the end, at the limit of `--controller-shutdown-timeout`.
    #[error("controller shutdown timeout reached")]
    ShutdownTimeout,
    /// The election has ended where it should not: a panic.
    #[error("leader election: {0}")]
    Election(String),
}

impl ManagerError {
    pub(super) fn signing_key(path: PathBuf, error: &SigningKeyError) -> Self {
        Self::File { flag: "service-account-private-key-file", path, why: error.to_string() }
    }
}
