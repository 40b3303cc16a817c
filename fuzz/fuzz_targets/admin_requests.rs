//! Whatever bytes an RPC of the admin API is called with, it answers, and the services go on.
//!
//! The first byte chooses the RPC, the second whether the rest is a message in its frame or the raw body. The manager
//! behind the services is a small one in memory; an override that was let in must be one that can be read back.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use coxswain::admin::authorize::{Authorize, METHODS};
use coxswain::admin::events::EventLog;
use coxswain::admin::manager::*;
use coxswain::admin::overrides::{Entry, FlagSelection, HeldOverrides, OverrideSet, StoreError};
use coxswain::admin::{AdminDeps, AdminMetrics, AdminOptions, admin_handler};
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::latest;
use coxswain_machinery::model::clock::{Clock as _, ManualClock};
use coxswain_machinery::serve::{AuthorizeError, Decision, PageHandler, ResourceAttributes, UserInfo};
use coxswain_machinery::telemetry::Registry;
use futures::future::{BoxFuture, ready};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How long an RPC may take before it must have said something, or be a stream that has nothing to say.
const PATIENCE: Duration = Duration::from_mins(10);

struct AllowAll;

impl Authorize for AllowAll {
    fn authorize<'a>(
        &'a self,
        _: &'a Arc<UserInfo>,
        _: ResourceAttributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizeError>> {
        Box::pin(ready(Ok(Decision::Allowed)))
    }
}

struct Memory {
    clock: Arc<ManualClock>,
    overrides: Mutex<Arc<OverrideSet>>,
    changes: latest::Sender<u64>,
}

fn controller(name: &'static str, special: bool) -> ControllerState {
    ControllerState {
        name,
        aliases: &[],
        description: "",
        gates: Vec::new(),
        enabled_by_default: true,
        cloud: false,
        special,
        flags: FlagSelection { enabled: true, named: false },
        obstacle: None,
        phase: Phase::Running,
        phase_since: Timestamp::UNIX_EPOCH,
        unhealthy: None,
        service_account: None,
        watches: Vec::new(),
        restarts: 0,
        counts: Counts::default(),
        last_error: None,
    }
}

fn queue() -> QueueState {
    QueueState { name: "a", controller: "a-controller", kind: Some(&PODS), counts: Counts::default() }
}

impl Manager for Memory {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn identity(&self) -> &str {
        "me"
    }

    fn controllers(&self) -> Vec<ControllerState> {
        vec![controller("a-controller", false), controller("b-controller", true)]
    }

    fn overrides(&self) -> Arc<OverrideSet> {
        Arc::clone(&self.overrides.lock())
    }

    fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    fn read_overrides(&self) -> BoxFuture<'_, Result<HeldOverrides, StoreError>> {
        let set = (*self.overrides()).clone();
        Box::pin(ready(Ok(HeldOverrides { set, raw: Bytes::new() })))
    }

    fn write_overrides<'a>(
        &'a self,
        held: &'a HeldOverrides,
        changes: &'a [(String, Entry)],
    ) -> BoxFuture<'a, Result<HeldOverrides, StoreError>> {
        for (name, entry) in changes {
            let value = entry.to_value().expect("an entry that was let in can be written");
            assert_eq!(Entry::parse(&value).as_ref(), Ok(entry), "{name}: and read back");
        }
        let set = held.set.with(changes);
        *self.overrides.lock() = Arc::new(set.clone());
        Box::pin(ready(Ok(HeldOverrides { set, raw: Bytes::new() })))
    }

    fn leases(&self) -> Vec<LeaseState> {
        Vec::new()
    }

    fn replicas(&self) -> Vec<ReplicaState> {
        Vec::new()
    }

    fn step_down<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<(), StepDownError>> {
        Box::pin(ready(Err(StepDownError::NotLeader)))
    }

    fn queues(&self) -> Vec<QueueState> {
        vec![queue()]
    }

    fn queue(&self, name: &str, _: usize) -> Option<QueueDetail> {
        let detail = QueueDetail {
            state: queue(),
            oldest: Vec::new(),
            in_flight: Vec::new(),
            waiting: Vec::new(),
            failing: Vec::new(),
        };
        (name == "a").then_some(detail)
    }

    fn sync<'a>(&'a self, _: &'a SyncRequest) -> BoxFuture<'a, Result<SyncReport, SyncError>> {
        Box::pin(ready(Err(SyncError::NotRunning)))
    }

    fn announce(&self, _: &Mutation) {}
}

fn services() -> PageHandler {
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let deps = AdminDeps {
        manager: Arc::new(Memory {
            clock: Arc::clone(&clock),
            overrides: Mutex::default(),
            changes: latest::Sender::new(0),
        }),
        authorizer: Arc::new(AllowAll),
        events: Arc::new(EventLog::new("log", 8, clock)),
        shutdown: CancellationToken::new(),
        metrics: AdminMetrics::register(&Registry::new()).expect("its metrics"),
    };
    admin_handler(deps, &AdminOptions::default()).expect("the services")
}

fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("short"));
    framed.put_slice(message);
    framed.freeze()
}

/// The status that a call ends with; `None` for a stream that goes on.
async fn call(handler: &PageHandler, rpc: &str, body: Bytes) -> Option<String> {
    let user = UserInfo { name: "fuzz".to_owned(), ..UserInfo::default() };
    let request = Request::post(format!("https://replica/coxswain.admin.v1.{rpc}"))
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .extension(Arc::new(user))
        .body(Full::new(body).map_err(|never| match never {}).boxed_unsync())
        .expect("a request");
    let answer = tokio::time::timeout(PATIENCE, handler(request)).await.expect("an answer");
    let status = |headers: &http::HeaderMap| {
        headers.get("grpc-status").map(|value| value.to_str().expect("digits").to_owned())
    };
    if let Some(status) = status(answer.headers()) {
        return Some(status);
    }
    let mut body = answer.into_body();
    loop {
        let next = tokio::time::timeout(PATIENCE, body.frame()).await.ok()??;
        if let Ok(trailers) = next.expect("frames").into_trailers() {
            return status(&trailers);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [method, raw, message @ ..] = data else { return };
    let method = &METHODS[usize::from(*method) % METHODS.len()];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let handler = services();
        let body = if raw % 2 == 1 { Bytes::copy_from_slice(message) } else { frame(message) };
        let status = call(&handler, method.rpc, body).await;
        assert_ne!(status.as_deref(), Some("2"), "{}: an error without a code", method.rpc);
        let listed = call(&handler, "ControllerService/ListControllers", frame(&[])).await;
        assert_eq!(listed.as_deref(), Some("0"), "after {}", method.rpc);
    });
});
