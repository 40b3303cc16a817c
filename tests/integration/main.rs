//! Tests against the pinned Kubernetes version: its definitions, its API server, its controller manager.

mod proto_fields;
