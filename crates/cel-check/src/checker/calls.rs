//! Which overload of a function a call means, and what it yields.

use super::Checker;
use crate::declarations::Overload;
use crate::syntax::{Constant, Id, Is};
use crate::types::{self, Type};

impl Checker<'_> {
    /// The name of a function that is in a namespace, as `sets.contains`, where the call is one of such.
    pub(super) fn namespaced(&self, function: &str, target: Option<Id>) -> Option<String> {
        let name = self.tree.qualified_name(target?)?;
        let name = name.strip_prefix('.').unwrap_or(&name);
        let name = format!("{name}.{function}");
        self.functions.function(&name).is_some().then_some(name)
    }

    pub(super) fn call(&mut self, id: Id, function: &str, target: Option<Id>, arguments: &[Id]) -> Type {
        if let ("_?._", [operand, field]) = (function, arguments)
            && let Is::Constant(Constant::String(field)) = &self.tree.node(*field).is
        {
            return self.select(id, *operand, field, true);
        }
        if let "_&&_" | "_||_" = function {
            let mut fit = true;
            for argument in arguments {
                fit &= self.expect(*argument, &Type::Bool);
            }
            return if fit { Type::Bool } else { Type::Error };
        }
        let namespaced = self.namespaced(function, target);
        let (name, target) = match &namespaced {
            Some(name) => (name.as_str(), None),
            None => (function, target),
        };
        let Some(overloads) = self.functions.function(name) else { return self.undeclared(id, name) };
        let given: Vec<Type> =
            target.iter().chain(arguments).map(|argument| self.type_of(*argument)).collect();
        self.resolve(overloads, target.is_some(), &given).unwrap_or_else(|| {
            let given: Vec<Type> = given.iter().map(|of| self.substitution.concrete(of)).collect();
            let signature = signature(&given, target.is_some());
            self.complain(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
            Type::Error
        })
    }

    /// What a call yields by all overloads that fit: dyn, where they do not agree.
    fn resolve(&mut self, overloads: &[Overload], method: bool, given: &[Type]) -> Option<Type> {
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.method == method) {
            let own = self.substitution.instantiate(overload.parameters);
            let wanted: Vec<Type> = overload.arguments.iter().map(own).collect();
            if self.substitution.all_fit(given, &wanted) {
                let of = self.substitution.resolved(&own(&overload.result));
                result = Some(match result {
                    Some(before) if before != of => Type::Dyn,
                    _ => of,
                });
            }
        }
        result
    }
}

fn signature(given: &[Type], method: bool) -> String {
    let mut written = String::new();
    let arguments = match given.split_first().filter(|_| method) {
        Some((target, arguments)) => {
            written = format!("{target}.");
            arguments
        }
        None => given,
    };
    written.push('(');
    // Writing to a string does not fail.
    let _ = types::write_list(&mut written, arguments);
    written.push(')');
    written
}
