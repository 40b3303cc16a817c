//! Expressions as trees. Macros are written out, as the specification says, and every node knows its place.
//!
//! Trees are tables: nodes name each other by numbers, so that nothing recurses to drop or to walk them.

mod lexer;
mod macros;
mod parser;
#[cfg(test)]
mod tests;

use crate::report::Found;

/// Words that no variable may be called.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A node's number.
pub(crate) type Id = u32;

/// An expression.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    pub(crate) root: Id,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// The offset in the source, in characters, that mistakes are reported at.
    pub(crate) at: usize,
    pub(crate) is: Is,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constant {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Bytes,
    String(String),
}

/// An element, key or value, and whether it is left out where it is an empty optional.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element {
    pub(crate) of: Id,
    pub(crate) optional: bool,
}

/// A field that a message is made with.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The offset of the colon, where its mistakes are reported.
    pub(crate) at: usize,
    pub(crate) value: Element,
}

#[derive(Debug)]
pub(crate) enum Is {
    Constant(Constant),
    Name(String),
    Select {
        operand: Id,
        field: String,
        /// Asks whether the field is there.
        test: bool,
    },
    Call {
        function: String,
        target: Option<Id>,
        arguments: Vec<Id>,
    },
    List(Vec<Element>),
    Map(Vec<(Id, Element)>),
    /// An object of a type, whose fields are these.
    Message {
        name: String,
        fields: Vec<Field>,
    },
    Loop(Box<Loop>),
}

/// The loop that a macro is written out as.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) range: Id,
    /// What the elements are called: one name, or two for index or key, and value.
    pub(crate) variable: String,
    pub(crate) second: Option<String>,
    pub(crate) result_variable: String,
    pub(crate) initial: Id,
    pub(crate) condition: Id,
    pub(crate) step: Id,
    pub(crate) result: Id,
}

impl Tree {
    pub(crate) fn parse(expression: &str) -> Result<Self, Found> {
        parser::parse(expression)
    }

    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// `a.b.c`, where the node is such a name.
    pub(crate) fn qualified_name(&self, id: Id) -> Option<String> {
        let mut fields = Vec::new();
        let mut id = id;
        loop {
            match &self.node(id).is {
                Is::Name(name) => {
                    let mut whole = name.clone();
                    for field in fields.into_iter().rev() {
                        whole.push('.');
                        whole.push_str(field);
                    }
                    return Some(whole);
                }
                Is::Select { operand, field, test: false } if fields.len() < MAX_QUALIFIERS => {
                    fields.push(field);
                    id = *operand;
                }
                _ => return None,
            }
        }
    }

    /// What a node is made of.
    pub(crate) fn children(&self, id: Id) -> Vec<Id> {
        match &self.node(id).is {
            Is::Constant(_) | Is::Name(_) => Vec::new(),
            Is::Select { operand, .. } => vec![*operand],
            Is::Call { target, arguments, .. } => target.iter().chain(arguments).copied().collect(),
            Is::List(elements) => elements.iter().map(|element| element.of).collect(),
            Is::Map(entries) => entries.iter().flat_map(|(key, value)| [*key, value.of]).collect(),
            Is::Message { fields, .. } => fields.iter().map(|field| field.value.of).collect(),
            Is::Loop(of) => vec![of.range, of.initial, of.condition, of.step, of.result],
        }
    }
}

/// No declared name has more parts.
const MAX_QUALIFIERS: usize = 4;
