//! The messages that a pod template is made of, as of Kubernetes 1.36: the numbers and names of their fields, what these
//! hold, and which of them stand in JSON although they are empty. Facts of the public API; nothing else of it is here.
//!
//! What a template's canonical form rests on (see [`super`]), and its JSON in ControllerRevisions (see
//! [`crate::model::revisions`]). Never used to decode or encode an object.

mod table;

pub use table::{ALL, POD_TEMPLATE};

/// What is known of a message.
#[derive(Debug)]
pub struct Shape {
    /// Upstream's name of it, without the package.
    pub name: &'static str,
    /// All its fields, by number. What has another number is newer than this table.
    pub fields: &'static [FieldShape],
}

/// What is known of a field.
#[derive(Debug)]
pub struct FieldShape {
    /// Its number.
    pub number: u32,
    /// Its name, which is that of the member in JSON.
    pub name: &'static str,
    /// What it holds.
    pub holds: Holds,
    /// When it stands in JSON.
    pub presence: Presence,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// A string.
    Text,
    /// A list of strings.
    Texts,
    /// An integer.
    Int,
    /// A list of integers.
    Ints,
    /// A boolean.
    Bool,
    /// A map of strings.
    Labels,
    /// A map of quantities.
    Amounts,
    /// A quantity, in JSON a string.
    Quantity,
    /// A time, in JSON a string; left out when it is zero.
    Time,
    /// In JSON a number or a string.
    IntOrString,
    /// Any JSON, as bytes.
    Json,
    /// A message.
    Message(&'static Shape),
    /// A list of messages.
    Messages(&'static Shape),
    /// A message whose members JSON has in its parent.
    Flattened(&'static Shape),
}

/// When a field stands in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Unless it is empty or zero; a message whenever it is set.
    NotEmpty,
    /// Whenever it is set, zero or not: the API holds it by a pointer.
    Pointer,
    /// Always: a list as `null`, a message as `{}` at least.
    Always,
    /// Always; as `null` if it is not set.
    Nullable,
}

impl Shape {
    /// The field of this number; `None` if it is newer than the table.
    pub fn field(&self, number: u32) -> Option<&'static FieldShape> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(&self.fields[at])
    }
}

impl Holds {
    /// The shape of the messages in it; `None` if it holds none whose fields matter one by one.
    pub fn message(self) -> Option<&'static Shape> {
        match self {
            Self::Message(shape) | Self::Messages(shape) | Self::Flattened(shape) => Some(shape),
            _ => None,
        }
    }

    /// Whether it is a map.
    pub fn is_map(self) -> bool {
        matches!(self, Self::Labels | Self::Amounts)
    }
}
