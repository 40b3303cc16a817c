//! What a manager with everything that is built declares: the original's metrics (`tests/data/peer/metrics.tsv`, as they
//! were observed), ours, and `docs/metrics.md`, which says what they are.

mod docs;
mod node_cidrs;
mod seeded;
mod starting;

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::proto::MetricType;

use super::complete::{Completed, complete};
use coxswain_controllers::registry::{self, REGISTRY};
use coxswain_machinery::environment::Environment;
use coxswain_machinery::framework::{ApiResource, ApiResources, Build, CacheSource};
use coxswain_machinery::informer::Store;
use coxswain_machinery::options::{Config, Flags};
use coxswain_machinery::telemetry::Declared;
use coxswain_machinery::telemetry::push::PushSettings;
use coxswain_machinery::telemetry::tracing::settings::Given;
use coxswain_machinery::telemetry::tracing::{Tracing, TracingSettings};

/// The original's metrics that are not here: the beginning of their names, and why.
const LEFT_OUT: &str = include_str!("../../tests/data/metrics-left-out.tsv");

/// Why a metric of the original's is not here.
enum Why {
    /// It is another controller's than those that are built: an error as soon as that is built.
    NotBuilt(&'static str),
    /// It will never be.
    Never(&'static str),
}

/// The original's as well, seen there only once there is something to count.
const UNOBSERVED: &[&str] = &[
    "attach_detach_controller_attachdetach_controller_forced_detaches",
    "attachdetach_controller_total_volumes",
    "clustertrustbundle_publisher_sync_duration_seconds",
    "clustertrustbundle_publisher_sync_total",
    "daemonset_controller_stale_sync_skips_total",
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "horizontal_pod_autoscaler_controller_desired_replicas",
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "job_controller_jobs_by_external_controller_total",
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "job_controller_stale_sync_skips_total",
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "pod_gc_collector_force_delete_pod_errors_total",
    "pod_gc_collector_force_delete_pods_total",
    "pv_collector_bound_pv_count",
    "pv_collector_bound_pvc_count",
    "pv_collector_total_pv_count",
    "pv_collector_unbound_pv_count",
    "pv_collector_unbound_pvc_count",
    "resourceclaim_controller_creates_total",
    "resourceclaim_controller_resource_claims",
    "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
    "resourcepoolstatusrequest_controller_request_processing_errors_total",
    "resourcepoolstatusrequest_controller_requests_processed_total",
    "selinux_warning_controller_selinux_volume_conflict",
    "statefulset_controller_statefulset_max_unavailable",
    "statefulset_controller_statefulset_unavailable_replicas",
    "storage_count_attachable_volumes_in_use",
    "storage_operation_duration_seconds",
    "volume_operation_errors_total",
    "volume_operation_total_seconds",
];

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'SERVER'}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

/// A manager that has everything and has started nothing; nobody listens where it would ask.
async fn manager() -> Completed {
    manager_of("http://127.0.0.1:1").await
}

async fn manager_of(server: &str) -> Completed {
    manager_with(server, |_| {}).await
}

async fn manager_with(server: &str, set: fn(&mut Flags)) -> Completed {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG.replace("SERVER", server)).unwrap();
    let mut config = Config::default();
    config.flags.kubeconfig = kubeconfig.to_str().unwrap().to_owned();
    let key = directory.path().join("sa.key");
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    config.flags.service_account_private_key_file = key.to_str().unwrap().to_owned();
    config.flags.allocate_node_cidrs = true;
    config.flags.cluster_cidr = "10.244.0.0/16".to_owned();
    let (certificate, authority) = (directory.path().join("ca.crt"), directory.path().join("ca.key"));
    let of_authority = rcgen::KeyPair::generate().unwrap();
    let signed = rcgen::CertificateParams::default().self_signed(&of_authority).unwrap();
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&authority, of_authority.serialize_pem()).unwrap();
    config.flags.cluster_signing_cert_file = certificate.to_str().unwrap().to_owned();
    config.flags.cluster_signing_key_file = authority.to_str().unwrap().to_owned();
    set(&mut config.flags);
    config.push = PushSettings::complete("127.0.0.1:1", &|_| None).unwrap();
    let here = tokio::runtime::Handle::current();
    let manager = Box::pin(complete(config, REGISTRY, Environment::system(), &here)).await.unwrap();
    let bundles = ApiResource {
        group: "certificates.k8s.io".into(),
        version: "v1beta1".into(),
        resource: "clustertrustbundles".into(),
        ..ApiResource::default()
    };
    let resources = ApiResources::of(vec![bundles], Vec::new());
    for row in REGISTRY {
        let Some(build) = row.build else { continue };
        let built = build(&Build {
            config: &manager.runtime.config,
            gate: &|_| true,
            root_ca: Some("PEM".into()),
            finishers: &manager.runtime.finishers,
            zones: &coxswain_machinery::zones::Zones::bundled(),
            caches: CacheSource::new(&|kind, _| Arc::new(Store::new(kind))),
            dynamic: &|_| Arc::default(),
            debug: &|_| {},
            metrics: &manager.runtime.room_metrics,
            discovered: Some(&resources),
        });
        assert!(built.is_ok(), "{}: {:?}", row.name, built.err());
    }
    let given = Given { endpoint: "127.0.0.1:1", rate_per_million: -1, file: "" };
    let traces = Tracing::new(TracingSettings::complete(given, &|_| None).unwrap().unwrap()).unwrap();
    drop(manager.start_tracing(traces, &tokio::runtime::Handle::current()).unwrap());
    assert!(manager.start_pushing(&tokio::runtime::Handle::current()).unwrap().is_some());
    manager
}

/// Of one manager, by name.
async fn declared() -> BTreeMap<String, Declared> {
    let all = Box::pin(manager()).await.metrics.declared();
    all.into_iter().map(|metric| (metric.name.clone(), metric)).collect()
}

/// A metric as the original has it.
#[derive(Debug, PartialEq)]
struct Observed {
    name: &'static str,
    kind: &'static str,
    labels: Vec<&'static str>,
    buckets: Vec<f64>,
}

/// The lines of a table, comments aside.
fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut fields = line.split('\t');
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    })
}

fn observed() -> Vec<Observed> {
    rows(include_str!("../../tests/data/peer/metrics.tsv"))
        .map(|[name, kind, labels, buckets]| {
            let split = |text: &'static str| text.split(',').filter(|each| !each.is_empty());
            let buckets = split(buckets).filter(|bound| *bound != "+Inf").map(|bound| bound.parse().unwrap());
            Observed { name, kind, labels: split(labels).collect(), buckets: buckets.collect() }
        })
        .collect()
}

fn all_left_out() -> impl Iterator<Item = (&'static str, Why)> {
    rows(LEFT_OUT).map(|[prefix, controller, reason]| {
        (prefix, if controller.is_empty() { Why::Never(reason) } else { Why::NotBuilt(controller) })
    })
}

/// The row that leaves a metric out.
fn left_out(name: &str) -> Option<(&'static str, Why)> {
    // The longest beginning says most: two controllers' begin alike.
    let fits = all_left_out().filter(|(prefix, _)| name.starts_with(prefix));
    fits.max_by_key(|(prefix, _)| prefix.len())
}

fn kind(of: MetricType) -> &'static str {
    match of {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY | MetricType::UNTYPED => "neither",
    }
}

#[tokio::test]
async fn the_originals_metrics_are_here_as_they_are_there() {
    let declared = Box::pin(declared()).await;
    let mut wrong = Vec::new();
    for theirs in observed() {
        match (declared.get(theirs.name), left_out(theirs.name)) {
            (None, None) => wrong.push(format!("{} is missing", theirs.name)),
            (Some(_), Some(_)) => wrong.push(format!("{} is here and said to be left out", theirs.name)),
            (None, Some(_)) => {}
            (Some(ours), None) => {
                let ours = Observed {
                    name: theirs.name,
                    kind: kind(ours.kind),
                    labels: theirs
                        .labels
                        .iter()
                        .copied()
                        .filter(|label| ours.labels.iter().any(|l| l == label))
                        .collect(),
                    buckets: ours.bounds.clone(),
                };
                let labels = declared[theirs.name].labels.len();
                if ours != theirs || labels != theirs.labels.len() {
                    wrong.push(format!("{ours:?} with {labels} labels is not {theirs:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_left_out_has_a_reason_that_holds() {
    let observed = observed();
    for (prefix, why) in all_left_out() {
        assert!(
            observed.iter().any(|theirs| theirs.name.starts_with(prefix)),
            "{prefix} is none of the original's"
        );
        match why {
            Why::NotBuilt(controller) => {
                let row =
                    registry::find(controller).unwrap_or_else(|| panic!("{controller} is no controller"));
                assert!(
                    row.build.is_none(),
                    "{controller} is built: {prefix}* must be here, and be taken off this table"
                );
            }
            Why::Never(reason) => assert!(reason.len() > 20, "{prefix}: {reason:?} is no reason"),
        }
    }
}

#[tokio::test]
async fn whatever_else_is_declared_is_ours_by_its_name() {
    let observed = observed();
    for (name, metric) in Box::pin(declared()).await {
        let theirs = observed.iter().any(|theirs| theirs.name == name) || UNOBSERVED.contains(&name.as_str());
        assert!(theirs || name.starts_with("coxswain_"), "{name} is neither the original's nor coxswain_*");
        assert_ne!(metric.kind, MetricType::UNTYPED, "{name}");
        assert!(metric.help.ends_with('.') || theirs, "{name}: {:?} is no sentence", metric.help);
        if !theirs {
            let is_counter = metric.kind == MetricType::COUNTER;
            assert_eq!(is_counter, name.ends_with("_total"), "{name} is a {}", kind(metric.kind));
            assert_eq!(metric.kind == MetricType::HISTOGRAM, !metric.bounds.is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn no_two_metrics_share_a_name_in_open_metrics() {
    let declared = Box::pin(declared()).await;
    for name in declared.keys().filter_map(|name| name.strip_suffix("_total")) {
        assert!(!declared.contains_key(name), "{name} and {name}_total");
    }
}
