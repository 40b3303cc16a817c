//! What can be set for a benchmark, by the environment.

/// The number in this variable; `default` where there is none.
///
/// # Panics
/// When there is something else.
pub(crate) fn number(name: &str, default: usize) -> usize {
    text(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}: a whole number is wanted"))
    })
}

/// The text in this variable; `None` where there is none or it is empty.
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
