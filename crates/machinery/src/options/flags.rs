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
contention_profiling: bool = false, LeftOut("what it records is of Go's runtime; the tokio_ metrics tell of tasks that wait"), "Record where goroutines wait for locks, when profiling is on.";
profiling: bool = true, Built, "Serve profiles under /debug/pprof/ on the secure port.";

["Leader-migration"]
enable_leader_migration: bool = false, Built, "Share controllers with another manager (a cloud controller manager, say) by a second lock, so that they can move from one to the other without running in both.";
leader_migration_config: String = "", Built, "File with a LeaderMigrationConfiguration (group controllermanager.config.k8s.io; v1, v1beta1 or v1alpha1) that says which controllers move. Empty for the usual ones.";

["Generic"]
allocate_node_cidrs: bool = false, Built, "Give each Node ranges of Pod addresses out of --cluster-cidr.";
allow_untagged_cloud: bool = false, None deprecated("built-in cloud providers are gone, and with them its effect"), "Formerly: accept cloud instances that carry no cluster tag.";
cidr_allocator_type: String = "RangeAllocator", Built, "How Pod address ranges are given to Nodes. Only RangeAllocator is built in.";
cloud_config: String = "", Cloud, "Configuration file of the cloud provider. Empty for none.";
cloud_provider: String = "", Built, "Who runs the controllers that talk to a cloud: external for a cloud controller manager, empty for no one.";
cluster_cidr: String = "", Built, "Ranges of Pod addresses in the cluster: one, or an IPv4 and an IPv6 range separated by a comma. Needs --allocate-node-cidrs.";
cluster_name: String = "kubernetes", Cloud, "Name of the cluster, which prefixes what is made for it in a cloud.";
configure_cloud_routes: bool = true, Cloud, "Make routes in the cloud for the ranges given by --allocate-node-cidrs.";
controller_shutdown_timeout: Option<Duration> = Some(secs(10)), Built, "Time that controllers have to finish their reconciles when the manager stops; 0 for no limit. When it is reached, the manager ends with an error.";
controller_start_interval: Duration = secs(0), Built, "Shortest time that each controller waits before it starts, lengthened at random to up to twice as much. All wait at the same time.";
controllers: Vec<String> = list(&["*"]), Built, "Controllers to run: * for all that are on by default, NAME to add one, -NAME to leave one out. What is named wins over *.";
emulated_version: Vec<String> = list(&[]), Built, "Behave as this release of Kubernetes: MAJOR.MINOR or kube=MAJOR.MINOR, 1.33 to 1.36. Empty for 1.36.";
external_cloud_volume_plugin: String = "", Cloud, "Volume plugin to use where --cloud-provider=external.";
feature_gates: ComponentSettings = ComponentSettings::default(), Built, "Features to switch on or off: NAME=true, NAME=false or kube:NAME=true, separated by commas. May be repeated.";
kube_api_burst: i32 = 30, Built, "Requests that a client may send at once before --kube-api-qps slows it down.";
kube_api_content_type: String = "application/vnd.kubernetes.protobuf", Built, "Media type of requests to the API server: application/vnd.kubernetes.protobuf, or application/json, as if it is empty.";
kube_api_qps: f32 = 20.0_f32, Built, "Requests per second that each client may send to the API server.";
leader_elect: bool = true, Built, "Hold a lock while running controllers, so that of several managers exactly one does.";
leader_elect_lease_duration: Duration = secs(15), Built, "How long others wait after the last renewal of the lock before they try to take it.";
leader_elect_renew_deadline: Duration = secs(10), Built, "How long the leader goes on trying to renew the lock before it stops. Must be shorter than the lease duration.";
leader_elect_resource_lock: String = "leases", Built, "Kind of object that is the lock. Only leases is supported.";
leader_elect_resource_name: String = "kube-controller-manager", Built, "Name of the lock.";
leader_elect_resource_namespace: String = "kube-system", Built, "Namespace of the lock.";
leader_elect_retry_period: Duration = secs(2), Built, "Time between attempts to take or renew the lock.";
min_compatibility_version: Vec<String> = list(&[]), Built, "Oldest release of the control plane to work with: MAJOR.MINOR or kube=MAJOR.MINOR, not newer than --emulated-version.";
min_resync_period: Duration = hours(12), Built, "All objects are looked at again after this period, lengthened at random to up to twice as much.";
node_monitor_period: Duration = secs(5), Built, "Time between two looks at the status of Nodes.";
node_sync_period: Duration = secs(0), None deprecated("it has had no effect for years"), "Formerly: time between two looks at the Nodes of a cloud provider.";
route_reconciliation_period: Duration = secs(10), Cloud, "Time between two looks at the routes of a cloud provider.";
use_service_account_credentials: bool = false, Built, "Give each controller the credentials of its own service account instead of the manager's.";

["Service-lb-controller"]
concurrent_service_syncs: i32 = 1, Cloud, "Services reconciled at the same time.";

["Secure serving"]
bind_address: IpAddr = Ipv4Addr::UNSPECIFIED, Built, "Address to serve on; 0.0.0.0 or :: for all addresses, IPv4 and IPv6.";
cert_dir: String = "", Built, "Directory for the serving certificate that is made when none is given. Empty to keep it in memory.";
disable_http2_serving: bool = false, Built, "Serve HTTP/1.1 only.";
http2_max_streams_per_connection: i64 = 0, Built, "Requests that an HTTP/2 client may have under way on one connection. 0 for the usual limit.";
permit_address_sharing: bool = false, Moot, "Bind the port with SO_REUSEADDR, as is done in any case.";
permit_port_sharing: bool = false, Built, "Bind the port with SO_REUSEPORT, so that several processes can.";
secure_port: i64 = 10257, Built, "Port to serve HTTPS on. 0 to serve nothing.";
tls_cert_file: String = "", Built, "Serving certificate, with its chain. One is made when none is given.";
tls_cipher_suites: Vec<String> = list(&[]), Built, "Cipher suites of TLS 1.2 to serve with, by their IANA names. Those of TLS 1.3 are always on. Empty for all that are secure.";
tls_curve_preferences: Vec<i32> = Vec::<i32>::new(), Built, "Key exchange groups to serve with, by their IANA numbers: 23 (P-256), 24 (P-384), 29 (X25519). Their order does not matter. Empty for all.";
tls_min_version: String = "", Built, "Oldest TLS version to serve: VersionTLS12 or VersionTLS13. Older ones are not spoken.";
tls_private_key_file: String = "", Built, "Private key of --tls-cert-file.";
tls_sni_cert_key: Vec<NamedCertKey> = Vec::<NamedCertKey>::new(), Built, "Another serving certificate, chosen by the name that the client asks for: CERT,KEY for the names in it, CERT,KEY:NAME,*.NAME for others. May be repeated; exact names win over wildcards.";

["Admin API"]
admin_anonymous_reflection: bool = false, Built, "Let callers without credentials ask which services there are (gRPC reflection).";
admin_bind_address: IpAddr = Ipv4Addr::UNSPECIFIED, Built, "Address of --admin-port; 0.0.0.0 or :: for all addresses, IPv4 and IPv6.";
admin_cors_allowed_origins: Vec<String> = list(&[]), Built, "Origins (SCHEME://HOST[:PORT]) whose pages may call the admin API with --admin-grpc-web; * for all. Empty for none.";
admin_grpc_web: bool = false, Built, "Take gRPC-Web calls too, as browsers make them.";
admin_overrides: String = "all", Built, "Orders that the admin API takes: all, or disable-only so that none runs a controller that --controllers leaves out.";
admin_port: i64 = 0, Built, "Port of its own for the admin API, with the certificates and the authentication of the secure port. 0 to serve it on the secure port.";

["Authentication"]
authentication_kubeconfig: String = "", Built, "Kubeconfig of the API server that checks tokens (TokenReview). Empty to take every token as anonymous.";
authentication_skip_lookup: bool = false, Built, "Do not look up missing authentication settings in the cluster.";
authentication_token_webhook_cache_ttl: Duration = secs(10), Built, "How long the answer to a token check is kept.";
authentication_tolerate_lookup_failure: bool = false, Built, "Start even if authentication settings can't be looked up; requests may then be anonymous.";
client_ca_file: String = "", Built, "Authorities whose client certificates are accepted; their common name is the user.";
requestheader_allowed_names: Vec<String> = list(&[]), Built, "Common names of the proxies that may set user headers. Empty for any certificate of --requestheader-client-ca-file.";
requestheader_client_ca_file: String = "", Built, "Authorities whose client certificates prove a proxy that may set user headers.";
requestheader_extra_headers_prefix: Vec<String> = list(&["x-remote-extra-"]), Built, "Prefixes of the headers from which a proxy's extra user attributes are read.";
requestheader_group_headers: Vec<String> = list(&["x-remote-group"]), Built, "Headers from which a proxy's user groups are read.";
requestheader_uid_headers: Vec<String> = list(&[]), Built, "Headers from which a proxy's user ID is read. Needs the RemoteRequestHeaderUID feature.";
requestheader_username_headers: Vec<String> = list(&["x-remote-user"]), Built, "Headers from which a proxy's user name is read.";

["Authorization"]
authorization_always_allow_paths: Vec<String> = list(&["/healthz", "/readyz", "/livez"]), Built, "Paths that anyone may request. A trailing * matches all that begins so.";
authorization_kubeconfig: String = "", Built, "Kubeconfig of the API server that is asked what a user may do (SubjectAccessReview). Empty to forbid all but the paths that anyone may request.";
authorization_webhook_cache_authorized_ttl: Duration = secs(10), Built, "How long a positive answer is kept.";
authorization_webhook_cache_unauthorized_ttl: Duration = secs(10), Built, "How long a negative answer is kept.";

["Persistentvolume-attach-detach-controller"]
attach_detach_reconcile_sync_period: Duration = secs(60), Built, "Time between two comparisons of attached volumes with what should be. At least one second.";
disable_attach_detach_reconcile_sync: bool = false, Built, "Do not compare attached volumes with what should be.";
disable_force_detach_on_timeout: bool = false, Built, "Never detach a volume by force, however long unmounting takes.";

["Certificatesigningrequest-signing-controller"]
cluster_signing_cert_file: String = "", Built, "Authority that signs for every built-in signer. Excludes the flags for single signers.";
cluster_signing_duration: Duration = hours(8760), Built, "Longest validity of a signed certificate. A request may ask for less.";
cluster_signing_key_file: String = "", Built, "Private key of --cluster-signing-cert-file.";
cluster_signing_kube_apiserver_client_cert_file: String = "", Built, "Authority that signs for kubernetes.io/kube-apiserver-client.";
cluster_signing_kube_apiserver_client_key_file: String = "", Built, "Private key of --cluster-signing-kube-apiserver-client-cert-file.";
cluster_signing_kubelet_client_cert_file: String = "", Built, "Authority that signs for kubernetes.io/kube-apiserver-client-kubelet.";
cluster_signing_kubelet_client_key_file: String = "", Built, "Private key of --cluster-signing-kubelet-client-cert-file.";
cluster_signing_kubelet_serving_cert_file: String = "", Built, "Authority that signs for kubernetes.io/kubelet-serving.";
cluster_signing_kubelet_serving_key_file: String = "", Built, "Private key of --cluster-signing-kubelet-serving-cert-file.";
cluster_signing_legacy_unknown_cert_file: String = "", Built, "Authority that signs for kubernetes.io/legacy-unknown.";
cluster_signing_legacy_unknown_key_file: String = "", Built, "Private key of --cluster-signing-legacy-unknown-cert-file.";

["Deployment-controller"]
concurrent_deployment_syncs: i32 = 5, Built, "Deployments reconciled at the same time.";

["Device-taint-eviction-controller"]
concurrent_device_taint_eviction_syncs: i32 = 8, Built, "Evictions and status updates for tainted devices done at the same time.";

["Resourceclaim-controller"]
concurrent_resourceclaim_syncs: i32 = 50, Built, "ResourceClaims made or deleted at the same time.";

["Statefulset-controller"]
concurrent_statefulset_syncs: i32 = 5, Built, "StatefulSets reconciled at the same time.";

["Daemonset-controller"]
concurrent_daemonset_syncs: i32 = 2, Built, "DaemonSets reconciled at the same time.";

["Endpoints-controller"]
concurrent_endpoint_syncs: i32 = 5, Built, "Services whose Endpoints are reconciled at the same time.";
endpoint_updates_batch_period: Duration = secs(0), Built, "How long changes of Pods are gathered before Endpoints are written. Longer means fewer writes and later news.";

["Endpointslice-controller"]
concurrent_service_endpoint_syncs: i32 = 5, Built, "Services whose EndpointSlices are reconciled at the same time: 1 to 50.";
endpointslice_updates_batch_period: Duration = secs(0), Built, "How long changes of Pods are gathered before EndpointSlices are written. Longer means fewer writes and later news.";
max_endpoints_per_slice: i32 = 100, Built, "Endpoints in one EndpointSlice at most: 1 to 1000.";

["Endpointslice-mirroring-controller"]
mirroring_concurrent_service_endpoint_syncs: i32 = 5, Built, "Endpoints mirrored at the same time: 1 to 50.";
mirroring_endpointslice_updates_batch_period: Duration = secs(0), Built, "How long changes of mirrored EndpointSlices are gathered before they are looked at. Longer means fewer writes and later news.";
mirroring_max_endpoints_per_subset: i32 = 1000, Built, "Endpoints mirrored from one subset at most: 1 to 1000.";

["Ephemeral-volume-controller"]
concurrent_ephemeralvolume_syncs: i32 = 5, Built, "Ephemeral volumes reconciled at the same time.";

["Garbage-collector-controller"]
concurrent_gc_syncs: i32 = 20, Built, "Workers that collect garbage at the same time.";
enable_garbage_collector: bool = true, Built, "Collect objects whose owners are gone. Must be as in the API server.";

["Horizontal-pod-autoscaler-controller"]
concurrent_horizontal_pod_autoscaler_syncs: i32 = 5, Built, "HorizontalPodAutoscalers reconciled at the same time.";
horizontal_pod_autoscaler_cpu_initialization_period: Duration = secs(300), Built, "Time after the start of a Pod in which its CPU use may be ignored.";
horizontal_pod_autoscaler_downscale_stabilization: Duration = secs(300), Built, "How far back to look: never scale below any recommendation made in this time.";
horizontal_pod_autoscaler_initial_readiness_delay: Duration = secs(30), Built, "Time after the start of a Pod in which it counts as becoming ready for the first time.";
horizontal_pod_autoscaler_sync_period: Duration = secs(15), Built, "Time between two evaluations of a HorizontalPodAutoscaler.";
horizontal_pod_autoscaler_tolerance: f64 = 0.1, Built, "How far the ratio of a metric to its target may be from 1 without scaling.";

["Job-controller"]
concurrent_job_syncs: i32 = 5, Built, "Jobs reconciled at the same time.";

["Cronjob-controller"]
concurrent_cron_job_syncs: i32 = 5, Built, "CronJobs reconciled at the same time.";

["Legacy-serviceaccount-token-cleaner-controller"]
legacy_service_account_token_clean_up_period: Duration = hours(8760), Built, "How long a legacy token must have been unused before it is deleted.";

["Namespace-controller"]
concurrent_namespace_syncs: i32 = 10, Built, "Namespaces reconciled at the same time.";
namespace_sync_period: Duration = secs(300), Built, "Time after which a Namespace is looked at again.";

["Node-ipam-controller"]
node_cidr_mask_size: i32 = 0, Built, "Size of a Node's range in a single-stack cluster, as a prefix length. 0 for 24 with IPv4 and 64 with IPv6.";
node_cidr_mask_size_ipv4: i32 = 0, Built, "Size of a Node's IPv4 range in a dual-stack cluster, as a prefix length. 0 for 24.";
node_cidr_mask_size_ipv6: i32 = 0, Built, "Size of a Node's IPv6 range in a dual-stack cluster, as a prefix length. 0 for 64.";
service_cluster_ip_range: String = "", Built, "Ranges of Service addresses, which no Node may be given. Needs --allocate-node-cidrs.";

["Node-lifecycle-controller"]
large_cluster_size_threshold: i32 = 50, Built, "More Nodes than this make a zone large; in smaller ones a partial outage stops evictions.";
node_eviction_rate: f32 = 0.1_f32, Built, "Nodes per second whose Pods are evicted while their zone is healthy.";
node_monitor_grace_period: Duration = secs(50), Built, "How long a running Node may be silent before it is marked unhealthy.";
node_startup_grace_period: Duration = secs(60), Built, "How long a starting Node may be silent before it is marked unhealthy.";
secondary_node_eviction_rate: f32 = 0.01_f32, Built, "Nodes per second whose Pods are evicted while their zone is unhealthy.";
unhealthy_zone_threshold: f32 = 0.55_f32, Built, "Fraction of Nodes, three at least, that must be unready for their zone to be unhealthy.";

["Persistentvolume-binder-controller"]
enable_dynamic_provisioning: bool = true, Built, "Provision volumes where the environment can.";
enable_hostpath_provisioner: bool = false, Built, "Provision volumes in directories of a Node. For tests on one Node only.";
flex_volume_plugin_dir: String = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", LeftOut("no FlexVolume driver is run, so none attaches a volume; start-up names those that are there"), "Directory of FlexVolume drivers.";
pv_recycler_increment_timeout_nfs: i32 = 30, Built, "Seconds added per Gi to the deadline of a Pod that recycles an NFS volume.";
pv_recycler_minimum_timeout_hostpath: i32 = 60, Built, "Shortest deadline, in seconds, of a Pod that recycles a host path. For tests only.";
pv_recycler_minimum_timeout_nfs: i32 = 300, Built, "Shortest deadline, in seconds, of a Pod that recycles an NFS volume.";
pv_recycler_pod_template_filepath_hostpath: String = "", Built, "File with the template of the Pod that recycles a host path. For tests only.";
pv_recycler_pod_template_filepath_nfs: String = "", Built, "File with the template of the Pod that recycles an NFS volume.";
pv_recycler_timeout_increment_hostpath: i32 = 30, Built, "Seconds added per Gi to the deadline of a Pod that recycles a host path. For tests only.";
pvclaimbinder_sync_period: Duration = secs(15), Built, "Time after which volumes and claims are looked at again.";

["Pod-garbage-collector-controller"]
terminated_pod_gc_threshold: i32 = 12_500, Built, "Finished Pods that may be kept before the oldest are deleted. 0 or less to keep all.";

["Replicaset-controller"]
concurrent_replicaset_syncs: i32 = 5, Built, "ReplicaSets reconciled at the same time.";

["Replicationcontroller-controller"]
concurrent_rc_syncs: i32 = 5, Built, "ReplicationControllers reconciled at the same time.";

["Resourcequota-controller"]
concurrent_resource_quota_syncs: i32 = 5, Built, "ResourceQuotas reconciled at the same time.";
resource_quota_sync_period: Duration = secs(300), Built, "Time after which the usage of every ResourceQuota is counted again. 0 for never.";

["Serviceaccount-controller"]
concurrent_serviceaccount_token_syncs: i32 = 5, Built, "Service account token Secrets reconciled at the same time.";
root_ca_file: String = "", Built, "Authorities (PEM) to publish in each namespace and in service account token Secrets.";
service_account_private_key_file: String = "", Built, "Private key (PEM, RSA or ECDSA) that signs tokens kept in Secrets. Empty to make none.";

["Ttl-after-finished-controller"]
concurrent_ttl_after_finished_syncs: i32 = 5, Built, "Finished Jobs reconciled at the same time.";

["Validatingadmissionpolicy-status-controller"]
concurrent_validating_admission_policy_status_syncs: i32 = 5, Built, "ValidatingAdmissionPolicies type-checked at the same time.";

["Metrics"]
allow_metric_labels: BTreeMap<String, String> = BTreeMap::new(), Built, "Values that a metric's label may take, others being counted together: METRIC,LABEL=VALUE,VALUE.";
allow_metric_labels_manifest: String = "", Built, "File with the same in YAML, a map of METRIC,LABEL to VALUE,VALUE. Not together with --allow-metric-labels.";
disabled_metrics: Vec<String> = list(&[]), Built, "Metrics not to serve, by their full names.";
show_hidden_metrics_for_version: String = "", Moot, "Release whose hidden metrics to serve after all. Only the previous one, 1.35, is possible: no metric is hidden here.";

["Traces"]
metrics_otlp_endpoint: String = "", Built, "OpenTelemetry collector to push metrics to, beside serving them: HOST:PORT for OTLP/gRPC without encryption, or a URL. Wins over OTEL_EXPORTER_OTLP_METRICS_ENDPOINT. Empty for what that says.";
tracing_config_file: String = "", Built, "File with a TracingConfiguration (group apiserver.config.k8s.io; v1, v1beta1 or v1alpha1), as other components take it: where spans are sent, and how many traces in a million are recorded.";
tracing_endpoint: String = "", Built, "OpenTelemetry collector to send spans to: HOST:PORT for OTLP/gRPC without encryption, or a URL. Wins over the file and over OTEL_EXPORTER_OTLP_ENDPOINT. Empty for what these say.";
tracing_sampling_rate_per_million: i32 = -1, Built, "Traces in a million to record, of those that begin here. Wins over the file and over OTEL_TRACES_SAMPLER. -1 for what these say.";

["Logs"]
log_flush_frequency: Duration = secs(5), Built, "Longest time that a log line is held back, where a buffer size asks for that.";
log_json_info_buffer_size: ByteQuantity = 0_u64, Built, "Bytes of informational messages to hold back when JSON streams are split. Needs the LoggingAlphaOptions feature.";
log_json_split_stream: bool = false, Built, "With JSON, errors to standard error and the rest to standard output. Needs the LoggingAlphaOptions feature.";
log_text_info_buffer_size: ByteQuantity = 0_u64, Built, "Bytes of informational messages to hold back when text streams are split. Needs the LoggingAlphaOptions feature.";
log_text_split_stream: bool = false, Built, "With text, errors to standard error and the rest to standard output. Needs the LoggingAlphaOptions feature.";
logging_format: String = "text", Built, "How log lines look: text or json.";
v: Verbosity = 0_u32, Built, "How much to log: 0 for what must be seen, 4 to debug, 6 for everything.";
vmodule: ModuleVerbosity = ModuleVerbosity::default(), Built, "How much to log by module, for text only: a module's last name or a part of its path with :: in it, * and ? allowed.";

["Misc"]
kubeconfig: String = "", Built, "Kubeconfig of the API server to work with. Empty, with --master empty too, when running in the cluster.";
master: String = "", Built, "Address of the API server, which wins over that of the kubeconfig.";

["Global"]
help: bool = false, Built, "Print this and stop.";
version: VersionRequest = VersionRequest::No, Built, "Print the version and stop; raw for all detail; a version v1.36.3... to be reported instead of v1.36.3.";
}
