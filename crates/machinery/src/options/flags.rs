//! The table of flags: one row each, in the sections and the order of `--help`. Names, types, defaults and meaning
//! are those of the Kubernetes 1.36 kube-controller-manager (its public command-line reference); the words are ours.
//! A row says what a flag is, never what is a valid value: that is for `validate/` to know.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::composite::{ByteQuantity, ComponentSettings, ModuleVerbosity, NamedCertKey, VersionRequest};
use super::flag::flags;
use super::value::Verbosity;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

fn list(elements: &[&str]) -> Vec<String> {
    elements.iter().map(|element| (*element).to_owned()).collect()
}

flags! {
["Debugging"]
contention_profiling: bool = false, LeftOut("KCM profiles the Go runtime; for waiting tasks, see the coxswain_runtime_ metrics"), "Profile lock contention if --profiling is set";
profiling: bool = true, Built, "Serve profiles under /debug/pprof/ on the secure port";

["Leader-migration"]
enable_leader_migration: bool = false, Built, "Use a second Lease to migrate controllers to or from another manager, for example a cloud controller manager, without running them twice";
leader_migration_config: String = "", Built, "File with a LeaderMigrationConfiguration (controllermanager.config.k8s.io; v1, v1beta1 or v1alpha1). Empty for the default controllers";

["Generic"]
allocate_node_cidrs: bool = false, Built, "Allocate the Pod CIDRs of each Node from --cluster-cidr";
allow_untagged_cloud: bool = false, None deprecated("no effect, because Kubernetes has no built-in cloud providers"), "Accept cloud instances without a cluster tag";
cidr_allocator_type: String = "RangeAllocator", Built, "Allocator of Pod CIDRs. Only RangeAllocator is supported";
cloud_config: String = "", Cloud, "Configuration file of the cloud provider. Empty for none";
cloud_provider: String = "", Built, "Cloud provider: external if a cloud controller manager is used, otherwise empty";
cluster_cidr: String = "", Built, "CIDR of Pods, or an IPv4 and an IPv6 CIDR separated by a comma. Needs --allocate-node-cidrs";
cluster_name: String = "kubernetes", Cloud, "Name of the cluster, the prefix of its cloud resources";
configure_cloud_routes: bool = true, Cloud, "Create cloud routes for the Pod CIDRs of --allocate-node-cidrs";
controller_shutdown_timeout: Option<Duration> = Some(secs(10)), Built, "Time limit for reconciles to finish at shutdown; 0 for no limit. The manager exits with an error if the limit is exceeded";
controller_start_interval: Duration = secs(0), Built, "Minimum delay before each controller starts, randomly extended to up to twice the value";
controllers: Vec<String> = list(&["*"]), Built, "Controllers to run: * for all that are on by default, NAME to enable one, -NAME to disable one. Names override *";
emulated_version: Vec<String> = list(&[]), Built, "Kubernetes release to emulate: MAJOR.MINOR or kube=MAJOR.MINOR, 1.33 to 1.36. Empty for 1.36";
external_cloud_volume_plugin: String = "", Cloud, "Volume plugin to use with --cloud-provider=external";
feature_gates: ComponentSettings = ComponentSettings::default(), Built, "Feature gates: NAME=true, NAME=false or kube:NAME=true, separated by commas. May be repeated";
kube_api_burst: i32 = 30, Built, "Maximum burst of requests of each client before --kube-api-qps limits it";
kube_api_content_type: String = "application/vnd.kubernetes.protobuf", Built, "Media type of requests to the API server: application/vnd.kubernetes.protobuf or application/json. Empty for JSON";
kube_api_qps: f32 = 20.0_f32, Built, "Maximum requests per second of each client to the API server";
leader_elect: bool = true, Built, "Run controllers only while holding a Lease, so that one of several managers is active";
leader_elect_lease_duration: Duration = secs(15), Built, "Time after the last renewal of the Lease before other candidates acquire it";
leader_elect_renew_deadline: Duration = secs(10), Built, "Time for which the leader keeps trying to renew the Lease before the process exits. Must be shorter than --leader-elect-lease-duration";
leader_elect_resource_lock: String = "leases", Built, "Resource of the lock. Only leases is supported";
leader_elect_resource_name: String = "kube-controller-manager", Built, "Name of the Lease";
leader_elect_resource_namespace: String = "kube-system", Built, "Namespace of the Lease";
leader_elect_retry_period: Duration = secs(2), Built, "Time between attempts to acquire or renew the Lease";
min_compatibility_version: Vec<String> = list(&[]), Built, "Oldest compatible release of the control plane: MAJOR.MINOR or kube=MAJOR.MINOR, not newer than --emulated-version";
min_resync_period: Duration = hours(12), Built, "Resync period of all objects, randomly extended to up to twice the value";
node_monitor_period: Duration = secs(5), Built, "Time between two checks of the status of Nodes";
node_sync_period: Duration = secs(0), None deprecated("no effect"), "Time between two syncs of the Nodes of a cloud provider";
route_reconciliation_period: Duration = secs(10), Cloud, "Time between two syncs of the routes of a cloud provider";
use_service_account_credentials: bool = false, Built, "Use a separate service account for each controller";

["Service-lb-controller"]
concurrent_service_syncs: i32 = 1, Cloud, "Number of Services to sync concurrently";

["Secure serving"]
bind_address: IpAddr = Ipv4Addr::UNSPECIFIED, Built, "Address to serve on; 0.0.0.0 or :: for all addresses, IPv4 and IPv6";
cert_dir: String = "", Built, "Directory for the generated serving certificate. Empty to keep it in memory";
disable_http2_serving: bool = false, Built, "Serve HTTP/1.1 only";
http2_max_streams_per_connection: i64 = 0, Built, "Maximum concurrent requests on one HTTP/2 connection. 0 for the default limit";
permit_address_sharing: bool = false, Moot, "No effect: SO_REUSEADDR is always set";
permit_port_sharing: bool = false, Built, "Set SO_REUSEPORT, so that several processes can bind the port";
secure_port: i64 = 10257, Built, "Port to serve HTTPS on. 0 to disable it";
tls_cert_file: String = "", Built, "File with the serving certificate and its chain. If empty, a certificate is generated";
tls_cipher_suites: Vec<String> = list(&[]), Built, "Cipher suites of TLS 1.2, by IANA name. TLS 1.3 suites are always enabled. Empty for all secure ones";
tls_curve_preferences: Vec<i32> = Vec::<i32>::new(), Built, "Key exchange groups, by IANA number: 23 (P-256), 24 (P-384), 29 (X25519). Their order has no effect. Empty for all";
tls_min_version: String = "", Built, "Minimum TLS version: VersionTLS12 or VersionTLS13";
tls_private_key_file: String = "", Built, "File with the private key of --tls-cert-file";
tls_sni_cert_key: Vec<NamedCertKey> = Vec::<NamedCertKey>::new(), Built, "Additional serving certificate for SNI: CERT,KEY for the names in the certificate, or CERT,KEY:NAME,*.NAME. May be repeated; exact names override wildcards";

["Admin API"]
admin_anonymous_reflection: bool = false, Built, "Allow gRPC reflection without credentials";
admin_bind_address: IpAddr = Ipv4Addr::UNSPECIFIED, Built, "Address to serve --admin-port on; 0.0.0.0 or :: for all addresses, IPv4 and IPv6";
admin_cors_allowed_origins: Vec<String> = list(&[]), Built, "Web origins (SCHEME://HOST[:PORT]) that may call the admin API with --admin-grpc-web; * for all. Empty for none";
admin_grpc_web: bool = false, Built, "Accept gRPC-Web calls from browsers";
admin_overrides: String = "all", Built, "Overrides that the admin API accepts: all, or disable-only to prevent enabling controllers that --controllers disables";
admin_port: i64 = 0, Built, "Separate port for the admin API, with the certificates and authentication of the secure port. 0 to serve it on the secure port";

["Authentication"]
authentication_kubeconfig: String = "", Built, "Kubeconfig of the API server for TokenReviews. If empty, the in-cluster configuration is used; outside of a cluster, requests with tokens are then anonymous";
authentication_skip_lookup: bool = false, Built, "Use only the authentication settings of flags; do not read other settings from the cluster";
authentication_token_webhook_cache_ttl: Duration = secs(10), Built, "Time to cache the results of TokenReviews";
authentication_tolerate_lookup_failure: bool = false, Built, "Start even if the authentication settings cannot be read from the cluster; requests may then be anonymous";
client_ca_file: String = "", Built, "File with the CAs of client certificates; the common name is the user name";
requestheader_allowed_names: Vec<String> = list(&[]), Built, "Common names of proxies that may set user headers. Empty to accept every certificate that a CA in --requestheader-client-ca-file signed";
requestheader_client_ca_file: String = "", Built, "File with the CAs of the client certificates of proxies that may set user headers";
requestheader_extra_headers_prefix: Vec<String> = list(&["x-remote-extra-"]), Built, "Prefixes of proxy headers with extra user attributes";
requestheader_group_headers: Vec<String> = list(&["x-remote-group"]), Built, "Proxy headers with the user's groups";
requestheader_uid_headers: Vec<String> = list(&[]), Built, "Proxy headers with the user's UID. Needs the feature gate RemoteRequestHeaderUID";
requestheader_username_headers: Vec<String> = list(&["x-remote-user"]), Built, "Proxy headers with the user name";

["Authorization"]
authorization_always_allow_paths: Vec<String> = list(&["/healthz", "/readyz", "/livez"]), Built, "Paths that are allowed without authorization. A trailing * matches every suffix";
authorization_kubeconfig: String = "", Built, "Kubeconfig of the API server for SubjectAccessReviews. If empty, the in-cluster configuration is used; outside of a cluster, only --authorization-always-allow-paths and the group system:masters are then allowed";
authorization_webhook_cache_authorized_ttl: Duration = secs(10), Built, "Time to cache allowed SubjectAccessReviews";
authorization_webhook_cache_unauthorized_ttl: Duration = secs(10), Built, "Time to cache denied SubjectAccessReviews";

["Persistentvolume-attach-detach-controller"]
attach_detach_reconcile_sync_period: Duration = secs(60), Built, "Time between two syncs of the attached volumes of a Node. At least 1s";
disable_attach_detach_reconcile_sync: bool = false, Built, "Do not sync attached volumes periodically";
disable_force_detach_on_timeout: bool = false, Built, "Never force-detach a volume after the unmount timeout";

["Certificatesigningrequest-signing-controller"]
cluster_signing_cert_file: String = "", Built, "File with the CA certificate of all built-in signers. Cannot be combined with the flags of individual signers";
cluster_signing_duration: Duration = hours(8760), Built, "Maximum validity of a signed certificate. A request can specify less";
cluster_signing_key_file: String = "", Built, "File with the private key of --cluster-signing-cert-file";
cluster_signing_kube_apiserver_client_cert_file: String = "", Built, "File with the CA certificate of the signer kubernetes.io/kube-apiserver-client";
cluster_signing_kube_apiserver_client_key_file: String = "", Built, "File with the private key of --cluster-signing-kube-apiserver-client-cert-file";
cluster_signing_kubelet_client_cert_file: String = "", Built, "File with the CA certificate of the signer kubernetes.io/kube-apiserver-client-kubelet";
cluster_signing_kubelet_client_key_file: String = "", Built, "File with the private key of --cluster-signing-kubelet-client-cert-file";
cluster_signing_kubelet_serving_cert_file: String = "", Built, "File with the CA certificate of the signer kubernetes.io/kubelet-serving";
cluster_signing_kubelet_serving_key_file: String = "", Built, "File with the private key of --cluster-signing-kubelet-serving-cert-file";
cluster_signing_legacy_unknown_cert_file: String = "", Built, "File with the CA certificate of the signer kubernetes.io/legacy-unknown";
cluster_signing_legacy_unknown_key_file: String = "", Built, "File with the private key of --cluster-signing-legacy-unknown-cert-file";

["Deployment-controller"]
concurrent_deployment_syncs: i32 = 5, Built, "Number of Deployments to sync concurrently";

["Device-taint-eviction-controller"]
concurrent_device_taint_eviction_syncs: i32 = 8, Built, "Number of evictions and status updates for tainted devices to run concurrently";

["Resourceclaim-controller"]
concurrent_resourceclaim_syncs: i32 = 50, Built, "Number of ResourceClaims to sync concurrently";

["Statefulset-controller"]
concurrent_statefulset_syncs: i32 = 5, Built, "Number of StatefulSets to sync concurrently";

["Daemonset-controller"]
concurrent_daemonset_syncs: i32 = 2, Built, "Number of DaemonSets to sync concurrently";

["Endpoints-controller"]
concurrent_endpoint_syncs: i32 = 5, Built, "Number of concurrent syncs of Endpoints, one Service each";
endpoint_updates_batch_period: Duration = secs(0), Built, "Time to batch Pod changes before Endpoints are written. A longer time means fewer and later writes";

["Endpointslice-controller"]
concurrent_service_endpoint_syncs: i32 = 5, Built, "Number of concurrent syncs of EndpointSlices, one Service each; 1 to 50";
endpointslice_updates_batch_period: Duration = secs(0), Built, "Time to batch Pod changes before EndpointSlices are written. A longer time means fewer and later writes";
max_endpoints_per_slice: i32 = 100, Built, "Maximum number of endpoints in an EndpointSlice, 1 to 1000";

["Endpointslice-mirroring-controller"]
mirroring_concurrent_service_endpoint_syncs: i32 = 5, Built, "Number of Endpoints to mirror concurrently, 1 to 50";
mirroring_endpointslice_updates_batch_period: Duration = secs(0), Built, "Time to batch changes of mirrored EndpointSlices. A longer time means fewer and later writes";
mirroring_max_endpoints_per_subset: i32 = 1000, Built, "Maximum number of endpoints to mirror from one subset, 1 to 1000";

["Ephemeral-volume-controller"]
concurrent_ephemeralvolume_syncs: i32 = 5, Built, "Number of ephemeral volumes to sync concurrently";

["Garbage-collector-controller"]
concurrent_gc_syncs: i32 = 20, Built, "Number of garbage collector workers";
enable_garbage_collector: bool = true, Built, "Run the garbage collector. Must match the flag of the API server";

["Horizontal-pod-autoscaler-controller"]
concurrent_horizontal_pod_autoscaler_syncs: i32 = 5, Built, "Number of HorizontalPodAutoscalers to sync concurrently";
horizontal_pod_autoscaler_cpu_initialization_period: Duration = secs(300), Built, "Time after the start of a Pod during which its CPU samples can be ignored";
horizontal_pod_autoscaler_downscale_stabilization: Duration = secs(300), Built, "Time window of recommendations; the autoscaler never scales below the highest of them";
horizontal_pod_autoscaler_initial_readiness_delay: Duration = secs(30), Built, "Time after the start of a Pod during which readiness changes count as the initial readiness";
horizontal_pod_autoscaler_sync_period: Duration = secs(15), Built, "Time between two evaluations of a HorizontalPodAutoscaler";
horizontal_pod_autoscaler_tolerance: f64 = 0.1, Built, "Tolerance: the autoscaler scales only if the ratio of a metric to its target differs from 1 by more than this value";

["Job-controller"]
concurrent_job_syncs: i32 = 5, Built, "Number of Jobs to sync concurrently";

["Cronjob-controller"]
concurrent_cron_job_syncs: i32 = 5, Built, "Number of CronJobs to sync concurrently";

["Legacy-serviceaccount-token-cleaner-controller"]
legacy_service_account_token_clean_up_period: Duration = hours(8760), Built, "Time without use after which a legacy token is marked as invalid. The token is deleted if it stays unused for the same time again";

["Namespace-controller"]
concurrent_namespace_syncs: i32 = 10, Built, "Number of Namespaces to sync concurrently";
namespace_sync_period: Duration = secs(300), Built, "Resync period of Namespaces";

["Node-ipam-controller"]
node_cidr_mask_size: i32 = 0, Built, "Prefix length of a Node's CIDR in a single-stack cluster. 0 for 24 with IPv4 and 64 with IPv6";
node_cidr_mask_size_ipv4: i32 = 0, Built, "Prefix length of a Node's IPv4 CIDR in a dual-stack cluster. 0 for 24";
node_cidr_mask_size_ipv6: i32 = 0, Built, "Prefix length of a Node's IPv6 CIDR in a dual-stack cluster. 0 for 64";
service_cluster_ip_range: String = "", Built, "CIDRs of Services, which are excluded from the CIDRs of Nodes. Needs --allocate-node-cidrs";

["Node-lifecycle-controller"]
large_cluster_size_threshold: i32 = 50, Built, "Number of Nodes above which a zone is large. In a smaller zone that is unhealthy, no Pods are evicted";
node_eviction_rate: f32 = 0.1_f32, Built, "Nodes per second whose Pods are evicted in a healthy zone";
node_monitor_grace_period: Duration = secs(50), Built, "Time without a heartbeat after which a running Node is marked unhealthy";
node_startup_grace_period: Duration = secs(60), Built, "Time without a heartbeat after which a starting Node is marked unhealthy";
secondary_node_eviction_rate: f32 = 0.01_f32, Built, "Nodes per second whose Pods are evicted in an unhealthy large zone";
unhealthy_zone_threshold: f32 = 0.55_f32, Built, "Fraction of unready Nodes that makes a zone unhealthy, if at least 3 of its Nodes are unready";

["Persistentvolume-binder-controller"]
enable_dynamic_provisioning: bool = true, Built, "Provision volumes dynamically if the environment supports it";
enable_hostpath_provisioner: bool = false, Built, "Provision host path volumes. For tests on one Node only";
flex_volume_plugin_dir: String = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", LeftOut("Coxswain runs no FlexVolume drivers; it logs the installed ones at startup"), "Directory of FlexVolume drivers";
pv_recycler_increment_timeout_nfs: i32 = 30, Built, "Seconds added per GiB to the deadline of a recycler Pod for an NFS volume";
pv_recycler_minimum_timeout_hostpath: i32 = 60, Built, "Minimum deadline in seconds of a recycler Pod for a host path volume. For tests only";
pv_recycler_minimum_timeout_nfs: i32 = 300, Built, "Minimum deadline in seconds of a recycler Pod for an NFS volume";
pv_recycler_pod_template_filepath_hostpath: String = "", Built, "File with the template of the recycler Pod for a host path volume. For tests only";
pv_recycler_pod_template_filepath_nfs: String = "", Built, "File with the template of the recycler Pod for an NFS volume";
pv_recycler_timeout_increment_hostpath: i32 = 30, Built, "Seconds added per GiB to the deadline of a recycler Pod for a host path volume. For tests only";
pvclaimbinder_sync_period: Duration = secs(15), Built, "Resync period of PersistentVolumes and PersistentVolumeClaims";

["Pod-garbage-collector-controller"]
terminated_pod_gc_threshold: i32 = 12_500, Built, "Number of finished Pods to keep before the oldest are deleted. 0 or less to keep all";

["Replicaset-controller"]
concurrent_replicaset_syncs: i32 = 5, Built, "Number of ReplicaSets to sync concurrently";

["Replicationcontroller-controller"]
concurrent_rc_syncs: i32 = 5, Built, "Number of ReplicationControllers to sync concurrently";

["Resourcequota-controller"]
concurrent_resource_quota_syncs: i32 = 5, Built, "Number of ResourceQuotas to sync concurrently";
resource_quota_sync_period: Duration = secs(300), Built, "Time between two full syncs of the usage of every ResourceQuota. 0 for never";

["Serviceaccount-controller"]
concurrent_serviceaccount_token_syncs: i32 = 5, Built, "Number of service account token Secrets to sync concurrently";
root_ca_file: String = "", Built, "File with the CAs (PEM) to publish in each namespace and in service account token Secrets";
service_account_private_key_file: String = "", Built, "File with the private key (PEM, RSA or ECDSA) that signs tokens in Secrets. If empty, token Secrets stay empty";

["Ttl-after-finished-controller"]
concurrent_ttl_after_finished_syncs: i32 = 5, Built, "Number of finished Jobs to sync concurrently";

["Validatingadmissionpolicy-status-controller"]
concurrent_validating_admission_policy_status_syncs: i32 = 5, Built, "Number of ValidatingAdmissionPolicies to type-check concurrently";

["Metrics"]
allow_metric_labels: BTreeMap<String, String> = BTreeMap::new(), Built, "Allowed values of metric labels: METRIC,LABEL=VALUE,VALUE. Other values are counted together";
allow_metric_labels_manifest: String = "", Built, "File with --allow-metric-labels as YAML, a map of METRIC,LABEL to VALUE,VALUE. Cannot be combined with --allow-metric-labels";
disabled_metrics: Vec<String> = list(&[]), Built, "Full names of metrics to disable";
show_hidden_metrics_for_version: String = "", Moot, "No effect: Coxswain hides no metrics. Only the previous release, 1.35, is allowed";

["Traces"]
metrics_otlp_endpoint: String = "", Built, "OpenTelemetry collector to export metrics to: HOST:PORT for OTLP/gRPC without encryption, or a URL. Overrides OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, which is used if the flag is empty";
tracing_config_file: String = "", Built, "File with a TracingConfiguration (apiserver.config.k8s.io; v1, v1beta1 or v1alpha1): the collector, and the sampling rate per million";
tracing_endpoint: String = "", Built, "OpenTelemetry collector to send spans to: HOST:PORT for OTLP/gRPC without encryption, or a URL. Overrides --tracing-config-file and OTEL_EXPORTER_OTLP_ENDPOINT, which are used if the flag is empty";
tracing_sampling_rate_per_million: i32 = -1, Built, "Sampling rate of root traces per million. Overrides --tracing-config-file and OTEL_TRACES_SAMPLER; -1 to use their rate";

["Logs"]
log_flush_frequency: Duration = secs(5), Built, "Maximum time that a log line is buffered if a buffer size is set";
log_json_info_buffer_size: ByteQuantity = 0_u64, Built, "Buffer size for info messages in bytes if JSON streams are split. Needs the feature gate LoggingAlphaOptions";
log_json_split_stream: bool = false, Built, "With JSON, write errors to stderr and other messages to stdout. Needs the feature gate LoggingAlphaOptions";
log_text_info_buffer_size: ByteQuantity = 0_u64, Built, "Buffer size for info messages in bytes if text streams are split. Needs the feature gate LoggingAlphaOptions";
log_text_split_stream: bool = false, Built, "With text, write errors to stderr and other messages to stdout. Needs the feature gate LoggingAlphaOptions";
logging_format: String = "text", Built, "Log format: text or json";
v: Verbosity = 0_u32, Built, "Log verbosity: 0 for essential messages, 4 for debugging, 6 for everything";
vmodule: ModuleVerbosity = ModuleVerbosity::default(), Built, "Log verbosity by module, for the text format only: the last segment of the module path, or several segments joined with ::; * and ? are wildcards";

["Misc"]
kubeconfig: String = "", Built, "Kubeconfig of the API server. If --kubeconfig and --master are empty, the in-cluster configuration is used";
master: String = "", Built, "Address of the API server. Overrides the kubeconfig";

["Global"]
help: bool = false, Built, "Print this help and exit";
version: VersionRequest = VersionRequest::No, Built, "Print the version and exit. raw prints all details; v1.36.3-SUFFIX or v1.36.3+SUFFIX runs the manager, and reports this version instead of v1.36.3";
}
