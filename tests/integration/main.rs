//! Coxswain against real control planes. One binary, so that it is linked once; see `harness` for what it starts.

mod harness;

mod credentials;
mod deployments;
mod leadership;
mod lifecycle;
mod proto_fields;
mod rbac;
mod serving;
