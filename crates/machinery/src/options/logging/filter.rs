//! Which messages are logged: `-v` and `--vmodule` as a filter on where a message comes from.

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::options::{ModuleVerbosity, Verbosity};
use crate::telemetry::tracing::is_ours;

/// Passes what `-v` and `--vmodule` ask for.
#[derive(Clone, Debug)]
pub struct VerbosityFilter {
    default: Verbosity,
    modules: ModuleVerbosity,
}

impl VerbosityFilter {
    /// A filter by `-v` and `--vmodule`.
    pub fn new(default: Verbosity, modules: ModuleVerbosity) -> Self {
        Self { default, modules }
    }

    /// The same filter with another `-v`.
    pub(super) fn set_default(&mut self, verbosity: u32) {
        self.default = Verbosity(verbosity);
    }

    /// The least severe level that a module may log at.
    pub(super) fn level(&self, module: &str) -> LevelFilter {
        let named = self.modules.0.iter().find(|(pattern, _)| matches(pattern, module));
        let verbosity = named.map_or(self.default, |(_, verbosity)| *verbosity).0;
        if is_ours(module) {
            match verbosity {
                0..=3 => LevelFilter::INFO,
                4..=5 => LevelFilter::DEBUG,
                _ => LevelFilter::TRACE,
            }
        } else {
            // Libraries speak up only about what goes wrong, and never at `trace`, where the HTTP ones write out
            // whole headers, credentials among them.
            match verbosity {
                0..=3 => LevelFilter::WARN,
                4..=7 => LevelFilter::INFO,
                _ => LevelFilter::DEBUG,
            }
        }
    }

    fn passes(&self, metadata: &Metadata<'_>) -> bool {
        // Spans beyond the outermost are for traces, whatever the verbosity.
        if metadata.is_span() && *metadata.level() > Level::INFO {
            return false;
        }
        let module = metadata.module_path().unwrap_or_else(|| metadata.target());
        *metadata.level() <= self.level(module)
    }
}

impl<S: Subscriber> Filter<S> for VerbosityFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.passes(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.passes(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let most = self.modules.0.iter().map(|(_, verbosity)| *verbosity).chain([self.default]).max();
        let most = Self::new(most.unwrap_or_default(), ModuleVerbosity::default());
        Some(most.level("coxswain"))
    }
}

/// Whether a pattern names a module: by its last name, or by as much of the end of its path as the pattern has.
fn matches(pattern: &str, module: &str) -> bool {
    let names = pattern.split("::").count();
    let mut tail = module.rsplit("::").take(names).collect::<Vec<_>>();
    tail.reverse();
    pattern.split("::").count() == tail.len()
        && pattern.split("::").zip(tail).all(|(pattern, name)| glob(pattern.as_bytes(), name.as_bytes()))
}

/// Whether a pattern with `*` (any text) and `?` (any one byte) matches a text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star stood, and how much of the text it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                t += 1;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use tracing::level_filters::LevelFilter;

    use super::{VerbosityFilter, glob, matches};
    use crate::options::{ModuleVerbosity, Verbosity};

    #[test]
    fn patterns_match_modules() {
        for (pattern, module, expected) in [
            ("reflector", "coxswain::informer::reflector", true),
            ("informer", "coxswain::informer::reflector", false),
            ("refl*", "coxswain::informer::reflector", true),
            ("informer::*", "coxswain::informer::reflector", true),
            ("coxswain::informer::reflector", "coxswain::informer::reflector", true),
            ("x::coxswain::informer", "coxswain::informer", false),
            ("?????", "coxswain::queue", true),
            ("????", "coxswain::queue", false),
        ] {
            assert_eq!(matches(pattern, module), expected, "{pattern} {module}");
        }
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*b*c", "aXbXbXc", true),
            ("a*b", "aXc", false),
            ("**", "a", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn verbosity_is_a_level_by_module() {
        let filter =
            VerbosityFilter::new(Verbosity(2), ModuleVerbosity(vec![("queue".to_owned(), Verbosity(6))]));
        assert_eq!(filter.level("coxswain::queue"), LevelFilter::TRACE);
        assert_eq!(filter.level("coxswain_machinery::queue"), LevelFilter::TRACE);
        assert_eq!(filter.level("coxswain::informer"), LevelFilter::INFO);
        assert_eq!(filter.level("hyper::client"), LevelFilter::WARN);
        let all = VerbosityFilter::new(Verbosity(10), ModuleVerbosity::default());
        assert_eq!(all.level("coxswain::queue"), LevelFilter::TRACE);
        assert_eq!(all.level("h2::codec"), LevelFilter::DEBUG, "headers are written at trace");
        assert_eq!(all.level("coxswainish::x"), LevelFilter::DEBUG, "a name is not a prefix");
    }
}
