//! The whole manager in one thread, with an API server that is a part of the same program: what it does follows from a seed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::server::Server;
use crate::manager::run_until;
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::api::apps::{Deployment, DeploymentSpec, DeploymentStrategy};
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta};
use coxswain_machinery::environment::Environment;
use coxswain_machinery::options::{self, Invocation};
use coxswain_machinery::random;
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message as _, Raw};

/// As the thread is called, and every thread that it makes without giving it a name.
const THREAD: &str = "simulated";
/// When a simulation begins, in seconds.
const EPOCH: u64 = 1_800_000_000;

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: name.into(), ..ObjectMeta::default() }
}

/// A Deployment of three pods.
fn deployment() -> Vec<u8> {
    let labels: coxswain_machinery::wire::Labels = [("app", "web")].into_iter().collect();
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &ObjectMeta { labels: labels.clone(), ..ObjectMeta::default() }.to_bytes());
    let mut container = Vec::new();
    put_bytes(&mut container, 1, b"c");
    let mut spec = Vec::new();
    put_bytes(&mut spec, 2, &container);
    put_bytes(&mut template, 2, &spec);
    let spec = DeploymentSpec {
        replicas: Some(3),
        selector: LabelSelector { match_labels: labels, ..LabelSelector::default() },
        template: Raw(template.into()),
        strategy: DeploymentStrategy { r#type: "Recreate".into(), ..DeploymentStrategy::default() },
        ..DeploymentSpec::default()
    };
    Deployment { metadata: named("web"), spec, ..Deployment::default() }.to_bytes()
}

fn namespace(name: &str) -> Vec<u8> {
    let mut object = Vec::new();
    put_bytes(&mut object, 1, &named(name).to_bytes());
    let mut status = Vec::new();
    put_bytes(&mut status, 1, b"Active");
    put_bytes(&mut object, 3, &status);
    object
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
    let server = Server::new(EPOCH);
    for name in ["default", "kube-system"] {
        server.create("/api/v1/namespaces", &namespace(name));
    }
    server.create("/apis/apps/v1/namespaces/default/deployments", &deployment());
    let flags = ["--master=http://api.test", "--secure-port=0"].map(Into::into);
    let Invocation::Run(startup) = options::parse(flags, REGISTRY).unwrap() else { panic!("it is to run") };
    let start = Timestamp::from_second(i64::try_from(EPOCH).unwrap()).unwrap();
    let environment = Environment::simulated(start, server.service());
    let stop = CancellationToken::new();
    let verbosity = Arc::new(|_| Ok(()));
    let manager = run_until(stop.clone(), startup.config, REGISTRY, verbosity, None, environment);
    let began = Instant::now();
    let user = async {
        sleep_until(began + Duration::from_secs(20)).await;
        assert_eq!(server.count("pods"), 3, "{:#?}", server.asked());
        server.delete_first("/api/v1/namespaces/default/pods");
        sleep_until(began + Duration::from_secs(40)).await;
        assert_eq!((server.count("pods"), server.count("serviceaccounts")), (3, 2));
        assert_eq!(threads(), 1);
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(Box::pin(manager), user);
    ended.unwrap();
    server.asked()
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
