//! Watching one Lease.

use http_body_util::BodyExt;

use crate::api::AnyObject;
use crate::api::kinds::LEASES;
use crate::client::{ApiClient, ApiError, WatchQuery};
use crate::informer::Frames;
use crate::model::Key;
use crate::wire::{EventType, WatchFrame};

/// The server ends the watch after this; the caller begins anew.
const TIMEOUT_SECONDS: u32 = 300;

/// Shows the Lease at `key` as it is and whenever it changes, until `enough` says so (`true`), or the watch has ended.
pub(super) async fn until(
    client: &ApiClient,
    key: &Key,
    enough: impl Fn(AnyObject) -> Result<bool, ApiError> + Send,
) -> Result<bool, ApiError> {
    let query = WatchQuery {
        namespace: key.namespace.to_string(),
        field_selector: Some(format!("metadata.name={}", key.name)),
        timeout_seconds: TIMEOUT_SECONDS,
        ..WatchQuery::default()
    };
    let mut body = client.watch(&LEASES, &query).await?;
    let mut frames = Frames::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| ApiError::Transport {
            request: "watch lease".to_owned(),
            source: source.into(),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        frames.push(data);
        while let Some(frame) = frames.next().map_err(|error| malformed(&error.to_string()))? {
            let event = WatchFrame::decode(&frame).map_err(|error| malformed(&error.to_string()))?;
            if event.kind == EventType::Error {
                return Err(malformed("the watch reported an error"));
            }
            // One that is deleted is made anew by whoever reads next that there is none.
            if matches!(event.kind, EventType::Added | EventType::Modified) {
                let lease = (LEASES.decode)(&event.object).map_err(|error| malformed(&error.to_string()))?;
                if enough(lease)? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

fn malformed(what: &str) -> ApiError {
    ApiError::Malformed { request: "watch lease".to_owned(), what: what.to_owned() }
}
