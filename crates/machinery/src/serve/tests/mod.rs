//! The port as clients meet it: real TLS on loopback, certificates made on the spot, an API server played by a fake.

mod authn;
mod authz;
mod caches;
mod connections;
mod fixtures;
mod floods;
mod handshakes;
mod pages;
mod parsing;
mod reviews;
mod rotation;
mod signed;
mod tls;
