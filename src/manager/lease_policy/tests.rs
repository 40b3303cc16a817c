//! Tests of the check of the policy and of its reports.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::timeout;

use super::*;
use coxswain_machinery::client::{BoxError, HttpService};
use coxswain_machinery::serve::{Detail, Probe, Unobserved};
use coxswain_machinery::telemetry::encode_text;

/// Policy and binding of the manifest, with the defaults of a real API server.
fn stored() -> [Value; 2] {
    let of_kind = |kind: &str| documents().find(|document| document["kind"] == kind).unwrap();
    let [mut policy, binding] =
        ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"].map(of_kind);
    let constraints = &mut policy["spec"]["matchConstraints"];
    constraints["matchPolicy"] = json!("Equivalent");
    constraints["objectSelector"] = json!({});
    constraints["resourceRules"][0]["scope"] = json!("*");
    policy["status"] = json!({ "observedGeneration": 1, "typeChecking": {} });
    [policy, binding]
}

#[test]
fn policy_is_in_force_as_it_is_shipped_and_different_with_any_change() {
    let [policy, binding] = stored();
    assert_eq!(judge(Some(&policy), Some(&binding)), LeasePolicyState::InForce);
    assert_eq!(judge(Some(&policy), None), LeasePolicyState::Missing);
    assert_eq!(judge(None, Some(&binding)), LeasePolicyState::Missing);
    let older =
        "[object, oldObject].exists(lease, lease != null && lease.metadata.name.startsWith('coxswain-'))";
    for (pointer, value) in [
        ("/spec/failurePolicy", json!("Ignore")),
        ("/spec/paramKind", json!({ "apiVersion": "v1", "kind": "ConfigMap" })),
        ("/spec/matchConstraints/matchPolicy", json!("Exact")),
        ("/spec/matchConstraints/objectSelector", json!({ "matchLabels": { "a": "b" } })),
        ("/spec/matchConstraints/excludeResourceRules", json!([{ "resources": ["leases"] }])),
        ("/spec/matchConstraints/resourceRules/0/operations", json!(["CREATE", "UPDATE"])),
        ("/spec/matchConditions/0/expression", json!(older)),
        ("/spec/matchConditions", json!([])),
        ("/spec/validations/0/expression", json!("true")),
    ] {
        let mut changed = policy.clone();
        put(&mut changed, pointer, value);
        assert_eq!(judge(Some(&changed), Some(&binding)), LeasePolicyState::Different, "{pointer}");
    }
    for actions in [json!(["Deny", "Audit"]), json!(["Audit", "Deny"])] {
        let mut stronger = binding.clone();
        put(&mut stronger, "/spec/validationActions", actions);
        assert_eq!(judge(Some(&policy), Some(&stronger)), LeasePolicyState::InForce, "{stronger}");
    }
    for (pointer, value) in [
        ("/spec/validationActions", json!([])),
        ("/spec/validationActions", json!(["Warn", "Audit"])),
        ("/spec/validationActions", json!(["Audit"])),
        ("/spec/matchResources", json!({ "objectSelector": { "matchLabels": { "a": "b" } } })),
        ("/spec/policyName", json!("another")),
    ] {
        let mut changed = binding.clone();
        put(&mut changed, pointer, value);
        assert_eq!(judge(Some(&policy), Some(&changed)), LeasePolicyState::Different, "{pointer}");
    }
}

/// Sets a value, which may be new.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[name] = value;
}

/// An API server with or without the policy, or one that refuses.
#[derive(Default)]
struct Server {
    objects: Mutex<Option<[Value; 2]>>,
    refuses: Mutex<bool>,
    asked: AtomicUsize,
}

impl Server {
    fn client(self: &Arc<Self>) -> ApiClient {
        let server = Arc::clone(self);
        let answer = move |request: Request<Full<Bytes>>| -> BoxFuture<'static, _> {
            assert_eq!(request.method(), http::Method::GET, "nothing is written");
            assert_eq!(request.uri().query(), Some("fieldSelector=metadata.name%3Dcoxswain-leases"));
            server.asked.fetch_add(1, Ordering::SeqCst);
            let at = usize::from(request.uri().path().ends_with("bindings"));
            let items: Vec<Value> = server.objects.lock().iter().map(|objects| objects[at].clone()).collect();
            let code = if *server.refuses.lock() { StatusCode::FORBIDDEN } else { StatusCode::OK };
            let body = Full::new(Bytes::from(json!({ "kind": "List", "items": items }).to_string()));
            let body = body.map_err(|never| -> BoxError { match never {} }).boxed_unsync();
            Box::pin(async move { Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap()) })
        };
        ApiClient::new(HttpService::new(tower::service_fn(answer)), "test")
    }
}

#[tokio::test(start_paused = true)]
async fn leader_reports_a_missing_policy_on_its_health_page_in_a_metric_and_in_its_state() {
    let (server, metrics, health) = (Arc::new(Server::default()), Registry::new(), HealthRegistry::new());
    let policy = LeasePolicy::register(&metrics).unwrap();
    let sender = latest::Sender::<Leadership>::default();
    let changes = AtomicUsize::new(0);
    let reported = || {
        let page = health.report(Probe::Healthz, &[], Detail::Remarks, &Unobserved);
        assert!(page.passed, "it fails no probe");
        let text = encode_text(&metrics);
        let metric = text.lines().find_map(|line| line.strip_prefix("coxswain_lease_policy_in_force "));
        let remark = page.text.lines().find_map(|line| line.strip_prefix("[+]leasePolicy ok, "));
        (policy.state(), metric.map(str::to_owned), remark.map(str::to_owned))
    };
    let missing = || {
        let remark =
            "the admission policy coxswain-leases is missing; apply deploy/kustomize/base".to_owned();
        (LeasePolicyState::Missing, Some("0".to_owned()), Some(remark))
    };
    let lead = |leading| sender.send_modify(|state| state.leading = leading);
    let client = server.client();
    let following = policy.follow(Some(sender.subscribe()), &client, &health, || {
        changes.fetch_add(1, Ordering::SeqCst);
    });
    let unknown = (LeasePolicyState::Unknown, None, None);
    let acts = async {
        sleep(PERIOD).await;
        assert_eq!(
            (reported(), server.asked.load(Ordering::SeqCst)),
            (unknown.clone(), 0),
            "it does not lead"
        );
        lead(true);
        sleep(Duration::from_secs(1)).await;
        assert_eq!((reported(), changes.load(Ordering::SeqCst)), (missing(), 1));
        // A day of reads is few requests.
        sleep(Duration::from_hours(24)).await;
        assert_eq!((reported(), changes.load(Ordering::SeqCst)), (missing(), 1));
        assert_eq!(server.asked.load(Ordering::SeqCst), 2 * 25);
        *server.objects.lock() = Some(stored());
        sleep(PERIOD).await;
        let in_force = (LeasePolicyState::InForce, Some("1".to_owned()), None);
        assert_eq!(reported(), in_force);
        // The state is unknown if the API server refuses the read.
        *server.refuses.lock() = true;
        *server.objects.lock() = None;
        sleep(PERIOD * 2).await;
        assert_eq!(reported(), (LeasePolicyState::Unknown, None, Some(FORBIDDEN.to_owned())));
        let before = server.asked.load(Ordering::SeqCst);
        sleep(PERIOD).await;
        assert!(server.asked.load(Ordering::SeqCst) - before <= 13);
        *server.refuses.lock() = false;
        sleep(PERIOD).await;
        assert_eq!(reported(), missing());
        lead(false);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(reported(), unknown);
    };
    tokio::select! {
        biased;
        never = following => match never {},
        () = acts => {}
    }
}

#[tokio::test(start_paused = true)]
async fn leader_that_may_not_read_the_policy_has_a_health_remark() {
    let (server, health) = (Arc::new(Server::default()), HealthRegistry::new());
    let policy = LeasePolicy::register(&Registry::new()).unwrap();
    let sender = latest::Sender::<Leadership>::default();
    let remark = || {
        let page = health.report(Probe::Healthz, &[], Detail::Remarks, &Unobserved);
        assert!(page.passed, "it fails no probe");
        let remark = page.text.lines().find_map(|line| line.strip_prefix("[+]leasePolicy ok, "));
        (policy.state(), remark.map(str::to_owned))
    };
    let lead = |leading| sender.send_modify(|state| state.leading = leading);
    let client = server.client();
    let following = policy.follow(Some(sender.subscribe()), &client, &health, || {});
    let unknown = (LeasePolicyState::Unknown, None);
    let acts = async {
        *server.refuses.lock() = true;
        for _ in 0..2 {
            lead(true);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(remark(), (LeasePolicyState::Unknown, Some(FORBIDDEN.to_owned())));
            lead(false);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(remark(), unknown, "a standby reads nothing");
        }
        lead(true);
        sleep(RETRY * 3).await;
        assert_eq!(remark(), (LeasePolicyState::Unknown, Some(FORBIDDEN.to_owned())));
        *server.objects.lock() = Some(stored());
        *server.refuses.lock() = false;
        sleep(RETRY * 2).await;
        assert_eq!(remark(), (LeasePolicyState::InForce, None));
    };
    tokio::select! {
        biased;
        never = following => match never {},
        () = acts => {}
    }
}

#[tokio::test(start_paused = true)]
async fn manager_without_an_election_reports_the_policy_too() {
    let (server, health) = (Arc::new(Server::default()), HealthRegistry::new());
    *server.objects.lock() = Some(stored());
    let policy = LeasePolicy::register(&Registry::new()).unwrap();
    let client = server.client();
    let following = policy.follow(None, &client, &health, || {});
    assert!(timeout(Duration::from_secs(1), following).await.is_err(), "it goes on");
    assert_eq!(policy.state(), LeasePolicyState::InForce);
}
