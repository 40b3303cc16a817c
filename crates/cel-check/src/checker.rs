//! The type of every node of a tree, and the mistakes that show in it.
//!
//! It keeps its own stack, so that no expression is too deep for it, and counts its steps, so that none takes too long.

mod calls;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::declarations::{self, Declarations};
use crate::report::{Found, Limit};
use crate::syntax::{Constant, Field, Id, Is, Loop, Tree};
use crate::types::{Selected, Type};
use crate::unify::Substitution;

/// How many nodes are visited. Some macros contain their target twice, and may stand in a row.
const MAX_VISITS: usize = 300_000;
/// More mistakes than that are not looked for; a hundred are shown.
const MAX_FOUND: usize = 10_000;
/// Nor are they where so many bytes say them: the names of types may be long, and no object holds as much.
pub(crate) const MAX_SAID: usize = 4 << 20;

/// What was found out of a tree.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The type of each node, by number.
    pub(crate) types: Vec<Type>,
    pub(crate) found: Vec<Found>,
}

/// What is next.
enum Task {
    Visit(Id),
    /// All that the node is made of has a type.
    Leave(Id),
    /// A loop's range and the beginning of its result have types.
    Enter(Id),
    /// So has its step.
    Stepped(Id),
    Looped(Id),
}

struct Checker<'a> {
    tree: &'a Tree,
    variables: &'a BTreeMap<String, Type>,
    functions: &'static Declarations,
    types: Vec<Type>,
    substitution: Substitution,
    /// The variables of loops, from the outside in.
    scopes: Vec<(&'a str, Type)>,
    found: Vec<Found>,
    tasks: Vec<Task>,
    visits: usize,
    /// The bytes of all messages.
    said: usize,
}

/// Checks a tree against the types of variables. How much work that was is added to `work`.
pub(crate) fn check(
    tree: &Tree,
    variables: &BTreeMap<String, Type>,
    work: &mut usize,
) -> Result<Outcome, Found> {
    let mut checker = Checker {
        tree,
        variables,
        functions: Declarations::kubernetes(),
        types: vec![Type::Dyn; tree.len()],
        substitution: Substitution::default(),
        scopes: Vec::new(),
        found: Vec::new(),
        tasks: vec![Task::Visit(tree.root)],
        visits: 0,
        said: 0,
    };
    let ended = checker.run();
    *work += checker.visits + checker.substitution.steps();
    ended?;
    let Checker { types, mut substitution, found, .. } = checker;
    let types = types.iter().map(|of| substitution.concrete(of)).collect();
    Ok(Outcome { types, found })
}

impl Checker<'_> {
    fn run(&mut self) -> Result<(), Found> {
        while let Some(task) = self.tasks.pop() {
            self.visits += 1;
            let spent = self.visits > MAX_VISITS || self.found.len() > MAX_FOUND || self.said > MAX_SAID;
            if spent || self.substitution.is_exhausted() {
                return Err(Found::limit(Limit::Steps, "the expression takes too many steps to check"));
            }
            match task {
                Task::Visit(id) => self.visit(id),
                Task::Leave(id) => {
                    let of = self.leave(id);
                    self.set(id, of);
                }
                Task::Enter(id) => self.enter(id),
                Task::Stepped(id) => self.stepped(id),
                Task::Looped(id) => {
                    if let Is::Loop(of) = &self.tree.node(id).is {
                        let result = self.resolved(of.result);
                        self.scopes.pop();
                        self.set(id, result);
                    }
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, id: Id, of: Type) {
        self.types[id as usize] = of;
    }

    fn type_of(&self, id: Id) -> Type {
        self.types[id as usize].clone()
    }

    fn resolved(&mut self, id: Id) -> Type {
        let of = self.type_of(id);
        self.substitution.resolved(&of)
    }

    fn complain(&mut self, id: Id, message: String) {
        self.complain_at(self.tree.node(id).at, message);
    }

    fn complain_at(&mut self, at: usize, message: String) {
        self.said += message.len();
        self.found.push(Found::types(at, message));
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.complain(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    /// Whether the types fit; says so where they do not.
    fn expect(&mut self, id: Id, wanted: &Type) -> bool {
        let given = self.type_of(id);
        let fits = self.substitution.fits(&given, wanted);
        if !fits {
            let (wanted, given) = (self.substitution.resolved(wanted), self.substitution.resolved(&given));
            self.complain(id, mismatch(&wanted, &given));
        }
        fits
    }

    /// What is next after these.
    fn after(&mut self, first: impl DoubleEndedIterator<Item = Id>, last: Task) {
        self.tasks.push(last);
        self.tasks.extend(first.rev().map(Task::Visit));
    }

    fn visit(&mut self, id: Id) {
        match &self.tree.node(id).is {
            Is::Constant(constant) => self.set(id, of_constant(constant)),
            Is::Name(name) => {
                let of = self.named(name);
                let of = of.unwrap_or_else(|| self.undeclared(id, name));
                self.set(id, of);
            }
            Is::Select { test: false, .. } if self.is_declared_name(id) => {}
            Is::Select { operand, .. } => self.after([*operand].into_iter(), Task::Leave(id)),
            Is::Call { function, target, arguments } => {
                let target = target.filter(|target| self.namespaced(function, Some(*target)).is_none());
                self.after(arguments.iter().copied().chain(target), Task::Leave(id));
            }
            Is::List(_) | Is::Map(_) | Is::Message { .. } => {
                self.after(self.tree.children(id).into_iter(), Task::Leave(id));
            }
            Is::Loop(of) => self.after([of.range, of.initial].into_iter(), Task::Enter(id)),
        }
    }

    fn leave(&mut self, id: Id) -> Type {
        match &self.tree.node(id).is {
            Is::Select { operand, field, test } => {
                let of = self.select(id, *operand, field, false);
                if *test { Type::Bool } else { of }
            }
            Is::Call { function, target, arguments } => self.call(id, function, *target, arguments),
            Is::List(elements) => {
                let mut joined = None;
                for element in elements {
                    let of = self.element(element.of, element.optional);
                    joined = Some(self.substitution.joined(joined, of));
                }
                Type::list(joined.unwrap_or_else(|| self.substitution.fresh()))
            }
            Is::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (key, value) in entries {
                    let of = self.type_of(*key);
                    keys = Some(self.substitution.joined(keys, of));
                    let of = self.element(value.of, value.optional);
                    values = Some(self.substitution.joined(values, of));
                }
                let key = keys.unwrap_or_else(|| self.substitution.fresh());
                Type::map(key, values.unwrap_or_else(|| self.substitution.fresh()))
            }
            Is::Message { name, fields } => self.message(id, name, fields),
            Is::Constant(_) | Is::Name(_) | Is::Loop(_) => self.type_of(id),
        }
    }

    fn message(&mut self, id: Id, name: &str, fields: &[Field]) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        let declared = self.variables.values().find_map(|of| of.declared(name)).cloned();
        let of = match &declared {
            Some(object) => Type::Object(Arc::clone(object)),
            None => match declarations::type_of_message(name) {
                Some(of) => of,
                None if declarations::type_of_name(name).is_some() => {
                    self.complain(id, format!("'{name}' is not a message type"));
                    return Type::Error;
                }
                None => return self.undeclared(id, name),
            },
        };
        for field in fields {
            let given = self.element(field.value.of, field.value.optional);
            let wanted = match declared.as_ref().map(|object| object.select(&field.name)) {
                Some(Selected::Field(of)) => Some(of),
                Some(Selected::Undefined | Selected::Unresolved) => None,
                None => declarations::type_of_field(name, &field.name),
            };
            let Some(wanted) = wanted else {
                self.complain_at(field.at, format!("undefined field '{}'", field.name));
                continue;
            };
            if !self.substitution.fits(&given, &wanted) {
                let given = self.substitution.resolved(&given);
                let wanted = format!("expected type of field '{}' is '{wanted}'", field.name);
                self.complain_at(field.at, format!("{wanted} but provided type is '{given}'"));
            }
        }
        of
    }

    /// The type that an element gives to its list, or a value to its map.
    fn element(&mut self, id: Id, optional: bool) -> Type {
        let of = self.type_of(id);
        if !optional {
            return of;
        }
        let of = self.substitution.resolved(&of);
        if let Some(value) = of.optional_value() {
            return value.clone();
        }
        if !of.is_dyn_or_error() {
            let wanted = Type::optional(of.clone());
            self.complain(id, mismatch(&wanted, &of));
        }
        of
    }

    fn named(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(local, _)| *local == name).map(|(_, of)| of);
        let variable = local.or_else(|| self.variables.get(name)).cloned();
        variable.or_else(|| declarations::type_of_name(name))
    }

    /// Whether the node is a name with dots that is declared, as that of a type; sets its type.
    fn is_declared_name(&mut self, id: Id) -> bool {
        let Some(name) = self.tree.qualified_name(id) else { return false };
        match self.named(&name) {
            Some(of) => {
                self.set(id, of);
                true
            }
            None => false,
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, optional: bool) -> Type {
        let whole = self.resolved(operand);
        let (of, optional) = match whole.optional_value() {
            Some(value) => (value.clone(), true),
            None => (whole.clone(), optional),
        };
        let found = match &of {
            Type::Error | Type::Dyn => Type::Dyn,
            Type::Map(map) => map.1.clone(),
            Type::Parameter(_) => {
                self.substitution.fits(&Type::Dyn, &of);
                Type::Dyn
            }
            Type::Object(object) => match object.select(field) {
                Selected::Field(of) => of,
                Selected::Undefined => {
                    self.complain(id, format!("undefined field '{field}'"));
                    Type::Error
                }
                Selected::Unresolved => {
                    self.complain(id, format!("unexpected failed resolution of '{}'", object.name()));
                    Type::Error
                }
            },
            _ => {
                self.complain(id, format!("type '{of}' does not support field selection"));
                Type::Dyn
            }
        };
        if optional { Type::optional(found) } else { found }
    }

    /// Goes into a loop: its variables have types.
    fn enter(&mut self, id: Id) {
        let Is::Loop(of) = &self.tree.node(id).is else { return };
        let (first, second) = self.elements_of(of);
        let initial = self.type_of(of.initial);
        self.scopes.push((&of.result_variable, initial));
        self.scopes.push((&of.variable, first));
        if let Some(name) = &of.second {
            self.scopes.push((name, second));
        }
        self.after([of.condition, of.step].into_iter(), Task::Stepped(id));
    }

    /// The types of a loop's variables.
    fn elements_of(&mut self, of: &Loop) -> (Type, Type) {
        let two = of.second.is_some();
        match self.resolved(of.range) {
            Type::List(element) if two => (Type::Int, (*element).clone()),
            Type::List(element) => ((*element).clone(), Type::Dyn),
            Type::Map(map) => (map.0.clone(), map.1.clone()),
            range @ (Type::Dyn | Type::Error | Type::Parameter(_)) => {
                self.substitution.fits(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            range => {
                let must = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.complain(of.range, format!("expression of type '{range}' {must}"));
                (Type::Error, Type::Error)
            }
        }
    }

    fn stepped(&mut self, id: Id) {
        let Is::Loop(of) = &self.tree.node(id).is else { return };
        self.expect(of.condition, &Type::Bool);
        let initial = self.type_of(of.initial);
        self.expect(of.step, &initial);
        self.scopes.truncate(self.scopes.len() - 1 - usize::from(of.second.is_some()));
        self.after([of.result].into_iter(), Task::Looped(id));
    }
}

fn of_constant(constant: &Constant) -> Type {
    match constant {
        Constant::Null => Type::Null,
        Constant::Bool => Type::Bool,
        Constant::Int => Type::Int,
        Constant::Uint => Type::Uint,
        Constant::Double => Type::Double,
        Constant::Bytes => Type::Bytes,
        Constant::String(_) => Type::String,
    }
}

pub(crate) fn mismatch(wanted: &Type, given: &Type) -> String {
    format!("expected type '{wanted}' but found '{given}'")
}
