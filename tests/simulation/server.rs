//! The model of the API server at work: it answers managers over a line with faults, obeys actors at once, and has every
//! change checked and written down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::client::{BoxError, HttpService, ResponseBody};
use coxswain_machinery::framework::Grant;

use crate::faults::{Fate, Faults};
use crate::invariants::{CONTROLLER, Checks, Exchange, Violation};
use crate::line::Line;
use crate::matrix::undone;
use crate::mutants::Mutant;
use crate::reply::{Reset, response};
use crate::story::difference;
use crate::trace::Trace;
use apiserver_model::http::{Answer, Asked};
use apiserver_model::metrics::series;
use apiserver_model::reply::refused;
use apiserver_model::{Model, Refusal};

/// How long a connection on which nothing comes stays open.
const UNANSWERED: Duration = Duration::from_mins(5);
/// A request that a manager sends while its line is cut.
const CUT_OFF: &str = "sent while cut off";

/// See the module.
pub(crate) struct Server {
    began: Instant,
    epoch: Timestamp,
    state: Mutex<State>,
    /// What goes on although who asked is gone.
    tasks: TaskTracker,
    mutant: Option<Mutant>,
    /// Requests that managers have sent and that have not arrived.
    on_their_way: AtomicUsize,
    /// How often managers have stood still.
    frozen: AtomicUsize,
    /// Cancelled by the first violation.
    pub(crate) violated: CancellationToken,
}

struct State {
    model: Model,
    checks: Checks,
    faults: Faults,
    trace: Trace,
    counts: Counts,
    /// The number of GET requests of each controller, without watches and without lists of informers, which have another user agent.
    reads: BTreeMap<String, u64>,
}

/// What has happened so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    /// Changes that managers made, Leases and Events not counted.
    pub(crate) writes: u64,
    /// The last of these.
    pub(crate) last_write: Option<(Timestamp, String)>,
    /// All changes by managers, by who made them and of what.
    pub(crate) by_agent: BTreeMap<String, u64>,
}

/// Who asks: the number of the manager, and in it the controller.
#[derive(Clone, Debug)]
struct Client {
    manager: u32,
    agent: String,
}

impl Client {
    fn name(&self) -> String {
        format!("m{}/{}", self.manager, self.agent)
    }
}

/// What a controller of a manager may write; `None` for everybody else.
fn role(by: &str) -> Option<&'static [Grant]> {
    let (_, controller) = by.split_once('/').filter(|(manager, _)| manager.starts_with('m'))?;
    Some(REGISTRY.iter().find(|descriptor| descriptor.name == controller)?.writes)
}

/// Counts a request until it has arrived.
struct OnItsWay(Arc<Server>);

impl OnItsWay {
    fn new(server: &Arc<Server>) -> Self {
        server.on_their_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(server))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.on_their_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    pub(crate) fn new(
        epoch: Timestamp,
        seed: u64,
        faults: Faults,
        trace: Trace,
        mutant: Option<Mutant>,
    ) -> Arc<Self> {
        let mut model = Model::new(epoch, seed);
        model.roles = role;
        let mut checks = Checks::default();
        model.deaf = mutant.is_some_and(|mutant| mutant.deaf);
        for change in std::mem::take(&mut model.changes) {
            checks.observe(&model, &change);
        }
        Arc::new(Self {
            began: Instant::now(),
            epoch,
            state: Mutex::new(State {
                model,
                checks,
                faults,
                trace,
                counts: Counts::default(),
                reads: BTreeMap::new(),
            }),
            tasks: TaskTracker::new(),
            mutant,
            on_their_way: AtomicUsize::new(0),
            frozen: AtomicUsize::new(0),
            violated: CancellationToken::new(),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.began.elapsed()).unwrap_or_default();
        self.epoch + passed
    }

    /// Does something to the model, or looks at it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        let now = self.now();
        let mut state = self.state.lock();
        state.model.set_time(now);
        let result = act(&mut state.model);
        self.settle(&mut state);
        result
    }

    /// Whether managers go on that are asked to end.
    pub(crate) fn is_stubborn(&self) -> bool {
        self.mutant.is_some_and(|mutant| mutant.stubborn)
    }

    /// Changes what goes wrong.
    pub(crate) fn faults<T>(&self, act: impl FnOnce(&mut Faults, &mut Model) -> T) -> T {
        let State { faults, model, .. } = &mut *self.state.lock();
        act(faults, model)
    }

    /// Changes what is checked.
    pub(crate) fn checks(&self, act: impl FnOnce(&mut Checks)) {
        act(&mut self.state.lock().checks);
    }

    /// How many requests managers have sent that have not arrived.
    pub(crate) fn on_their_way(&self) -> usize {
        self.on_their_way.load(Ordering::SeqCst)
    }

    /// How often managers have stood still.
    pub(crate) fn frozen(&self) -> usize {
        self.frozen.load(Ordering::SeqCst)
    }

    /// Managers stand still once more.
    pub(crate) fn freeze(&self) {
        self.frozen.fetch_add(1, Ordering::SeqCst);
    }

    /// Drops the versions from which watches could start, the lines of the trace, and the counts by resource.
    pub(crate) fn forget_past(&self) {
        let State { model, trace, counts, .. } = &mut *self.state.lock();
        model.compact();
        trace.forget();
        *counts = Counts::default();
    }

    /// Returns the number of reads of each controller, without watches and lists of informers.
    pub(crate) fn reads(&self) -> BTreeMap<String, u64> {
        self.state.lock().reads.clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    /// Writes down what somebody did that is no request.
    pub(crate) fn tell(&self, what: &str) {
        let now = self.began.elapsed();
        self.state.lock().trace.line(now, what, String::new);
    }

    /// Writes down what a manager said of itself, where a run is shown.
    pub(crate) fn overheard(&self, what: &str) {
        // While the model works nobody else does; were it to say something, it would wait for itself.
        if let Some(mut state) = self.state.try_lock() {
            state.trace.aside(self.began.elapsed(), what);
        }
    }

    /// What is left of a run: violations, and what was written down.
    pub(crate) fn finish(&self) -> (Vec<Violation>, Trace, BTreeMap<&'static str, u64>) {
        let mut state = self.state.lock();
        let violations = std::mem::take(&mut state.checks.violations);
        (violations, std::mem::take(&mut state.trace), std::mem::take(&mut state.faults.counts))
    }

    /// Says that what must be is not.
    pub(crate) fn violate(&self, violation: Violation) {
        self.state.lock().checks.violations.push(violation);
        self.violated.cancel();
    }

    /// Checks and writes down what has changed.
    fn settle(&self, state: &mut State) {
        for change in std::mem::take(&mut state.model.changes) {
            let stored = change.after.as_ref().or(change.before.as_ref());
            let place = stored.map(|stored| stored.place.clone());
            let Some(place) = place else { continue };
            let what = if change.after.is_none() { "gone" } else { "" };
            let line = format!(
                "  {} {} {}/{} {} {} {what}",
                change.by, change.verb, place.resource, change.subresource, place.namespace, place.name
            );
            state.trace.line(self.began.elapsed(), line.trim_end(), || difference(&change));
            if change.by.starts_with('m') {
                let key = format!("{} {} {}", change.by, change.verb, place.resource);
                *state.counts.by_agent.entry(key).or_default() += 1;
                if !matches!(place.resource, "leases" | "events") {
                    state.counts.writes += 1;
                    state.counts.last_write = Some((change.at, line));
                }
            }
            if !state.checks.observe(&state.model, &change) {
                self.violated.cancel();
            }
        }
    }

    /// What carries the requests of one manager over its line. When `alive` is cancelled it answers no more.
    pub(crate) fn service(
        self: &Arc<Self>,
        manager: u32,
        alive: CancellationToken,
        line: &Arc<Line>,
    ) -> HttpService {
        let (server, line) = (Arc::clone(self), Arc::clone(line));
        HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (server, alive, line) = (Arc::clone(&server), alive.clone(), Arc::clone(&line));
            let on_its_way = OnItsWay::new(&server);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let agent = parts.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
                let agent = agent.and_then(|agent| agent.rsplit_once('/')).map_or("", |(_, name)| name);
                let client = Client { manager, agent: agent.to_owned() };
                let asked = Asked::new(&parts, body);
                let tasks = server.tasks.clone();
                // What was sent arrives although the manager is gone.
                let answered =
                    tasks.spawn(async move { server.carry(&client, asked, on_its_way, &line).await });
                tokio::select! {
                    biased;
                    () = alive.cancelled() => std::future::pending().await,
                    answered = answered => answered.unwrap_or_else(|_| Err(Box::new(Reset))),
                }
            }
        }))
    }

    /// Takes a request to the server and its answer back, if nothing happens to them.
    async fn carry(
        &self,
        client: &Client,
        mut asked: Asked,
        on_its_way: OnItsWay,
        line: &Arc<Line>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        if line.is_cut() {
            drop(on_its_way);
            self.faults(|faults, _| faults.count(CUT_OFF));
            self.tell(&format!("  fault {CUT_OFF}: {} {} {}", client.name(), asked.method, asked.path));
            line.whole().await;
            return Err(Box::new(Reset));
        }
        let (fate, there, back) = {
            let mut state = self.state.lock();
            state.counts.requests += 1;
            if asked.method == http::Method::GET && !asked.is_watch && client.agent.ends_with("-controller") {
                *state.reads.entry(client.agent.clone()).or_default() += 1;
            }
            state.faults.draw(&client.agent, &asked)
        };
        sleep(there).await;
        if let Some(mutant) = self.mutant {
            mutant.send(&client.agent, &mut asked);
            sleep(mutant.delay(&asked)).await;
        }
        if let Some(name) = fate.name() {
            self.tell(&format!("  fault {name}: {} {} {}", client.name(), asked.method, asked.path));
        }
        let result = match &fate {
            Fate::LostBefore | Fate::Silent => Err(None),
            Fate::Refused(refusal) => Err(Some(refusal.clone())),
            Fate::Undone => self.with(|model| undone(model, &client.name(), &asked)).map_err(Some),
            _ => {
                let result = self.ask(client, &asked);
                let arrives = matches!(fate, Fate::Fine | Fate::Slow);
                self.overhear(client, &asked, result.as_ref().ok(), arrives);
                result.map_err(Some)
            }
        };
        drop(on_its_way);
        let told = match &result {
            Ok(_) => 200,
            Err(Some(refusal)) => refusal.code,
            Err(None) => 0,
        };
        self.tell(&format!("{} {} {} {told}", client.name(), asked.method, asked.path));
        sleep(back).await;
        line.whole().await;
        match (fate, result) {
            (Fate::Silent, _) => {
                sleep(UNANSWERED).await;
                Err(Box::new(Reset))
            }
            (Fate::LostBefore | Fate::LostAfter, _) | (_, Err(None)) => Err(Box::new(Reset)),
            (Fate::FailedAfter(refusal), _) | (_, Err(Some(refusal))) => Ok(refused(&refusal)),
            (Fate::Unanswered, _) => {
                sleep(UNANSWERED).await;
                Err(Box::new(Reset))
            }
            (fate, Ok(answer)) => Ok(response(answer, fate.cut_after(), line)),
        }
    }

    /// Tells those who check of requests that rules listen to.
    fn overhear(&self, client: &Client, asked: &Asked, answer: Option<&Answer>, arrives: bool) {
        let is_heard = asked.is_of_scale() || series(&asked.path).is_some();
        if client.agent != CONTROLLER || !is_heard {
            return;
        }
        let answer = match answer {
            Some(Answer::Body(body, true)) => serde_json::from_slice(body).ok(),
            _ => None,
        };
        let (at, by) = (self.now(), client.name());
        self.checks(|checks| checks.hear(&Exchange { at, by: &by, asked, answer: answer.as_ref(), arrives }));
    }

    fn ask(&self, client: &Client, asked: &Asked) -> Result<Answer, Refusal> {
        let by = client.name();
        self.with(|model| {
            let Some(mutant) = self.mutant else { return model.answer(&by, asked) };
            if let Some(answer) = mutant.answer(model, &client.agent, asked) {
                return answer;
            }
            let answer = model.answer(&by, asked);
            mutant.after(model, &by, asked);
            answer
        })
    }
}
