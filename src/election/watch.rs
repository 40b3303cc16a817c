//! Watching one Lease until it satisfies a condition.

use http_body_util::BodyExt;

use crate::api::coordination::Lease;
use crate::api::kinds::LEASES;
use crate::client::{ApiClient, ApiError, WatchQuery};
use crate::informer::Frames;
use crate::model::Key;
use crate::wire::{EventType, Message, WatchFrame};

/// The server ends the watch after this; the caller begins anew.
const TIMEOUT_SECONDS: u32 = 300;

/// Returns once the Lease at `key` satisfies `condition` in a change that comes after the call, or the watch ended.
pub(super) async fn until(
    client: &ApiClient,
    key: &Key,
    condition: impl Fn(&Lease) -> bool + Send,
) -> Result<(), ApiError> {
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
            let lease = Lease::decode(&event.object).map_err(|error| malformed(&error.to_string()))?;
            if event.kind != EventType::Bookmark && condition(&lease) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn malformed(what: &str) -> ApiError {
    ApiError::Malformed { request: "watch lease".to_owned(), what: what.to_owned() }
}
