//! Every declared message has upstream's field names and numbers, as the `.proto` files of the pinned version have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use coxswain_machinery::model::template::shapes::{self, Holds};
use coxswain_machinery::wire::MessageRow;

use crate::harness;

/// Full message name → field number → field as upstream declares it.
type Definitions = BTreeMap<String, BTreeMap<u32, Declared>>;

#[derive(Debug, PartialEq)]
struct Declared {
    /// What stands before the name: `optional string`, `map<string, bytes>` …
    kind: String,
    name: String,
}

#[test]
fn declared_fields_are_upstreams() {
    let mut definitions = Definitions::new();
    read_directory(&harness::binaries().with_file_name("protos"), &mut definitions);
    let mut wrong = Vec::new();
    for message in coxswain_machinery::api::schema() {
        compare(message, message.upstream, &definitions, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Holds the fields of `message` against those that upstream's message `of` has.
fn compare(message: &MessageRow, of: &str, definitions: &Definitions, wrong: &mut Vec<String>) {
    let Some(upstream) = definitions.get(of) else {
        wrong.push(format!("{of}: upstream has no such message"));
        return;
    };
    for field in message.fields {
        let name = camel_case(field.name.trim_start_matches("r#"));
        let theirs = upstream.get(&field.number);
        let Some(theirs) = theirs.filter(|theirs| same_name(&theirs.name, &name)) else {
            wrong.push(format!("{of}: {} is {theirs:?} upstream, {name} here", field.number));
            continue;
        };
        // Paths lead into the message that a field holds. Ours may stand for several of upstream's that are alike, such as
        // the sources of volumes of pods and of PersistentVolumes: then its fields are those of each.
        let Some(held) = field.message else { continue };
        let base = |kind: &str| kind.rsplit([' ', '.']).next().unwrap_or_default().to_owned();
        let (ours, theirs) = (base(held.upstream), base(&theirs.kind));
        if ours != theirs {
            let package = held.upstream.trim_end_matches(ours.as_str());
            compare(held, &format!("{package}{theirs}"), definitions, wrong);
        }
    }
}

/// The messages of a pod template, by which templates are compared: fields that are missing in the table would not count.
#[test]
fn the_shapes_of_templates_are_upstreams() {
    let mut definitions = Definitions::new();
    read_directory(&harness::binaries().with_file_name("protos"), &mut definitions);
    let packages = ["api.core.v1", "apimachinery.pkg.apis.meta.v1"];
    let mut wrong = Vec::new();
    for shape in shapes::ALL {
        let full = packages.map(|package| format!("k8s.io.{package}.{}", shape.name));
        let Some(upstream) = full.iter().find_map(|name| definitions.get(name)) else {
            wrong.push(format!("{}: upstream has no such message", shape.name));
            continue;
        };
        let theirs: Vec<_> = upstream
            .iter()
            .map(|(number, field)| (*number, field.name.as_str(), held(&field.kind)))
            .collect();
        let ours: Vec<_> =
            shape.fields.iter().map(|field| (field.number, field.name, spelt(field.holds))).collect();
        if ours != theirs {
            wrong.push(format!("{}: {ours:?} here, {theirs:?} upstream", shape.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The messages of what is read and written in JSON, and of what the simulation's API server stores: a field that is missing there
/// would be lost.
#[test]
fn what_goes_as_json_is_upstreams() {
    let mut definitions = Definitions::new();
    read_directory(&harness::binaries().with_file_name("protos"), &mut definitions);
    let mut wrong = Vec::new();
    let table = include_str!("../../crates/machinery/src/wire/json/messages.tsv");
    for row in table.lines().filter(|line| !line.starts_with('#')) {
        let (name, fields) = row.split_once('\t').unwrap_or((row, ""));
        let packages = ["api.", "apimachinery.pkg.apis.", "apiextensions_apiserver.pkg.apis."];
        let full = packages.map(|package| format!("k8s.io.{package}{name}"));
        let Some(upstream) = full.iter().find_map(|name| definitions.get(name)) else {
            wrong.push(format!("{name}: upstream has no such message"));
            continue;
        };
        let aside = |number: u32| {
            let mut spelt = fields.split('\t');
            spelt.any(|field| field.starts_with(&format!("{number} ")) && field.ends_with(" aside"))
        };
        let theirs: Vec<String> = upstream
            .iter()
            .map(|(number, field)| {
                let holds = if aside(*number) { "aside".to_owned() } else { stored(&field.kind) };
                format!("{number} {} {holds}", name_in_json(name, &field.name))
            })
            .collect();
        let base = |field: &str| {
            let (place, kind) = field.rsplit_once(' ').unwrap_or_default();
            let kind = kind.trim_end_matches('?').trim_start_matches('^');
            format!(
                "{place} {}",
                kind.rsplit_once('.').map_or(kind.to_owned(), |(before, last)| {
                    format!("{}{last}", &before[..before.len() - before.trim_start_matches(['*', '%']).len()])
                })
            )
        };
        let ours: Vec<String> = fields.split('\t').filter(|field| !field.is_empty()).map(base).collect();
        if ours != theirs {
            wrong.push(format!("{name}: {ours:?} here, {theirs:?} upstream"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the name of a field in JSON, which is that of the definition with few exceptions.
fn name_in_json<'a>(message: &str, field: &'a str) -> &'a str {
    match field {
        "Expression" if message.starts_with("admissionregistration.") => "expression",
        "Name" if message.starts_with("admissionregistration.") => "name",
        "uID" if message.starts_with("authentication.") => "uid",
        field => field,
    }
}

/// How the table spells what a field holds, messages without their package.
fn stored(kind: &str) -> String {
    let base = kind.rsplit([' ', '.']).next().unwrap_or_default().trim_end_matches('>');
    let base = match base {
        "int32" => "int",
        "int64" => "long",
        "Quantity" => "quantity",
        "Time" => "time",
        "MicroTime" => "microtime",
        "IntOrString" => "intorstring",
        "RawExtension" | "FieldsV1" => "json",
        "ExtraValue" => "texts",
        other => other,
    };
    let mark = if kind.starts_with("map<") {
        "%"
    } else if kind.starts_with("repeated") {
        "*"
    } else {
        ""
    };
    format!("{mark}{base}")
}

/// What upstream's definition says that a field holds, as [`spelt`] says it.
fn held(kind: &str) -> String {
    let base = kind.rsplit([' ', '.']).next().unwrap_or_default().trim_end_matches('>');
    if kind.starts_with("map<") {
        return format!("map {base}");
    }
    let base = if base == "int32" || base == "int64" { "int" } else { base };
    if kind.starts_with("repeated") { format!("{base}s") } else { base.to_owned() }
}

fn spelt(holds: Holds) -> String {
    match holds {
        Holds::Text => "string".to_owned(),
        Holds::Texts => "strings".to_owned(),
        Holds::Int => "int".to_owned(),
        Holds::Ints => "ints".to_owned(),
        Holds::Bool => "bool".to_owned(),
        Holds::Labels => "map string".to_owned(),
        Holds::Amounts => "map Quantity".to_owned(),
        Holds::Quantity => "Quantity".to_owned(),
        Holds::Time => "Time".to_owned(),
        Holds::IntOrString => "IntOrString".to_owned(),
        Holds::Json => "FieldsV1".to_owned(),
        Holds::Message(shape) | Holds::Flattened(shape) => shape.name.to_owned(),
        Holds::Messages(shape) => format!("{}s", shape.name),
    }
}

/// Whoever adds a file of messages has to add its table to the schema.
#[test]
fn every_declared_message_is_in_the_schema() {
    let schema: BTreeSet<&str> = coxswain_machinery::api::schema().iter().map(|held| held.upstream).collect();
    let mut declared = Vec::new();
    read_declarations(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates"), &mut declared);
    let missing: Vec<_> = declared.iter().filter(|(name, _)| !schema.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let known: BTreeSet<&str> = declared.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(schema.difference(&known).collect::<Vec<_>>(), [&""; 0], "declarations that were not found");
}

/// The upstream messages that are declared in the files of a folder and of those within.
fn read_declarations(folder: &Path, declared: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_declarations(&path, declared);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("\"k8s.io.") {
                if text[..at].trim_end().ends_with('=') {
                    let name = text[at + 1..].split('"').next().unwrap_or_default();
                    declared.push((name.to_owned(), path.clone()));
                }
            }
        }
    }
}

#[test]
fn the_parser_understands_what_definitions_contain() {
    let mut definitions = Definitions::new();
    read_definitions(
        r#"
syntax = "proto2";
package k8s.io.api.test.v1;
option go_package = "x/y"; // not = 9;
// message Ghost {
message Thing {
  // optional string ghost = 7;
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta metadata = 1;
  map<string, bytes> data = 2;
  repeated string finalizers = 14 [packed=false];

  optional bool clusterIP = 3;
}
message Empty {
}
"#,
        &mut definitions,
    );
    let fields = |fields: &[(u32, &str, &str)]| {
        let declared = |kind: &str, name: &str| Declared { kind: kind.to_owned(), name: name.to_owned() };
        fields.iter().map(|(number, kind, name)| (*number, declared(kind, name))).collect()
    };
    assert_eq!(
        definitions,
        Definitions::from([
            (
                "k8s.io.api.test.v1.Thing".to_owned(),
                fields(&[
                    (1, "optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta", "metadata"),
                    (2, "map<string, bytes>", "data"),
                    (3, "optional bool", "clusterIP"),
                    (14, "repeated string", "finalizers"),
                ])
            ),
            ("k8s.io.api.test.v1.Empty".to_owned(), fields(&[])),
        ])
    );
    assert!(same_name("clusterIP", &camel_case("cluster_ip")));
    assert!(!same_name("name", &camel_case("generate_name")));
}

fn read_directory(directory: &Path, definitions: &mut Definitions) {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_directory(&path, definitions);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            read_definitions(&fs::read_to_string(&path).unwrap(), definitions);
        }
    }
}

/// Reads the flat messages of which the API's definitions consist.
fn read_definitions(text: &str, definitions: &mut Definitions) {
    let mut package = String::new();
    let mut message: Option<String> = None;
    for line in text.lines() {
        let line = line.split_once("//").map_or(line, |(code, _)| code).trim();
        if let Some(name) = line.strip_prefix("package ") {
            name.trim_end_matches(';').trim().clone_into(&mut package);
        } else if let Some(name) = line.strip_prefix("message ") {
            let name = format!("{package}.{}", name.trim_end_matches('{').trim());
            definitions.entry(name.clone()).or_default();
            message = Some(name);
        } else if line == "}" {
            message = None;
        } else if let (Some(message), Some((left, right))) = (&message, line.split_once('=')) {
            let digits: String = right.trim().chars().take_while(char::is_ascii_digit).collect();
            if let (Ok(number), Some((kind, name)), Some(fields)) =
                (digits.parse(), left.trim().rsplit_once(' '), definitions.get_mut(message))
            {
                fields.insert(number, Declared { kind: kind.trim().to_owned(), name: name.to_owned() });
            }
        }
    }
}

fn camel_case(snake: &str) -> String {
    let mut words = snake.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Upstream writes abbreviations in capitals (`clusterIP`), which snake case can't tell.
fn same_name(theirs: &str, ours: &str) -> bool {
    theirs.eq_ignore_ascii_case(ours)
}
