//! What can be set for a benchmark, by the environment.

/// The number in this variable; `default` where there is none.
pub(crate) fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
