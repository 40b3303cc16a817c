//! The component configuration that `/configz` serves: the flags in the shape of the publicly documented
//! KubeControllerManagerConfiguration (kubecontrollermanager.config.k8s.io/v1alpha1), as tools that read the
//! original's expect it.

use std::time::Duration;

use serde_json::{Number, Value, json};

use super::duration::format;
use super::{Config, Flags};

/// The key under which `/configz` serves it.
const KEY: &str = "kubecontrollermanager.config.k8s.io";

/// How often the recycling of a volume is tried; the original has no flag for it.
/// Differs: no.
const RECYCLER_RETRIES: i32 = 3;

impl Config {
    /// The component configuration, under its key.
    pub fn configz(&self) -> Value {
        let flags = &self.flags;
        let mut configuration = serde_json::Map::new();
        configuration.insert("kind".to_owned(), "KubeControllerManagerConfiguration".into());
        configuration.insert("apiVersion".to_owned(), format!("{KEY}/v1alpha1").into());
        configuration.insert("Generic".to_owned(), self.generic());
        configuration.insert("KubeCloudShared".to_owned(), cloud(flags));
        for part in [
            workloads(flags),
            endpoints(flags),
            cluster(flags),
            nodes(flags),
            storage(flags),
            accounts(flags),
        ] {
            if let Value::Object(part) = part {
                configuration.extend(part);
            }
        }
        json!({ KEY: configuration })
    }

    fn generic(&self) -> Value {
        let flags = &self.flags;
        json!({
            "Port": 0,
            "Address": "0.0.0.0",
            "MinResyncPeriod": format(flags.min_resync_period),
            "ClientConnection": {
                "kubeconfig": flags.kubeconfig,
                "acceptContentTypes": "",
                "contentType": flags.kube_api_content_type,
                "qps": number(flags.kube_api_qps),
                "burst": flags.kube_api_burst,
            },
            "ControllerStartInterval": format(flags.controller_start_interval),
            "LeaderElection": {
                "leaderElect": flags.leader_elect,
                "leaseDuration": format(flags.leader_elect_lease_duration),
                "renewDeadline": format(flags.leader_elect_renew_deadline),
                "retryPeriod": format(flags.leader_elect_retry_period),
                "resourceLock": flags.leader_elect_resource_lock,
                "resourceName": flags.leader_elect_resource_name,
                "resourceNamespace": flags.leader_elect_resource_namespace,
            },
            "Controllers": flags.controllers,
            "Debugging": {
                "enableProfiling": flags.profiling,
                "enableContentionProfiling": flags.contention_profiling,
            },
            "LeaderMigrationEnabled": flags.enable_leader_migration,
            "LeaderMigration": self.migration(),
        })
    }

    fn migration(&self) -> Value {
        let Some(migration) = &self.leader_migration else {
            return json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null });
        };
        let leaders = migration.controller_leaders.iter();
        json!({
            "leaderName": migration.leader_name,
            "resourceLock": migration.resource_lock,
            "controllerLeaders": leaders
                .map(|leader| json!({ "name": leader.name, "component": leader.component }))
                .collect::<Value>(),
        })
    }
}

fn cloud(flags: &Flags) -> Value {
    json!({
        "CloudProvider": { "Name": flags.cloud_provider, "CloudConfigFile": flags.cloud_config },
        "ExternalCloudVolumePlugin": flags.external_cloud_volume_plugin,
        "UseServiceAccountCredentials": flags.use_service_account_credentials,
        "AllowUntaggedCloud": flags.allow_untagged_cloud,
        "RouteReconciliationPeriod": format(flags.route_reconciliation_period),
        "NodeMonitorPeriod": format(flags.node_monitor_period),
        "ClusterName": flags.cluster_name,
        "ClusterCIDR": flags.cluster_cidr,
        "AllocateNodeCIDRs": flags.allocate_node_cidrs,
        "CIDRAllocatorType": flags.cidr_allocator_type,
        "ConfigureCloudRoutes": flags.configure_cloud_routes,
        "NodeSyncPeriod": format(flags.node_sync_period),
    })
}

fn workloads(flags: &Flags) -> Value {
    json!({
        "DaemonSetController": { "ConcurrentDaemonSetSyncs": flags.concurrent_daemonset_syncs },
        "DeploymentController": { "ConcurrentDeploymentSyncs": flags.concurrent_deployment_syncs },
        "StatefulSetController": { "ConcurrentStatefulSetSyncs": flags.concurrent_statefulset_syncs },
        "DeprecatedController": {},
        "HPAController": {
            "ConcurrentHorizontalPodAutoscalerSyncs": flags.concurrent_horizontal_pod_autoscaler_syncs,
            "HorizontalPodAutoscalerSyncPeriod": format(flags.horizontal_pod_autoscaler_sync_period),
            "HorizontalPodAutoscalerDownscaleStabilizationWindow":
                format(flags.horizontal_pod_autoscaler_downscale_stabilization),
            "HorizontalPodAutoscalerTolerance": number(flags.horizontal_pod_autoscaler_tolerance),
            "HorizontalPodAutoscalerCPUInitializationPeriod":
                format(flags.horizontal_pod_autoscaler_cpu_initialization_period),
            "HorizontalPodAutoscalerInitialReadinessDelay":
                format(flags.horizontal_pod_autoscaler_initial_readiness_delay),
        },
        "JobController": { "ConcurrentJobSyncs": flags.concurrent_job_syncs },
        "CronJobController": { "ConcurrentCronJobSyncs": flags.concurrent_cron_job_syncs },
        "PodGCController": { "TerminatedPodGCThreshold": flags.terminated_pod_gc_threshold },
        "ReplicaSetController": { "ConcurrentRSSyncs": flags.concurrent_replicaset_syncs },
        "ReplicationController": { "ConcurrentRCSyncs": flags.concurrent_rc_syncs },
        "TTLAfterFinishedController": { "ConcurrentTTLSyncs": flags.concurrent_ttl_after_finished_syncs },
        "ResourceClaimController": { "ConcurrentSyncs": flags.concurrent_resourceclaim_syncs },
    })
}

fn endpoints(flags: &Flags) -> Value {
    json!({
        "EndpointController": {
            "ConcurrentEndpointSyncs": flags.concurrent_endpoint_syncs,
            "EndpointUpdatesBatchPeriod": format(flags.endpoint_updates_batch_period),
        },
        "EndpointSliceController": {
            "ConcurrentServiceEndpointSyncs": flags.concurrent_service_endpoint_syncs,
            "MaxEndpointsPerSlice": flags.max_endpoints_per_slice,
            "EndpointUpdatesBatchPeriod": format(flags.endpointslice_updates_batch_period),
        },
        "EndpointSliceMirroringController": {
            "MirroringConcurrentServiceEndpointSyncs": flags.mirroring_concurrent_service_endpoint_syncs,
            "MirroringMaxEndpointsPerSubset": flags.mirroring_max_endpoints_per_subset,
            "MirroringEndpointUpdatesBatchPeriod": format(flags.mirroring_endpointslice_updates_batch_period),
        },
        "ServiceController": { "ConcurrentServiceSyncs": flags.concurrent_service_syncs },
    })
}

fn cluster(flags: &Flags) -> Value {
    json!({
        "GarbageCollectorController": {
            "EnableGarbageCollector": flags.enable_garbage_collector,
            "ConcurrentGCSyncs": flags.concurrent_gc_syncs,
            "GCIgnoredResources": [
                { "Group": "", "Resource": "events" },
                { "Group": "events.k8s.io", "Resource": "events" },
            ],
        },
        "NamespaceController": {
            "NamespaceSyncPeriod": format(flags.namespace_sync_period),
            "ConcurrentNamespaceSyncs": flags.concurrent_namespace_syncs,
        },
        "ResourceQuotaController": {
            "ResourceQuotaSyncPeriod": format(flags.resource_quota_sync_period),
            "ConcurrentResourceQuotaSyncs": flags.concurrent_resource_quota_syncs,
        },
        "ValidatingAdmissionPolicyStatusController": {
            "ConcurrentPolicySyncs": flags.concurrent_validating_admission_policy_status_syncs,
        },
    })
}

fn nodes(flags: &Flags) -> Value {
    let mut services = flags.service_cluster_ip_range.split(',').map(str::trim);
    json!({
        "NodeIPAMController": {
            "ServiceCIDR": services.next().unwrap_or_default(),
            "SecondaryServiceCIDR": services.next().unwrap_or_default(),
            "NodeCIDRMaskSize": flags.node_cidr_mask_size,
            "NodeCIDRMaskSizeIPv4": flags.node_cidr_mask_size_ipv4,
            "NodeCIDRMaskSizeIPv6": flags.node_cidr_mask_size_ipv6,
        },
        "NodeLifecycleController": {
            "NodeEvictionRate": number(flags.node_eviction_rate),
            "SecondaryNodeEvictionRate": number(flags.secondary_node_eviction_rate),
            "NodeStartupGracePeriod": format(flags.node_startup_grace_period),
            "NodeMonitorGracePeriod": format(flags.node_monitor_grace_period),
            // The flag that set it is gone from the original, and the field is not.
            "PodEvictionTimeout": format(Duration::ZERO),
            "LargeClusterSizeThreshold": flags.large_cluster_size_threshold,
            "UnhealthyZoneThreshold": number(flags.unhealthy_zone_threshold),
        },
        "DeviceTaintEvictionController": { "ConcurrentSyncs": flags.concurrent_device_taint_eviction_syncs },
    })
}

fn storage(flags: &Flags) -> Value {
    json!({
        "AttachDetachController": {
            "DisableAttachDetachReconcilerSync": flags.disable_attach_detach_reconcile_sync,
            "ReconcilerSyncLoopPeriod": format(flags.attach_detach_reconcile_sync_period),
            "disableForceDetachOnTimeout": flags.disable_force_detach_on_timeout,
        },
        "EphemeralVolumeController": { "ConcurrentEphemeralVolumeSyncs": flags.concurrent_ephemeralvolume_syncs },
        "PersistentVolumeBinderController": {
            "PVClaimBinderSyncPeriod": format(flags.pvclaimbinder_sync_period),
            "VolumeConfiguration": {
                "EnableHostPathProvisioning": flags.enable_hostpath_provisioner,
                "EnableDynamicProvisioning": flags.enable_dynamic_provisioning,
                "PersistentVolumeRecyclerConfiguration": {
                    "MaximumRetry": RECYCLER_RETRIES,
                    "MinimumTimeoutNFS": flags.pv_recycler_minimum_timeout_nfs,
                    "PodTemplateFilePathNFS": flags.pv_recycler_pod_template_filepath_nfs,
                    "IncrementTimeoutNFS": flags.pv_recycler_increment_timeout_nfs,
                    "PodTemplateFilePathHostPath": flags.pv_recycler_pod_template_filepath_hostpath,
                    "MinimumTimeoutHostPath": flags.pv_recycler_minimum_timeout_hostpath,
                    "IncrementTimeoutHostPath": flags.pv_recycler_timeout_increment_hostpath,
                },
                "FlexVolumePluginDir": flags.flex_volume_plugin_dir,
            },
        },
    })
}

fn accounts(flags: &Flags) -> Value {
    let pair = |cert: &str, key: &str| json!({ "CertFile": cert, "KeyFile": key });
    json!({
        "CSRSigningController": {
            "ClusterSigningCertFile": flags.cluster_signing_cert_file,
            "ClusterSigningKeyFile": flags.cluster_signing_key_file,
            "KubeletServingSignerConfiguration": pair(
                &flags.cluster_signing_kubelet_serving_cert_file,
                &flags.cluster_signing_kubelet_serving_key_file,
            ),
            "KubeletClientSignerConfiguration": pair(
                &flags.cluster_signing_kubelet_client_cert_file,
                &flags.cluster_signing_kubelet_client_key_file,
            ),
            "KubeAPIServerClientSignerConfiguration": pair(
                &flags.cluster_signing_kube_apiserver_client_cert_file,
                &flags.cluster_signing_kube_apiserver_client_key_file,
            ),
            "LegacyUnknownSignerConfiguration": pair(
                &flags.cluster_signing_legacy_unknown_cert_file,
                &flags.cluster_signing_legacy_unknown_key_file,
            ),
            "ClusterSigningDuration": format(flags.cluster_signing_duration),
        },
        "LegacySATokenCleaner": { "CleanUpPeriod": format(flags.legacy_service_account_token_clean_up_period) },
        "SAController": {
            "ServiceAccountKeyFile": flags.service_account_private_key_file,
            "ConcurrentSATokenSyncs": flags.concurrent_serviceaccount_token_syncs,
            "RootCAFile": flags.root_ca_file,
        },
    })
}

/// A number as the original writes it: without a fraction where it has none, and with no more digits than it needs.
fn number(value: impl std::fmt::Display) -> Value {
    let text = value.to_string();
    match text.parse::<i64>() {
        Ok(whole) => whole.into(),
        Err(_) => text.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
    }
}
