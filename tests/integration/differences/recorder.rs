//! A proxy that records the bodies of write requests, which the audit log lacks.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::Value;

use crate::harness::{Fate, Tamper};

/// The end of the names of Leases that no GET reads.
pub(super) const UNREADABLE: &str = "unreadable";

/// A request with a body in JSON.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Value,
}

/// The requests so far.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Vec<Recorded>>);

impl Recorder {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the bodies of requests whose path ends with a text, in order.
    pub(super) fn bodies(&self, method: &Method, end: &str) -> Vec<Value> {
        let all = self.0.lock();
        let own = all.iter().filter(|each| each.method == *method && each.path.ends_with(end));
        own.map(|each| each.body.clone()).collect()
    }
}

impl Tamper for Recorder {
    fn fate<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, Fate> {
        let is_read =
            *method == Method::GET && uri.path().contains("/leases/") && uri.path().ends_with(UNREADABLE);
        let fate = if is_read { Fate::Refused(StatusCode::SERVICE_UNAVAILABLE) } else { Fate::Passes };
        Box::pin(std::future::ready(fate))
    }

    fn json_request(&self, method: &Method, path: &str, body: &Value) {
        if *method != Method::GET {
            let recorded = Recorded { method: method.clone(), path: path.to_owned(), body: body.clone() };
            self.0.lock().push(recorded);
        }
    }
}
