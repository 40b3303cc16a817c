//! The limit of open files of the process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit is raised to the hard limit, and to this at most: programs that the process starts inherit the limit, and
/// some of them close every possible file.
const MOST: u64 = 65_536;

/// Raises the soft limit of open files, as the Go runtime does. Container runtimes often set 1,024.
///
/// # Errors
/// The kernel refuses the change. The limit is then as before.
pub fn raise_limit() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match raised(current, maximum) {
        None => Ok(()),
        Some(limit) => Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum })?),
    }
}

/// How many files the process may open.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The limit to set; `None` if the present one stays. A limit of `None` is none.
fn raised(soft: Option<u64>, hard: Option<u64>) -> Option<u64> {
    let most = hard.map_or(MOST, |hard| hard.min(MOST));
    soft.is_some_and(|soft| soft < most).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit_and_never_lowered() {
        assert_eq!(raised(Some(1024), Some(4096)), Some(4096));
        assert_eq!(raised(Some(1024), Some(1 << 30)), Some(MOST));
        assert_eq!(raised(Some(1024), None), Some(MOST));
        for (soft, hard) in [(Some(4096), Some(4096)), (Some(100_000), Some(1 << 20)), (None, None)] {
            assert_eq!(raised(soft, hard), None, "{soft:?} {hard:?}");
        }
    }

    #[test]
    fn the_limit_of_this_process_is_raised() {
        let before = getrlimit(Resource::Nofile);
        let hard = before.maximum.map_or(MOST, |hard| hard.min(MOST));
        let lowered = Rlimit { current: Some(hard - 1), ..before };
        setrlimit(Resource::Nofile, lowered).unwrap();
        assert_eq!(limit(), hard - 1);
        raise_limit().unwrap();
        let raised = limit();
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(raised, hard);
    }
}
