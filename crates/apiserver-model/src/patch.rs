//! Patches: merge (RFC 7386), JSON (RFC 6902), strategic merge, and apply as far as a forced one by a single manager goes.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use coxswain_machinery::wire::text::lossy_text;

use super::{Place, Refusal};

/// What is in the body of a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/json-patch+json`.
    Json,
    /// `application/apply-patch+yaml`, sent as JSON.
    Apply,
}

/// By which member the items of a list are told apart, for lists that strategic patches merge. Others are replaced.
fn merge_key(list: &str) -> Option<&'static str> {
    Some(match list {
        "ownerReferences" => "uid",
        "conditions" | "addresses" => "type",
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" | "secrets" => "name",
        _ => return None,
    })
}

impl PatchType {
    /// The type that a content type names.
    pub fn of(content_type: &str) -> Option<Self> {
        Some(match content_type {
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/json-patch+json" => Self::Json,
            "application/apply-patch+yaml" => Self::Apply,
            _ => return None,
        })
    }

    /// What the patch makes of an object.
    pub fn apply(self, place: &Place, object: &Json, patch: &Json) -> Result<Json, Refusal> {
        let mut patched = object.clone();
        if matches!(self, Self::Merge | Self::Json) {
            // These are patches of the object's JSON, which has characters and no bytes.
            let text = object.to_string();
            if let Cow::Owned(text) = lossy_text(&text) {
                patched = serde_json::from_str(&text).expect("JSON");
            }
        }
        match self {
            Self::Merge => merge(&mut patched, patch),
            Self::Strategic | Self::Apply => strategic(&mut patched, patch),
            Self::Json => {
                for operation in patch.as_array().into_iter().flatten() {
                    perform(&mut patched, operation).map_err(|why| Refusal::invalid(place, why))?;
                }
            }
        }
        Ok(patched)
    }
}

fn merge(target: &mut Json, patch: &Json) {
    let Some(members) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Json::Object(Map::new());
    }
    let Some(held) = target.as_object_mut() else { return };
    for (name, value) in members {
        if value.is_null() {
            held.shift_remove(name);
        } else {
            merge(held.entry(name.as_str()).or_insert(Json::Null), value);
        }
    }
}

fn strategic(target: &mut Json, patch: &Json) {
    let Some(members) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Json::Object(Map::new());
    }
    let Some(held) = target.as_object_mut() else { return };
    if members.get("$patch").is_some_and(|directive| directive == "replace") {
        held.clear();
    }
    if let Some(kept) = members.get("$retainKeys").and_then(Json::as_array) {
        held.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, value) in members {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let (gone, held) = (value.as_array(), held.get_mut(list).and_then(Json::as_array_mut));
            if let (Some(gone), Some(held)) = (gone, held) {
                held.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
            // Directives about order, and those taken care of above.
        } else if value.is_null() {
            held.shift_remove(name);
        } else if let Some(items) = value.as_array() {
            list(name, held.entry(name.as_str()).or_insert_with(|| Json::Array(Vec::new())), items);
        } else {
            strategic(held.entry(name.as_str()).or_insert(Json::Null), value);
        }
    }
}

fn list(name: &str, target: &mut Json, patch: &[Json]) {
    let Some(held) = target.as_array_mut() else {
        *target = Json::Array(patch.to_vec());
        return;
    };
    if name == "finalizers" {
        let new: Vec<Json> = patch.iter().filter(|item| !held.contains(item)).cloned().collect();
        held.extend(new);
        return;
    }
    let Some(key) = merge_key(name) else {
        *target = Json::Array(patch.to_vec());
        return;
    };
    for item in patch {
        let found = held.iter().position(|held| held[key] == item[key]);
        match (found, item["$patch"] == "delete") {
            (Some(at), true) => {
                held.remove(at);
            }
            (Some(at), false) => strategic(&mut held[at], item),
            (None, true) => {}
            (None, false) => held.push(item.clone()),
        }
    }
}

/// One operation of a JSON patch.
fn perform(target: &mut Json, operation: &Json) -> Result<(), &'static str> {
    let path = operation["path"].as_str().ok_or("a patch without a path")?;
    let (parent, last) = path.rsplit_once('/').ok_or("a patch of everything")?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let value = &operation["value"];
    match operation["op"].as_str().unwrap_or_default() {
        "test" => {
            let held = target.pointer(path).unwrap_or(&Json::Null);
            if held == value { Ok(()) } else { Err("a test of a patch fails") }
        }
        "remove" => match target.pointer_mut(parent) {
            Some(Json::Object(members)) => members.shift_remove(&last).map(drop).ok_or("nothing to remove"),
            Some(Json::Array(items)) => match last.parse::<usize>() {
                Ok(at) if at < items.len() => {
                    items.remove(at);
                    Ok(())
                }
                _ => Err("nothing to remove"),
            },
            _ => Err("nothing to remove"),
        },
        "add" | "replace" => match target.pointer_mut(parent) {
            Some(Json::Object(members)) => {
                members.insert(last, value.clone());
                Ok(())
            }
            Some(Json::Array(items)) if last == "-" => {
                items.push(value.clone());
                Ok(())
            }
            Some(Json::Array(items)) => match last.parse::<usize>() {
                Ok(at) if operation["op"] == "replace" && at < items.len() => {
                    items[at] = value.clone();
                    Ok(())
                }
                Ok(at) if operation["op"] == "add" && at <= items.len() => {
                    items.insert(at, value.clone());
                    Ok(())
                }
                _ => Err("no such place"),
            },
            _ => Err("no such place"),
        },
        _ => Err("an operation that the model does not know"),
    }
}
