//! How much is done at the same time, and the bounds of single controllers' flags.

use std::time::Duration;

use super::Check;
use crate::options::duration::format;
use crate::options::error::OptionError;
use crate::options::recycler;

impl Check<'_> {
    pub(super) fn workers(&mut self) {
        let flags = self.flags;
        // The original refuses these.
        // Differs: no.
        for (flag, value, most) in [
            ("concurrent-job-syncs", flags.concurrent_job_syncs, i64::MAX),
            ("concurrent-cron-job-syncs", flags.concurrent_cron_job_syncs, i64::MAX),
            ("concurrent-daemonset-syncs", flags.concurrent_daemonset_syncs, i64::MAX),
            ("concurrent-statefulset-syncs", flags.concurrent_statefulset_syncs, i64::MAX),
            (
                "concurrent-horizontal-pod-autoscaler-syncs",
                flags.concurrent_horizontal_pod_autoscaler_syncs,
                i64::MAX,
            ),
            ("concurrent-resourceclaim-syncs", flags.concurrent_resourceclaim_syncs, i64::MAX),
            (
                "concurrent-device-taint-eviction-syncs",
                flags.concurrent_device_taint_eviction_syncs,
                i64::MAX,
            ),
            ("concurrent-ephemeralvolume-syncs", flags.concurrent_ephemeralvolume_syncs, i64::MAX),
            ("concurrent-service-endpoint-syncs", flags.concurrent_service_endpoint_syncs, 50),
            ("max-endpoints-per-slice", flags.max_endpoints_per_slice, 1000),
            (
                "mirroring-concurrent-service-endpoint-syncs",
                flags.mirroring_concurrent_service_endpoint_syncs,
                50,
            ),
            ("mirroring-max-endpoints-per-subset", flags.mirroring_max_endpoints_per_subset, 1000),
        ] {
            self.range(flag, value, 1..=most);
        }
        // It takes these, and the controller then never does anything. Here one works, so that nothing stands still, and that is
        // said.
        for (flag, value) in [
            ("concurrent-deployment-syncs", flags.concurrent_deployment_syncs),
            ("concurrent-endpoint-syncs", flags.concurrent_endpoint_syncs),
            ("concurrent-gc-syncs", flags.concurrent_gc_syncs),
            ("concurrent-namespace-syncs", flags.concurrent_namespace_syncs),
            ("concurrent-rc-syncs", flags.concurrent_rc_syncs),
            ("concurrent-replicaset-syncs", flags.concurrent_replicaset_syncs),
            ("concurrent-resource-quota-syncs", flags.concurrent_resource_quota_syncs),
            ("concurrent-service-syncs", flags.concurrent_service_syncs),
            ("concurrent-serviceaccount-token-syncs", flags.concurrent_serviceaccount_token_syncs),
            ("concurrent-ttl-after-finished-syncs", flags.concurrent_ttl_after_finished_syncs),
            (
                "concurrent-validating-admission-policy-status-syncs",
                flags.concurrent_validating_admission_policy_status_syncs,
            ),
        ] {
            if value < 1 {
                self.warn(flag, format!("using 1 instead of {value}, because the controller needs a worker"));
            }
        }
        if flags.attach_detach_reconcile_sync_period < Duration::from_secs(1) {
            let problem = format!("{} is too short", format(flags.attach_detach_reconcile_sync_period));
            self.fail("attach-detach-reconcile-sync-period", problem, "1s or more");
        }
        self.recyclers();
    }

    /// The Pods that empty volumes. Each controller that knows types of volumes loads them in the original, and does not start without.
    fn recyclers(&mut self) {
        const LOADED_BY: [&str; 4] = [
            "persistentvolume-binder-controller",
            "persistentvolume-attach-detach-controller",
            "persistentvolume-expander-controller",
            "selinux-warning-controller",
        ];
        if !LOADED_BY.iter().any(|name| self.runs(name)) {
            return;
        }
        let flags = self.flags;
        for (flag, path) in [
            ("pv-recycler-pod-template-filepath-nfs", &flags.pv_recycler_pod_template_filepath_nfs),
            ("pv-recycler-pod-template-filepath-hostpath", &flags.pv_recycler_pod_template_filepath_hostpath),
        ] {
            if let Err(problem) = recycler::template(path) {
                let allowed = "a file with a Pod that has a volume";
                self.errors.push(OptionError::file(flag, path, problem, allowed));
            }
        }
    }
}
