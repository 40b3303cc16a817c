//! OpenAPI v3 documents, kept as a table of the types that they declare.
//!
//! References stay references: what a field is made of is looked up when it is selected, so that a schema that stands in many
//! places, or within itself, is there once.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use crate::Type;
use crate::types::ObjectType;

/// A document that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is no JSON, is cut short, is nested too deep, or declares more than any document does.
    #[error("parse OpenAPI document: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// What a schema says, by numbers of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The field does not exist.
    Hidden,
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(u32),
    Map(u32),
    /// The fields from one number on to another; whether it is an embedded resource.
    Object(u32, u32, bool),
    /// A name of a schema; once all are read, its number in `schemas`.
    Reference(u32),
}

/// A group, version and kind.
type KindName = (Box<str>, Box<str>, Box<str>);

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    /// Names, by number, and the entry of each field.
    fields: Vec<(u32, u32)>,
    names: Vec<Box<str>>,
    /// The entries of the schemas that have a name.
    schemas: Vec<u32>,
    /// Group, version and kind of some of them.
    kinds: BTreeMap<KindName, u32>,
}

/// The schemas of an OpenAPI v3 document, as small as checking needs them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Schemas(Arc<Table>);

impl Schemas {
    /// Reads a document (`/openapi/v3/apis/GROUP/VERSION`) as a stream; it is never in memory as a whole.
    pub fn read(document: impl Read) -> Result<Self, DocumentError> {
        Ok(Self(Arc::new(read::read(document)?)))
    }

    /// Only what these kinds (group, version, kind) need.
    pub fn only(&self, kinds: &[(&str, &str, &str)]) -> Self {
        let mut smaller = Table::default();
        let mut copied = Copied::default();
        for ((group, version, kind), schema) in &self.0.kinds {
            if kinds.contains(&(group, version, kind)) {
                let schema = copied.schema(&self.0, &mut smaller, *schema);
                smaller.kinds.insert((group.clone(), version.clone(), kind.clone()), schema);
            }
        }
        copied.entries(&self.0, &mut smaller);
        smaller.shrink();
        Self(Arc::new(smaller))
    }

    /// The schema whose `x-kubernetes-group-version-kind` names the kind.
    pub fn find(&self, group: &str, version: &str, kind: &str) -> Option<Schema> {
        let schema = *self.0.kinds.get(&(group.into(), version.into(), kind.into()))?;
        Some(Schema { table: Arc::clone(&self.0), schema })
    }

    /// The kinds that it has, by group, version and kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.0.kinds.keys().map(|(group, version, kind)| (&**group, &**version, &**kind))
    }

    /// The bytes that it holds.
    pub fn bytes(&self) -> usize {
        let table = &*self.0;
        let names = table.names.iter().map(|name| name.len() + size_of::<Box<str>>());
        let kinds = table.kinds.keys().map(|(group, version, kind)| {
            group.len() + version.len() + kind.len() + 3 * size_of::<Box<str>>() + size_of::<u32>()
        });
        size_of::<Table>()
            + table.entries.capacity() * size_of::<Entry>()
            + table.fields.capacity() * size_of::<(u32, u32)>()
            + table.schemas.capacity() * size_of::<u32>()
            + names.sum::<usize>()
            + kinds.sum::<usize>()
    }
}

/// What a smaller table has of a larger one.
#[derive(Default)]
struct Copied {
    schemas: BTreeMap<u32, u32>,
    names: BTreeMap<u32, u32>,
    /// Entries of the larger table, and where their copies belong.
    waiting: Vec<(u32, usize)>,
}

impl Copied {
    fn schema(&mut self, from: &Table, to: &mut Table, schema: u32) -> u32 {
        if let Some(number) = self.schemas.get(&schema) {
            return *number;
        }
        let number = to.schemas.len() as u32;
        self.schemas.insert(schema, number);
        let entry = from.schemas.get(schema as usize).copied().unwrap_or_default();
        let entry = self.entry(to, entry);
        to.schemas.push(entry);
        number
    }

    /// Makes room for the copy of an entry.
    fn entry(&mut self, to: &mut Table, entry: u32) -> u32 {
        to.entries.push(Entry::Hidden);
        self.waiting.push((entry, to.entries.len() - 1));
        to.entries.len() as u32 - 1
    }

    fn entries(&mut self, from: &Table, to: &mut Table) {
        while let Some((entry, at)) = self.waiting.pop() {
            let copy = match from.entry(entry) {
                Entry::List(of) => Entry::List(self.entry(to, of)),
                Entry::Map(of) => Entry::Map(self.entry(to, of)),
                Entry::Reference(schema) => Entry::Reference(self.schema(from, to, schema)),
                Entry::Object(first, end, embedded) => {
                    let start = to.fields.len() as u32;
                    for (name, of) in from.fields_of(first, end) {
                        let known = self.names.get(name).copied();
                        let name = known.unwrap_or_else(|| {
                            to.names.push(from.name(*name).into());
                            self.names.insert(*name, to.names.len() as u32 - 1);
                            to.names.len() as u32 - 1
                        });
                        let of = self.entry(to, *of);
                        to.fields.push((name, of));
                    }
                    Entry::Object(start, to.fields.len() as u32, embedded)
                }
                other => other,
            };
            to.entries[at] = copy;
        }
    }
}

impl Table {
    fn entry(&self, number: u32) -> Entry {
        self.entries.get(number as usize).copied().unwrap_or(Entry::Hidden)
    }

    fn fields_of(&self, first: u32, end: u32) -> &[(u32, u32)] {
        self.fields.get(first as usize..end as usize).unwrap_or_default()
    }

    fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.fields.shrink_to_fit();
        self.names.shrink_to_fit();
        self.schemas.shrink_to_fit();
    }
}

/// The schema of one kind. Cheap to clone; keeps its document's table.
#[derive(Debug, Clone)]
pub struct Schema {
    table: Arc<Table>,
    schema: u32,
}

impl Schema {
    /// The type of an object of this schema, named so; dyn where the schema has no type.
    ///
    /// The names of the types within begin with this one, and types of one name are the same: give schemas that occur together
    /// different ones.
    pub fn object_type(&self, name: &str) -> Type {
        let place = Place { table: Arc::clone(&self.table), within: None, fields: Members::default() };
        let root = Place { within: Some(place.entered(self.schema)), ..place };
        let entry = self.table.schemas.get(self.schema as usize).copied().unwrap_or_default();
        root.of_entry(entry, name, true).unwrap_or(Type::Dyn)
    }
}

/// The schemas that a place is within, from the inside out: a reference to one of them is an empty object.
#[derive(Debug)]
struct Within {
    schema: u32,
    /// How many there are further out.
    depth: usize,
    outer: Option<Arc<Within>>,
}

/// How deep schemas are followed into each other. What is deeper is in no document that somebody wrote, and dyn.
const MAX_WITHIN: usize = 250;

/// The fields of an object.
#[derive(Debug, Clone, Copy, Default)]
struct Members {
    first: u32,
    end: u32,
    /// Has the fields that every resource has, which its schema does not name.
    resource: bool,
}

/// An object's place in a document.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    table: Arc<Table>,
    within: Option<Arc<Within>>,
    fields: Members,
}

impl Place {
    /// What is around a schema that is entered here.
    fn entered(&self, schema: u32) -> Arc<Within> {
        Arc::new(Within { schema, depth: self.depth() + 1, outer: self.within.clone() })
    }

    fn depth(&self) -> usize {
        self.within.as_ref().map_or(0, |within| within.depth)
    }

    fn is_within(&self, schema: u32) -> bool {
        let mut around = self.within.as_ref();
        while let Some(within) = around {
            if within.schema == schema {
                return true;
            }
            around = within.outer.as_ref();
        }
        false
    }

    /// The entry that a reference leads to, and what is around it there. Nothing where it stands within itself.
    fn resolve(&self, mut entry: u32) -> (Self, Option<Entry>) {
        let mut place = self.clone();
        while let Entry::Reference(schema) = self.table.entry(entry) {
            if place.is_within(schema) {
                return (place, None);
            }
            if place.depth() >= MAX_WITHIN {
                return (place, Some(Entry::Dyn));
            }
            place.within = Some(place.entered(schema));
            entry = self.table.schemas.get(schema as usize).copied().unwrap_or_default();
        }
        let found = self.table.entry(entry);
        (place, Some(found))
    }

    /// The type of what is at an entry, or none where it is hidden.
    fn of_entry(&self, entry: u32, name: &str, root: bool) -> Option<Type> {
        let (place, entry) = self.resolve(entry);
        Some(match entry {
            None => ObjectType::declared_type(name),
            Some(Entry::Hidden | Entry::Reference(_)) => return None,
            Some(Entry::Dyn) => Type::Dyn,
            Some(Entry::Bool) => Type::Bool,
            Some(Entry::Int) => Type::Int,
            Some(Entry::Double) => Type::Double,
            Some(Entry::String) => Type::String,
            Some(Entry::Bytes) => Type::Bytes,
            Some(Entry::Duration) => Type::Duration,
            Some(Entry::Timestamp) => Type::Timestamp,
            Some(Entry::List(of)) => Type::list(place.of_entry(of, &format!("{name}.@idx"), false)?),
            Some(Entry::Map(of)) => {
                Type::map(Type::String, place.of_entry(of, &format!("{name}.@elem"), false)?)
            }
            Some(Entry::Object(first, end, embedded)) => {
                let fields = Members { first, end, resource: false };
                let place = Self { fields, ..place };
                let resource = (root || embedded) && !place.has_metadata();
                let fields = Members { resource, ..fields };
                ObjectType::of_schema(name, Self { fields, ..place })
            }
        })
    }

    fn entry_of(&self, field: &str) -> Option<u32> {
        let fields = self.table.fields_of(self.fields.first, self.fields.end);
        fields.iter().find(|(name, _)| self.table.name(*name) == field).map(|(_, entry)| *entry)
    }

    /// Whether it names what every resource has.
    fn has_metadata(&self) -> bool {
        let is_string = |place: &Self, field| {
            let entry = place.entry_of(field).map(|entry| place.resolve(entry).1);
            entry == Some(Some(Entry::String))
        };
        let metadata = self.entry_of("metadata").map(|entry| self.resolve(entry));
        let Some((place, Some(Entry::Object(first, end, _)))) = metadata else { return false };
        let metadata = Self { fields: Members { first, end, resource: false }, ..place };
        is_string(self, "apiVersion")
            && is_string(self, "kind")
            && is_string(&metadata, "name")
            && is_string(&metadata, "generateName")
    }

    /// The type of a field of the object here, whose type has this name.
    pub(crate) fn field(&self, name: &str, field: &str) -> Option<Type> {
        let below = format!("{name}.{field}");
        match field {
            "apiVersion" | "kind" if self.fields.resource => Some(Type::String),
            "metadata" if self.fields.resource => {
                let fields = [("name", Type::String), ("generateName", Type::String)];
                Some(Type::Object(Arc::new(ObjectType::declared(&below, fields))))
            }
            _ => self.of_entry(self.entry_of(field)?, &below, false),
        }
    }
}

impl ObjectType {
    /// A type without any field.
    fn declared_type(name: &str) -> Type {
        Type::Object(Arc::new(Self::declared(name, [])))
    }
}

/// What CEL calls a property: with what no name can have written out. None where that cannot be done.
fn exposed_name(property: &str) -> Option<String> {
    let mut name = String::with_capacity(property.len());
    let mut rest = property;
    while let Some(letter) = rest.chars().next() {
        let (written, taken) = match letter {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            '_' => ("_", 1),
            _ if letter.is_ascii_alphanumeric() && !(name.is_empty() && letter.is_ascii_digit()) => {
                (&rest[..1], 1)
            }
            _ => return None,
        };
        name.push_str(written);
        rest = &rest[taken..];
    }
    (!name.is_empty()).then_some(name)
}

/// The names of a property: a reserved word has two.
fn exposed_names(property: &str) -> impl Iterator<Item = String> {
    let name = exposed_name(property);
    let reserved = is_reserved(property).then(|| format!("__{property}__"));
    name.into_iter().chain(reserved)
}

fn is_reserved(word: &str) -> bool {
    crate::syntax::RESERVED.contains(&word) || ["true", "false", "null", "in"].contains(&word)
}

/// Names that are kept once.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<Box<str>, u32>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(name.into(), number);
        number
    }

    fn into_names(self) -> Vec<Box<str>> {
        let mut names: Vec<_> = self.numbers.into_iter().collect();
        names.sort_by_key(|(_, number)| *number);
        names.into_iter().map(|(name, _)| name).collect()
    }
}
