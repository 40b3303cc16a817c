//! `QueueService`: looking into queues, reconciling on demand, explaining.

use std::time::Duration;

use tonic::Code;

use super::super::snapshots::QueueDetails;
use super::fake::OTHER;
use super::*;
use crate::admin::manager::MutationKind;
use crate::admin::proto::queue_service_client::QueueServiceClient;
use crate::admin::proto::{self, ActionResult, SyncOutcome};

impl Bench {
    fn queues(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }
}

fn sync(controller: &str) -> proto::SyncObjectRequest {
    proto::SyncObjectRequest {
        controller: controller.to_owned(),
        object: Some(proto::ObjectKey { namespace: "shop".into(), name: "web".into() }),
        ..Default::default()
    }
}

#[tokio::test]
async fn queues_are_listed_and_looked_into() {
    let bench = Bench::new().await;
    let mut client = bench.queues();
    let mut list = async |filter: proto::QueueFilter| {
        let request = proto::ListQueuesRequest { filter: Some(filter), ..Default::default() };
        let page = client.list_queues(jane(request)).await.unwrap().into_inner();
        page.queues.into_iter().map(|queue| queue.name).collect::<Vec<_>>()
    };
    let filter = proto::QueueFilter::default;
    assert_eq!(list(filter()).await.len(), 4);
    assert_eq!(list(proto::QueueFilter { busy: true, ..filter() }).await, ["deployment"]);
    let controllers = vec!["replicaset".to_owned()];
    assert_eq!(list(proto::QueueFilter { controllers, ..filter() }).await, ["replicaset"]);
    let controllers = vec!["nobody".to_owned()];
    assert!(list(proto::QueueFilter { controllers, ..filter() }).await.is_empty());
    let resource = "secrets".to_owned();
    assert_eq!(list(proto::QueueFilter { resource, ..filter() }).await, ["serviceaccount_tokens_secret"]);

    let request = proto::GetQueueRequest { name: "deployment".into(), max_keys: 2 };
    let queue = client.get_queue(jane(request)).await.unwrap().into_inner();
    assert_eq!(queue.oldest_keys.len(), 2);
    assert_eq!(queue.queue.unwrap().resource, "deployments.apps");
    assert_eq!((queue.failing_keys[0].attempts, queue.failing_keys[0].message.as_str()), (4, "quota"));

    let waiting = &queue.waiting_keys[0];
    assert_eq!(waiting.object.as_ref().unwrap().name, "late");
    assert_eq!((waiting.reason.as_str(), waiting.age.unwrap().seconds), ("waiting for the cache of pods", 7));

    let wrong = proto::GetQueueRequest { name: String::new(), max_keys: -1 };
    assert_eq!(fields(client.get_queue(jane(wrong)).await), ["name", "max_keys"]);
    let unknown = || jane(proto::GetQueueRequest { name: "deploymnt".into(), max_keys: 0 });
    assert_eq!(fact(client.get_queue(unknown()).await, "closest"), "deployment");
    bench.manager.lose(OTHER);
    assert_eq!(why(client.get_queue(unknown()).await), (Code::FailedPrecondition, "NOT_LEADER".into()));
}

#[tokio::test(start_paused = true)]
async fn details_of_a_queue_are_dropped_although_nobody_asks_again() {
    let bench = Bench::new().await;
    let details = QueueDetails::new(Arc::clone(&bench.manager) as _);
    for _ in 0..3 {
        let detail = Arc::downgrade(&details.read("deployment").unwrap());
        assert!(detail.upgrade().is_some(), "it is shared for a tenth of a second");
        tokio::time::sleep(Duration::from_millis(101)).await;
        assert!(detail.upgrade().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_share_the_details_of_a_queue_for_a_tenth_of_a_second() {
    let bench = Bench::new().await;
    let mut client = bench.queues();
    let computed = || bench.manager.state.lock().computed;
    let began = tokio::time::Instant::now();
    for call in 0..50 {
        let request = proto::GetQueueRequest { name: "deployment".into(), max_keys: 1 + call % 3 };
        let queue = client.get_queue(jane(request)).await.unwrap().into_inner();
        assert_eq!(queue.oldest_keys.len(), 1 + call as usize % 3);
    }
    let most = 1 + began.elapsed().as_millis() / 100;
    assert!((1..=most).contains(&(computed() as u128)), "{} of {most}", computed());
    let before = computed();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let request = proto::GetQueueRequest { name: "deployment".into(), max_keys: 1 };
    client.get_queue(jane(request)).await.unwrap();
    assert_eq!(computed(), before + 1);
}

#[tokio::test]
async fn an_object_is_reconciled_on_demand() {
    let bench = Bench::new().await;
    let mut client = bench.queues();
    let done = client.sync_object(jane(sync("deployment"))).await.unwrap().into_inner();
    assert_eq!((done.outcome(), done.queue.as_str()), (SyncOutcome::Done, "deployment"));
    assert_eq!(done.actions[0].result(), ActionResult::Done);
    assert_eq!(done.trace_id, "01".repeat(16));
    let state = bench.manager.state.lock();
    assert_eq!(state.synced[0].key.to_string(), "shop/web");
    assert_eq!(state.announced[0].action, MutationKind::Synced);
    assert_eq!(state.announced[0].message, "jane requested a reconcile by deployment-controller of shop/web");
}

#[tokio::test]
async fn explaining_is_for_viewers_and_is_no_mutation() {
    let bench = Bench::new().await;
    let mut client = bench.queues();
    let explain = proto::SyncObjectRequest { explain: true, ..sync("deployment") };
    let done = client.sync_object(by("viewer", explain)).await.unwrap().into_inner();
    assert_eq!((done.outcome(), done.actions[0].result()), (SyncOutcome::Explained, ActionResult::Planned));
    assert_eq!(done.reasons, ["1 of 3 replicas is there"]);
    assert!(bench.manager.state.lock().announced.is_empty());
    let asked = bench.judge.asked.lock().last().unwrap().1.clone();
    assert_eq!(
        (asked.verb.as_str(), asked.resource.as_str(), asked.name.as_str()),
        ("get", "queues", "deployment")
    );
    assert_eq!(why(client.sync_object(by("viewer", sync("deployment"))).await).0, Code::PermissionDenied);

    // A method of its own, by which a policy can tell it from the other.
    let question = |controller: &str| {
        let proto::SyncObjectRequest { controller, object, queue, .. } = sync(controller);
        proto::ExplainObjectRequest { controller, object, queue }
    };
    let told = client.explain_object(by("viewer", question("deployment"))).await.unwrap().into_inner();
    assert_eq!(
        (told.outcome(), &told.actions, &told.reasons),
        (done.outcome(), &done.actions, &done.reasons)
    );
    assert_eq!((told.queue, told.requeue_after), (done.queue, done.requeue_after));
    assert_eq!(bench.judge.asked.lock().last().unwrap().1.verb, "get");
    let nothing_else = {
        let state = bench.manager.state.lock();
        state.synced.iter().all(|request| request.explain) && state.announced.is_empty()
    };
    assert!(nothing_else, "it reconciled");
    assert_eq!(why(client.explain_object(jane(question("deploymnt"))).await).1, "CONTROLLER_NOT_FOUND");
    let without = proto::ExplainObjectRequest { object: None, ..question("deployment") };
    assert_eq!(fields(client.explain_object(jane(without)).await), ["object"]);
    bench.manager.lose(OTHER);
    assert_eq!(why(client.explain_object(jane(question("deployment"))).await).1, "NOT_LEADER");
}

#[tokio::test]
async fn a_sync_that_can_not_be_is_refused() {
    let bench = Bench::new().await;
    let mut client = bench.queues();
    // Two queues: one must be named.
    assert_eq!(fields(client.sync_object(jane(sync("serviceaccount-token"))).await), ["queue"]);
    let named = proto::SyncObjectRequest {
        queue: "serviceaccount_tokens_secret".into(),
        ..sync("serviceaccount-token")
    };
    assert!(client.sync_object(jane(named)).await.is_ok());
    let foreign = proto::SyncObjectRequest { queue: "replicaset".into(), ..sync("deployment") };
    assert_eq!(why(client.sync_object(jane(foreign)).await), (Code::NotFound, "QUEUE_NOT_FOUND".into()));
    assert_eq!(
        why(client.sync_object(jane(sync("deploymnt"))).await),
        (Code::NotFound, "CONTROLLER_NOT_FOUND".into())
    );
    assert_eq!(
        why(client.sync_object(jane(sync("job"))).await),
        (Code::FailedPrecondition, "NOT_RUNNING".into())
    );
    let without = proto::SyncObjectRequest { object: None, ..sync("deployment") };
    assert_eq!(fields(client.sync_object(jane(without)).await), ["object"]);
    bench.manager.state.lock().sync_stops = true;
    assert_eq!(why(client.sync_object(jane(sync("deployment"))).await).1, "NOT_RUNNING");
    bench.manager.lose(OTHER);
    assert_eq!(why(client.sync_object(jane(sync("deployment"))).await).1, "NOT_LEADER");
}
