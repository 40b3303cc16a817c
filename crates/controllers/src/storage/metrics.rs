//! How long operations on volumes take: one metric of several controllers, under the original's name. Decides nothing.

use std::time::Duration;

use prometheus::HistogramVec;

use coxswain_machinery::framework::RoomMetrics;
use coxswain_machinery::telemetry::BoundedSeries;

/// Upper bounds of the buckets, in seconds.
pub(super) const BOUNDS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// Durations of operations on volumes.
#[derive(Clone, Debug)]
pub struct Operations(BoundedSeries<HistogramVec>);

impl Operations {
    /// The metric, registered by whoever asks for it first.
    ///
    /// # Errors
    /// Something else has its name.
    pub fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let durations = metrics.bounded_histograms(
            "storage_operation_duration_seconds",
            "Duration of volume operations in seconds, by plugin and operation.",
            &["volume_plugin", "operation_name", "status", "migrated"],
            BOUNDS.to_vec(),
        )?;
        Ok(Self(durations))
    }

    /// An operation on a volume that is not migrated has ended.
    pub fn ended(&self, plugin: &str, operation: &str, has_failed: bool, took: Duration) {
        self.observe(plugin, operation, has_failed, false, took);
    }

    /// An operation on a volume has ended, which is migrated or not.
    pub fn observe(
        &self,
        plugin: &str,
        operation: &str,
        has_failed: bool,
        is_migrated: bool,
        took: Duration,
    ) {
        let status = if has_failed { "fail-unknown" } else { "success" };
        let migrated = if is_migrated { "true" } else { "false" };
        self.0.with_label_values(&[plugin, operation, status, migrated]).observe(took.as_secs_f64());
    }
}
