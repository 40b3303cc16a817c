//! What the cluster itself says about whom to trust: the ConfigMap `kube-system/extension-apiserver-authentication`,
//! in which the API server publishes its own settings. It stands in for certificate authorities that no flag names.
//!
//! It changes when a cluster's authorities are rotated, which takes days, so it is read again at every reload rather
//! than watched: one small GET a minute instead of a connection held open.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::request_header::{HeaderRules, RequestHeader};
use super::trust::TrustStore;
use crate::client::ApiError;
use crate::serve::reviews::Reviews;

/// Follows the ConfigMap for the stores that it feeds.
pub(in crate::serve) struct ClusterTrust {
    pub(in crate::serve) reviews: Arc<dyn Reviews>,
    /// Fed from `client-ca-file`.
    pub(in crate::serve) client_ca: Option<Arc<TrustStore>>,
    /// Fed from the `requestheader-*` keys.
    pub(in crate::serve) request_header: Option<Arc<RequestHeader>>,
    /// What was applied, or refused, last.
    pub(in crate::serve) seen: Mutex<Option<BTreeMap<String, String>>>,
}

impl ClusterTrust {
    /// Reads the ConfigMap and puts a change of it in force; `Ok(true)` if there was one. What is of no use is
    /// reported and what was in force stays, also when the ConfigMap is gone.
    pub(in crate::serve) async fn refresh(&self) -> Result<bool, ApiError> {
        let Some(data) = self.reviews.authentication_config().await? else { return Ok(false) };
        if self.seen.lock().as_ref() == Some(&data) {
            return Ok(false);
        }
        if let Some(store) = &self.client_ca {
            Self::feed(store, &data, "client-ca-file");
        }
        if let Some(method) = &self.request_header {
            match HeaderRules::from_config(&data) {
                Ok(rules) => {
                    if Self::feed(&method.trust, &data, "requestheader-client-ca-file") {
                        method.rules.store(Arc::new(rules));
                    }
                }
                Err(reason) => refused(&reason),
            }
        }
        *self.seen.lock() = Some(data);
        Ok(true)
    }

    fn feed(store: &TrustStore, data: &BTreeMap<String, String>, key: &str) -> bool {
        let Some(pem) = data.get(key).filter(|pem| !pem.is_empty()) else { return false };
        match store.load(pem.as_bytes()) {
            Ok(()) => {
                tracing::info!(key, "Loaded CA certificates from the cluster's authentication configuration");
                true
            }
            Err(reason) => {
                refused(&format!("{key}: {reason}"));
                false
            }
        }
    }
}

fn refused(reason: &str) {
    tracing::error!(
        reason,
        "Failed to load the ConfigMap kube-system/extension-apiserver-authentication; keeping the previous \
         configuration"
    );
}
