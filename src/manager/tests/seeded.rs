//! The whole manager in one thread, with an API server that is a part of the same program: what it does follows from a seed.

use std::sync::Arc;
use std::time::Duration;

use apiserver_model::http::Asked;
use apiserver_model::{Deletion, Model, reply};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::manager::run_until;
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::client::{BoxError, HttpService};
use coxswain_machinery::environment::Environment;
use coxswain_machinery::options::{self, Invocation};
use coxswain_machinery::random;

/// As the thread is called, and every thread that it makes without giving it a name.
const THREAD: &str = "simulated";
/// When a simulation begins, in seconds.
const EPOCH: i64 = 1_800_000_000;

/// The model of the API server, which answers after a while that the thread's generator decides, and what it was asked.
pub(super) struct Server {
    began: Instant,
    pub(super) model: Mutex<Model>,
    asked: Mutex<Vec<String>>,
}

impl Server {
    pub(super) fn new(start: Timestamp) -> Arc<Self> {
        let model = Mutex::new(Model::new(start, 1));
        Arc::new(Self { began: Instant::now(), model, asked: Mutex::default() })
    }

    /// What carries requests to it.
    pub(super) fn service(self: &Arc<Self>) -> HttpService {
        let server = Arc::clone(self);
        HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let server = Arc::clone(&server);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                server.note(&parts, &body);
                sleep(Duration::from_micros(random::within(500..20_000))).await;
                let answer = server.model.lock().answer("manager", &Asked::new(&parts, body));
                sleep(Duration::from_micros(random::within(500..20_000))).await;
                Ok::<_, BoxError>(reply::response(answer))
            }
        }))
    }

    /// Writes down when it was asked what, with a digest of the body.
    fn note(&self, parts: &http::request::Parts, body: &Bytes) {
        let digest = ring::digest::digest(&ring::digest::SHA256, body);
        let agent = parts.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let line = format!(
            "{:?} {} {} {:02x?} {}",
            self.began.elapsed(),
            parts.method,
            parts.uri,
            &digest.as_ref()[..8],
            agent.unwrap_or_default()
        );
        self.asked.lock().push(line);
    }

    /// How many objects of a resource there are in `default`.
    fn count(&self, resource: &'static str) -> usize {
        self.model.lock().all(resource, "default").count()
    }

    /// Takes the first pod away.
    fn delete_a_pod(&self) {
        let mut model = self.model.lock();
        let place = model.all("pods", "default").next().expect("one").place.clone();
        model.delete("user", &place, &Deletion::default()).unwrap();
    }
}

/// A Deployment of three pods.
fn deployment() -> Json {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "strategy": { "type": "Recreate" },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c" }] },
            },
        },
    })
}

/// Threads that are the simulation's, or those that a manager has elsewhere.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // One that has ended meanwhile has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| [THREAD, "coxswain-elect", "coxswain-serve"].contains(&name.trim())).count()
}

/// A manager from its start to a clean end, while a Deployment comes up and loses a pod; all that it asked.
async fn scenario() -> Vec<String> {
    let start = Timestamp::from_second(EPOCH).unwrap();
    let server = Server::new(start);
    server.model.lock().create("user", "deployments", "default", deployment()).unwrap();
    let flags = ["--master=http://api.test", "--secure-port=0"].map(Into::into);
    let Invocation::Run(startup) = options::parse(flags, REGISTRY).unwrap() else { panic!("it is to run") };
    let environment = Environment::simulated(start, server.service());
    let stop = CancellationToken::new();
    let verbosity = Arc::new(|_| Ok(()));
    let manager = run_until(stop.clone(), startup.config, REGISTRY, verbosity, None, environment);
    let began = Instant::now();
    let user = async {
        sleep_until(began + Duration::from_secs(20)).await;
        assert_eq!(server.count("pods"), 3, "{:#?}", server.asked.lock());
        server.delete_a_pod();
        sleep_until(began + Duration::from_secs(40)).await;
        assert_eq!((server.count("pods"), server.count("serviceaccounts")), (3, 1));
        assert_eq!(threads(), 1);
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(Box::pin(manager), user);
    ended.unwrap();
    let asked = server.asked.lock();
    asked.clone()
}

/// What happens with a seed, on a thread of its own.
fn run(seed: u64) -> Vec<String> {
    let simulation = move || {
        random::seed(seed);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).thread_name(THREAD).build().unwrap();
        runtime.block_on(scenario())
    };
    #[expect(clippy::disallowed_methods, reason = "a thread that nobody has seeded before")]
    let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(simulation).unwrap();
    thread.join().unwrap()
}

#[test]
fn all_that_a_manager_asks_follows_from_its_seed() {
    let first = run(7);
    let again = run(7);
    for (at, (one, other)) in first.iter().zip(&again).enumerate() {
        assert_eq!(one, other, "request {at}, after {:#?}", &first[at.saturating_sub(5)..at]);
    }
    assert_eq!(first.len(), again.len());
    assert_ne!(run(8), first, "another seed, another order");
    for begin in [
        "POST http://api.test/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        "POST http://api.test/apis/apps/v1/namespaces/default/replicasets",
        "POST http://api.test/api/v1/namespaces/default/pods",
        "PUT http://api.test/apis/apps/v1/namespaces/default/deployments/web/status",
        "PUT http://api.test/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
    ] {
        assert!(first.iter().any(|line| line.contains(begin)), "{begin}: {first:#?}");
    }
}
