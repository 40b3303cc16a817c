//! Reads a document as a stream: each schema becomes a few numbers as soon as it has gone by.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{DocumentError, Entry, KindName, Names, Table, exposed_names};

/// A document of more schemas, at any depth, is not one of Kubernetes' (the core group's has some five thousand).
const MAX_ENTRIES: usize = 1 << 20;
/// Names of fields, in bytes.
const MAX_NAMES: usize = 1 << 24;
/// Names of fields longer than this cannot be selected.
const MAX_NAME: usize = 1024;

const REFERENCES: &str = "#/components/schemas/";

#[derive(Default)]
struct Reading {
    table: Table,
    names: Names,
    /// Names of schemas, by number; `named` has the entry of each that the document has.
    schemas: Names,
    named: Vec<Option<u32>>,
    bytes: usize,
}

pub(super) fn read(document: impl Read) -> Result<Table, DocumentError> {
    let mut reading = Reading::default();
    let mut deserializer = serde_json::Deserializer::from_reader(std::io::BufReader::new(document));
    Member(&mut reading, &["components", "schemas"]).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(reading.finish())
}

impl Reading {
    /// Puts an entry into the table.
    fn add(&mut self, entry: Entry) -> Option<u32> {
        let room = self.table.entries.len() < MAX_ENTRIES && self.bytes < MAX_NAMES;
        room.then(|| {
            self.table.entries.push(entry);
            self.table.entries.len() as u32 - 1
        })
    }

    fn name(&mut self, name: &str) -> u32 {
        let before = self.names.numbers.len();
        let number = self.names.number(name);
        if self.names.numbers.len() > before {
            self.bytes += name.len();
        }
        number
    }

    fn schema(&mut self, name: &str) -> u32 {
        self.bytes += name.len();
        let number = self.schemas.number(name);
        self.named.resize(self.schemas.numbers.len().max(self.named.len()), None);
        number
    }

    fn finish(mut self) -> Table {
        // A reference to what the document does not have is hidden.
        let hidden = self.table.entries.len() as u32;
        self.table.entries.push(Entry::Hidden);
        self.table.schemas = self.named.iter().map(|entry| entry.unwrap_or(hidden)).collect();
        self.table.names = self.names.into_names();
        self.table.shrink();
        self.table
    }
}

/// Visits any value, and takes what is asked for; other values are of no concern.
macro_rules! indifferent {
    ($($visit:ident: $of:ty),* $(,)?) => {
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("JSON")
        }
        $(fn $visit<E>(self, _: $of) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}

/// Goes down to the schemas of the document.
struct Member<'a>(&'a mut Reading, &'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    indifferent!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(key) = members.next_key::<String>()? {
            match self.1.split_first() {
                None => {
                    let number = self.0.schema(&key);
                    let found = members.next_value_seed(SchemaSeed(self.0))?;
                    for kind in found.kinds {
                        self.0.table.kinds.insert(kind, number);
                    }
                    if let Some(named) = self.0.named.get_mut(number as usize) {
                        *named = found.entry;
                    }
                }
                Some((name, below)) if *name == key => {
                    members.next_value_seed(Member(self.0, below))?;
                }
                Some(_) => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// What was read of a schema.
#[derive(Default)]
struct Seen {
    /// None where it is no schema at all.
    entry: Option<u32>,
    kinds: Vec<KindName>,
    /// The schema that it only refers to.
    reference: Option<u32>,
}

struct SchemaSeed<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for SchemaSeed<'_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The keywords of a schema that concern its type.
#[derive(Default)]
struct Keywords {
    of: Option<String>,
    format: Option<String>,
    int_or_string: bool,
    embedded: bool,
    reference: Option<u32>,
    items: Option<u32>,
    additional: Option<u32>,
    properties: Vec<(u32, u32)>,
    kinds: Vec<KindName>,
}

impl Keywords {
    fn entry(self, reading: &mut Reading) -> (Entry, Vec<KindName>) {
        let format = self.format.as_deref().unwrap_or_default();
        let entry = match (self.reference, self.of.as_deref()) {
            (Some(reference), _) => Entry::Reference(reference),
            _ if self.int_or_string || format == "int-or-string" => Entry::Dyn,
            (_, Some("boolean")) => Entry::Bool,
            (_, Some("integer")) => Entry::Int,
            (_, Some("number")) => Entry::Double,
            (_, Some("string")) => match format {
                "byte" => Entry::Bytes,
                "duration" => Entry::Duration,
                "date" | "date-time" => Entry::Timestamp,
                _ => Entry::String,
            },
            (_, Some("array")) => self.items.map_or(Entry::Hidden, Entry::List),
            (_, Some("object")) => {
                if let Some(additional) = self.additional {
                    Entry::Map(additional)
                } else {
                    let first = reading.table.fields.len() as u32;
                    reading.table.fields.extend(self.properties);
                    Entry::Object(first, reading.table.fields.len() as u32, self.embedded)
                }
            }
            _ => Entry::Hidden,
        };
        (entry, self.kinds)
    }
}

impl<'de> Visitor<'de> for SchemaSeed<'_> {
    type Value = Seen;

    indifferent!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Seen, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Seen::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Seen, A::Error> {
        let mut keywords = Keywords::default();
        while let Some(key) = members.next_key::<String>()? {
            match key.as_str() {
                "type" => keywords.of = members.next_value_seed(Text)?,
                "format" => keywords.format = members.next_value_seed(Text)?,
                "$ref" => {
                    let name = members.next_value_seed(Text)?;
                    let name = name.as_deref().and_then(|name| name.strip_prefix(REFERENCES));
                    keywords.reference = name.map(|name| self.0.schema(name));
                }
                "allOf" => {
                    let only = members.next_value_seed(AllOf(self.0))?;
                    keywords.reference = keywords.reference.or(only);
                }
                "items" => keywords.items = members.next_value_seed(SchemaSeed(self.0))?.entry,
                "additionalProperties" => {
                    keywords.additional = members.next_value_seed(SchemaSeed(self.0))?.entry;
                }
                "properties" => keywords.properties = members.next_value_seed(Properties(self.0))?,
                "x-kubernetes-int-or-string" => keywords.int_or_string = members.next_value_seed(Flag)?,
                "x-kubernetes-embedded-resource" => keywords.embedded = members.next_value_seed(Flag)?,
                "x-kubernetes-group-version-kind" => keywords.kinds = members.next_value_seed(Kinds)?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        let reference = keywords.reference;
        let (entry, kinds) = keywords.entry(self.0);
        let Some(entry) = self.0.add(entry) else {
            return Err(A::Error::custom("the document has too many declarations"));
        };
        Ok(Seen { entry: Some(entry), kinds, reference })
    }
}

/// The schema that the only one of `allOf` refers to.
struct AllOf<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for AllOf<'_> {
    type Value = Option<u32>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u32>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AllOf<'_> {
    type Value = Option<u32>;

    indifferent!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<u32>, A::Error> {
        let (mut only, mut count) = (None, 0);
        while let Some(found) = items.next_element_seed(SchemaSeed(self.0))? {
            (only, count) = (found.reference, count + 1);
        }
        Ok(only.filter(|_| count == 1))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<u32>, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// The names of fields, as expressions have them, and their schemas.
struct Properties<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for Properties<'_> {
    type Value = Vec<(u32, u32)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Properties<'_> {
    type Value = Vec<(u32, u32)>;

    indifferent!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(property) = members.next_key::<String>()? {
            let found = members.next_value_seed(SchemaSeed(self.0))?;
            if let Some(entry) = found.entry.filter(|_| property.len() <= MAX_NAME) {
                fields.extend(exposed_names(&property).map(|name| (self.0.name(&name), entry)));
            }
        }
        Ok(fields)
    }
}

/// A value, where it is a string or a boolean.
struct Text;
struct Flag;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Option<String>;

    indifferent!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

    fn visit_str<E>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<String>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<String>, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

impl<'de> DeserializeSeed<'de> for Flag {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Flag {
    type Value = bool;

    indifferent!(visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_bool<E>(self, flag: bool) -> Result<bool, E> {
        Ok(flag)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(false)
    }
}

/// `x-kubernetes-group-version-kind`.
struct Kinds;

impl<'de> DeserializeSeed<'de> for Kinds {
    type Value = Vec<KindName>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<KindName>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kinds {
    type Value = Vec<KindName>;

    indifferent!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<KindName>, A::Error> {
        let mut kinds = Vec::new();
        while let Some(found) = items.next_element_seed(Kinds)? {
            kinds.extend(found);
        }
        Ok(kinds)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Vec<KindName>, A::Error> {
        let (mut group, mut version, mut kind) = (None, None, None);
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(Text)?;
            match key.as_str() {
                "group" => group = value,
                "version" => version = value,
                "kind" => kind = value,
                _ => {}
            }
        }
        let named = version.zip(kind).map(|(version, kind)| {
            (group.unwrap_or_default().into(), version.into_boxed_str(), kind.into_boxed_str())
        });
        Ok(named.into_iter().collect())
    }
}
