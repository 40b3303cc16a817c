//! Documents, their types, and what they weigh.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::{Schemas, exposed_names};
use crate::types::{Selected, Type};

fn read(schemas: &str) -> Schemas {
    let document =
        format!(r#"{{"openapi": "3.0.0", "components": {{"schemas": {schemas}}}, "paths": {{}}}}"#);
    Schemas::read(document.as_bytes()).expect("a document")
}

fn kind(schema: &str) -> Type {
    let named = r#""x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "K"}]"#;
    let schemas = read(&format!(r#"{{"k": {{{named}, {schema}}}}}"#));
    schemas.find("g", "v1", "K").expect("the kind").object_type("K")
}

fn field(of: &Type, path: &str) -> Option<Type> {
    path.split('.').try_fold(of.clone(), |of, name| match of {
        Type::Object(object) => match object.select(name) {
            Selected::Field(of) => Some(of),
            Selected::Undefined | Selected::Unresolved => None,
        },
        _ => None,
    })
}

#[test]
fn a_schema_has_the_type_that_kubernetes_gives_it() {
    let object = kind(
        r##""type": "object", "properties": {
            "bool": {"type": "boolean", "nullable": true}, "int": {"type": "integer", "format": "int32"},
            "double": {"type": "number"}, "string": {"type": "string", "enum": ["a"]},
            "bytes": {"type": "string", "format": "byte"}, "day": {"type": "string", "format": "date"},
            "time": {"type": "string", "format": "date-time"}, "span": {"type": "string", "format": "duration"},
            "either": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
            "other": {"x-kubernetes-int-or-string": true},
            "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "list": {"type": "array", "items": {"type": "integer"}}, "unknown": {"type": "array"},
            "hidden": {"type": "array", "items": {}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "hiddens": {"type": "object", "additionalProperties": {}},
            "free": {"type": "object", "additionalProperties": true},
            "lost": {"$ref": "#/components/schemas/nobody"}, "strange": true, "stranger": {"type": ["string"]}
        }"##,
    );
    for (name, of) in [
        ("bool", "bool"),
        ("int", "int"),
        ("double", "double"),
        ("string", "string"),
        ("bytes", "bytes"),
        ("day", "timestamp"),
        ("time", "timestamp"),
        ("span", "duration"),
        ("either", "dyn"),
        ("other", "dyn"),
        ("list", "list(int)"),
        ("map", "map(string, string)"),
        ("free", "K.free"),
    ] {
        assert_eq!(field(&object, name).map(|of| of.to_string()).as_deref(), Some(of), "{name}");
    }
    for hidden in ["quantity", "unknown", "hidden", "hiddens", "lost", "strange", "stranger", "nonsense"] {
        assert_eq!(field(&object, hidden), None, "{hidden}");
    }
    assert_eq!(kind(r#""description": "without a type""#), Type::Dyn);
}

#[test]
fn a_resource_has_metadata_in_any_case() {
    let bare = kind(r#""type": "object", "properties": {"metadata": {"type": "object"}}"#);
    for path in ["apiVersion", "kind", "metadata.name", "metadata.generateName"] {
        assert_eq!(field(&bare, path), Some(Type::String), "{path}");
    }
    assert_eq!(field(&bare, "metadata.labels"), None);
    let embedded = kind(
        r#""type": "object", "properties": {
            "plain": {"type": "object"}, "inner": {"type": "object", "x-kubernetes-embedded-resource": true}
        }"#,
    );
    assert_eq!(field(&embedded, "inner.metadata.name"), Some(Type::String));
    assert_eq!(field(&embedded, "plain.metadata"), None);
}

#[test]
fn a_schema_within_itself_is_empty_there() {
    let schemas = read(
        r##"{"k": {"type": "object", "properties": {"next": {"allOf": [{"$ref": "#/components/schemas/n"}]}},
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "K"}]},
            "n": {"type": "object", "properties": {"value": {"type": "integer"},
                "list": {"type": "array", "items": {"$ref": "#/components/schemas/n"}},
                "again": {"$ref": "#/components/schemas/n"}}},
            "loop": {"$ref": "#/components/schemas/loop"}}"##,
    );
    let object = schemas.find("", "v1", "K").expect("the kind").object_type("K");
    assert_eq!(field(&object, "next.value"), Some(Type::Int));
    assert!(field(&object, "next.again").is_some());
    assert_eq!(field(&object, "next.again.value"), None);
    let list = field(&object, "next.list").expect("a list");
    assert_eq!(list.to_string(), "list(K.next.list.@idx)");
}

#[test]
fn schemas_that_lead_from_one_to_the_next_come_to_an_end() {
    const COUNT: usize = 50_000;
    let reference = |number: usize| format!(r##""$ref": "#/components/schemas/s{number}""##);
    for (part, ends) in [
        (format!("{{{}}}", reference(usize::MAX)), "a reference"),
        (format!(r#"{{"allOf": [{{{}}}]}}"#, reference(usize::MAX)), "one of all"),
        (format!(r#"{{"type": "array", "items": {{{}}}}}"#, reference(usize::MAX)), "a list"),
        (format!(r#"{{"type": "object", "additionalProperties": {{{}}}}}"#, reference(usize::MAX)), "a map"),
    ] {
        let last = usize::MAX.to_string();
        let all: Vec<String> = (0..COUNT)
            .map(|number| format!(r#""s{number}": {}"#, part.replace(&last, &(number + 1).to_string())))
            .collect();
        let named = r#""x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "K"}]"#;
        let root =
            format!(r#""k": {{{named}, "type": "object", "properties": {{"f": {{{}}}}}}}"#, reference(0));
        let schemas = read(&format!("{{{root}, {}}}", all.join(", ")));
        let of = schemas.find("g", "v1", "K").expect("the kind").object_type("K");
        let written = field(&of, "f").expect("a field").to_string();
        assert!(written.contains("dyn"), "{ends}: {written}");
        assert_eq!(schemas.only(&[("g", "v1", "K")]).kinds().count(), 1);
    }
}

#[test]
fn properties_have_names_that_can_be_written() {
    for (property, names) in [
        ("plain_1", vec!["plain_1"]),
        ("a-b.c/d__e", vec!["a__dash__b__dot__c__slash__d__underscores__e"]),
        ("namespace", vec!["namespace", "__namespace__"]),
        ("in", vec!["in", "__in__"]),
        ("1st", vec![]),
        ("$ref", vec![]),
        ("é", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(exposed_names(property).collect::<Vec<_>>(), names, "{property}");
    }
}

#[test]
fn a_kind_needs_a_small_part_of_its_document() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/openapi");
    for (file, group, version, kind, whole, part) in [
        ("api_v1", "", "v1", "Pod", 60_000, 30_000),
        ("apis_apps_v1", "apps", "v1", "Deployment", 40_000, 30_000),
    ] {
        let document = fs::read(data.join(format!("{file}.json"))).expect("a document");
        let schemas = Schemas::read(document.as_slice()).expect("a document");
        let only = schemas.only(&[(group, version, kind)]);
        assert!(schemas.bytes() < whole, "{file}: {} bytes", schemas.bytes());
        assert!(only.bytes() < part, "{kind}: {} bytes", only.bytes());
        assert_eq!(only.kinds().collect::<Vec<_>>(), [(group, version, kind)]);
        let of = |schemas: &Schemas| schemas.find(group, version, kind).expect("the kind").object_type(kind);
        let paths =
            ["metadata.labels", "spec", "spec.template.spec.containers", "spec.containers", "status.phase"];
        for path in paths {
            let (whole, part) = (field(&of(&schemas), path), field(&of(&only), path));
            assert_eq!(whole.map(|of| of.to_string()), part.map(|of| of.to_string()), "{path}");
        }
    }
}

#[test]
fn what_is_no_document_is_refused() {
    let nested = format!("{}{}", "{\"components\":".repeat(1000), "}".repeat(1000));
    for document in ["", "{", "{}{}", "nothing", nested.as_str()] {
        assert!(Schemas::read(document.as_bytes()).is_err(), "{document}");
    }
    for document in ["{}", "[]", "1", r#"{"components": {"schemas": [{}]}}"#, r#"{"components": null}"#] {
        assert_eq!(Schemas::read(document.as_bytes()).expect(document).kinds().count(), 0);
    }
}

/// Anything that stands where a schema stands.
fn json() -> impl Strategy<Value = String> {
    let words = [
        "null",
        "true",
        "1",
        "1.5",
        "\"\"",
        "\"object\"",
        "\"array\"",
        "\"string\"",
        "\"int-or-string\"",
        "[]",
        "{}",
        "\"#/components/schemas/a\"",
        "\"#/components/schemas/b\"",
    ];
    let keys = [
        "type",
        "format",
        "items",
        "properties",
        "additionalProperties",
        "$ref",
        "allOf",
        "a",
        "b",
        "namespace",
        "x-kubernetes-int-or-string",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-group-version-kind",
        "metadata",
    ];
    let leaf = proptest::sample::select(words.to_vec()).prop_map(str::to_owned);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let member = (proptest::sample::select(keys.to_vec()), inner.clone());
        let members = proptest::collection::vec(member, 0..6).prop_map(|members| {
            let mut members: Vec<_> =
                members.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
            members.push(r#""type": "object""#.to_owned());
            format!("{{{}}}", members.join(", "))
        });
        let list = proptest::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", ")));
        prop_oneof![3 => members, 1 => list]
    })
}

proptest! {
    #[test]
    fn no_document_is_too_strange(a in json(), b in json()) {
        let named = r#""x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "K"}]"#;
        let root = r##"{"type": "object", "properties": {"a": {"$ref": "#/components/schemas/a"}}"##;
        let schemas = read(&format!(r#"{{"k": {root}, {named}}}, "a": {a}, "b": {b}}}"#));
        for schemas in [schemas.only(&[("", "v1", "K")]), schemas] {
            let object = schemas.find("", "v1", "K").expect("the kind").object_type("K");
            for path in ["a.a.b.a.b.a.a", "a.metadata.name", "a.namespace", "a.b.b.b.b.b"] {
                let _ = field(&object, path);
            }
        }
    }

    #[test]
    fn no_bytes_are_too_strange(document in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Schemas::read(document.as_slice());
    }
}
