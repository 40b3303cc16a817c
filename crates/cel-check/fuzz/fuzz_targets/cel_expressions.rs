//! Whatever the expression and the OpenAPI document, `cel-check` gives a verdict, and one that can be shown.
//!
//! The input is an expression, a NUL and a document; without a NUL it is an expression over a document of its own.

#![no_main]

use cel_check::{Checked, Params, Policy, PolicyValidation, PolicyVariable, Schemas};
use libfuzzer_sys::fuzz_target;

const DOCUMENT: &str = r##"{"components": {"schemas": {"k": {
    "type": "object",
    "properties": {
        "spec": {"$ref": "#/components/schemas/spec"},
        "items": {"type": "array", "items": {"$ref": "#/components/schemas/spec"}}
    },
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "K"}]
}, "spec": {"type": "object", "properties": {
    "name": {"type": "string"}, "count": {"type": "integer"}, "either": {"format": "int-or-string"},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "again": {"$ref": "#/components/schemas/spec"}, "time": {"type": "string", "format": "date-time"}
}}}}}"##;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let expression = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let document = parts.next().unwrap_or(DOCUMENT.as_bytes());
    let Ok(schemas) = Schemas::read(document) else { return };
    let kinds: Vec<_> = schemas.kinds().collect();
    for (group, version, kind) in kinds.iter().copied().take(3) {
        let Some(schema) = schemas.only(&[(group, version, kind)]).find(group, version, kind) else {
            panic!("a kind is lost");
        };
        let policy = Policy {
            variables: vec![PolicyVariable { name: "it", expression: &expression }],
            validations: vec![
                PolicyValidation { expression: &expression, message_expression: "variables.it" },
                PolicyValidation { expression: "variables.it.foo + object.spec", message_expression: "" },
            ],
        };
        let checked = Checked { group, version, kind, schema: &schema };
        for warning in policy.warnings(Params::Of { kind, schema: &schema }, &[checked]) {
            assert!(warning.warning.contains("ERROR"), "{}", warning.warning);
        }
    }
});
