//! The types of CEL, how large one may grow, and how it is written in a message.

use std::fmt;
use std::sync::Arc;

use crate::schema::Place;

/// Types are trees. One of more nodes is taken for dyn, so that no expression makes one that takes long to walk.
const MAX_NODES: usize = 128;
/// A longer name of an object type is that of no schema that anybody writes; its fields are dyn.
const MAX_NAME: usize = 4096;

/// The name of the opaque type of optional values.
const OPTIONAL: &str = "optional_type";
/// That of messages that hold one value, or null.
const WRAPPER: &str = "wrapper";

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Anything: what is not known before the expression runs.
    Dyn,
    /// What a mistake leaves; it fits everywhere, so that one mistake is reported once.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `uint`.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// A list; see [`Type::list`].
    List(Arc<Type>),
    /// A map from keys to values; see [`Type::map`].
    Map(Arc<(Type, Type)>),
    /// A type by its name alone, with its parameters; see [`Type::opaque`].
    Opaque(Arc<(Arc<str>, Vec<Type>)>),
    /// The type of a type.
    Type(Arc<Type>),
    /// An object with fields.
    Object(Arc<ObjectType>),
    /// A type that is not known yet, or a parameter of a declaration.
    Parameter(usize),
}

impl Type {
    /// A list of elements of this type.
    pub fn list(of: Type) -> Self {
        Self::List(Arc::new(of)).bounded()
    }

    /// A map from keys of one type to values of another.
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new((key, value))).bounded()
    }

    /// A type of which only the name and its parameters are known.
    pub fn opaque(name: &str, parameters: Vec<Type>) -> Self {
        Self::Opaque(Arc::new((Arc::from(name), parameters))).bounded()
    }

    /// What may hold a value of this type.
    pub fn optional(of: Type) -> Self {
        Self::opaque(OPTIONAL, vec![of])
    }

    /// What holds a value of this type, or null.
    pub(crate) fn wrapper(of: Type) -> Self {
        Self::opaque(WRAPPER, vec![of])
    }

    /// What a wrapper holds; of another type, that type.
    pub(crate) fn unwrapped(&self) -> &Type {
        match self {
            Self::Opaque(opaque) if &*opaque.0 == WRAPPER => opaque.1.first().unwrap_or(self),
            other => other,
        }
    }

    /// The object type of a name, among what it is made of; objects of schemas have no names that could be written.
    pub(crate) fn declared(&self, name: &str) -> Option<&Arc<ObjectType>> {
        match self {
            Self::Object(object) => match &object.fields {
                Fields::Declared(_) if &*object.name == name => Some(object),
                Fields::Declared(fields) => fields.iter().find_map(|(_, of)| of.declared(name)),
                Fields::Unresolved | Fields::OfSchema(_) => None,
            },
            Self::Map(of) => of.0.declared(name).or_else(|| of.1.declared(name)),
            other => other.parts().iter().find_map(|part| part.declared(name)),
        }
    }

    /// The type of this type.
    pub fn of(of: Type) -> Self {
        Self::Type(Arc::new(of)).bounded()
    }

    fn bounded(self) -> Self {
        if self.nodes() > MAX_NODES { Self::Dyn } else { self }
    }

    /// The type of the value, where it is optional.
    pub(crate) fn optional_value(&self) -> Option<&Type> {
        match self {
            Self::Opaque(opaque) if &*opaque.0 == OPTIONAL => opaque.1.first(),
            _ => None,
        }
    }

    /// What it is made of.
    pub(crate) fn parts(&self) -> &[Type] {
        match self {
            Self::List(of) | Self::Type(of) => std::slice::from_ref(of),
            Self::Opaque(opaque) => &opaque.1,
            _ => &[],
        }
    }

    /// The same type of other parts.
    pub(crate) fn with_parts(&self, change: &mut dyn FnMut(&Type) -> Type) -> Type {
        match self {
            Self::List(of) => Self::list(change(of)),
            Self::Map(of) => {
                let key = change(&of.0);
                Self::map(key, change(&of.1))
            }
            Self::Opaque(of) if !of.1.is_empty() => {
                let parts = of.1.iter().map(change).collect();
                Self::Opaque(Arc::new((Arc::clone(&of.0), parts))).bounded()
            }
            Self::Type(of) => Self::of(change(of)),
            other => other.clone(),
        }
    }

    pub(crate) fn any_part(&self, is: &mut dyn FnMut(&Type) -> bool) -> bool {
        match self {
            Self::Map(of) => is(&of.0) || is(&of.1),
            other => other.parts().iter().any(is),
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Map(of) => 1 + of.0.nodes() + of.1.nodes(),
            other => 1 + other.parts().iter().map(Type::nodes).sum::<usize>(),
        }
    }

    /// The name of the type alone, as formatting says it.
    pub(crate) fn bare_name(&self) -> String {
        match self {
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Opaque(of) => of.0.to_string(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Parameter(number) => return write!(formatter, "_var{number}"),
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::List(of) => return write!(formatter, "list({of})"),
            Self::Map(of) => return write!(formatter, "map({}, {})", of.0, of.1),
            Self::Type(of) => return write!(formatter, "type({of})"),
            Self::Object(of) => &of.name,
            Self::Opaque(of) if of.1.is_empty() => &of.0,
            Self::Opaque(of) => {
                write!(formatter, "{}(", of.0)?;
                write_list(formatter, &of.1)?;
                ")"
            }
        };
        formatter.write_str(name)
    }
}

/// Types as a signature has them.
pub(crate) fn write_list(to: &mut dyn fmt::Write, types: &[Type]) -> fmt::Result {
    for (at, of) in types.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(to, "{comma}{of}")?;
    }
    Ok(())
}

/// An object type. Those of one name are the same type.
#[derive(Debug, Clone)]
pub struct ObjectType {
    name: Arc<str>,
    fields: Fields,
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ObjectType {}

#[derive(Debug, Clone)]
enum Fields {
    /// Nobody says which.
    Unresolved,
    Declared(Vec<(Arc<str>, Type)>),
    OfSchema(Place),
}

/// What selecting a field finds.
#[derive(Debug, PartialEq)]
pub(crate) enum Selected {
    Field(Type),
    Undefined,
    Unresolved,
}

impl ObjectType {
    /// An object type of these fields.
    pub fn declared<'a>(name: &str, fields: impl IntoIterator<Item = (&'a str, Type)>) -> Self {
        let fields = fields.into_iter().map(|(name, of)| (Arc::from(name), of)).collect();
        Self { name: Arc::from(name), fields: Fields::Declared(fields) }
    }

    /// One field more.
    pub(crate) fn add(&mut self, field: &str, of: Type) {
        if let Fields::Declared(fields) = &mut self.fields {
            fields.push((Arc::from(field), of));
        }
    }

    /// An object type of which nobody knows fields.
    pub fn unresolved(name: &str) -> Self {
        Self { name: Arc::from(name), fields: Fields::Unresolved }
    }

    /// The type of the objects at a place of a schema.
    pub(crate) fn of_schema(name: &str, place: Place) -> Type {
        if name.len() > MAX_NAME {
            return Type::Dyn;
        }
        Type::Object(Arc::new(Self { name: Arc::from(name), fields: Fields::OfSchema(place) }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn select(&self, field: &str) -> Selected {
        let found = match &self.fields {
            Fields::Unresolved => return Selected::Unresolved,
            Fields::Declared(fields) => {
                fields.iter().find(|(name, _)| &**name == field).map(|(_, of)| of.clone())
            }
            Fields::OfSchema(place) => place.field(&self.name, field),
        };
        found.map_or(Selected::Undefined, Selected::Field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_signatures_have_them() {
        for (of, written) in [
            (Type::list(Type::Int), "list(int)"),
            (Type::map(Type::String, Type::list(Type::Dyn)), "map(string, list(dyn))"),
            (Type::optional(Type::Timestamp), "optional_type(timestamp)"),
            (Type::of(Type::Null), "type(null)"),
            (Type::opaque("net.IP", Vec::new()), "net.IP"),
            (Type::Object(Arc::new(ObjectType::unresolved("a.B"))), "a.B"),
            (Type::Error, "!error!"),
        ] {
            assert_eq!(of.to_string(), written);
        }
    }

    #[test]
    fn a_type_that_grows_without_bound_becomes_dyn() {
        let mut of = Type::Int;
        for _ in 0..1000 {
            of = Type::map(of.clone(), of);
            assert!(of.nodes() <= MAX_NODES);
        }
        let mut deep = Type::Int;
        for _ in 0..MAX_NODES - 1 {
            deep = Type::list(deep);
        }
        assert_eq!((deep.nodes(), Type::list(deep)), (MAX_NODES, Type::Dyn));
    }
}
