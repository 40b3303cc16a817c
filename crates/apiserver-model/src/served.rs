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
use coxswain_machinery::executor::{Events, Executed, Executor};
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::model::{Key, Plan};

use super::http::Asked;
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
}

/// What a test has become of requests.
type Fates = Box<dyn FnMut(&Asked) -> OnTheWay + Send>;

/// See the module.
pub struct Served {
    model: Arc<Mutex<Model>>,
    fates: Arc<Mutex<Fates>>,
    told: Arc<Told>,
    client: ApiClient,
    executor: Executor,
    runtime: Runtime,
}

/// Events that were emitted, in order.
#[derive(Default)]
struct Told(Mutex<Vec<EventSpec>>);

impl Events for Told {
    fn emit(&self, event: EventSpec) {
        self.0.lock().push(event);
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
        let (held, on_the_way) = (Arc::clone(&model), Arc::clone(&fates));
        let service = HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (model, fates) = (Arc::clone(&held), Arc::clone(&on_the_way));
            async move {
                let (parts, body) = request.into_parts();
                let asked = Asked::new(&parts, body.collect().await?.to_bytes());
                let fate = (fates.lock())(&asked);
                let answer = match &fate {
                    OnTheWay::Arrives | OnTheWay::Unanswered => model.lock().answer(controller, &asked),
                    OnTheWay::Refused(refusal) => Err(refusal.clone()),
                    OnTheWay::Lost => return Err(Box::new(Reset) as BoxError),
                };
                if matches!(fate, OnTheWay::Unanswered) {
                    return Err(Box::new(Reset));
                }
                Ok(reply::response(answer))
            }
        }));
        let told = Arc::new(Told::default());
        let client = ApiClient::new(service, controller);
        let executor = Executor::new(client.clone(), Arc::clone(&told) as Arc<dyn Events>);
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime of this thread");
        Self { model, fates, told, client, executor, runtime }
    }

    /// The server. It is not to be held while something is asked.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock()
    }

    /// From now on this becomes of requests.
    pub fn on_the_way(&self, fate: impl FnMut(&Asked) -> OnTheWay + Send + 'static) {
        *self.fates.lock() = Box::new(fate);
    }

    /// Carries a plan out, as the executor does.
    pub fn execute(&self, plan: Plan) -> Executed {
        self.runtime.block_on(self.executor.execute(plan))
    }

    /// Reads an object, live.
    ///
    /// # Errors
    /// What the client says.
    pub fn read(&self, kind: &'static Kind, key: &Key) -> Result<AnyObject, ApiError> {
        self.runtime.block_on(self.client.get(kind, key))
    }

    /// The events that were emitted since the last look.
    pub fn events(&self) -> Vec<EventSpec> {
        std::mem::take(&mut self.told.0.lock())
    }
}
