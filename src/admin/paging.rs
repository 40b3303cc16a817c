//! Pages of lists that are ordered by name.
//!
//! A token is opaque to callers: it says after which name to go on, and for which filter it was made. It carries no
//! authority: whoever makes one up gets a page of what they may list anyway.

use std::hash::Hasher as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::errors::Violations;

/// Items on a page when the caller leaves it to us.
pub const DEFAULT_PAGE: usize = 100;
/// Items on a page at most.
pub const MAX_PAGE: usize = 1000;
/// What tokens begin with: their form's version.
const FORM: u8 = 1;
/// Form and filter.
const HEADER: usize = 9;

/// A page that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    size: usize,
    after: Option<String>,
    filter: u64,
}

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// For the next page; empty on the last one.
    pub next: String,
    /// Number of items on all pages.
    pub total: usize,
}

impl Page {
    /// Reads `page_size` and `page_token`; `filter` is the encoded filter that the list is for.
    pub fn parse(size: i32, token: &str, filter: &[u8], violations: &mut Violations) -> Self {
        let size = match usize::try_from(size) {
            Ok(0) => DEFAULT_PAGE,
            Ok(size) if size <= MAX_PAGE => size,
            _ => {
                violations.add("page_size", format!("must be between 0 and {MAX_PAGE}"));
                DEFAULT_PAGE
            }
        };
        let filter = fingerprint(filter);
        let after = match token {
            "" => None,
            token => match after(token, filter) {
                Ok(after) => Some(after),
                Err(complaint) => {
                    violations.add("page_token", complaint);
                    None
                }
            },
        };
        Self { size, after, filter }
    }

    /// Cuts the page out of `items`, which are ordered by `name`.
    pub fn cut<T>(&self, items: Vec<T>, name: impl Fn(&T) -> &str) -> Paged<T> {
        let total = items.len();
        let mut rest = items
            .into_iter()
            .skip_while(|item| self.after.as_deref().is_some_and(|after| name(item) <= after));
        let items: Vec<T> = rest.by_ref().take(self.size).collect();
        let next = match (items.last(), rest.next()) {
            (Some(last), Some(_)) => token(name(last), self.filter),
            _ => String::new(),
        };
        Paged { items, next, total }
    }
}

fn token(last: &str, filter: u64) -> String {
    let mut bytes = Vec::with_capacity(HEADER + last.len());
    bytes.push(FORM);
    bytes.extend(filter.to_be_bytes());
    bytes.extend(last.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn after(token: &str, filter: u64) -> Result<String, &'static str> {
    const MADE_UP: &str = "expected a next_page_token of an earlier response";
    if token.len() > 1024 {
        return Err(MADE_UP);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| MADE_UP)?;
    let (header, name) = bytes.split_at_checked(HEADER).ok_or(MADE_UP)?;
    if header[0] != FORM || name.is_empty() {
        return Err(MADE_UP);
    }
    if header[1..] != filter.to_be_bytes() {
        return Err("the token is from a call with another filter");
    }
    String::from_utf8(name.to_vec()).map_err(|_| MADE_UP)
}

/// The same on every replica: pages may be fetched from one after the other. (FNV-1a; collisions do no harm.)
fn fingerprint(filter: &[u8]) -> u64 {
    struct Fnv(u64);
    impl std::hash::Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(filter);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(size: i32, token: &str, filter: &[u8]) -> Result<Page, Vec<String>> {
        let mut violations = Violations::default();
        let page = Page::parse(size, token, filter, &mut violations);
        let fields: Vec<_> = violations.fields().map(str::to_owned).collect();
        if fields.is_empty() { Ok(page) } else { Err(fields) }
    }

    proptest! {
        /// Pages of any size, one after the other, are the list.
        #[test]
        fn pages_make_up_the_list(mut names in prop::collection::vec("[a-z]{1,6}", 0..30), size in 1i32..10) {
            names.sort();
            names.dedup();
            let (mut token, mut seen) = (String::new(), Vec::new());
            loop {
                let cut = page(size, &token, b"f").unwrap().cut(names.clone(), |name| name);
                prop_assert!(cut.items.len() <= size as usize);
                prop_assert_eq!(cut.total, names.len());
                seen.extend(cut.items);
                if cut.next.is_empty() {
                    break;
                }
                token = cut.next;
            }
            prop_assert_eq!(seen, names);
        }

        #[test]
        fn made_up_tokens_are_refused_or_harmless(token in ".{0,40}") {
            if let Ok(page) = page(1, &token, b"") {
                page.cut(vec!["a"], |name| name);
            }
        }
    }

    #[test]
    fn a_list_may_change_between_pages() {
        let first = page(2, "", b"").unwrap().cut(vec!["a", "b", "d"], |name| name);
        let second = page(2, &first.next, b"").unwrap().cut(vec!["a", "c", "d", "e"], |name| name);
        assert_eq!((first.items, second.items), (vec!["a", "b"], vec!["c", "d"]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let next = page(1, "", b"one").unwrap().cut(vec!["a", "b"], |name| name).next;
        assert_eq!(page(0, &next, b"two"), Err(vec!["page_token".to_owned()]));
        assert_eq!(page(-1, "%%%", b""), Err(vec!["page_size".to_owned(), "page_token".to_owned()]));
        assert_eq!(page(1001, "", b""), Err(vec!["page_size".to_owned()]));
        assert_eq!(page(0, "", b"").unwrap().size, DEFAULT_PAGE);
    }
}
