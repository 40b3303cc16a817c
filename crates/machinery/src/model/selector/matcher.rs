//! [`Matcher`]: the form of a selector in which a match takes time by the object's labels, not by the selector's length.

use std::collections::BTreeMap;

use super::{Requirement, SelectorError, Test, Values};
use crate::api::meta::LabelSelectorRequirement;
use crate::wire::{Labels, Str};

/// Requirements merged by key: `In` and `Exists` of a key, and `NotIn` and `DoesNotExist` of a key, are one entry each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Labels that an object must have, by key.
    needed: Box<[Entry]>,
    /// Labels that an object must not have, by key.
    refused: Box<[Entry]>,
    /// Comparisons of numbers, which only a selector in a text can contain.
    compared: Box<[Requirement]>,
}

/// A label with one of some values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: Str,
    /// `None` for any value.
    values: Option<Values>,
}

impl Entry {
    fn includes(&self, value: &Str) -> bool {
        self.values.as_ref().is_none_or(|values| values.contain(value))
    }
}

impl Matcher {
    /// Compiles the expressions of a label selector.
    ///
    /// # Errors
    /// See [`Selector::compile`](super::Selector::compile).
    pub fn compile(expressions: &[LabelSelectorRequirement]) -> Result<Self, SelectorError> {
        let requirements = expressions.iter().map(Requirement::of).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(requirements))
    }

    pub(super) fn new(requirements: Vec<Requirement>) -> Self {
        let mut needed = BTreeMap::<Str, Option<Values>>::new();
        let mut refused = BTreeMap::<Str, Option<Vec<Str>>>::new();
        let mut compared = Vec::new();
        for Requirement { key, test } in requirements {
            match test {
                Test::Exists => {
                    needed.entry(key).or_default();
                }
                Test::In(values) => {
                    let all = needed.entry(key).or_default();
                    *all = Some(match all.take() {
                        Some(held) => held.intersection(values),
                        None => values,
                    });
                }
                Test::DoesNotExist => {
                    refused.insert(key, None);
                }
                Test::NotIn(values) => {
                    if let Some(all) = refused.entry(key).or_insert_with(|| Some(Vec::new())) {
                        all.extend(values.0.into_vec());
                    }
                }
                test @ (Test::GreaterThan(_) | Test::LessThan(_)) => compared.push(Requirement { key, test }),
            }
        }
        let refused = refused.into_iter().map(|(key, values)| (key, values.map(Values::from_iter)));
        let entry = |(key, values)| Entry { key, values };
        Self {
            needed: needed.into_iter().map(entry).collect(),
            refused: refused.map(entry).collect(),
            compared: compared.into(),
        }
    }

    /// Whether `labels` satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        // Ends at the first label that is absent.
        let has_needed = self
            .needed
            .iter()
            .all(|needed| labels.value_of(&needed.key).is_some_and(|value| needed.includes(value)));
        has_needed && !self.refuses(labels) && self.compared.iter().all(|compared| compared.is_met(labels))
    }

    /// Whether there is a label that an object must not have. Walks over the shorter of the two lists.
    fn refuses(&self, labels: &Labels) -> bool {
        if self.refused.len() < labels.len() {
            return self
                .refused
                .iter()
                .any(|refused| labels.value_of(&refused.key).is_some_and(|value| refused.includes(value)));
        }
        labels.iter().any(|(key, value)| {
            let at = self.refused.binary_search_by(|refused| refused.key.cmp(key)).ok();
            at.and_then(|at| self.refused.get(at)).is_some_and(|refused| refused.includes(value))
        })
    }
}
