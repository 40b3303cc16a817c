//! Writes objects with strings that are not valid UTF-8. JSON cannot carry such strings, so the objects are written in protobuf.
//!
//! The API server encodes an object: the answer to a server-side apply as a dry run is protobuf. Invalid bytes of equal length replace
//! each [`MARK`] in the answer, so the lengths in the encoding stay correct. Then the object is created or updated.

use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::play::message;

/// Marks the place of the invalid bytes.
const MARK: &str = "ÿ";
/// No byte of UTF-8. The API server writes U+FFFD for each of them in JSON.
const INVALID: [u8; MARK.len()] = [0xFF; MARK.len()];

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Creates or updates an object of the collection at this path, and returns its UID.
pub(super) async fn apply(client: &Client, collection: &str, object: &Value) -> Result<String, String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let path = format!("{collection}/{}", segment(name));
    let dry_run = format!("{path}?dryRun=All&fieldManager=parity&force=true");
    let body = object.to_string().into_bytes();
    let encoded = ensure_success(send(client, Method::PATCH, &dry_run, [APPLY, PROTOBUF], body).await?)?;
    let (status, _) = send(client, Method::GET, &path, [JSON, JSON], Vec::new()).await?;
    let (method, path) = if status == StatusCode::NOT_FOUND {
        (Method::POST, collection)
    } else {
        (Method::PUT, path.as_str())
    };
    let written =
        ensure_success(send(client, method, path, [PROTOBUF, JSON], replace_marks(&encoded)).await?)?;
    let written: Value = serde_json::from_slice(&written).map_err(|error| error.to_string())?;
    Ok(written["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

/// Returns the segment of a URL's path that is decoded as this name.
pub(super) fn segment(name: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape =
        |byte| if is_unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escape).collect()
}

/// Returns an encoded object with invalid bytes in place of its marks.
fn replace_marks(encoded: &[u8]) -> Vec<u8> {
    let mut spoiled = encoded.to_vec();
    let is_mark = |at: &usize| encoded[*at..].starts_with(MARK.as_bytes());
    for at in (0..encoded.len()).filter(is_mark) {
        spoiled[at..at + MARK.len()].copy_from_slice(&INVALID);
    }
    spoiled
}

/// Sends a request; its body and its answer have these content types.
async fn send(
    client: &Client,
    method: Method,
    uri: &str,
    [content_type, accept]: [&str; 2],
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), String> {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", content_type)
        .header("accept", accept)
        .body(Body::from(body));
    let answer = client.send(request.map_err(|error| error.to_string())?).await.map_err(message)?;
    let status = answer.status();
    let body = answer.into_body().collect_bytes().await.map_err(message)?;
    Ok((status, body.to_vec()))
}

fn ensure_success((status, body): (StatusCode, Vec<u8>)) -> Result<Vec<u8>, String> {
    if status.is_success() { Ok(body) } else { Err(format!("{status}: {}", String::from_utf8_lossy(&body))) }
}

#[test]
fn mark_is_replaced_by_invalid_bytes_of_equal_length() {
    let encoded = [b"k8s\0\x0a\x09one ".as_slice(), "ÿ and ÿ.é".as_bytes()].concat();
    assert_eq!(replace_marks(&encoded), b"k8s\0\x0a\x09one \xFF\xFF and \xFF\xFF.\xC3\xA9");
    assert!(String::from_utf8(INVALID.to_vec()).is_err());
}

#[test]
fn path_segment_is_percent_encoded() {
    for (name, escaped) in
        [("web-1.a_b~", "web-1.a_b~"), ("my role#?", "my%20role%23%3F"), ("a/%é", "a%2F%25%C3%A9")]
    {
        assert_eq!(segment(name), escaped);
    }
}
