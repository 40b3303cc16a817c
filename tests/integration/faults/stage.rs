//! One harness for controllers under faults.
//!
//! A [`Scenario`] is played in many places at once, each with a fault of its own: conflicts, lost answers, refusals by a
//! policy and by a webhook that is down, watches that are cut, and a manager that is killed after the first, the second …
//! and the last of its writes. In the end every place looks as it does without any fault, and stays so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, SemaphorePermit};

use super::line::{Line, WriteFault};
use crate::harness::{
    Caller, Cluster, ControlPlane, Manager, Namespace, Options, Proxy, eventually, object, turn, until,
};

pub(super) const LIMIT: Duration = Duration::from_secs(90);
/// Refusals after which what refuses is taken away.
const REFUSALS: usize = 3;

/// Places that a manager which is killed leaves half done, at least: each scenario takes more writes than that.
const HALF_DONE: usize = 3;

/// Where a scenario is played: a namespace, and whatever has a name that begins with its name.
pub(super) struct Place {
    /// Its number, which no other place of this stage has.
    pub(super) at: usize,
    pub(super) namespace: Namespace,
}

impl Place {
    pub(super) fn name(&self) -> &str {
        &self.namespace.name
    }
}

/// What is there, by name, without what differs from one place to the next.
pub(super) type Outcome = BTreeMap<String, Value>;

/// Something that a controller has to do.
pub(super) trait Scenario {
    /// The controller. No other one runs.
    const CONTROLLER: &'static str;
    /// Its service account.
    const ACCOUNT: &'static str;

    /// Further flags.
    const ARGS: &'static [&'static str] = &[];

    /// Makes what is there before. The controller may be waited for.
    async fn prepare(place: &Place);

    /// Gives the controller something to do. It may be dead, and is not waited for.
    async fn act(place: &Place);

    /// What is there.
    async fn outcome(place: &Place) -> Outcome;

    /// What must be there in the end.
    fn expected() -> Outcome;
}

/// A control plane without a manager, shared by the tests that use it at the same time. Each runs one controller of its
/// own, and what they do is wait for the most part.
pub(super) struct Shared {
    pub(super) plane: ControlPlane,
    _turn: SemaphorePermit<'static>,
}

/// The one that is there, or a new one.
pub(super) async fn shared() -> Arc<Shared> {
    static SHARED: AsyncMutex<Weak<Shared>> = AsyncMutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(held) = shared.upgrade() {
        return held;
    }
    let held = Arc::new(alone().await);
    *shared = Arc::downgrade(&held);
    held
}

/// Starts a control plane for one test whose controller writes objects of other tests: a garbage collector deletes their garbage.
pub(super) async fn alone() -> Shared {
    let turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: Vec::new() });
    Shared { plane, _turn: turn }
}

/// Who refuses the controller's writes.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Policy,
    Webhook,
}

/// A control plane, a manager, the line between them, and all places.
pub(super) struct Stage<'a> {
    pub(super) cluster: Cluster,
    pub(super) line: Arc<Line>,
    pub(super) manager: Manager<'a>,
    account: String,
    places: Mutex<Vec<Arc<Place>>>,
    /// Places so far.
    count: AtomicUsize,
    _proxy: Proxy,
}

impl<'a> Stage<'a> {
    /// With the manager running.
    pub(super) async fn start<S: Scenario>(plane: &'a ControlPlane) -> Self {
        let cluster = plane.cluster().await;
        let line = Arc::new(Line::new(cluster.client.clone()));
        let proxy = Proxy::start(plane, Arc::clone(&line) as _).await;
        let (master, controllers) =
            (format!("--master={}", proxy.url), format!("--controllers={}", S::CONTROLLER));
        let args = [
            &master,
            &controllers,
            // A manager that was killed does not release its Lease.
            "--leader-elect=false",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
        ];
        let manager = plane.coxswain(S::CONTROLLER, &[&args, S::ARGS].concat());
        let account = format!("system:serviceaccount:kube-system:{}", S::ACCOUNT);
        Self {
            cluster,
            line,
            manager,
            account,
            places: Mutex::default(),
            count: AtomicUsize::new(0),
            _proxy: proxy,
        }
    }

    /// A place with nothing in it.
    pub(super) async fn empty<S: Scenario>(&self) -> Arc<Place> {
        let prefix = S::CONTROLLER.split('-').next().unwrap_or_default();
        let namespace = self.cluster.namespace(prefix).await;
        let place = Arc::new(Place { at: self.count.fetch_add(1, Ordering::Relaxed), namespace });
        self.places.lock().push(Arc::clone(&place));
        place
    }

    /// A place where the scenario may begin, with its fault.
    pub(super) async fn prepared<S: Scenario>(&self, fault: WriteFault) -> Arc<Place> {
        let place = self.empty::<S>().await;
        self.line.set_fault(place.name(), WriteFault::None);
        S::prepare(&place).await;
        let begins = async || self.line.set_fault_if_quiet(place.name(), fault);
        eventually("a moment without writes", LIMIT, begins).await;
        place
    }

    /// All faults on writes: with each of them what is expected comes about.
    pub(super) async fn endures_faults<S: Scenario>(&self) {
        let writes = self.fail_writes::<S>().await;
        self.kill::<S>(writes).await;
    }

    /// How many writes it takes without faults.
    async fn fail_writes<S: Scenario>(&self) -> usize {
        let faults = [
            WriteFault::None,
            WriteFault::Conflicts,
            WriteFault::LosesAnswers,
            WriteFault::None,
            WriteFault::None,
        ];
        let places = join_all(faults.map(|fault| self.prepared::<S>(fault))).await;
        let refusals = [(&places[3], Refusal::Policy), (&places[4], Refusal::Webhook)];
        join_all(refusals.map(|(place, refusal)| self.refuse(place, refusal))).await;
        join_all(places.iter().map(|place| S::act(place))).await;
        for (place, refusal) in refusals {
            let account = async || self.line.account(place.name());
            let what = format!("refusals by a {refusal:?}");
            until(&what, LIMIT, account, |account| account.refusals() >= REFUSALS).await;
            self.permit(place, refusal).await;
        }
        settled::<S>(&places).await;
        let [plain, conflicts, lost] = [0, 1, 2].map(|at| self.line.account(places[at].name()));
        assert!(conflicts.conflicts() > 0, "nobody met a conflict: {conflicts:?}");
        assert!(lost.met > 0, "no answer was lost: {lost:?}");
        assert_eq!(plain.refusals(), 0, "without faults: {plain:?}");
        plain.carried
    }

    /// Kills it after each of its writes.
    async fn kill<S: Scenario>(&self, writes: usize) {
        let places =
            join_all((1..=writes).map(|most| self.prepared::<S>(WriteFault::StopsAfter(most)))).await;
        join_all(places.iter().map(|place| S::act(place))).await;
        let mut stopped = 0;
        for (place, most) in places.iter().zip(1..) {
            // It may take fewer writes this time.
            let progress =
                async || (self.line.account(place.name()).carried, S::outcome(place).await == S::expected());
            let what = format!("{most} writes in {}", place.name());
            let (carried, is_over) =
                until(&what, LIMIT, progress, |(carried, is_over)| *carried >= most || *is_over).await;
            assert!(carried <= most, "{carried} writes and not {most}");
            stopped += usize::from(!is_over);
        }
        self.manager.kill();
        assert!(stopped >= HALF_DONE, "only {stopped} of {writes} places were left half done");
        for place in &places {
            self.line.set_fault(place.name(), WriteFault::None);
        }
        self.manager.start_again();
        settled::<S>(&places).await;
    }

    /// Watches are cut. After that everything has been done and is still as it was; the manager lives, until it is ended.
    pub(super) async fn stays<S: Scenario>(&self) {
        // Whatever else was under way is over when this is.
        let place = self.prepared::<S>(WriteFault::None).await;
        self.line.cut_watches();
        S::act(&place).await;
        settled::<S>(&[place]).await;
        let cuts = self.line.steady();
        assert!(cuts.values().any(|cuts| *cuts > 0), "no watch was cut: {cuts:?}");
        let places = self.places.lock().clone();
        let outcomes = join_all(places.iter().map(|place| S::outcome(place))).await;
        for (place, outcome) in places.iter().zip(outcomes) {
            assert_eq!(outcome, S::expected(), "{} does not stay as it was", place.name());
        }
        assert_eq!(self.manager.exit(), "", "{}", self.manager.log());
        assert!(!self.manager.log().contains("panicked"), "{}", self.manager.log());
        self.manager.stop();
    }

    /// How many keys it has reconciled, well or in vain, since it was started.
    pub(super) async fn reconciles(&self) -> u64 {
        let page = self.manager.page(Caller::Admin, "/metrics").await.text;
        let of = format!("coxswain_reconcile_total{{controller=\"{}\"", self.manager.name);
        let counts = page.lines().filter(|line| line.starts_with(&of));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// The place is not one in which the scenario ends as it does.
    pub(super) fn leave(&self, place: &Place) {
        self.places.lock().retain(|held| held.name() != place.name());
    }

    /// Lets every write of the controller in a place be refused by the API server.
    async fn refuse(&self, place: &Place, refusal: Refusal) {
        let name = place.name();
        let probe = format!("{name}-probe");
        let concerns = format!(
            "(request.userInfo.username == '{account}' && (has(request.namespace) && request.namespace == '{name}' \
             || has(request.name) && (request.name == '{name}' || request.name.startsWith('{name}-')))) \
             || has(request.name) && request.name == '{probe}'",
            account = self.account,
        );
        let conditions = json!([{ "name": "concerns", "expression": concerns }]);
        let rule = json!({
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*",
        });
        let client = &self.cluster.client;
        match refusal {
            Refusal::Policy => {
                let spec = json!({
                    "failurePolicy": "Fail",
                    "matchConstraints": { "resourceRules": [rule] },
                    "matchConditions": conditions,
                    "validations": [{ "expression": "false", "message": "not today" }],
                });
                create::<ValidatingAdmissionPolicy>(client, name, &json!({ "spec": spec })).await;
                let spec = json!({ "policyName": name, "validationActions": ["Deny"] });
                create::<ValidatingAdmissionPolicyBinding>(client, name, &json!({ "spec": spec })).await;
            }
            Refusal::Webhook => {
                // Nobody listens there.
                let webhook = json!({
                    "name": "down.coxswain.dev",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "clientConfig": { "url": "https://127.0.0.1:1/" },
                    "rules": [rule],
                    "matchConditions": conditions,
                });
                let webhooks = json!({ "webhooks": [webhook] });
                create::<ValidatingWebhookConfiguration>(client, name, &webhooks).await;
            }
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let map = object(json!({ "metadata": { "name": probe } }));
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let is_refused = async || maps.create(&dry, &map).await.is_err();
        eventually(&format!("the {refusal:?} of {name}"), LIMIT, is_refused).await;
    }

    async fn permit(&self, place: &Place, refusal: Refusal) {
        let client = &self.cluster.client;
        match refusal {
            Refusal::Policy => {
                delete::<ValidatingAdmissionPolicyBinding>(client, place.name()).await;
                delete::<ValidatingAdmissionPolicy>(client, place.name()).await;
            }
            Refusal::Webhook => delete::<ValidatingWebhookConfiguration>(client, place.name()).await,
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.manager.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- {}\n{}", self.manager.name, lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}

/// Waits until all places look as they must.
pub(super) async fn settled<S: Scenario>(places: &[Arc<Place>]) {
    let expected = S::expected();
    let settle = |place: &Arc<Place>| {
        let (place, expected) = (Arc::clone(place), &expected);
        async move {
            let what = format!("the outcome in {}", place.name());
            until(&what, LIMIT, || S::outcome(&place), |outcome| outcome == expected).await;
        }
    };
    join_all(places.iter().map(settle)).await;
}

async fn create<K>(client: &kube::Client, name: &str, body: &Value)
where
    K: kube::Resource + serde::Serialize + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
    K::DynamicType: Default,
{
    let mut body = body.clone();
    body["metadata"] = json!({ "name": name });
    let api: Api<K> = Api::all(client.clone());
    api.create(&PostParams::default(), &object(body)).await.expect("it is created");
}

async fn delete<K>(client: &kube::Client, name: &str)
where
    K: kube::Resource + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::all(client.clone());
    drop(api.delete(name, &DeleteParams::default()).await.expect("it is deleted"));
}
