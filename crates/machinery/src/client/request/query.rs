//! Queries: pairs, which the client encodes, and field selectors, whose values are escaped.

use std::borrow::Cow;
use std::fmt;

use crate::wire::text::raw_bytes;

/// The query of a request: pairs in their order.
#[derive(Clone, Debug, Default)]
pub struct Query<'a>(Vec<(&'static str, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// No pairs.
    pub const NONE: &'static Query<'static> = &Query(Vec::new());

    /// The query with one more pair.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// The query with one more pair, if there is a value.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Cow<'a, str>>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Bytes of the encoded query when nothing in it has to be encoded.
    pub(super) fn length(&self) -> usize {
        self.0.iter().map(|(name, value)| 2 + name.len() + value.len()).sum()
    }

    /// Appends `?` and the pairs to `out`; nothing if there are none.
    pub(super) fn encode(&self, out: &mut String) {
        for (at, (name, value)) in self.0.iter().enumerate() {
            out.push(if at == 0 { '?' } else { '&' });
            out.extend(form_urlencoded::byte_serialize(name.as_bytes()));
            out.push('=');
            out.extend(form_urlencoded::byte_serialize(&raw_bytes(value)));
        }
    }
}

/// A field selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldSelector(Cow<'static, str>);

impl FieldSelector {
    /// A selector that is written in the program.
    pub const fn fixed(selector: &'static str) -> Self {
        Self(Cow::Borrowed(selector))
    }

    /// Selects the object of this name.
    pub fn name(name: &str) -> Self {
        Self::equals("metadata.name", name)
    }

    /// Selects objects whose `field` has this value. `\`, `,` and `=` are escaped in it, as the API server expects.
    pub fn equals(field: &'static str, value: &str) -> Self {
        let mut selector = String::with_capacity(field.len() + 1 + value.len());
        selector.push_str(field);
        selector.push('=');
        for character in value.chars() {
            if matches!(character, '\\' | ',' | '=') {
                selector.push('\\');
            }
            selector.push(character);
        }
        Self(Cow::Owned(selector))
    }

    /// Selects the objects that both selectors select.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(Cow::Owned(format!("{self},{other}")))
    }

    /// The selector's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
