//! Several informers of one set and a server that is away: who calls whom.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::informers;
use crate::api::Kind;
use crate::client::{ApiError, BoxError, FieldSelector, ListQuery, ResponseBody, WatchQuery};
use crate::informer::fixture::{PODS, bookmark, until};
use crate::informer::{InformerHandle, Informers, ListWatch};
use crate::random::HashMap;
use crate::wire::ListPage;

/// The backoff's first wait.
const FIRST: Duration = Duration::from_millis(800);
/// The backoff's longest wait.
const LONGEST: Duration = Duration::from_secs(30);

/// After this a request that is not answered has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// What the server does with the watches of one selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Connections are refused.
    Away,
    /// Connections are taken, and then nobody answers.
    Stalls,
    /// Watches open, and break at once.
    Breaks,
    /// Watches open, and last.
    Serves,
}

/// A server that treats informers by their selectors; those that it has not been told of, as though it were away.
#[derive(Default)]
struct Server {
    manners: Mutex<HashMap<String, Manner>>,
    asked: Mutex<Vec<(Instant, String)>>,
}

impl Server {
    fn treats(&self, name: &str, manner: Manner) {
        self.manners.lock().insert(name.to_owned(), manner);
    }

    /// When it was asked by this one.
    fn asked_by(&self, name: &str) -> Vec<Instant> {
        let asked = self.asked.lock();
        asked.iter().filter(|(_, who)| who == name).map(|(at, _)| *at).collect()
    }
}

impl ListWatch for Server {
    fn list(&self, _: &'static Kind, query: ListQuery) -> BoxFuture<'_, Result<ListPage, ApiError>> {
        panic!("a stream was expected: {query:?}");
    }

    fn watch(&self, _: &'static Kind, query: WatchQuery) -> BoxFuture<'_, Result<ResponseBody, ApiError>> {
        let name = query.field_selector.map(|selector| selector.to_string()).unwrap_or_default();
        let manner = self.manners.lock().get(&name).copied().unwrap_or(Manner::Away);
        self.asked.lock().push((Instant::now(), name));
        let initial = query.send_initial_events.then(|| Ok(Frame::data(bookmark(1, true))));
        let broken: BoxError = "connection reset".into();
        let body = match manner {
            Manner::Away => {
                let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
                let error = ApiError::Transport { request: "GET /api/v1/pods".to_owned(), source };
                return Box::pin(async { Err(error) });
            }
            Manner::Stalls => return Box::pin(std::future::pending()),
            Manner::Breaks => stream::iter(initial.into_iter().chain([Err(broken)])).boxed(),
            Manner::Serves => stream::iter(initial).chain(stream::pending()).boxed(),
        };
        Box::pin(async { Ok(BodyExt::boxed_unsync(StreamBody::new(body))) })
    }
}

/// A hundred times, one after the other, a new informer finds the server away and then there.
async fn return_a_hundred_times(informers: &Informers, server: &Server) -> Vec<InformerHandle> {
    let mut handles = Vec::new();
    for at in 0..100 {
        let selector = FieldSelector::name(&format!("other-{at}"));
        let name = selector.to_string();
        handles.push(informers.acquire_selected(PODS, Some(selector), None));
        until("it finds the server away", || !server.asked_by(&name).is_empty()).await;
        server.treats(&name, Manner::Serves);
        handles[at].wait_synced().await.unwrap();
    }
    handles
}

#[tokio::test(start_paused = true)]
async fn who_reaches_the_server_first_calls_all_others() {
    let server = Arc::new(Server::default());
    let informers = informers(&server, true);
    let selectors = (0..20).map(|at| FieldSelector::name(&format!("pod-{at}")));
    let names: Vec<String> = selectors.clone().map(|selector| selector.to_string()).collect();
    let handles: Vec<_> =
        selectors.map(|selector| informers.acquire_selected(PODS, Some(selector), None)).collect();
    until("all wait for long", || names.iter().all(|name| server.asked_by(name).len() >= 8)).await;
    for name in &names {
        server.treats(name, Manner::Serves);
    }
    let there = Instant::now();
    for handle in &handles {
        handle.wait_synced().await.unwrap();
    }
    let back = names.iter().map(|name| *server.asked_by(name).last().unwrap());
    let (first, last) = (back.clone().min().unwrap(), back.max().unwrap());
    assert!(first >= there);
    // The clock's steps are of a millisecond.
    assert!(last - first <= Duration::from_millis(102), "the last came {:?} later", last - first);
}

#[tokio::test(start_paused = true)]
async fn whose_request_was_under_way_at_the_return_has_not_missed_it() {
    let server = Arc::new(Server::default());
    let informers = informers(&server, true);
    let (early, late) = ("metadata.name=early", "metadata.name=late");
    let [_early, late_handle] = [early, late].map(|name| informers.acquire(PODS, Some(name)));
    let times = |name| server.asked_by(name).len();
    until("both wait for long", || times(early) >= 8 && times(late) >= 8).await;
    server.treats(late, Manner::Stalls);
    let before = times(late);
    until("a request is under way", || times(late) > before).await;
    server.treats(early, Manner::Serves);
    server.treats(late, Manner::Serves);
    late_handle.wait_synced().await.unwrap();
    let asked = server.asked_by(late);
    let pause = asked[before + 1] - asked[before];
    assert!(
        pause <= ANSWER_WITHIN + Duration::from_millis(102),
        "it failed, and waited until {pause:?} had gone"
    );
}

#[tokio::test(start_paused = true)]
async fn whose_own_watch_always_breaks_is_called_by_nobody() {
    let server = Arc::new(Server::default());
    let informers = informers(&server, true);
    let names = ["metadata.name=one", "metadata.name=two"];
    for name in names {
        server.treats(name, Manner::Breaks);
    }
    let _handles = names.map(|name| informers.acquire(PODS, Some(name)));
    let _others = return_a_hundred_times(&informers, &server).await;
    for name in names {
        let asked = server.asked_by(name);
        assert!(asked.len() >= 5, "{asked:?}");
        // The first time it is opened again at once.
        for (failures, pair) in (0..16).zip(asked[1..].windows(2)) {
            assert!(pair[1] - pair[0] >= (FIRST * (1 << failures)).min(LONGEST), "{asked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_alone_finds_no_answer_is_called_less_and_less_urgently() {
    let server = Arc::new(Server::default());
    let informers = informers(&server, true);
    let name = "metadata.name=alone";
    let _handle = informers.acquire(PODS, Some(name));
    let _others = return_a_hundred_times(&informers, &server).await;
    let asked = server.asked_by(name);
    // By its backoff alone it would ask about ten times meanwhile.
    assert!(asked.len() < 40, "{} times, as others succeeded a hundred times", asked.len());
}
