//! Coxswain against real control planes. One binary, so that it is linked once; see `harness` for what it starts.

mod harness;

mod deployments;
mod informers;
mod proto_fields;
