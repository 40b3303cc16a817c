//! What tests feed informers with: encoded objects, watch frames, and a scripted API server.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::ListWatch;
use crate::api::meta::{ObjectMeta, Status};
use crate::api::pod::Pod;
use crate::api::{AnyObject, Kind, kinds};
use crate::client::{ApiError, BoxError, ListQuery, ResponseBody, WatchQuery};
use crate::wire::splice::put_bytes;
use crate::wire::{ListPage, Message, Str, wrap_envelope};

/// A pod in the namespace `ns`, with the UID `name-uid`.
pub(super) fn pod(name: &str, version: u32) -> Pod {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "ns".into(),
        uid: format!("{name}-uid").into(),
        resource_version: version.to_string().into(),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

pub(super) fn object(name: &str, version: u32) -> AnyObject {
    Arc::new(pod(name, version))
}

pub(super) fn encoded(name: &str, version: u32) -> Bytes {
    pod(name, version).to_bytes().into()
}

/// A pod whose metadata can be read and whose status can't.
pub(super) fn damaged(name: &str, version: u32) -> Bytes {
    let mut bytes = pod(name, version).to_bytes();
    put_bytes(&mut bytes, 3, &[0xff]);
    bytes.into()
}

/// A pod with these bytes as its name, namespace and UID, and as a label and an annotation.
pub(super) fn of_bytes(bytes: &[u8], version: &str) -> Bytes {
    let text = Str::of_bytes(bytes);
    let metadata = ObjectMeta {
        name: text.clone(),
        namespace: text.clone(),
        uid: text.clone().into(),
        resource_version: version.into(),
        labels: [(text.clone(), text.clone())].into_iter().collect(),
        annotations: [(text.clone(), text)].into_iter().collect(),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }.to_bytes().into()
}

pub(super) fn page(items: Vec<Bytes>, version: u32, next: &str) -> ListPage {
    ListPage { items, resource_version: version.to_string(), continue_token: next.to_owned() }
}

/// A watch frame with its length.
pub(super) fn frame(word: &str, kind: &str, object: &[u8]) -> Bytes {
    let mut extension = Vec::new();
    put_bytes(&mut extension, 1, &wrap_envelope("v1", kind, object));
    let mut event = Vec::new();
    put_bytes(&mut event, 1, word.as_bytes());
    put_bytes(&mut event, 2, &extension);
    let mut framed = u32::try_from(event.len()).unwrap().to_be_bytes().to_vec();
    framed.extend(event);
    framed.into()
}

pub(super) fn event(word: &str, name: &str, version: u32) -> Bytes {
    frame(word, "Pod", &encoded(name, version))
}

pub(super) fn bookmark(version: u32, ends_initial: bool) -> Bytes {
    let mut metadata = ObjectMeta { resource_version: version.to_string().into(), ..ObjectMeta::default() };
    if ends_initial {
        metadata.annotations = [("k8s.io/initial-events-end", "true")].into_iter().collect();
    }
    frame("BOOKMARK", "Pod", &Pod { metadata, ..Pod::default() }.to_bytes())
}

pub(super) fn error_event(code: i32, reason: &str) -> Bytes {
    let status = Status { code, reason: reason.into(), message: "so it is".into(), ..Status::default() };
    frame("ERROR", "Status", &status.to_bytes())
}

pub(super) fn refusal(code: u16, reason: &str, retry_after: Option<u64>) -> ApiError {
    ApiError::Refused {
        request: "GET /api/v1/pods".to_owned(),
        code,
        reason: Str::from(reason),
        message: "no".to_owned(),
        status: Box::default(),
        retry_after: retry_after.map(std::time::Duration::from_secs),
    }
}

/// A request that the script was asked.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    List(ListQuery),
    Watch(WatchQuery),
}

/// An answer of the script.
pub(super) enum Answer {
    Page(ListPage),
    Error(ApiError),
    /// A watch with these chunks, which then ends in order.
    Watch(Vec<Bytes>),
    /// A watch with these chunks, whose connection then breaks.
    Cut(Vec<Bytes>),
    /// A watch that the test feeds and ends.
    Live(mpsc::Receiver<Bytes>),
    /// Panics, as a bug would.
    Panic,
}

/// An API server that gives prepared answers in order; when they are used up, requests wait for ever.
#[derive(Default)]
pub(super) struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(tokio::time::Instant, Asked)>>,
}

impl Script {
    pub(super) fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    pub(super) fn push(&self, answer: Answer) {
        self.answers.lock().push_back(answer);
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().iter().map(|(_, asked)| asked.clone()).collect()
    }

    /// The times between one request and the next.
    pub(super) fn pauses(&self) -> Vec<std::time::Duration> {
        self.asked.lock().windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }

    fn take(&self, asked: Asked) -> Option<Answer> {
        self.asked.lock().push((tokio::time::Instant::now(), asked));
        self.answers.lock().pop_front()
    }
}

impl ListWatch for Script {
    fn list(&self, _: &'static Kind, query: ListQuery) -> BoxFuture<'_, Result<ListPage, ApiError>> {
        Box::pin(async move {
            match self.take(Asked::List(query)) {
                Some(Answer::Page(page)) => Ok(page),
                Some(Answer::Error(error)) => Err(error),
                Some(Answer::Panic) => panic!("a bug in the source"),
                Some(_) => panic!("the script has a watch where a list was asked"),
                None => std::future::pending().await,
            }
        })
    }

    fn watch(&self, _: &'static Kind, query: WatchQuery) -> BoxFuture<'_, Result<ResponseBody, ApiError>> {
        Box::pin(async move {
            match self.take(Asked::Watch(query)) {
                Some(Answer::Watch(chunks)) => Ok(body(chunks.into_iter().map(Ok).collect())),
                Some(Answer::Cut(chunks)) => {
                    let broken: BoxError = "connection reset".into();
                    Ok(body(chunks.into_iter().map(Ok).chain([Err(broken)]).collect()))
                }
                Some(Answer::Live(receiver)) => Ok(BodyExt::boxed_unsync(StreamBody::new(
                    ReceiverStream::new(receiver).map(|chunk| Ok(Frame::data(chunk))),
                ))),
                Some(Answer::Error(error)) => Err(error),
                Some(Answer::Panic) => panic!("a bug in the source"),
                Some(Answer::Page(_)) => panic!("the script has a page where a watch was asked"),
                None => std::future::pending().await,
            }
        })
    }
}

fn body(chunks: Vec<Result<Bytes, BoxError>>) -> ResponseBody {
    let frames = chunks.into_iter().map(|chunk| chunk.map(Frame::data));
    BodyExt::boxed_unsync(StreamBody::new(futures::stream::iter(frames)))
}

/// Waits, in paused time, until `holds`.
pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("never happened: {what}");
}

pub(super) static PODS: &Kind = &kinds::PODS;
