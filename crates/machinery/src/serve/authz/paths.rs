//! `--authorization-always-allow-paths`.

use crate::serve::error::ServeError;

/// Paths open to everyone, exact or by prefix.
#[derive(Debug, Default)]
pub(in crate::serve) struct PathRules {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

impl PathRules {
    /// A rule may do without its leading slash, and may end in `*`.
    pub(in crate::serve) fn parse(rules: &[String]) -> Result<Self, ServeError> {
        let mut parsed = Self::default();
        for rule in rules {
            let bare = rule.strip_prefix('/').unwrap_or(rule);
            match bare.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') => parsed.prefixes.push(prefix.to_owned()),
                None if !bare.contains('*') => parsed.exact.push(bare.to_owned()),
                _ => return Err(ServeError::Pattern(rule.clone())),
            }
        }
        Ok(parsed)
    }

    /// Whether a path, already decoded, is open.
    pub(in crate::serve) fn allows(&self, path: &str) -> bool {
        let Some(bare) = path.strip_prefix('/') else { return false };
        self.exact.iter().any(|rule| rule == bare)
            || self.prefixes.iter().any(|prefix| bare.starts_with(prefix.as_str()))
    }
}
