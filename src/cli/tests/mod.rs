//! The client against a replica on loopback, and its parts alone.

mod discovery;
mod dump;
mod errors;
mod install;
mod left;
mod output;
mod parsing;
mod pod_network;
mod preflight;
mod run;
mod server;
mod streams;
mod trust;
mod uninstall;
mod via_pod;

use jiff::Timestamp;

/// The time of all these tests.
fn now() -> Timestamp {
    crate::admin::testing::fake::at(0)
}

/// A time so many seconds away from it.
fn time(seconds: i64) -> prost_types::Timestamp {
    let at = crate::admin::testing::fake::at(seconds);
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}
