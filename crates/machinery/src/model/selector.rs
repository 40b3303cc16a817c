//! Label selectors, compiled once and matched often.
//!
//! See "Labels and Selectors" in the Kubernetes documentation.

use std::fmt;

use super::names::{is_label_key, is_label_value};
use crate::api::meta::{LabelSelector, LabelSelectorRequirement};
use crate::wire::{Labels, Str};

mod matcher;

pub use matcher::Matcher;

/// Requirements that are matched one by one. A longer selector is matched by its [`Matcher`].
const FEW: usize = 8;

/// A compiled label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// In the order in which they are written.
    requirements: Vec<Requirement>,
    /// The same requirements, if there are more than [`FEW`].
    matcher: Option<Box<Matcher>>,
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
    GreaterThan(i64),
    LessThan(i64),
}

/// Values in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values(Box<[Str]>);

impl Values {
    fn contain(&self, value: &Str) -> bool {
        self.0.binary_search(value).is_ok()
    }

    /// The values that are in both. Takes time by the shorter of the two.
    fn intersection(self, other: Self) -> Self {
        let (short, long) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        Self(short.0.into_vec().into_iter().filter(|value| long.contain(value)).collect())
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

impl Requirement {
    /// # Errors
    /// A key or value is not valid for a label.
    fn new(key: Str, test: Test) -> Result<Self, SelectorError> {
        if !is_label_key(&key) {
            return Err(SelectorError(format!("invalid label key {key:?}")));
        }
        if let Test::In(values) | Test::NotIn(values) = &test
            && let Some(value) = values.0.iter().find(|value| !is_label_value(value))
        {
            return Err(SelectorError(format!("invalid label value {value:?}")));
        }
        Ok(Self { key, test })
    }

    /// Compiles an expression of a label selector.
    ///
    /// # Errors
    /// See [`Selector::compile`].
    fn of(expression: &LabelSelectorRequirement) -> Result<Self, SelectorError> {
        #[cfg(test)]
        COMPILED.set(COMPILED.get() + 1);
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
                    "invalid operator {other:?} on key {:?}; allowed: In, NotIn, Exists, DoesNotExist",
                    expression.key
                )));
            }
        };
        Self::new(expression.key.clone(), test)
    }

    /// Whether `labels` satisfy it.
    fn is_met(&self, labels: &Labels) -> bool {
        let value = labels.value_of(&self.key);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contain(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contain(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(least) => number(value).is_some_and(|value| value > *least),
            Test::LessThan(most) => number(value).is_some_and(|value| value < *most),
        }
    }
}

impl Selector {
    fn of(requirements: Vec<Requirement>) -> Self {
        let is_long = requirements.len() > FEW;
        let matcher = is_long.then(|| Box::new(Matcher::new(requirements.clone())));
        Self { requirements, matcher }
    }

    /// Compiles a selector. An empty one selects everything, as in `metav1.LabelSelector`.
    ///
    /// # Errors
    /// An operator is unknown or has the wrong number of values, or a key or value is not valid for a label.
    pub fn compile(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let exact = selector
            .match_labels
            .iter()
            .map(|(key, value)| Requirement::new(key.clone(), Test::In(Values::from_iter([value.clone()]))));
        let mut requirements = exact.collect::<Result<Vec<_>, _>>()?;
        for expression in &selector.match_expressions {
            requirements.push(Requirement::of(expression)?);
        }
        Ok(Self::of(requirements))
    }

    /// Compiles a selector that is written as text, as in the status of a scale: `app=web,tier in (a,b),!old,size>3`. An empty one
    /// selects everything.
    ///
    /// # Errors
    /// The text does not follow the grammar, or a key or value is not valid for a label.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut tokens = Tokens(text);
        let mut requirements = Vec::new();
        if tokens.clone().next() == Token::End {
            return Ok(Self::of(requirements));
        }
        loop {
            requirements.push(tokens.requirement()?);
            match tokens.next() {
                Token::End => return Ok(Self::of(requirements)),
                Token::Comma => {}
                other => return Err(unexpected(other)),
            }
        }
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
        match &self.matcher {
            Some(matcher) => matcher.matches(labels),
            None => self.requirements.iter().all(|requirement| requirement.is_met(labels)),
        }
    }
}

/// The number in a label's value. A value that is no number satisfies no comparison.
fn number(value: Option<&Str>) -> Option<i64> {
    value?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Open,
    Close,
    Comma,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
    End,
}

/// The rest of a selector's text.
#[derive(Clone)]
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Token<'a> {
        const SYMBOLS: [(&str, Token<'_>); 9] = [
            ("==", Token::Equal),
            ("=", Token::Equal),
            ("!=", Token::NotEqual),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
            (">", Token::Greater),
            ("<", Token::Less),
        ];
        let is_space = |char: char| matches!(char, ' ' | '\t' | '\r' | '\n');
        let text = self.0.trim_start_matches(is_space);
        // Kubernetes ends the text at a NUL, and skips a NUL directly behind another token.
        let without_nul = |rest: &'a str| rest.strip_prefix('\0').unwrap_or(rest);
        if text.starts_with('\0') {
            self.0 = "";
            return Token::End;
        }
        for (symbol, token) in SYMBOLS {
            if let Some(rest) = text.strip_prefix(symbol) {
                self.0 = without_nul(rest);
                return token;
            }
        }
        let end = text.find(|char| is_space(char) || "=!(),><\0".contains(char)).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = without_nul(rest);
        if word.is_empty() { Token::End } else { Token::Word(word) }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let key = match self.next() {
            Token::Not => {
                let key = self.word()?;
                return Requirement::new(key.into(), Test::DoesNotExist);
            }
            Token::Word(key) => key,
            other => return Err(unexpected(other)),
        };
        let mut after = self.clone();
        let test = match after.next() {
            Token::End | Token::Comma => return Requirement::new(key.into(), Test::Exists),
            Token::Word("in") => Test::In(after.values()?),
            Token::Word("notin") => Test::NotIn(after.values()?),
            Token::Equal => Test::In(Values::from_iter([after.value()])),
            Token::NotEqual => Test::NotIn(Values::from_iter([after.value()])),
            Token::Greater => Test::GreaterThan(after.number()?),
            Token::Less => Test::LessThan(after.number()?),
            other => return Err(unexpected(other)),
        };
        *self = after;
        Requirement::new(key.into(), test)
    }

    fn word(&mut self) -> Result<&'a str, SelectorError> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(unexpected(other)),
        }
    }

    /// A value, which may be empty. An empty value consumes no token.
    fn value(&mut self) -> Str {
        let mut after = self.clone();
        let Token::Word(value) = after.next() else { return Str::default() };
        *self = after;
        value.into()
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let word = self.word()?;
        // Label values cannot contain a sign.
        let number = word.parse().ok().filter(|_| is_label_value(word));
        number.ok_or_else(|| SelectorError(format!("{word:?} is not an integer")))
    }

    /// Values in parentheses.
    fn values(&mut self) -> Result<Values, SelectorError> {
        match self.next() {
            Token::Open => {}
            other => return Err(unexpected(other)),
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value());
            match self.next() {
                Token::Comma => {}
                Token::Close => return Ok(values.into_iter().collect()),
                other => return Err(unexpected(other)),
            }
        }
    }
}

fn unexpected(token: Token<'_>) -> SelectorError {
    let text = match token {
        Token::End => return SelectorError("unexpected end".to_owned()),
        Token::Word(word) => word,
        Token::Open => "(",
        Token::Close => ")",
        Token::Comma => ",",
        Token::Not => "!",
        Token::Equal => "=",
        Token::NotEqual => "!=",
        Token::Greater => ">",
        Token::Less => "<",
    };
    SelectorError(format!("unexpected {text:?}"))
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
                Test::GreaterThan(least) => write!(f, "{key}>{least}")?,
                Test::LessThan(most) => write!(f, "{key}<{most}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
thread_local! {
    /// Expressions that this thread has compiled.
    pub(crate) static COMPILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
