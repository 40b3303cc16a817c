//! What the kernel says of a process.

use std::fs;

/// Returns the CPU time in seconds that a process has used, with the kernel's for it.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    // Linux counts in hundredths of a second.
    ticks.map(|ticks| ticks.parse::<f64>().expect("ticks")).sum::<f64>() / 100.0
}

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
