//! Tests of the whole stack, by concern.

mod api;
mod builder;
mod config;
mod credentials;
mod differential;
mod live;
mod metadata;
mod patience;
mod repeats;
