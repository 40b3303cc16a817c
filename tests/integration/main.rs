//! Coxswain against real control planes. One binary, so that it is linked once; see `harness` for what it starts.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "these tests have threads and an order of their own"
)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and fails"
)]

mod harness;

mod admin;
mod budgets;
mod cli;
mod clients;
mod credentials;
mod daemonsets;
mod deployments;
mod endpointslices;
mod evictions;
mod example;
mod executor;
mod faults;
mod garbage_collection;
mod gated;
mod handover;
mod informers;
mod jobs;
mod kinds;
mod leadership;
mod lifecycle;
mod logging;
mod namespaces;
mod panics;
mod parity;
mod profiling;
mod prometheus;
mod proto_fields;
mod rbac;
mod replicas;
mod resourcequotas;
mod revisions;
mod schedules;
mod secrets;
mod serving;
mod signing_keys;
mod statefulsets;
mod storage;
mod takeover;
mod tracing;
mod unknown_fields;
mod unlisted;
