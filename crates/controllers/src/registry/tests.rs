//! What a registry must be, and that ours is what was observed of the original.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::{REGISTRY, RegistryError, find, not_built, validate};
use crate::identity::certificatesigningrequest_signing;
use crate::identity::serviceaccount_token::TOKEN_SIGNER;
use crate::identity::signers::Signer;
use coxswain_machinery::api::kinds::CLUSTER_TRUST_BUNDLES;
use coxswain_machinery::executor::{FinishError, Finisher, Finishers};
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{ApiResource, ApiResources, DefaultState, Descriptor, Tries};
use coxswain_machinery::options::{Config, Flags};

const CONTROLLERS: &str = include_str!("../../../../tests/data/peer/controllers.tsv");
const ACCOUNTS: &str = include_str!("../../../../tests/data/peer/service-accounts.txt");
const ACCOUNTS_BY_CONTROLLER: &str =
    include_str!("../../../../tests/data/peer/service-accounts-by-controller.tsv");

const fn named(name: &'static str, aliases: &'static [&'static str]) -> Descriptor {
    not_built(name, aliases, None, "Does nothing.")
}

#[test]
fn the_registry_is_valid() {
    assert_eq!(validate(REGISTRY), Ok(()));
    assert_eq!(validate(&[]), Ok(()));
}

#[test]
fn a_registry_whose_names_are_ambiguous_is_refused() {
    let conflict = |alias, controller, other| Err(RegistryError::AliasConflict { alias, controller, other });
    for (registry, expected) in [
        (vec![named("a", &[]), named("a", &[])], Err(RegistryError::DuplicateName { name: "a" })),
        (vec![named("a", &["x"]), named("b", &["x"])], conflict("x", "b", "a")),
        (vec![named("a", &[]), named("b", &["a"])], conflict("a", "b", "a")),
        (vec![named("b", &["a"]), named("a", &[])], conflict("a", "b", "a")),
        (vec![named("a", &["a"])], conflict("a", "a", "a")),
        (vec![named("a", &["x", "x"])], conflict("x", "a", "a")),
        (vec![named("a", &["x"]), named("b", &["y"])], Ok(())),
    ] {
        assert_eq!(validate(&registry), expected);
    }
}

#[test]
fn a_registry_that_could_not_run_is_refused() {
    let gated = Descriptor { gates: &["Nonsense"], ..named("a", &[]) };
    assert_eq!(validate(&[gated]), Err(RegistryError::UnknownGate { controller: "a", gate: "Nonsense" }));
    let first = Descriptor { special: true, ..named("a", &[]) };
    let second = Descriptor { special: true, ..named("b", &[]) };
    assert_eq!(validate(&[first, second]), Err(RegistryError::SecondSpecial { controller: "b", other: "a" }));
    for name in ["", "-a", "a-", "A", "a b", "*", "a,b"] {
        assert_eq!(validate(&[named(name, &[])]), Err(RegistryError::BadName { name }), "{name:?}");
    }
}

#[test]
fn every_controller_is_as_observed() {
    let default = |descriptor: &Descriptor| if descriptor.default == DefaultState::On { "on" } else { "off" };
    let ours: Vec<[String; 5]> = REGISTRY
        .iter()
        .map(|d| {
            let cloud = if d.cloud { "cloud" } else { "" };
            [d.name.into(), d.aliases.join(","), default(d).into(), d.gates.join(","), cloud.into()]
        })
        .collect();
    let observed: Vec<[String; 5]> = CONTROLLERS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut fields = line.split('\t').map(str::to_owned);
            std::array::from_fn(|_| fields.next().unwrap_or_default())
        })
        .collect();
    assert_eq!(ours, observed);
    assert_eq!(ours.len(), 52);
}

#[test]
fn every_controller_has_the_account_that_was_observed() {
    let observed: BTreeMap<&str, &str> = ACCOUNTS_BY_CONTROLLER
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('\t').unwrap_or((line, "")))
        .collect();
    for descriptor in REGISTRY {
        assert_eq!(
            descriptor.service_account.unwrap_or(""),
            observed[descriptor.name],
            "{}",
            descriptor.name
        );
    }
    let used: BTreeSet<&str> = REGISTRY.iter().filter_map(|descriptor| descriptor.service_account).collect();
    for account in ACCOUNTS.lines() {
        assert!(used.contains(account), "no controller uses {account}, which the original makes");
    }
}

#[test]
fn only_the_token_controller_is_special() {
    let special: Vec<&str> = REGISTRY.iter().filter(|d| d.special).map(|d| d.name).collect();
    assert_eq!(special, ["serviceaccount-token-controller"]);
}

#[test]
fn a_description_is_one_sentence() {
    for d in REGISTRY {
        assert!(d.description.ends_with('.') && d.description.matches(". ").count() == 0, "{}", d.name);
    }
}

#[test]
fn names_and_aliases_are_found() {
    assert_eq!(find("deployment-controller").map(|d| d.name), Some("deployment-controller"));
    assert_eq!(find("podgc").map(|d| d.name), Some("pod-garbage-collector-controller"));
    assert!(find("nonsense").is_none());
}

/// Signs nothing: whoever asks whether there is a signer finds one.
struct NoSigner;

impl Finisher for NoSigner {
    fn finish<'a>(&'a self, object: &'a [u8], _: &'a Value) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        Box::pin(async { Ok(object.to_vec()) })
    }
}

#[test]
fn every_loop_retries_as_the_original_was_seen_to() {
    // What it did with a policy in its way that refused every write: how often it wrote, and after which delays. Where
    // nothing is said, it went on for as long as it was watched.
    let (fast, slow, minute) = (Duration::from_millis(5), Duration::from_secs(1), Duration::from_mins(1));
    let longest = Duration::from_secs(1000);
    let table = [
        ("certificate", None, Duration::from_millis(200), longest),
        ("deployment", Some(16), fast, longest),
        ("endpoint", Some(16), fast, longest),
        ("endpoint_slice", Some(16), slow, longest),
        ("endpoint_slice_mirroring", Some(16), slow, Duration::from_secs(100)),
        // The original waits for its period (`--horizontal-pod-autoscaler-sync-period`) after a failure, too.
        ("horizontalpodautoscaler", None, Duration::from_secs(15), Duration::from_secs(15)),
        ("ipaddresses", Some(16), fast, longest),
        ("job", None, slow, minute),
        ("job_orphan_pod", None, slow, minute),
        ("namespace", None, fast, minute),
        // kube-controller-manager runs these in rounds, without a queue, and the next round starts after any failure.
        ("node_health", None, fast, Duration::from_secs(5)),
        ("pod_gc_rounds", None, fast, Duration::from_secs(20)),
        // The original writes a list again after 100 ms, apart from its queues.
        ("pvcs", None, fast, Duration::from_secs(10)),
        ("resourcepoolstatusrequests_cleanup", None, fast, Duration::from_mins(10)),
        ("serviceaccount_tokens_secret", Some(11), fast, longest),
        ("serviceaccount_tokens_service", Some(11), fast, longest),
    ];
    let mut config = Config::default();
    config.flags.allocate_node_cidrs = true;
    config.flags.cluster_cidr = "10.244.0.0/16".to_owned();
    let rig = rig(config);
    for loop_ in REGISTRY.iter().filter_map(|d| d.build).flat_map(|build| rig.build(build).unwrap().loops) {
        let row = table.iter().find(|(queue, ..)| *queue == loop_.queue);
        let (tries, base, longest) = row.map_or((None, fast, longest), |row| (row.1, row.2, row.3));
        let settings = &loop_.settings;
        assert_eq!(
            settings.tries,
            tries.map(|most| Tries { most, then: Some(Duration::from_secs(1000)) }),
            "{}",
            loop_.queue
        );
        let backoff = settings.backoff;
        assert_eq!((backoff.base_delay, backoff.max_delay), (base, longest), "{}", loop_.queue);
    }
}

/// Only time queues the key of such a loop, so a longer backoff delays all objects. A new loop with seeds needs a row.
#[test]
fn loops_with_one_key_for_everything_retry_within_their_period() {
    let longest = Duration::from_secs(1000);
    for period in [1, 5, 7200].map(Duration::from_secs) {
        let mut config = Config::default();
        config.flags.allocate_node_cidrs = true;
        config.flags.cluster_cidr = "10.244.0.0/16".to_owned();
        config.flags.node_monitor_period = period;
        let rig = rig(config);
        let loops = REGISTRY.iter().filter_map(|d| d.build).flat_map(|build| rig.build(build).unwrap().loops);
        let seeded = loops.filter(|each| !each.settings.seeds.is_empty());
        let backoffs: BTreeMap<&str, Duration> =
            seeded.map(|each| (each.queue, each.settings.backoff.max_delay)).collect();
        let expected = BTreeMap::from([
            // The key is that of an object, and its changes queue it. The original has the same backoff.
            ("ca_cert_publisher_cluster_trust_bundles", longest),
            // The period is a day.
            ("legacy_serviceaccount_token_cleaner", longest),
            ("node_health", period.min(longest)),
            ("pod_gc_rounds", Duration::from_secs(20)),
            ("resourcepoolstatusrequests_cleanup", Duration::from_mins(10)),
        ]);
        assert_eq!(backoffs, expected, "{period:?}");
    }
}

/// Where every controller can be built.
fn rig(config: Config) -> Rig {
    let finishers = Signer::ALL
        .into_iter()
        .map(certificatesigningrequest_signing::finisher)
        .chain([TOKEN_SIGNER])
        .fold(Finishers::default(), |all, name| all.with(name, Arc::new(NoSigner)));
    let bundles = ApiResource {
        group: CLUSTER_TRUST_BUNDLES.group.into(),
        version: CLUSTER_TRUST_BUNDLES.version.into(),
        resource: CLUSTER_TRUST_BUNDLES.resource.into(),
        ..ApiResource::default()
    };
    Rig::new(config).with_finishers(finishers).with_resources(ApiResources::of(vec![bundles], Vec::new()))
}

/// How many of its keys a controller takes at the same time, by the loop that takes most.
fn workers(config: Config) -> BTreeMap<&'static str, usize> {
    let rig = rig(config);
    let most = |descriptor: &Descriptor| {
        let loops = rig.build(descriptor.build?).unwrap().loops;
        let at_a_time = loops.iter().map(|each| if each.settings.serial { 1 } else { each.settings.workers });
        Some((descriptor.name, at_a_time.max()?))
    };
    REGISTRY.iter().filter_map(most).collect()
}

/// A flag of a controller.
type NumberOf = fn(&mut Flags) -> &mut i32;

#[test]
fn flags_say_how_many_keys_are_taken_at_the_same_time() {
    let table: [(&str, NumberOf); 20] = [
        ("cronjob-controller", |flags| &mut flags.concurrent_cron_job_syncs),
        ("daemonset-controller", |flags| &mut flags.concurrent_daemonset_syncs),
        ("deployment-controller", |flags| &mut flags.concurrent_deployment_syncs),
        ("device-taint-eviction-controller", |flags| &mut flags.concurrent_device_taint_eviction_syncs),
        ("endpoints-controller", |flags| &mut flags.concurrent_endpoint_syncs),
        ("endpointslice-controller", |flags| &mut flags.concurrent_service_endpoint_syncs),
        ("endpointslice-mirroring-controller", |flags| {
            &mut flags.mirroring_concurrent_service_endpoint_syncs
        }),
        ("ephemeral-volume-controller", |flags| &mut flags.concurrent_ephemeralvolume_syncs),
        ("garbage-collector-controller", |flags| &mut flags.concurrent_gc_syncs),
        ("horizontal-pod-autoscaler-controller", |flags| {
            &mut flags.concurrent_horizontal_pod_autoscaler_syncs
        }),
        ("job-controller", |flags| &mut flags.concurrent_job_syncs),
        ("namespace-controller", |flags| &mut flags.concurrent_namespace_syncs),
        ("replicaset-controller", |flags| &mut flags.concurrent_replicaset_syncs),
        ("replicationcontroller-controller", |flags| &mut flags.concurrent_rc_syncs),
        ("resourceclaim-controller", |flags| &mut flags.concurrent_resourceclaim_syncs),
        ("resourcequota-controller", |flags| &mut flags.concurrent_resource_quota_syncs),
        ("serviceaccount-token-controller", |flags| &mut flags.concurrent_serviceaccount_token_syncs),
        ("statefulset-controller", |flags| &mut flags.concurrent_statefulset_syncs),
        ("ttl-after-finished-controller", |flags| &mut flags.concurrent_ttl_after_finished_syncs),
        ("validatingadmissionpolicy-status-controller", |flags| {
            &mut flags.concurrent_validating_admission_policy_status_syncs
        }),
    ];
    let mut config = Config::default();
    config.flags.allocate_node_cidrs = true;
    config.flags.cluster_cidr = "10.244.0.0/16".to_owned();
    let usual = workers(config.clone());
    for (name, flag) in table {
        let mut changed = config.clone();
        let asked = *flag(&mut changed.flags) + 37;
        *flag(&mut changed.flags) = asked;
        let mut expected = usual.clone();
        expected.insert(name, usize::try_from(asked).unwrap());
        assert_eq!(workers(changed), expected, "{name}");
    }
}
