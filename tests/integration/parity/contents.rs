//! What is seen of objects that hold something beside a spec and a status: the data and type of Secrets and ConfigMaps, the
//! secrets of ServiceAccounts, the documents of ControllerRevisions, rules, webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

/// What is seen elsewhere.
const ELSEWHERE: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// All other fields. The data of a Secret is decoded: text as it is, a token as what it claims. That of a ControllerRevision is
/// text.
pub(super) fn content(kind: &str, object: &Value) -> Map<String, Value> {
    let fields = object.as_object().into_iter().flatten();
    let others = fields.filter(|(field, _)| !ELSEWHERE.contains(&field.as_str()));
    let seen = others.map(|(field, value)| {
        let value = match (kind, field.as_str()) {
            ("Secret", "data") => decoded(value),
            // Its bytes count.
            ("ControllerRevision", "data") => value.to_string().into(),
            _ => value.clone(),
        };
        (field.clone(), value)
    });
    seen.collect()
}

fn decoded(data: &Value) -> Value {
    let entries = data.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), value.as_str().map_or(Value::Null, plain))).collect()
}

/// Base64 of text, of a token, or of bytes, which stay as they are.
fn plain(encoded: &str) -> Value {
    let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else { return json!({ "base64": encoded }) };
    claims(&text).map_or(Value::String(text), |claims| json!({ "claims": claims }))
}

/// What a JSON Web Token claims; its key and its signature are the cluster's.
fn claims(text: &str) -> Option<Value> {
    let [header, claims, _signature] = text.split('.').collect::<Vec<_>>()[..] else { return None };
    let part =
        |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
    part(header)?.get("alg")?;
    part(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_seen_as_what_they_say() {
        let token =
            [r#"{"alg":"RS256"}"#, r#"{"sub":"someone"}"#, "signed"].map(|part| URL_SAFE_NO_PAD.encode(part));
        let data = [
            ("text", STANDARD.encode("a.b.c")),
            ("token", STANDARD.encode(token.join("."))),
            ("bytes", "/w==".to_owned()),
        ];
        let data: Map<String, Value> =
            data.map(|(key, value)| (key.to_owned(), value.into())).into_iter().collect();
        let mut secret = json!({ "kind": "Secret", "metadata": {}, "type": "Opaque" });
        secret["data"] = Value::Object(data.clone());
        let seen = json!({ "text": "a.b.c", "token": { "claims": { "sub": "someone" } }, "bytes": { "base64": "/w==" } });
        assert_eq!(Value::Object(content("Secret", &secret)), json!({ "type": "Opaque", "data": seen }));
        assert_eq!(
            content("ConfigMap", &secret)["data"],
            Value::Object(data),
            "of others it is text already"
        );
    }
}
