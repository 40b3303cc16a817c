//! The macros: calls that stand for loops and tests.
//!
//! All that a macro adds is at the place of its call. The names that it adds cannot be written.

use super::parser::Parser;
use super::{Constant, Element, Id, Is, Loop};
use crate::report::Found;

/// What a loop's result so far is called.
const RESULT: &str = "@result";
const UNUSED: &str = "#unused";
const SORTED: &str = "@__sortBy_input__";

type Expanded = Result<Option<Id>, Found>;

/// Writes out a call, if it is a macro's.
pub(super) fn expand(
    parser: &mut Parser,
    at: usize,
    function: &str,
    target: Option<Id>,
    arguments: &[Id],
) -> Expanded {
    let Some(target) = target else {
        return match (function, arguments) {
            ("has", [of]) => has(parser, at, *of).map(Some),
            _ => Ok(None),
        };
    };
    let mut writer = Writer { parser, at, target };
    match (function, arguments) {
        ("all" | "exists" | "exists_one" | "map" | "filter", [variable, of]) => {
            writer.aggregate(function, &[*variable], None, *of).map(Some)
        }
        ("map", [variable, filter, of]) => {
            writer.aggregate(function, &[*variable], Some(*filter), *of).map(Some)
        }
        (
            "all" | "exists" | "exists_one" | "existsOne" | "transformList" | "transformMap"
            | "transformMapEntry",
            [first, second, of],
        ) => writer.aggregate(function, &[*first, *second], None, *of).map(Some),
        ("transformList" | "transformMap" | "transformMapEntry", [first, second, filter, of]) => {
            writer.aggregate(function, &[*first, *second], Some(*filter), *of).map(Some)
        }
        ("optMap", [variable, of]) => writer.optional(*variable, *of, true).map(Some),
        ("optFlatMap", [variable, of]) => writer.optional(*variable, *of, false).map(Some),
        ("sortBy", [variable, of]) => writer.sort_by(*variable, *of).map(Some),
        _ => Ok(None),
    }
}

fn has(parser: &mut Parser, at: usize, of: Id) -> Result<Id, Found> {
    match &parser.node(of).is {
        Is::Select { operand, field, test: false } => {
            let is = Is::Select { operand: *operand, field: field.clone(), test: true };
            Ok(parser.add(at, is))
        }
        _ => Err(Found::syntax(parser.node(of).at, "invalid argument to has() macro")),
    }
}

struct Writer<'a> {
    parser: &'a mut Parser,
    at: usize,
    target: Id,
}

impl Writer<'_> {
    fn name(&mut self, name: &str) -> Id {
        self.parser.add(self.at, Is::Name(name.to_owned()))
    }

    fn constant(&mut self, constant: Constant) -> Id {
        self.parser.add(self.at, Is::Constant(constant))
    }

    fn call(&mut self, function: &str, arguments: Vec<Id>) -> Id {
        self.parser.call(self.at, function, arguments)
    }

    fn method(&mut self, target: Id, function: &str, arguments: Vec<Id>) -> Id {
        let is = Is::Call { function: function.to_owned(), target: Some(target), arguments };
        self.parser.add(self.at, is)
    }

    fn list(&mut self, elements: &[Id]) -> Id {
        let elements = elements.iter().map(|of| Element { of: *of, optional: false }).collect();
        self.parser.add(self.at, Is::List(elements))
    }

    /// The name that an argument is.
    fn variable(&self, of: Id, function: &str) -> Result<String, Found> {
        let node = self.parser.node(of);
        match &node.is {
            Is::Name(name) if !name.starts_with('.') => Ok(name.clone()),
            _ if ["map", "filter"].contains(&function) => {
                Err(Found::syntax(node.at, "argument is not an identifier"))
            }
            _ => Err(Found::syntax(node.at, "argument must be a simple name")),
        }
    }

    /// A loop over the target, which all macros over lists and maps are.
    fn aggregate(
        &mut self,
        function: &str,
        variables: &[Id],
        filter: Option<Id>,
        of: Id,
    ) -> Result<Id, Found> {
        let mut names = Vec::new();
        for variable in variables {
            let name = self.variable(*variable, function)?;
            if names.contains(&name) {
                let at = self.parser.node(*variable).at;
                return Err(Found::syntax(at, format!("duplicate variable name: {name}")));
            }
            names.push(name);
        }
        let initial = match function {
            "all" | "exists" => self.constant(Constant::Bool),
            "exists_one" | "existsOne" => self.constant(Constant::Int),
            "transformMap" | "transformMapEntry" => self.parser.add(self.at, Is::Map(Vec::new())),
            _ => self.list(&[]),
        };
        let condition = match function {
            "all" | "exists" => {
                let so_far = self.name(RESULT);
                let goes_on = if function == "all" { so_far } else { self.call("!_", vec![so_far]) };
                self.call("@not_strictly_false", vec![goes_on])
            }
            _ => self.constant(Constant::Bool),
        };
        let so_far = self.name(RESULT);
        let (filter, step) = match function {
            "all" => (None, self.call("_&&_", vec![so_far, of])),
            "exists" => (None, self.call("_||_", vec![so_far, of])),
            "exists_one" | "existsOne" => {
                let one = self.constant(Constant::Int);
                (Some(of), self.call("_+_", vec![so_far, one]))
            }
            "filter" => {
                let element = self.name(names.first().map_or("", |name| name));
                let list = self.list(&[element]);
                (Some(of), self.call("_+_", vec![so_far, list]))
            }
            "transformMap" => {
                let key = self.name(names.first().map_or("", |name| name));
                (filter, self.call("cel.@mapInsert", vec![so_far, key, of]))
            }
            "transformMapEntry" => (filter, self.call("cel.@mapInsert", vec![so_far, of])),
            _ => {
                let list = self.list(&[of]);
                (filter, self.call("_+_", vec![so_far, list]))
            }
        };
        let step = match filter {
            Some(filter) => {
                let unchanged = self.name(RESULT);
                self.call("_?_:_", vec![filter, step, unchanged])
            }
            None => step,
        };
        let so_far = self.name(RESULT);
        let result = if matches!(function, "exists_one" | "existsOne") {
            let one = self.constant(Constant::Int);
            self.call("_==_", vec![so_far, one])
        } else {
            so_far
        };
        let mut names = names.into_iter();
        let of = Loop {
            range: self.target,
            variable: names.next().unwrap_or_default(),
            second: names.next(),
            result_variable: RESULT.to_owned(),
            initial,
            condition,
            step,
            result,
        };
        Ok(self.parser.add(self.at, Is::Loop(Box::new(of))))
    }

    /// A loop that is never entered: an expression in which a name stands for a value.
    fn bind(&mut self, name: String, value: Id, of: Id) -> Id {
        let range = self.list(&[]);
        let condition = self.constant(Constant::Bool);
        let step = self.name(&name);
        let of = Loop {
            range,
            variable: UNUSED.to_owned(),
            second: None,
            result_variable: name,
            initial: value,
            condition,
            step,
            result: of,
        };
        self.parser.add(self.at, Is::Loop(Box::new(of)))
    }

    /// An expression of the value that the target may hold.
    fn optional(&mut self, variable: Id, of: Id, wrap: bool) -> Result<Id, Found> {
        let name = self.variable(variable, "optMap")?;
        let has_value = self.method(self.target, "hasValue", Vec::new());
        let value = self.method(self.target, "value", Vec::new());
        let mut then = self.bind(name, value, of);
        if wrap {
            then = self.call("optional.of", vec![then]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![has_value, then, none]))
    }

    fn sort_by(&mut self, variable: Id, key: Id) -> Result<Id, Found> {
        self.variable(variable, "sortBy")?;
        let target = self.target;
        self.target = self.name(SORTED);
        let keys = self.aggregate("map", &[variable], None, key)?;
        let list = self.name(SORTED);
        let sorted = self.method(list, "@sortByAssociatedKeys", vec![keys]);
        Ok(self.bind(SORTED.to_owned(), target, sorted))
    }
}
