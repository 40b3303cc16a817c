//! The controllers, one room each, all of one shape.

pub mod replicaset;
