//! The client against a replica on loopback, and its parts alone.

mod run;
mod server;
