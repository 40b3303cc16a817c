//! What an expression may name: variables and their types, functions and macros.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::report::{Found, Issues};
use crate::syntax::Tree;
use crate::types::Type;
use crate::{checker, literals};

/// The variables that are declared beside the functions of CEL's standard library and of Kubernetes' libraries.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, Type>,
    plain: bool,
}

impl Environment {
    /// What expressions that Kubernetes 1.36 stores may use, without any variable.
    pub fn kubernetes() -> Self {
        Self::default()
    }

    /// Without what Kubernetes demands of literals beyond the specification: elements of one type, and formats that fit.
    pub fn without_rules_of_literals(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Declares a variable; its name may have dots. A later declaration of the same name replaces the earlier.
    pub fn declare(&mut self, name: &str, of: Type) {
        self.variables.insert(name.to_owned(), of);
    }

    /// Adds a field to a variable that is an object of declared fields.
    pub(crate) fn declare_field(&mut self, variable: &str, field: &str, of: Type) {
        if let Some(Type::Object(object)) = self.variables.get_mut(variable) {
            Arc::make_mut(object).add(field, of);
        }
    }

    /// The type of an expression, or what is wrong with it.
    pub fn check(&self, expression: &str) -> Result<Type, Issues> {
        self.check_counted(expression, &mut 0)
    }

    /// The same. How much work it was is added to `work`.
    pub(crate) fn check_counted(&self, expression: &str, work: &mut usize) -> Result<Type, Issues> {
        *work += expression.len();
        self.checked(expression, work).map_err(|found| Issues::new(expression, found))
    }

    fn checked(&self, expression: &str, work: &mut usize) -> Result<Type, Vec<Found>> {
        let tree = Tree::parse(expression).map_err(|found| vec![found])?;
        let outcome = checker::check(&tree, &self.variables, work).map_err(|found| vec![found])?;
        if !outcome.found.is_empty() {
            return Err(outcome.found);
        }
        if !self.plain {
            let found = literals::check(&tree, &outcome.types).map_err(|found| vec![found])?;
            if !found.is_empty() {
                return Err(found);
            }
        }
        Ok(outcome.types.get(tree.root as usize).cloned().unwrap_or(Type::Dyn))
    }
}
