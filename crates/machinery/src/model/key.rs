//! What a work queue holds: the namespace and name of an object, and where that does not tell keys apart a part of it.

use std::fmt;
use std::str::FromStr;

use arcstr::ArcStr;

use crate::api::meta::ObjectMeta;
use crate::wire::Str;

/// Namespace and name; the namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// One pointer, nothing with most keys: millions of them are queued.
    part: Option<ArcStr>,
}

impl Key {
    /// The key of nothing: that of a loop which has only one.
    pub const EMPTY: Self = Self { namespace: Str::EMPTY, name: Str::EMPTY, part: None };

    /// The key of `namespace` and `name`.
    pub fn new(namespace: impl Into<Str>, name: impl Into<Str>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), part: None }
    }

    /// The key of an object.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self { namespace: meta.namespace.clone(), name: meta.name.clone(), part: None }
    }

    /// The key of something about the object of this one: a UID that it had, a driver, a reference in it. Listers find the
    /// object by it; queues tell it from the object's own and from those of other parts. An empty part is none.
    #[must_use]
    pub fn with_part(self, part: &str) -> Self {
        Self { part: (!part.is_empty()).then(|| ArcStr::from(part)), ..self }
    }

    /// What about the object it is the key of, if not of all.
    pub fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }

    /// The name, with the part after a slash if there is one.
    pub fn name_and_part(&self) -> String {
        match &self.part {
            Some(part) => format!("{}/{part}", self.name),
            None => self.name.to_string(),
        }
    }
}

impl fmt::Display for Key {
    /// `namespace/name`, or `name` for a cluster-scoped object; with a part `namespace/name/part`, or `/name/part`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() || self.part.is_some() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}", self.name)?;
        match &self.part {
            Some(part) => write!(f, "/{part}"),
            None => Ok(()),
        }
    }
}

/// A text is not `name`, `namespace/name`, `namespace/name/part` or `/name/part`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an object key; expected NAME or NAMESPACE/NAME")]
pub struct ParseKeyError(String);

impl FromStr for Key {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut fields = text.splitn(3, '/');
        let key = match (fields.next(), fields.next(), fields.next()) {
            (Some(name), None, None) => Self::new("", name),
            (Some(namespace), Some(name), None) if !namespace.is_empty() => Self::new(namespace, name),
            (Some(namespace), Some(name), Some(part)) if !part.is_empty() => {
                Self::new(namespace, name).with_part(part)
            }
            _ => return Err(ParseKeyError(text.to_owned())),
        };
        if key.name.is_empty() { Err(ParseKeyError(text.to_owned())) } else { Ok(key) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_five_words() {
        assert_eq!(size_of::<Key>(), 5 * size_of::<usize>());
    }

    #[test]
    fn parts_tell_keys_of_one_object_apart() {
        let own = Key::new("ns", "claim");
        let driver = own.clone().with_part("driver-a");
        assert!(own != driver && driver != own.clone().with_part("driver-b"));
        assert_eq!(driver, own.clone().with_part("driver-a"));
        assert_eq!((own.part(), driver.part()), (None, Some("driver-a")));
        assert_eq!((own.name_and_part(), driver.name_and_part()), ("claim".into(), "claim/driver-a".into()));
        assert_eq!(driver.with_part(""), own);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "/", "ns/", "/name", "ns/name/", "//part", "ns//part"] {
            assert_eq!(text.parse::<Key>(), Err(ParseKeyError(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_is_shown(namespace in "[a-z]{0,3}", name in "[a-z]{1,3}", part in "[a-z/]{0,3}") {
            let key = Key::new(namespace.as_str(), name.as_str()).with_part(&part);
            prop_assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
}
