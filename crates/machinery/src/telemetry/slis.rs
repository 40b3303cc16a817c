//! What `/metrics/slis` serves: the outcomes of health checks (KEP-3466), in a registry of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec};
use tokio::time::Instant;

use super::metrics::{MetricsError, Registrar};
use super::process::ProcessMetrics;
use super::registry::Registry;

/// How a health check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// Healthy.
    Success,
    /// Unhealthy.
    Error,
    /// It has not come to a result yet.
    Pending,
}

impl CheckStatus {
    /// The label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Pending => "pending",
        }
    }
}

/// Results of health checks: the last as a gauge, all as counters.
#[derive(Clone, Debug)]
pub struct SliMetrics {
    registry: Registry,
    last: IntGaugeVec,
    total: IntCounterVec,
    /// When each name and endpoint had its last result.
    held: Arc<Mutex<BTreeMap<(String, String), Instant>>>,
}

/// Age at which a last result is forgotten, longer than any probe's period: an endpoint that somebody asked by hand would show its last
/// result for ever.
const STALE: Duration = Duration::from_mins(5);

impl SliMetrics {
    /// Makes the metrics and their registry.
    /// Beside them stands when the process started, so that a reader of the counters sees a restart.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let registrar = Registrar::new(&registry);
        ProcessMetrics::register_start(&registry)?;
        let last = registrar.int_gauges(
            "kubernetes_healthcheck",
            "Last result of a health check: 1 for success, 0 otherwise.",
            &["name", "type"],
        )?;
        let total = registrar.counters(
            "kubernetes_healthchecks_total",
            "Health check results.",
            &["name", "status", "type"],
        )?;
        Ok(Self { registry, last, total, held: Arc::default() })
    }

    /// Counts a result of the check `name` under `endpoint`: `healthz`, `livez` or `readyz`.
    pub fn observe(&self, name: &str, endpoint: &str, status: CheckStatus) {
        self.last.with_label_values(&[name, endpoint]).set(i64::from(status == CheckStatus::Success));
        self.total.with_label_values(&[name, status.label(), endpoint]).inc();
        self.held.lock().insert((name.to_owned(), endpoint.to_owned()), Instant::now());
    }

    /// Forgets the last results, under `endpoint`, of all checks but these, and those under any endpoint that are older than five
    /// minutes: they would show for ever.
    pub fn retain(&self, endpoint: &str, names: &[String]) {
        self.held.lock().retain(|(name, of), at| {
            let stays = (of != endpoint || names.contains(name)) && at.elapsed() <= STALE;
            if !stays {
                // The series may be gone already, by a reset.
                let _ = self.last.remove_label_values(&[name, of]);
            }
            stays
        });
    }

    /// Forgets all results, as the original does on a DELETE.
    pub fn reset(&self) {
        self.last.reset();
        self.total.reset();
    }

    /// The registry that `/metrics/slis` shows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
