//! Watching one object: a Lease, or a candidate for one.

use http_body_util::BodyExt;

use crate::api::AnyObject;
use crate::api::Kind;
use crate::client::{ApiClient, ApiError, FieldSelector, WatchQuery};
use crate::informer::Frames;
use crate::model::Key;
use crate::wire::{EventType, WatchFrame};

/// The server ends the watch after this; the caller begins anew.
const TIMEOUT_SECONDS: u32 = 300;

/// Shows the object at `key` as it is and whenever it changes, and `None` when it is deleted, until `enough` says so
/// (`true`), or the watch has ended.
pub(super) async fn until(
    client: &ApiClient,
    kind: &'static Kind,
    key: &Key,
    enough: impl Fn(Option<AnyObject>) -> Result<bool, ApiError> + Send,
) -> Result<bool, ApiError> {
    let query = WatchQuery {
        namespace: key.namespace.to_string(),
        field_selector: Some(FieldSelector::name(&key.name)),
        timeout_seconds: TIMEOUT_SECONDS,
        ..WatchQuery::default()
    };
    let mut body = client.watch(kind, &query).await?;
    let mut frames = Frames::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| ApiError::Transport {
            request: "watch for leader election".to_owned(),
            source: source.into(),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        frames.push(data);
        while let Some(frame) = frames.next().map_err(|error| malformed(&error.to_string()))? {
            let event = WatchFrame::decode(&frame).map_err(|error| malformed(&error.to_string()))?;
            if event.kind == EventType::Error {
                return Err(malformed("the watch returned an ERROR event"));
            }
            let object = match event.kind {
                EventType::Added | EventType::Modified => {
                    Some((kind.decode)(&event.object).map_err(|error| malformed(&error.to_string()))?)
                }
                EventType::Deleted => None,
                _ => continue,
            };
            if enough(object)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn malformed(what: &str) -> ApiError {
    ApiError::Malformed { request: "watch for leader election".to_owned(), what: what.to_owned() }
}
