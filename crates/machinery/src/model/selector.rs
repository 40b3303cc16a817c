//! Label selectors, compiled once and matched often.
//!
//! See "Labels and Selectors" in the Kubernetes documentation.

use std::fmt;

use crate::api::meta::LabelSelector;
use crate::wire::{Labels, Str};

/// A compiled label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: Str,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<Str>),
    NotIn(Vec<Str>),
    Exists,
    DoesNotExist,
}

/// A selector that the API server should have refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector: {0}")]
pub struct SelectorError(String);

impl Selector {
    /// Compiles a selector. An empty one selects everything, as in `metav1.LabelSelector`.
    pub fn compile(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let exact = selector
            .match_labels
            .iter()
            .map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        let mut requirements: Vec<_> = exact.collect();
        for expression in &selector.match_expressions {
            let values = expression.values.clone();
            let test = match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Test::In(values),
                ("NotIn", false) => Test::NotIn(values),
                ("Exists", true) => Test::Exists,
                ("DoesNotExist", true) => Test::DoesNotExist,
                ("In" | "NotIn", true) => {
                    return Err(SelectorError(format!(
                        "operator {} on key {:?} needs values",
                        expression.operator, expression.key
                    )));
                }
                ("Exists" | "DoesNotExist", false) => {
                    return Err(SelectorError(format!(
                        "operator {} on key {:?} takes no values",
                        expression.operator, expression.key
                    )));
                }
                (other, _) => {
                    return Err(SelectorError(format!(
                        "operator {other:?} on key {:?} is none of In, NotIn, Exists, DoesNotExist",
                        expression.key
                    )));
                }
            };
            requirements.push(Requirement { key: expression.key.clone(), test });
        }
        Ok(Self { requirements })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether `labels` satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.value_of(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl fmt::Display for Selector {
    /// The form that kubectl's `-l` takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let list = |values: &[Str]| values.iter().map(Str::as_str).collect::<Vec<_>>().join(",");
            match test {
                Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Test::In(values) => write!(f, "{key} in ({})", list(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Test::Exists => write!(f, "{key}")?,
                Test::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}
