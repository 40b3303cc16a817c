//! [`Expressions`]: the set expressions of a label selector, compiled once for each object.

use std::fmt;
use std::sync::OnceLock;

use super::meta::LabelSelectorRequirement;
use crate::model::selector::Matcher;
use crate::wire::{Field, Labels, MessageRow, RawField, Source, Value, WireError};

/// The set expressions of a label selector: one word as long as there are none. The first match compiles them; the compiled form lives
/// as long as the object.
#[derive(Clone, Default)]
pub struct Expressions(Option<Box<List>>);

#[derive(Clone, Default)]
struct List {
    items: Vec<LabelSelectorRequirement>,
    /// `None` if an expression is invalid.
    matcher: OnceLock<Option<Box<Matcher>>>,
}

impl Expressions {
    /// Each expression.
    pub fn iter(&self) -> std::slice::Iter<'_, LabelSelectorRequirement> {
        self.as_slice().iter()
    }

    /// All expressions.
    pub fn as_slice(&self) -> &[LabelSelectorRequirement] {
        self.0.as_ref().map_or(&[], |list| list.items.as_slice())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Whether all expressions are valid and `labels` satisfy them. No expression at all matches everything.
    pub fn matches(&self, labels: &Labels) -> bool {
        let Some(list) = &self.0 else { return true };
        let matcher = list.matcher.get_or_init(|| Matcher::compile(&list.items).ok().map(Box::new));
        matcher.as_ref().is_some_and(|matcher| matcher.matches(labels))
    }
}

impl From<Vec<LabelSelectorRequirement>> for Expressions {
    fn from(items: Vec<LabelSelectorRequirement>) -> Self {
        Self((!items.is_empty()).then(|| Box::new(List { items, matcher: OnceLock::new() })))
    }
}

impl<'a> IntoIterator for &'a Expressions {
    type Item = &'a LabelSelectorRequirement;
    type IntoIter = std::slice::Iter<'a, LabelSelectorRequirement>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Expressions {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl fmt::Debug for Expressions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Field for Expressions {
    const MESSAGE: Option<&'static MessageRow> = <Vec<LabelSelectorRequirement> as Field>::MESSAGE;

    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let list = self.0.get_or_insert_default();
        list.matcher = OnceLock::new();
        list.items.merge(value, source)
    }

    fn copy_value(field: RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        <Vec<LabelSelectorRequirement> as Field>::copy_value(field, out)
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(list) = &self.0 {
            list.items.encode(number, out);
        }
    }

    fn finish(&mut self, source: Source<'_>) -> Result<(), WireError> {
        self.0.as_mut().map_or(Ok(()), |list| list.items.finish(source))
    }
}
