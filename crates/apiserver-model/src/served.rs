//! One controller's client and executor, those that ship, with the model at the other end: for tests of a single room. Requests arrive
//! and are answered at once, and what becomes of each on its way is the test's to say. Nothing here observes or plans.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Builder, Runtime};

use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::client::{ApiClient, ApiError, BoxError, HttpService};
use coxswain_machinery::executor::{Events, Executed, Executor, Finishers};
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::model::{Key, Plan};

use super::http::{Answer, Asked};
use super::{Model, Refusal, reply};

/// What becomes of a request on its way.
#[derive(Clone, Debug)]
pub enum OnTheWay {
    /// It arrives, and so does its answer.
    Arrives,
    /// It is refused, and changes nothing.
    Refused(Refusal),
    /// It does not arrive.
    Lost,
    /// It arrives, and its answer does not.
    Unanswered,
    /// It is a delete and comes to nothing, though the answer says that it took effect.
    Forgotten,
}

/// What a test has become of requests.
type Fates = Box<dyn FnMut(&Asked) -> OnTheWay + Send>;

/// See the module.
pub struct Served {
    model: Arc<Mutex<Model>>,
    fates: Arc<Mutex<Fates>>,
    told: Arc<Told>,
    log: Arc<Log>,
    client: ApiClient,
    executor: Executor,
    runtime: Runtime,
}

/// What was asked and told, a line each, in order.
type Log = Mutex<Vec<String>>;

/// Events that were emitted, in order.
#[derive(Default)]
struct Told {
    events: Mutex<Vec<EventSpec>>,
    log: Arc<Log>,
}

impl Events for Told {
    fn emit(&self, event: EventSpec) {
        let sort = if event.warning { "Warning" } else { "Normal" };
        self.log.lock().push(format!("{sort} {} {}", event.reason, event.message));
        self.events.lock().push(event);
    }
}

/// The line broke.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by the test")]
struct Reset;

impl Served {
    /// A server at this time, and the client of a controller.
    pub fn new(controller: &'static str, now: Timestamp) -> Self {
        let model = Arc::new(Mutex::new(Model::new(now, 1)));
        let always: Fates = Box::new(|_| OnTheWay::Arrives);
        let fates = Arc::new(Mutex::new(always));
        let log = Arc::<Log>::default();
        let (held, on_the_way, asked_of) = (Arc::clone(&model), Arc::clone(&fates), Arc::clone(&log));
        let service = HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (model, fates) = (Arc::clone(&held), Arc::clone(&on_the_way));
            let log = Arc::clone(&asked_of);
            async move {
                let (parts, body) = request.into_parts();
                let asked = Asked::new(&parts, body.collect().await?.to_bytes());
                let fate = (fates.lock())(&asked);
                let note = |how: &str| log.lock().push(format!("{asked}{how}"));
                let answer = match &fate {
                    OnTheWay::Arrives | OnTheWay::Unanswered => model.lock().answer(controller, &asked),
                    OnTheWay::Refused(refusal) => Err(refusal.clone()),
                    OnTheWay::Forgotten => Ok(Answer::success()),
                    OnTheWay::Lost => {
                        note(" lost");
                        return Err(Box::new(Reset) as BoxError);
                    }
                };
                if matches!(fate, OnTheWay::Unanswered) {
                    note(" unanswered");
                    return Err(Box::new(Reset));
                }
                // That there is no such object is an answer, too.
                let is_told = |refusal: &Refusal| refusal.code == 404 && !asked.is_write();
                note(if answer.as_ref().err().is_none_or(is_told) { "" } else { " refused" });
                Ok(reply::response(answer))
            }
        }));
        let told = Arc::new(Told { log: Arc::clone(&log), ..Told::default() });
        let client = ApiClient::new(service, controller);
        let executor = Executor::new(client.clone(), Arc::clone(&told) as Arc<dyn Events>);
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime of this thread");
        Self { model, fates, told, log, client, executor, runtime }
    }

    /// These finish what plans leave open.
    #[must_use]
    pub fn finished_by(mut self, finishers: Finishers) -> Self {
        self.executor = self.executor.with_finishers(finishers);
        self
    }

    /// The server. It is not to be held while something is asked.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock()
    }

    /// From now on this becomes of requests.
    pub fn on_the_way(&self, fate: impl FnMut(&Asked) -> OnTheWay + Send + 'static) {
        *self.fates.lock() = Box::new(fate);
    }

    /// Carries a plan's steps out, as the executor does.
    pub fn execute<N>(&self, plan: Plan<N>) -> Executed {
        let plan = Plan { steps: plan.steps, ..Plan::default() };
        self.runtime.block_on(self.executor.execute(plan))
    }

    /// Reads an object, live; `None` if there is none.
    ///
    /// # Errors
    /// What the client says, but that there is none.
    pub fn read(&self, kind: &'static Kind, key: &Key) -> Result<Option<AnyObject>, ApiError> {
        let found = self.runtime.block_on(self.client.get(kind, key)).map(Some);
        found.or_else(|error| if error.is_not_found() { Ok(None) } else { Err(error) })
    }

    /// Reads all objects of a kind in a namespace, live.
    ///
    /// # Errors
    /// What the client says.
    ///
    /// # Panics
    /// The model has an object that cannot be decoded.
    pub fn list(&self, kind: &'static Kind, namespace: &str) -> Result<Vec<AnyObject>, ApiError> {
        let list = self.runtime.block_on(self.client.list_all(kind, namespace))?;
        Ok(list.complete().expect("objects that can be decoded").to_vec())
    }

    /// The events that were emitted since the last look.
    pub fn events(&self) -> Vec<EventSpec> {
        std::mem::take(&mut self.told.events.lock())
    }

    /// What was asked and told since the last look, in order: `get nodes n`, `create pods ns/web`, `update pods/status ns/web refused`,
    /// `Normal SuccessfulCreate Created pod: web`. A request is `lost` on its way, or `unanswered`, if a test says so.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }
}
