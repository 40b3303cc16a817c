//! `coxswain_allocator_*`: what the allocator, jemalloc, holds, read when it is asked for.
//!
//! Where another allocator is the process' own, the figures are those of one that nobody uses, and small.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tikv_jemalloc_ctl::{epoch, stats};

use super::metrics::{MetricsError, Registrar};
use super::registry::Registry;

/// Reads one figure, in bytes.
type Read = fn() -> tikv_jemalloc_ctl::Result<usize>;

const FIGURES: [(&str, &str, Read); 5] = [
    ("coxswain_allocator_allocated_bytes", "Allocated memory in bytes.", || stats::allocated::read()),
    ("coxswain_allocator_active_bytes", "Memory in active pages in bytes.", || stats::active::read()),
    ("coxswain_allocator_metadata_bytes", "Memory for the allocator's metadata in bytes.", || {
        stats::metadata::read()
    }),
    (
        "coxswain_allocator_resident_bytes",
        "Resident memory of the allocator in bytes: active pages, metadata and pages not yet returned to the system.",
        || stats::resident::read(),
    ),
    (
        "coxswain_allocator_retained_bytes",
        "Virtual address space in bytes that the allocator retains without physical memory.",
        || stats::retained::read(),
    ),
];

/// The collector of `coxswain_allocator_*`.
#[derive(Debug)]
pub struct AllocatorMetrics(Vec<(IntGauge, Read)>);

impl AllocatorMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<(), MetricsError> {
        let gauge = |(name, help, read): (&str, &str, Read)| {
            let gauge = IntGauge::with_opts(Opts::new(name, help));
            gauge.map(|gauge| (gauge, read)).map_err(|error| MetricsError::new(name, error))
        };
        let gauges = FIGURES.into_iter().map(gauge).collect::<Result<_, _>>()?;
        Registrar::new(registry).collector("coxswain_allocator_*", Box::new(Self(gauges)))
    }
}

impl Collector for AllocatorMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().flat_map(|(gauge, _)| gauge.desc()).collect()
    }

    /// A figure that can't be read is left out.
    fn collect(&self) -> Vec<MetricFamily> {
        // The figures are those of the last epoch.
        if let Err(error) = epoch::advance() {
            tracing::debug!(%error, "Failed to refresh the allocator statistics");
        }
        let figure = |(gauge, read): &(IntGauge, Read)| match read() {
            Ok(bytes) => {
                gauge.set(bytes as i64);
                gauge.collect()
            }
            Err(error) => {
                tracing::debug!(%error, "Failed to read an allocator statistic");
                Vec::new()
            }
        };
        self.0.iter().flat_map(figure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::encode_text;

    #[test]
    fn every_figure_is_there() {
        let registry = Registry::new();
        AllocatorMetrics::register(&registry).unwrap();
        let page = encode_text(&registry);
        for (name, ..) in FIGURES {
            assert!(page.contains(&format!("\n{name} ")), "{name} in {page}");
        }
    }
}
