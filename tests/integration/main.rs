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
mod attaching;
mod autoscaling;
mod budgets;
mod callers;
mod certificates;
mod cli;
mod clients;
mod credentials;
mod daemonsets;
mod deploying;
mod deployments;
mod devices;
mod differences;
mod endpointslices;
mod evictions;
mod example;
mod executor;
mod faults;
mod fidelity;
mod fixed_faults;
mod garbage_collection;
mod gated;
mod handover;
mod informers;
mod jobs;
mod joining;
mod json_api;
mod kinds;
mod kubeconfigs;
mod kubelets;
mod leadership;
mod lifecycle;
mod logging;
mod metrics_reference;
mod migrations;
mod namespaces;
mod node_blocks;
mod outages;
mod page_forms;
mod panics;
mod parity;
mod profiling;
mod prometheus;
mod proto_fields;
mod rbac;
mod refused_events;
mod replicas;
mod resourcequotas;
mod retry_after;
mod revisions;
mod schedules;
mod secrets;
mod serving;
mod sidecars;
mod signed_serving;
mod signing_keys;
mod slow_metrics;
mod start_and_stop;
mod statefulsets;
mod storage;
mod takeover;
mod tracing;
mod unknown_fields;
mod unknown_targets;
mod unlisted;
mod volumes;
