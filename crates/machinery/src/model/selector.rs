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
    In(Values),
    NotIn(Values),
    Exists,
    DoesNotExist,
}

/// Values in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values(Box<[Str]>);

impl Values {
    fn contain(&self, value: &Str) -> bool {
        self.0.binary_search(value).is_ok()
    }
}

impl FromIterator<Str> for Values {
    fn from_iter<I: IntoIterator<Item = Str>>(values: I) -> Self {
        let mut values: Vec<Str> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self(values.into())
    }
}

/// A selector that the API server should have refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector: {0}")]
pub struct SelectorError(String);

impl Selector {
    /// Compiles a selector. An empty one selects everything, as in `metav1.LabelSelector`.
    pub fn compile(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let exact = selector.match_labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            test: Test::In(Values::from_iter([value.clone()])),
        });
        let mut requirements: Vec<_> = exact.collect();
        for expression in &selector.match_expressions {
            let values = || expression.values.iter().cloned().collect();
            let test = match (expression.operator.as_str(), expression.values.is_empty()) {
                ("In", false) => Test::In(values()),
                ("NotIn", false) => Test::NotIn(values()),
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

    /// Compiles a selector that is written as text, as in the status of a scale: `app=web,tier in (a,b),!old`. An empty one
    /// selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut rest = text.trim();
        let mut requirements = Vec::new();
        while !rest.is_empty() {
            let (requirement, after) = requirement(rest)?;
            requirements.push(requirement);
            rest = match after.trim_start() {
                "" => "",
                more => {
                    let next = more.strip_prefix(',').map(str::trim_start).filter(|next| !next.is_empty());
                    next.ok_or_else(|| unreadable(more))?
                }
            };
        }
        Ok(Self { requirements })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Labels that everything has which it selects; there may be others.
    pub fn common(&self) -> impl Iterator<Item = (&Str, &Str)> {
        self.requirements.iter().filter_map(|requirement| match &requirement.test {
            Test::In(values) => {
                <&[Str; 1]>::try_from(&*values.0).ok().map(|[value]| (&requirement.key, value))
            }
            _ => None,
        })
    }

    /// Whether `labels` satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.value_of(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.contain(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contain(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// The first requirement of a selector's text, and what is behind it.
fn requirement(text: &str) -> Result<(Requirement, &str), SelectorError> {
    if let Some(absent) = text.strip_prefix('!') {
        let (key, rest) = word(absent.trim_start())?;
        return Ok((Requirement { key: key.into(), test: Test::DoesNotExist }, rest));
    }
    let (key, rest) = word(text)?;
    let rest = rest.trim_start();
    let (test, rest) = if let Some(rest) = rest.strip_prefix("!=") {
        let (value, rest) = value(rest);
        (Test::NotIn(Values::from_iter([value.into()])), rest)
    } else if let Some(rest) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        let (value, rest) = value(rest);
        (Test::In(Values::from_iter([value.into()])), rest)
    } else if let Some(values) = rest.strip_prefix("in").and_then(listed) {
        let (values, rest) = values?;
        (Test::In(values), rest)
    } else if let Some(values) = rest.strip_prefix("notin").and_then(listed) {
        let (values, rest) = values?;
        (Test::NotIn(values), rest)
    } else {
        (Test::Exists, rest)
    };
    Ok((Requirement { key: key.into(), test }, rest))
}

/// The values in parentheses behind an operator, and what is behind them; `None` if it is no operator.
fn listed(text: &str) -> Option<Result<(Values, &str), SelectorError>> {
    let inner = text.trim_start().strip_prefix('(')?;
    let Some((values, rest)) = inner.split_once(')') else { return Some(Err(unreadable(text))) };
    Some(Ok((values.split(',').map(|value| Str::from(value.trim())).collect(), rest)))
}

/// A label's key, and what is behind it.
fn word(text: &str) -> Result<(&str, &str), SelectorError> {
    let (word, rest) = value(text);
    if word.is_empty() { Err(unreadable(text)) } else { Ok((word, rest)) }
}

/// A label's value, which may be empty, and what is behind it.
fn value(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(
        text.find(|char: char| char.is_whitespace() || "=!,()<>".contains(char)).unwrap_or(text.len()),
    )
}

fn unreadable(text: &str) -> SelectorError {
    SelectorError(format!("{text:?} is no requirement"))
}

impl fmt::Display for Selector {
    /// The form that kubectl's `-l` takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let list = |values: &Values| values.0.iter().map(Str::as_str).collect::<Vec<_>>().join(",");
            match test {
                Test::In(values) if values.0.len() == 1 => write!(f, "{key}={}", values.0[0])?,
                Test::In(values) => write!(f, "{key} in ({})", list(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Test::Exists => write!(f, "{key}")?,
                Test::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_compiled_and_written_again() {
        for (text, again) in [
            ("", ""),
            ("app=web", "app=web"),
            (" app == web , tier in (a, b) ,!old,x notin (c)", "app=web,tier in (a,b),!old,x notin (c)"),
            ("app!=web", "app notin (web)"),
            ("example.com/a.b_c-d", "example.com/a.b_c-d"),
            ("inner=notin", "inner=notin"),
            ("empty=,rest", "empty=,rest"),
        ] {
            assert_eq!(Selector::parse(text).map(|held| held.to_string()).as_deref(), Ok(again), "{text}");
        }
        for text in ["=web", "app=web,", "app in (a", "app web", "app>1", ",", "!", "app=web)", "(", "a,,b"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_in_a_list_matches_where_the_label_is_absent() {
        let labels: Labels = [("app", "web")].into_iter().collect();
        for (text, matches) in [
            ("app", true),
            ("!app", false),
            ("app!=db", true),
            ("tier!=a", true),
            ("tier", false),
            ("app in (web,db)", true),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(&labels), matches, "{text}");
        }
    }
}
