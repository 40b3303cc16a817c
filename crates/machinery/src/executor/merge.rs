//! A merge patch in place of a JSON patch, for aggregated API servers that answer JSON patches with 415.
//!
//! A merge patch replaces a list as a whole. So it is made of the live object, and names the UID and the version of that object.

use serde_json::{Map, Value, json};

use crate::api::meta::{ObjectMeta, OwnerReference};

/// Why there is no merge patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPatch {
    /// A test of the JSON patch fails on the live object.
    Changed,
    /// The JSON patch changes something else than owner references and finalizers.
    Unsupported,
}

/// Returns the merge patch with the effect of a JSON patch on the owner references and the finalizers of an object.
///
/// # Errors
/// The object has changed since the patch was made, or the patch is of another sort.
pub(super) fn merge_patch(operations: &Value, live: &ObjectMeta) -> Result<Value, NoPatch> {
    let before = json!({
        "uid": live.uid,
        "finalizers": live.finalizers,
        "ownerReferences": live.owner_references.iter().map(reference).collect::<Vec<_>>(),
    });
    let mut object = json!({ "metadata": before });
    for operation in operations.as_array().ok_or(NoPatch::Unsupported)? {
        apply(operation, &mut object)?;
    }
    let mut changed = json!({ "uid": live.uid, "resourceVersion": live.resource_version });
    for list in ["finalizers", "ownerReferences"] {
        if object["metadata"][list] != before[list] {
            changed[list] = object["metadata"][list].take();
        }
    }
    Ok(json!({ "metadata": changed }))
}

fn reference(reference: &OwnerReference) -> Value {
    let mut members = Map::new();
    for (name, value) in [
        ("apiVersion", json!(reference.api_version)),
        ("kind", json!(reference.kind)),
        ("name", json!(reference.name)),
        ("uid", json!(reference.uid)),
        ("controller", json!(reference.controller)),
        ("blockOwnerDeletion", json!(reference.block_owner_deletion)),
    ] {
        if !value.is_null() {
            members.insert(name.to_owned(), value);
        }
    }
    Value::Object(members)
}

/// Applies an operation: `test`, `replace`, or `remove` of an element of a list.
fn apply(operation: &Value, object: &mut Value) -> Result<(), NoPatch> {
    let path = operation["path"].as_str().ok_or(NoPatch::Unsupported)?;
    let is_known = ["/metadata/uid", "/metadata/finalizers/", "/metadata/ownerReferences/"]
        .iter()
        .any(|known| path.starts_with(known));
    if !is_known {
        return Err(NoPatch::Unsupported);
    }
    match operation["op"].as_str() {
        Some("test") => {
            let is_same = object.pointer(path) == Some(&operation["value"]);
            if is_same { Ok(()) } else { Err(NoPatch::Changed) }
        }
        Some("replace") => {
            *object.pointer_mut(path).ok_or(NoPatch::Changed)? = operation["value"].clone();
            Ok(())
        }
        Some("remove") => {
            let (list, at) = path.rsplit_once('/').ok_or(NoPatch::Unsupported)?;
            let at: usize = at.parse().map_err(|_| NoPatch::Unsupported)?;
            let list = object.pointer_mut(list).and_then(Value::as_array_mut).ok_or(NoPatch::Unsupported)?;
            if at >= list.len() {
                return Err(NoPatch::Changed);
            }
            list.remove(at);
            Ok(())
        }
        _ => Err(NoPatch::Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> ObjectMeta {
        let owner = |uid: &str, blocks| OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: format!("owner-{uid}").into(),
            uid: uid.into(),
            block_owner_deletion: blocks,
            ..OwnerReference::default()
        };
        ObjectMeta {
            uid: "u".into(),
            resource_version: "7".into(),
            finalizers: vec!["a".into(), "orphan".into()],
            owner_references: vec![owner("1", Some(true)), owner("2", None)],
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn merge_patch_has_the_changed_list_and_names_the_version() {
        let orphan = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u" },
            { "op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "1" },
            { "op": "remove", "path": "/metadata/ownerReferences/0" },
        ]);
        let second = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner-2", "uid": "2" });
        let expected = json!({
            "metadata": { "uid": "u", "resourceVersion": "7", "ownerReferences": [second] },
        });
        assert_eq!(merge_patch(&orphan, &live()), Ok(expected));
        let release = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u" },
            { "op": "test", "path": "/metadata/finalizers/1", "value": "orphan" },
            { "op": "remove", "path": "/metadata/finalizers/1" },
        ]);
        let expected = json!({ "metadata": { "uid": "u", "resourceVersion": "7", "finalizers": ["a"] } });
        assert_eq!(merge_patch(&release, &live()), Ok(expected));
        let unblock = json!([
            { "op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "1" },
            { "op": "replace", "path": "/metadata/ownerReferences/0/blockOwnerDeletion", "value": false },
        ]);
        let patch = merge_patch(&unblock, &live()).unwrap();
        assert_eq!(patch["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], false);
        assert_eq!(patch["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn patch_of_an_object_that_has_changed_or_of_another_sort_has_no_merge_patch() {
        for (path, value) in [
            ("/metadata/uid", "another"),
            ("/metadata/ownerReferences/1/uid", "1"),
            ("/metadata/finalizers/2", "orphan"),
        ] {
            let operations = json!([{ "op": "test", "path": path, "value": value }]);
            assert_eq!(merge_patch(&operations, &live()), Err(NoPatch::Changed), "{path}");
        }
        for operation in [
            json!({ "op": "remove", "path": "/spec/a" }),
            json!({ "op": "add", "path": "/metadata/finalizers/0", "value": "b" }),
        ] {
            assert_eq!(merge_patch(&json!([operation]), &live()), Err(NoPatch::Unsupported), "{operation}");
        }
    }
}
