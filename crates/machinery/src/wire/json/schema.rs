//! The table of messages: which fields each has, and what they hold. The simulation's API server stores objects by it, too.

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(super) const TABLE: &str = include_str!("messages.tsv");

/// A message, by its place in the table.
pub type MessageId = usize;

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Upstream's number.
    pub number: u32,
    /// Its name, which is that of the member in JSON.
    pub name: &'static str,
    /// How often it occurs.
    pub cardinality: Cardinality,
    /// What it holds.
    pub holds: FieldType,
    /// Whether a zero differs from what is absent. Said of the kinds that the simulation stores; all that is set is written.
    pub pointer: bool,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// At most once.
    One,
    /// As a list.
    List,
    /// As a map by strings.
    Map,
    /// JSON has the members of this message in its parent.
    Flat,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A string.
    Text,
    /// An integer of 32 bits.
    Int,
    /// An integer of 64 bits.
    Long,
    /// A boolean.
    Bool,
    /// Bytes, in JSON in base64.
    Bytes,
    /// A quantity, in JSON a string.
    Quantity,
    /// A time of whole seconds.
    Time,
    /// A time with microseconds.
    MicroTime,
    /// In JSON a number or a string.
    IntOrString,
    /// A list of strings that is a message in protobuf.
    Texts,
    /// Any JSON.
    Json,
    /// A message.
    Message(MessageId),
}

/// The table.
pub struct Schema {
    messages: Vec<Vec<Field>>,
    names: BTreeMap<&'static str, MessageId>,
}

/// The table, read when it is first asked for: only who speaks JSON needs it.
pub static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(TABLE));

impl Schema {
    /// The fields of a message, by number.
    pub fn fields(&self, message: MessageId) -> &[Field] {
        self.messages.get(message).map_or(&[], Vec::as_slice)
    }

    /// The message of this name, such as `apps.v1.Deployment`; `None` if the table does not have it.
    pub fn named(&self, name: &str) -> Option<MessageId> {
        self.names.get(name).copied()
    }

    /// The message of a kind; `None` if the table does not have it.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
        let package = match group.split('.').next().unwrap_or_default() {
            "internal" => "apiserverinternal",
            package => package,
        };
        // What says how a request ended, and what a delete takes, is of no group, or of the core's.
        self.named(&format!("{package}.{version}.{kind}")).or_else(|| self.named(&format!("meta.v1.{kind}")))
    }

    fn read(table: &'static str) -> Self {
        let rows: Vec<Vec<&'static str>> = table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect())
            .collect();
        let names: BTreeMap<&'static str, MessageId> =
            rows.iter().enumerate().map(|(at, row)| (row[0], at)).collect();
        let messages =
            rows.iter().map(|row| row[1..].iter().filter_map(|field| read_field(field, &names)).collect());
        Self { messages: messages.collect(), names }
    }
}

/// A field as the table spells it, `NUMBER NAME TYPE`; `None` for what stands aside.
fn read_field(spelt: &'static str, names: &BTreeMap<&'static str, MessageId>) -> Option<Field> {
    let mut words = spelt.split(' ');
    let (number, name, spelt) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let pointer = spelt.ends_with('?');
    let spelt = spelt.trim_end_matches('?');
    let (cardinality, base) = match spelt.as_bytes().first()? {
        b'*' => (Cardinality::List, &spelt[1..]),
        b'%' => (Cardinality::Map, &spelt[1..]),
        b'^' => (Cardinality::Flat, &spelt[1..]),
        _ => (Cardinality::One, spelt),
    };
    let holds = match base {
        "string" => FieldType::Text,
        "int" => FieldType::Int,
        "long" => FieldType::Long,
        "bool" => FieldType::Bool,
        "bytes" => FieldType::Bytes,
        "quantity" => FieldType::Quantity,
        "time" => FieldType::Time,
        "microtime" => FieldType::MicroTime,
        "intorstring" => FieldType::IntOrString,
        "texts" => FieldType::Texts,
        "json" => FieldType::Json,
        message => FieldType::Message(*names.get(message)?),
    };
    Some(Field { number, name, cardinality, holds, pointer })
}
