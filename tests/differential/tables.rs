//! The tables from which objects and changes are made: `kinds.tsv` and `fields.tsv`.

use std::sync::LazyLock;

use serde_json::Value;

/// Marks a row, in the place of the pointer, whose values set several fields by their pointers.
const SEVERAL: &str = "/*";

/// A kind, and a document of a new object.
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) weight: usize,
    pub(crate) document: Value,
}

/// A field of some kinds, and values for it.
pub(crate) struct Field {
    kinds: Vec<String>,
    /// A JSON pointer.
    pub(crate) pointer: String,
    /// Whether the field cannot be changed later.
    pub(crate) only_new: bool,
    pub(crate) values: Vec<Value>,
}

impl Field {
    /// Sets a value of the field, or several fields, in a document.
    pub(crate) fn set(&self, document: &mut Value, value: Value) {
        if !self.sets_several() {
            set(document, &self.pointer, value);
        } else if let Value::Object(values) = value {
            for (pointer, value) in values {
                set(document, &pointer, value);
            }
        }
    }

    /// Returns whether the values set several fields.
    pub(crate) fn sets_several(&self) -> bool {
        self.pointer == SEVERAL
    }

    /// Returns whether the field is of the subresource `status`.
    pub(crate) fn is_status(&self) -> bool {
        self.pointer.starts_with("/status/")
    }
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let rows = rows::<3>(include_str!("kinds.tsv")).into_iter();
    rows.map(|[name, weight, document]| Kind {
        name: name.to_owned(),
        weight: weight.parse().expect("a weight"),
        document: serde_json::from_str(document).unwrap_or_else(|error| panic!("{name}: {error}")),
    })
    .collect()
});

static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let rows = rows::<3>(include_str!("fields.tsv")).into_iter();
    rows.map(|[kinds, pointer, values]| Field {
        kinds: kinds.split(',').map(str::to_owned).collect(),
        pointer: pointer.trim_end_matches(" new").to_owned(),
        only_new: pointer.ends_with(" new"),
        values: serde_json::from_str(values).unwrap_or_else(|error| panic!("{pointer}: {error}")),
    })
    .collect()
});

/// Returns the rows of a table, without comments.
pub(crate) fn rows<const COLUMNS: usize>(text: &str) -> Vec<[&str; COLUMNS]> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            columns.try_into().unwrap_or_else(|_| panic!("not {COLUMNS} columns: {line}"))
        })
        .collect()
}

pub(crate) fn kinds() -> &'static [Kind] {
    &KINDS
}

pub(crate) fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no kind {name}"))
}

/// Returns the fields of a kind.
pub(crate) fn fields(kind: &str) -> Vec<&'static Field> {
    let applies = |field: &&Field| field.kinds.iter().any(|name| name == "*" || name == kind);
    FIELDS.iter().filter(applies).collect()
}

/// Returns the values of a field of a kind.
pub(crate) fn values(kind: &str, pointer: &str) -> &'static [Value] {
    let field = fields(kind).into_iter().find(|field| field.pointer == pointer);
    field.map_or_else(|| panic!("no field {kind} {pointer}"), |field| field.values.as_slice())
}

/// Sets the value at a pointer, through objects that it creates.
pub(crate) fn set(document: &mut Value, pointer: &str, value: Value) {
    let mut place = document;
    for key in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[key.replace("~1", "/").replace("~0", "~")];
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scenario::resource;

    #[test]
    fn every_row_is_of_a_known_kind() {
        for kind in kinds() {
            assert_eq!(resource(&kind.name).map(|_| ()), Ok(()));
            assert_eq!(kind.document["kind"], kind.name);
            assert!(!fields(&kind.name).is_empty());
        }
        for field in FIELDS.iter() {
            let is_known = |name: &String| name == "*" || kinds().iter().any(|kind| kind.name == *name);
            assert!(field.kinds.iter().all(is_known), "{:?}", field.kinds);
            assert!(field.pointer.starts_with('/') && !field.values.is_empty(), "{}", field.pointer);
        }
    }

    #[test]
    fn values_of_several_fields_are_set_together() {
        let several = FIELDS.iter().filter(|field| field.pointer == SEVERAL);
        for value in several.flat_map(|field| &field.values) {
            let mut pointers = value.as_object().expect("fields").keys();
            let is_known =
                |pointer: &String| pointer.starts_with("/spec/") || pointer.starts_with("/metadata/");
            assert!(pointers.all(is_known), "{value}");
        }
        let fields = fields("Deployment");
        let field = fields.iter().find(|field| field.pointer == SEVERAL).expect("a row");
        let mut document = json!({ "spec": { "replicas": 1 } });
        field.set(&mut document, json!({ "/spec/paused": true, "/metadata/labels": {} }));
        assert_eq!(
            document,
            json!({ "spec": { "replicas": 1, "paused": true }, "metadata": { "labels": {} } })
        );
    }

    #[test]
    fn value_is_set_through_missing_objects() {
        let mut document = json!({ "a": { "b": 1 } });
        set(&mut document, "/a/c/d~1e", json!(2));
        set(&mut document, "/a/b", json!(3));
        assert_eq!(document, json!({ "a": { "b": 3, "c": { "d/e": 2 } } }));
    }
}
