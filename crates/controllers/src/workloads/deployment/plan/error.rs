//! Why no plan can be made.

use coxswain_machinery::wire::WireError;

/// A Deployment of which no plan can be made. The API server lets none of them pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Unplannable {
    /// Bytes that are no message.
    #[error(transparent)]
    Malformed(#[from] WireError),
    /// An unknown strategy, or an impossible one.
    #[error("spec.strategy: {0}")]
    Strategy(String),
}
