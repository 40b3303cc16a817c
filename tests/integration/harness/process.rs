//! What the kernel says of a process.

use std::fs;

/// What is in `/proc/PID/status`.
pub(crate) struct Status(String);

impl Status {
    /// As it is now.
    pub(crate) fn of(pid: u32) -> Self {
        Self(fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives"))
    }

    /// A number by its name with the colon: `VmRSS:`, in KiB.
    pub(crate) fn field(&self, name: &str) -> u64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)).expect("a field of the status");
        line.split_whitespace().next().expect("a value").parse().expect("a number")
    }
}
