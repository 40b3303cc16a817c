//! Finishers: what a plan cannot hold, because it needs a key, randomness or I/O, is put into an object just before it is
//! sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

/// Finishes objects for [`Verb::UpdateFinished`](crate::model::plan::Verb).
pub trait Finisher: Send + Sync {
    /// The object (protobuf, without envelope) with what `details` asks for.
    fn finish<'a>(
        &'a self,
        object: &'a [u8],
        details: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, FinishError>>;
}

/// Why an object was not finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// Object or order make no sense: only another plan can help.
    #[error("{0}")]
    Unfit(String),
    /// It may work in a moment.
    #[error("{0}")]
    Failed(String),
}

/// The finishers that there are, by name.
#[derive(Clone, Default)]
pub struct Finishers(BTreeMap<&'static str, Arc<dyn Finisher>>);

impl Finishers {
    /// The same and one more.
    #[must_use]
    pub fn with(mut self, name: &'static str, finisher: Arc<dyn Finisher>) -> Self {
        self.0.insert(name, finisher);
        self
    }

    /// Whether there is one of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<dyn Finisher>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Finishers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
