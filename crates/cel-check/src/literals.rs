//! What is said of literals, once the types of an expression are right: lists and maps of mixed types, and formats.

use crate::checker::{MAX_SAID, mismatch};
use crate::report::{Found, Limit};
use crate::syntax::{Constant, Element, Id, Is, Tree};
use crate::types::Type;

/// How many nodes are visited.
const MAX_VISITS: usize = 300_000;

/// The mistakes of literals, by the types of all nodes.
pub(crate) fn check(tree: &Tree, types: &[Type]) -> Result<Vec<Found>, Found> {
    let mut checker = Literals { tree, types, found: Vec::new(), visits: 0, said: 0 };
    let mut waiting = vec![(tree.root, false)];
    while let Some((id, exempt)) = waiting.pop() {
        checker.count()?;
        let mut exempt = exempt;
        match &tree.node(id).is {
            Is::List(elements) if !exempt => checker.list(elements),
            Is::Map(entries) if !exempt => checker.map(entries),
            Is::Call { function, target: Some(target), arguments } if function == "format" => {
                exempt = true;
                checker.format(id, *target, arguments)?;
            }
            _ => {}
        }
        waiting.extend(tree.children(id).into_iter().map(|child| (child, exempt)));
    }
    checker.count()?;
    Ok(checker.found)
}

struct Literals<'a> {
    tree: &'a Tree,
    types: &'a [Type],
    found: Vec<Found>,
    visits: usize,
    /// The bytes of all messages.
    said: usize,
}

impl Literals<'_> {
    fn count(&mut self) -> Result<(), Found> {
        self.visits += 1;
        if self.visits > MAX_VISITS || self.said > MAX_SAID {
            return Err(Found::limit(Limit::Steps, "the expression takes too many steps to check"));
        }
        Ok(())
    }

    fn type_of(&self, id: Id) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    fn complain(&mut self, id: Id, message: String) {
        self.said += message.len();
        self.found.push(Found::types(self.tree.node(id).at, message));
    }

    /// Says whether the type of an element is that of the first.
    fn compare(&mut self, first: &Type, id: Id, of: &Type) -> bool {
        let same = first == of;
        if !same {
            self.complain(id, mismatch(first, of));
        }
        same
    }

    fn of_element(&self, element: Element) -> Type {
        let of = self.type_of(element.of);
        let value = of.optional_value().filter(|_| element.optional);
        value.unwrap_or(of).clone()
    }

    fn list(&mut self, elements: &[Element]) {
        let Some((first, others)) = elements.split_first() else { return };
        let first = self.of_element(*first);
        for element in others {
            let of = self.of_element(*element);
            if !self.compare(&first, element.of, &of) {
                return;
            }
        }
    }

    fn map(&mut self, entries: &[(Id, Element)]) {
        let Some(((key, value), others)) = entries.split_first() else { return };
        let (first_key, first_value) = (self.type_of(*key).clone(), self.of_element(*value));
        for (key, value) in others {
            if self.said > MAX_SAID {
                return;
            }
            let (of_key, of_value) = (self.type_of(*key).clone(), self.of_element(*value));
            self.compare(&first_key, *key, &of_key);
            self.compare(&first_value, value.of, &of_value);
        }
    }

    /// Compares each clause of a format with its argument, up to the first that does not fit.
    fn format(&mut self, call: Id, target: Id, arguments: &[Id]) -> Result<(), Found> {
        let (Is::Constant(Constant::String(format)), [list]) = (&self.tree.node(target).is, arguments) else {
            return Ok(());
        };
        let Is::List(elements) = &self.tree.node(*list).is else { return Ok(()) };
        let mut used = 0;
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                continue;
            }
            let mut verb = letters.next();
            if verb == Some('.') {
                verb = letters.find(|letter| !letter.is_ascii_digit());
            }
            let Some(verb) = verb.filter(|verb| *verb != '%') else { continue };
            let Some(clause) = clause(verb) else {
                let clause = "could not parse formatting clause: unrecognized formatting clause";
                self.complain(call, format!("{clause} \"{verb}\""));
                return Ok(());
            };
            let Some(element) = elements.get(used) else {
                self.complain(call, format!("index {used} out of range"));
                return Ok(());
            };
            used += 1;
            if let Some((id, of)) = self.misfit(&clause, element.of)? {
                let message =
                    format!("error during formatting: {}, was given {}", clause.only, of.bare_name());
                self.complain(id, message);
                return Ok(());
            }
        }
        if used < elements.len() {
            let given = elements.len();
            let message = "too many arguments supplied to string.format";
            self.complain(call, format!("{message} (expected {used}, got {given})"));
        }
        Ok(())
    }

    /// What of an argument does not fit a clause.
    fn misfit(&mut self, clause: &Clause, id: Id) -> Result<Option<(Id, Type)>, Found> {
        let mut waiting = vec![id];
        while let Some(inner) = waiting.pop() {
            self.count()?;
            let of = self.type_of(inner);
            if !(clause.fits)(of.unwrapped()) {
                return Ok(Some((inner, of.clone())));
            }
            if clause.is_string && matches!(self.tree.node(inner).is, Is::List(_) | Is::Map(_)) {
                waiting.extend(self.tree.children(inner).into_iter().rev());
            }
        }
        Ok(None)
    }
}

struct Clause {
    only: &'static str,
    fits: fn(&Type) -> bool,
    is_string: bool,
}

fn clause(verb: char) -> Option<Clause> {
    let of = |only, fits| Some(Clause { only, fits, is_string: verb == 's' });
    match verb {
        's' => of(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
            |of| !matches!(of, Type::Object(_) | Type::Opaque(_)),
        ),
        'd' => of("decimal clause can only be used on integers", is_integer),
        'f' => of("fixed-point clause can only be used on doubles", is_double),
        'e' => of("scientific clause can only be used on doubles", is_double),
        'b' => {
            of("only integers and bools can be formatted as binary", |of| is_integer(of) || *of == Type::Bool)
        }
        'x' | 'X' => of("only integers, byte buffers, and strings can be formatted as hex", |of| {
            is_integer(of) || matches!(of, Type::String | Type::Bytes)
        }),
        'o' => of("octal clause can only be used on integers", is_integer),
        _ => None,
    }
}

fn is_integer(of: &Type) -> bool {
    matches!(of, Type::Int | Type::Uint | Type::Dyn | Type::Error)
}

fn is_double(of: &Type) -> bool {
    matches!(of, Type::Double | Type::String | Type::Dyn | Type::Error)
}
