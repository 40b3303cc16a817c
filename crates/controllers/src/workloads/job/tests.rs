//! Tests of the room: tables of what is planned, and a model of a cluster in which the manager may be killed at any write.

mod backoff;
mod bytes;
mod cluster;
mod crashes;
mod ends;
mod fixtures;
mod gang;
mod keys;
mod managing;
mod members;
mod reasons;
mod strays;
mod tracking;
