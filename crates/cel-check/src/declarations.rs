//! The functions that expressions may call, read from tables, and the names of types.
//!
//! A line of a table is `NAME: SIGNATURE; SIGNATURE`. A signature is `(A, int) -> bool`, or `list(A).(int) -> A` of a method;
//! single capitals are parameters of types. A name may have several lines.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::types::{ObjectType, Type};

/// One way to call a function.
#[derive(Debug, PartialEq)]
pub(crate) struct Overload {
    /// Whether the first of the arguments stands before the dot.
    pub(crate) method: bool,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
    /// How many parameters its types have.
    pub(crate) parameters: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Declarations {
    functions: BTreeMap<&'static str, Vec<Overload>>,
}

static TABLES: [&str; 3] = [
    include_str!("declarations/standard.txt"),
    include_str!("declarations/extensions.txt"),
    include_str!("declarations/kubernetes.txt"),
];

static DECLARATIONS: LazyLock<Declarations> = LazyLock::new(|| {
    let mut declarations = Declarations::default();
    let lines = TABLES.iter().flat_map(|table| table.lines());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, signatures)) = line.split_once(": ") {
            let overloads = signatures.split("; ").filter_map(overload);
            declarations.functions.entry(name).or_default().extend(overloads);
        }
    }
    declarations
});

impl Declarations {
    pub(crate) fn kubernetes() -> &'static Self {
        &DECLARATIONS
    }

    pub(crate) fn function(&self, name: &str) -> Option<&[Overload]> {
        self.functions.get(name).map(Vec::as_slice)
    }
}

fn overload(signature: &str) -> Option<Overload> {
    let (arguments_of, result_of) = signature.split_once(" -> ")?;
    let mut reading = Reading { rest: result_of, parameters: Vec::new() };
    // Its parameters come first: the numbers show in messages.
    let result = reading.of()?;
    if !reading.rest.is_empty() {
        return None;
    }
    reading.rest = arguments_of;
    let mut arguments = Vec::new();
    let method = !reading.rest.starts_with('(');
    if method {
        arguments.push(reading.of()?);
        reading.take(".")?;
    }
    arguments.extend(reading.list()?);
    let parameters = reading.parameters.len();
    reading.rest.is_empty().then_some(Overload { method, arguments, result, parameters })
}

struct Reading<'a> {
    rest: &'a str,
    parameters: Vec<&'a str>,
}

impl<'a> Reading<'a> {
    fn take(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    fn list(&mut self) -> Option<Vec<Type>> {
        let mut types = Vec::new();
        self.take("(")?;
        while self.take(")").is_none() {
            types.push(self.of()?);
            if self.take(", ").is_none() && !self.rest.starts_with(')') {
                return None;
            }
        }
        Some(types)
    }

    fn of(&mut self) -> Option<Type> {
        let end = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '.';
        let mut end = self.rest.find(end).unwrap_or(self.rest.len());
        if self.rest[..end].ends_with('.') {
            end -= 1;
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let is_generic = ["list", "map", "optional_type", "type"].contains(&name);
        let parts = if is_generic { self.list()? } else { Vec::new() };
        self.named(name, parts)
    }

    fn named(&mut self, name: &'a str, parts: Vec<Type>) -> Option<Type> {
        let mut parts = parts.into_iter();
        Some(match name {
            "list" => Type::list(parts.next()?),
            "map" => Type::map(parts.next()?, parts.next()?),
            "optional_type" => Type::optional(parts.next()?),
            "type" => Type::of(parts.next()?),
            _ if name.len() == 1 => {
                let known = self.parameters.iter().position(|parameter| *parameter == name);
                Type::Parameter(known.unwrap_or_else(|| {
                    self.parameters.push(name);
                    self.parameters.len() - 1
                }))
            }
            _ => simple(name)?,
        })
    }
}

/// The type of a name without parameters.
fn simple(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "null_type" => Type::Null,
        "net.IP" | "net.CIDR" => Type::opaque(name, Vec::new()),
        _ if name.starts_with("kubernetes.") => Type::Object(Arc::new(ObjectType::unresolved(name))),
        _ => return None,
    })
}

/// The type of what a name of the declarations stands for: that of a type, as `int` in `type(1) == int`, mostly.
pub(crate) fn type_of_name(name: &str) -> Option<Type> {
    let of = match name {
        "google.protobuf.NullValue.NULL_VALUE" => return Some(Type::Int),
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" | "optional_type" => Type::opaque(name, Vec::new()),
        "dyn" => return None,
        _ if name.starts_with("kubernetes.") => return None,
        _ => match (name.strip_prefix("google.protobuf."), wrapped(name)) {
            (Some("Any"), _) => Type::opaque("any", Vec::new()),
            (_, Some(wrapped)) => Type::wrapper(wrapped),
            (Some(_), _) => type_of_message(name)?,
            (None, _) => simple(name)?,
        },
    };
    Some(Type::of(of))
}

fn wrapped(name: &str) -> Option<Type> {
    Some(match name.strip_prefix("google.protobuf.")?.strip_suffix("Value")? {
        "Bool" => Type::Bool,
        "Bytes" => Type::Bytes,
        "Double" | "Float" => Type::Double,
        "Int32" | "Int64" => Type::Int,
        "String" => Type::String,
        "UInt32" | "UInt64" => Type::Uint,
        _ => return None,
    })
}

/// The type of a message of protocol buffers, of which Kubernetes has but the well-known ones.
pub(crate) fn type_of_message(name: &str) -> Option<Type> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "Struct" => Type::map(Type::String, Type::Dyn),
        "ListValue" => Type::list(Type::Dyn),
        "Value" | "Any" => Type::Dyn,
        "Empty" => Type::opaque(name, Vec::new()),
        "Timestamp" => Type::Timestamp,
        "Duration" => Type::Duration,
        _ => return wrapped(name).map(Type::wrapper),
    })
}

/// The type of a field of such a message; none where it has no such field.
pub(crate) fn type_of_field(message: &str, field: &str) -> Option<Type> {
    if let Some(wrapped) = wrapped(message) {
        return (field == "value").then_some(wrapped);
    }
    let texts_to_anything = || Type::map(Type::String, Type::Dyn);
    Some(match (message.strip_prefix("google.protobuf.")?, field) {
        ("Timestamp" | "Duration", "seconds" | "nanos") | ("Value", "null_value") => Type::Int,
        ("Struct", "fields") | ("Value", "struct_value") => texts_to_anything(),
        ("ListValue", "values") | ("Value", "list_value") => Type::list(Type::Dyn),
        ("Value", "number_value") => Type::Double,
        ("Value", "bool_value") => Type::Bool,
        ("Value", "string_value") | ("Any", "type_url") => Type::String,
        ("Any", "value") => Type::Bytes,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        let mut overloads = 0;
        for table in TABLES {
            for line in table.lines().filter(|line| !line.starts_with('#')) {
                let (_, signatures) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
                for signature in signatures.split("; ") {
                    assert!(overload(signature).is_some(), "{line}: {signature}");
                    overloads += 1;
                }
            }
        }
        let declared = Declarations::kubernetes().functions.values().map(Vec::len).sum::<usize>();
        assert_eq!(declared, overloads);
        assert!(declared > 290, "{declared}");
    }

    #[test]
    fn a_signature_has_its_parameters_by_number() {
        let read = overload("map(A, B).(A) -> list(B)").expect("a signature");
        let (a, b) = (Type::Parameter(1), Type::Parameter(0));
        let arguments = vec![Type::map(a.clone(), b.clone()), a];
        assert_eq!(read, Overload { method: true, arguments, result: Type::list(b), parameters: 2 });
    }
}
