//! Replicas announce themselves by Leases, within the bootstrap roles: while they run, when they end, and when they are
//! killed.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use coxswain::admin::proto;
use coxswain::manager::{
    ADMIN_ADDRESS_ANNOTATION, ADMIN_CA_ANNOTATION, LEASE_ANNOTATION, REPLICA_NAME_PREFIX, REPLICA_NAMESPACE,
    REPLICA_SELECTOR, VERSION_ANNOTATION,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::admin::Admin;
use crate::harness::{Caller, Cluster, ControlPlane, Manager, Options, Port, turn, until};

/// How long anything may take: several times a Lease's time between renewals.
const LIMIT: Duration = Duration::from_mins(1);
/// Durations of the election, so that whoever follows a killed leader does so soon.
const TIMING: &[&str] = &[
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=1s",
];
const DELETER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

struct Leases(Api<Lease>);

impl Leases {
    fn of(cluster: &Cluster) -> Self {
        Self(Api::namespaced(cluster.client.clone(), REPLICA_NAMESPACE))
    }

    async fn all(&self) -> Vec<Lease> {
        self.0.list(&ListParams::default().labels(REPLICA_SELECTOR)).await.expect("leases").items
    }

    /// Waits until so many Leases have a holder, each its own.
    async fn held(&self, count: usize) -> Vec<Lease> {
        let is_reached = |all: &Vec<Lease>| {
            let holders: BTreeSet<&str> =
                all.iter().map(holder).filter(|holder| !holder.is_empty()).collect();
            holders.len() == count && all.iter().filter(|lease| !holder(lease).is_empty()).count() == count
        };
        until(&format!("{count} replicas"), LIMIT, || self.all(), is_reached).await
    }

    /// Waits for the Lease of this manager.
    async fn of_manager(&self, manager: &Manager<'_>) -> Lease {
        let address = manager.url.trim_start_matches("https://");
        let find = || async {
            let all = self.all().await;
            all.into_iter().find(|lease| annotation(lease, ADMIN_ADDRESS_ANNOTATION) == Some(address))
        };
        until(&format!("the Lease of {}", manager.name), LIMIT, find, Option::is_some)
            .await
            .expect("just seen")
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn name(lease: &Lease) -> &str {
    lease.metadata.name.as_deref().unwrap_or_default()
}

fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn assert_well_formed(lease: &Lease, manager: &Manager<'_>) {
    assert!(name(lease).starts_with(REPLICA_NAME_PREFIX), "{lease:?}");
    let labels = lease.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get("app.kubernetes.io/name").map(String::as_str), Some("coxswain"), "{lease:?}");
    assert_eq!(annotation(lease, VERSION_ANNOTATION), Some(env!("CARGO_PKG_VERSION")), "{lease:?}");
    let spec = lease.spec.as_ref().expect("a spec");
    assert!(spec.acquire_time.is_some() && spec.renew_time >= spec.acquire_time, "{lease:?}");
    assert_eq!(spec.lease_duration_seconds, Some(40), "{lease:?}");
    assert!(manager.log().contains(holder(lease)), "the identity is that of the election: {lease:?}");
}

/// Nothing was asked for that was refused, and Leases were deleted by whoever may.
fn assert_within_the_roles(plane: &ControlPlane) -> usize {
    let mut deleted = 0;
    for event in plane.audit().iter().filter(|event| event.coxswain().is_some()) {
        assert!(event.response_status.code != 403, "{} {} by {}", event.verb, event.uri, event.user.username);
        if event.coxswain() == Some("replicas") {
            let is_replicas =
                event.object_ref.name.starts_with(REPLICA_NAME_PREFIX) || event.verb == "create";
            assert!(is_replicas, "{} {}", event.verb, event.uri);
            assert!(matches!(event.verb.as_str(), "get" | "create" | "update" | "delete"), "{event:?}");
            assert_eq!(event.verb == "delete", event.user.username == DELETER, "{event:?}");
            deleted += usize::from(event.verb == "delete" && event.response_status.code == 200);
        }
    }
    deleted
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_come_and_go() {
    let _turn = turn().await;
    let options = vec!["--scheduler=false", "--kwok=false", "--audit"];
    let plane = ControlPlane::start(&Options { nodes: 0, args: options });
    let cluster = plane.cluster().await;
    let leases = Leases::of(&cluster);
    let first = plane.coxswain("first", TIMING);
    let of_first = leases.of_manager(&first).await;
    assert_well_formed(&of_first, &first);
    assert_eq!(annotation(&of_first, ADMIN_CA_ANNOTATION), None, "its certificate is the cluster's");
    let election: Api<Lease> = leases.0.clone();
    let leader = || async {
        let lease = election.get_opt("kube-controller-manager").await.expect("an answer");
        lease.map(|lease| holder(&lease).to_owned()).unwrap_or_default()
    };
    until("the first to lead", LIMIT, leader, |leader| leader == holder(&of_first)).await;

    // A standby announces itself like a leader, here with a certificate of its own making.
    let certs = tempfile::tempdir().expect("a directory");
    let cert_dir = format!("--cert-dir={}", certs.path().display());
    let mut args = TIMING.to_vec();
    args.extend(["--tls-cert-file=", "--tls-private-key-file=", &cert_dir]);
    let second = plane.coxswain_unawaited("second", &args);
    let of_second = leases.of_manager(&second).await;
    assert_well_formed(&of_second, &second);
    assert_eq!(leases.held(2).await.len(), 2);
    let authority = certs.path().join("announced.crt");
    fs::write(&authority, annotation(&of_second, ADMIN_CA_ANNOTATION).expect("an authority"))
        .expect("written");
    let port = Port::trusting(&plane.report, &second.url, Caller::Anonymous, &authority).await;
    assert_eq!(port.try_get("/healthz").await.map(|page| page.status), Some(200));

    // A Lease that is renewed stays; one that is dropped comes back.
    let renewed = || async { leases.of_manager(&first).await.spec.expect("a spec").renew_time };
    let before = renewed().await;
    leases.0.delete(name(&of_second), &DeleteParams::default()).await.expect("deleted");
    until("a renewal", LIMIT, renewed, |at| *at > before).await;
    let anew = leases.of_manager(&second).await;
    assert_eq!(holder(&anew), holder(&of_second));
    assert_ne!(anew.metadata.uid, of_second.metadata.uid);

    // A clean end leaves nothing.
    second.stop();
    let left = leases.all().await;
    assert_eq!(left.iter().map(name).collect::<Vec<_>>(), [name(&of_first)]);
    assert!(second.exit().starts_with("exit status 0"), "{}", second.exit());

    // What the killed leave is removed by the leader, once it is stale by its own account.
    second.start_again();
    leases.held(2).await;
    first.kill();
    let killed = leases.of_manager(&first).await;
    let short = json!({ "spec": { "leaseDurationSeconds": 1 } });
    let patch = Patch::Merge(short);
    leases.0.patch(name(&killed), &PatchParams::default(), &patch).await.expect("patched");
    let others = leases.held(1).await;
    assert_ne!(holder(&others[0]), holder(&killed));
    assert_eq!(leader().await, holder(&others[0]), "who has removed it leads");
    second.stop();
    assert_eq!(leases.all().await, []);
    assert_eq!(assert_within_the_roles(&plane), 3);
}

/// One replica in each group: neither may be the successor of the other.
#[tokio::test(flavor = "multi_thread")]
async fn two_groups_on_one_control_plane_share_nothing() {
    let _turn = turn().await;
    let options = vec!["--scheduler=false", "--kwok=false"];
    let plane = ControlPlane::start(&Options { nodes: 0, args: options });
    let leases = Leases::of(&plane.cluster().await);
    let of_b = ["--leader-elect-resource-name=coxswain-b", "--controllers=job-controller,cronjob-controller"];
    let (a, b) = (plane.coxswain("a", TIMING), plane.coxswain("b", &[TIMING, &of_b].concat()));
    let (lease_a, lease_b) = (leases.of_manager(&a).await, leases.of_manager(&b).await);
    let main = |name: &str, lease: &Lease| format!("kube-system/{name} {}", holder(lease));
    assert_eq!(annotation(&lease_a, LEASE_ANNOTATION), Some(&*main("kube-controller-manager", &lease_a)));
    assert_eq!(annotation(&lease_b, LEASE_ANNOTATION), Some(&*main("coxswain-b", &lease_b)));

    let (at_a, at_b) = (Admin::master(&plane, &a), Admin::master(&plane, &b));
    for (admin, own) in [(&at_a, &lease_a), (&at_b, &lease_b)] {
        let seen = || async {
            let answer = admin.leader().get_leader(proto::GetLeaderRequest::default()).await;
            let answer = answer.expect("an answer").into_inner();
            let identities = answer.replicas.into_iter().map(|each| each.identity);
            (answer.leader.unwrap_or_default().leading, identities.collect::<Vec<_>>())
        };
        let (_, identities) = until("it to lead", LIMIT, seen, |(leading, _)| *leading).await;
        assert_eq!(identities, [holder(own)]);
        let refused = admin.leader().step_down(proto::StepDownRequest::default()).await.unwrap_err();
        assert!(refused.message().contains("no other live replica"), "{refused:?}");
    }
    // An order for one group does not concern the other.
    let name = "job-controller".to_owned();
    let request = proto::DisableControllerRequest { name: name.clone(), wait: true, ..Default::default() };
    at_b.controllers().disable_controller(request).await.expect("disabled");
    let stored = leases.0.get("coxswain-overrides-coxswain-b").await.expect("a Lease");
    assert!(annotation(&stored, "overrides.coxswain.dev/job-controller").is_some(), "{stored:?}");
    assert_eq!(leases.0.get_opt("coxswain-overrides").await.expect("an answer"), None);
    let shown = at_a.controllers().get_controller(proto::GetControllerRequest { name }).await;
    let shown = shown.expect("an answer").into_inner().controller.expect("a controller");
    assert!(shown.desired.expect("desired").enabled);
}

/// Nobody may delete a Lease then: it is left for the next replica.
#[tokio::test(flavor = "multi_thread")]
async fn without_credentials_of_controllers_a_lease_is_handed_on() {
    let _turn = turn().await;
    let options = vec!["--scheduler=false", "--kwok=false", "--audit"];
    let plane = ControlPlane::start(&Options { nodes: 0, args: options });
    let leases = Leases::of(&plane.cluster().await);
    // As the manager itself, which lacks the rights of most controllers: none that does anything is on.
    let args =
        ["--use-service-account-credentials=false", "--leader-elect=false", "--controllers=job-controller"];
    let manager = plane.coxswain("alone", &args);
    let mut identities = BTreeSet::new();
    for _ in 0..3 {
        let held = leases.held(1).await;
        assert_eq!(held.len(), 1, "{held:?}");
        identities.insert(holder(&held[0]).to_owned());
        manager.stop();
        let left = leases.all().await;
        assert_eq!(left.iter().map(holder).collect::<Vec<_>>(), [""]);
        assert_eq!(annotation(&left[0], ADMIN_ADDRESS_ANNOTATION), None);
        manager.start_again();
    }
    assert_eq!(identities.len(), 3);
    assert_eq!(leases.held(1).await.len(), 1);
    assert_eq!(assert_within_the_roles(&plane), 0);
}
