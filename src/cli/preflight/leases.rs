//! Checks the Leases of the leader and of earlier installations.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::{COXSWAIN_RUNS, Check, Finding, LEASE_EXPIRED, LEASE_FREE, MIGRATION_LEASE, OVERRIDES};
use crate::cli::discover::{MainLease, holder};
use crate::cli::output::human;

/// The Leases of a cluster.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Leases {
    /// The Lease by which kube-controller-manager leads.
    pub(in crate::cli) main: Option<Lease>,
    /// Whether the holder renewed it under observation.
    pub(in crate::cli) is_renewed: bool,
    /// The name of the Lease of a leader migration, and the Lease; `None` without a migration.
    pub(in crate::cli) migration: Option<(String, Option<Lease>)>,
    /// Leases of replicas of Coxswain.
    pub(in crate::cli) replicas: Vec<Lease>,
    /// The Lease with the overrides.
    pub(in crate::cli) overrides: Option<Lease>,
}

/// The time since the last renewal.
fn age(lease: &Lease, now: Timestamp) -> Option<Duration> {
    Some(human::between(lease.spec.as_ref()?.renew_time.as_ref()?.0, now))
}

/// Whether a Lease has a holder that renewed it in time.
pub(in crate::cli) fn is_live(lease: &Lease, now: Timestamp) -> bool {
    let granted = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    let granted = Duration::from_secs(u64::try_from(granted).unwrap_or_default());
    holder(lease).is_some() && age(lease, now).is_some_and(|age| age <= granted)
}

/// Checks the Leases.
pub(in crate::cli) fn check(leases: &Leases, main: &MainLease, now: Timestamp) -> Check {
    let name = format!("{}/{}", main.namespace, main.name);
    let mut findings = Vec::new();
    let detail = match leases.main.as_ref().and_then(|lease| Some((lease, holder(lease)?))) {
        None => {
            findings.push(Finding::new(
                LEASE_FREE,
                format!("the Lease {name} has no holder: no kube-controller-manager leads"),
            ));
            format!("{name} is not held")
        }
        Some((lease, held_by)) => {
            let age = age(lease, now)
                .map_or_else(|| "never".to_owned(), |age| format!("{} ago", human::duration(age)));
            if !leases.is_renewed && !is_live(lease, now) {
                let message =
                    format!("{held_by} holds the Lease {name} and does not renew it; last renewal: {age}");
                findings.push(Finding::new(LEASE_EXPIRED, message));
            }
            format!("{held_by} holds {name}, renewed {age}")
        }
    };
    if let Some((name, lease)) = &leases.migration
        && !lease.as_ref().is_some_and(|lease| is_live(lease, now))
    {
        let message = format!("leader migration is enabled, and the Lease {name} has no live holder");
        findings.push(Finding::new(MIGRATION_LEASE, message));
    }
    let running: Vec<&str> =
        leases.replicas.iter().filter(|lease| is_live(lease, now)).filter_map(holder).collect();
    if !running.is_empty() {
        findings
            .push(Finding::new(COXSWAIN_RUNS, format!("replicas of Coxswain run: {}", running.join(", "))));
    }
    if let Some(lease) = &leases.overrides {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let message = format!(
            "the Lease kube-system/{name} of an earlier installation exists; its overrides take effect again"
        );
        findings.push(Finding::new(OVERRIDES, message));
    }
    Check::made("leases", detail, findings)
}
