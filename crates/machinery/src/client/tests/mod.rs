//! Tests of the whole stack, by concern.

mod api;
mod builder;
mod config;
mod credentials;
mod live;
mod metadata;
mod patience;
mod repeats;
