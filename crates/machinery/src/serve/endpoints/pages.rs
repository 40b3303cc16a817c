//! The text of `/flagz` and `/statusz`: for people; tools should not read it.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::StatusPage;

const NOTE: &str = "This page is for people: its form may change at any time, so no program should read it.";

/// Every flag and its value, in order.
pub(super) fn flagz(component: &str, mut flags: Vec<(String, String)>) -> String {
    flags.sort();
    let mut page = format!("\n{component} flagz\n{NOTE}\n");
    for (name, value) in flags {
        let _infallible = writeln!(page, "{name}: {value}");
    }
    page
}

/// Versions, times, paths.
pub(super) fn statusz(
    component: &str,
    status: &StatusPage,
    started: Timestamp,
    now: Timestamp,
    paths: &[String],
) -> String {
    let up = now.as_second().saturating_sub(started.as_second()).max(0);
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let started = started.strftime("%a %b %e %H:%M:%S UTC %Y");
    format!(
        "\n{component} statusz\n{NOTE}\n\nStarted:  {started}\nUp:  {hours} hr {minutes:02} min {seconds:02} sec\n\
         Implementation:  coxswain {}\nBinary version:  {}\nEmulation version:  {}\nPaths:  {}\n",
        status.binary_version,
        status.compatible_version,
        status.emulation_version,
        paths.join(" "),
    )
}
