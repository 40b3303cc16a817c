//! The messages of the kinds that the model stores: what the table says by which the manager speaks JSON.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("../../../crates/machinery/src/wire/json/messages.tsv");

/// A message's fields.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) fields: Vec<Field>,
}

/// One field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) holds: Holds,
    /// Whether a zero differs from what is absent.
    pub(crate) pointer: bool,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    Map,
    /// JSON has the members of this message in its parent.
    Flat,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Text,
    Int,
    Bool,
    Bytes,
    Double,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    /// A list of strings that is a message in protobuf.
    Texts,
    Json,
    /// A message, by its place in the table.
    Message(usize),
}

/// The table.
pub(crate) struct Schema {
    pub(crate) messages: Vec<Message>,
    names: BTreeMap<&'static str, usize>,
}

/// The table, read once.
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(TABLE));

impl Schema {
    /// The message of this name, such as `apps.v1.Deployment`; `None` if the model does not store it.
    pub(crate) fn message(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    fn read(table: &'static str) -> Self {
        let rows: Vec<Vec<&'static str>> = table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect())
            .collect();
        let names: BTreeMap<&'static str, usize> =
            rows.iter().enumerate().map(|(at, row)| (row[0], at)).collect();
        let messages = rows
            .iter()
            .map(|row| Message { fields: row[1..].iter().filter_map(|field| read(field, &names)).collect() });
        Self { messages: messages.collect(), names }
    }
}

/// A field as the table spells it, `NUMBER NAME TYPE`; `None` for what stands aside.
fn read(field: &'static str, names: &BTreeMap<&'static str, usize>) -> Option<Field> {
    let mut words = field.split(' ');
    let (number, name, spelt) = (words.next(), words.next().expect("a name"), words.next().expect("a type"));
    let pointer = spelt.ends_with('?');
    let spelt = spelt.trim_end_matches('?');
    let (shape, base) = match spelt.as_bytes()[0] {
        b'*' => (Shape::List, &spelt[1..]),
        b'%' => (Shape::Map, &spelt[1..]),
        b'^' => (Shape::Flat, &spelt[1..]),
        _ => (Shape::One, spelt),
    };
    let holds = match base {
        "string" => Holds::Text,
        "int" => Holds::Int,
        "bool" => Holds::Bool,
        "bytes" => Holds::Bytes,
        "double" => Holds::Double,
        "quantity" => Holds::Quantity,
        "time" => Holds::Time,
        "microtime" => Holds::MicroTime,
        "intorstring" => Holds::IntOrString,
        "texts" => Holds::Texts,
        "json" => Holds::Json,
        "aside" => return None,
        message => Holds::Message(names[message]),
    };
    Some(Field { number: number.expect("a number").parse().expect("a number"), name, shape, holds, pointer })
}
