//! Those who need certificates and tokens: they ask, approve, log in and prolong, at random.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::users::{Act, act};
use super::{Calm, authority, published, requests, tokens};
use crate::faults::Muted;
use crate::server::Server;
use apiserver_model::dice::Dice;

/// How often somebody looks for requests that are done with, once it is calm.
const LOOK: Duration = Duration::from_secs(5);

/// Everything that they do, and how often.
const ACTS: &[(u32, &str, Act)] = &[
    (20, "a certificate is asked for", requests::ask),
    (14, "a request is decided", requests::decide),
    (8, "a right to certificates changes", requests::permit),
    (4, "a request is withdrawn", requests::withdraw),
    (8, "a bootstrap token is made", tokens::make),
    (8, "a bootstrap token is prolonged", tokens::prolong),
    (4, "an old token is found", tokens::find),
    (6, "an old token is used", tokens::log_in),
    (2, "a pod mounts an old token", tokens::mount),
    (4, "the cluster is somewhere else", published::moves),
    (4, "a bundle is spoiled", published::spoil),
];

/// The names of all that is done with keys.
pub(super) fn acts() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|(_, name, _)| *name).chain(authority::ACTS.iter().copied())
}

/// Acts until it is calm; then requests come to an end.
pub(crate) async fn keys(server: Arc<Server>, seed: u64, calm: Calm, muted: Muted) {
    let mut dice = Dice::new(seed, "keys");
    server.with(|model| {
        tokens::start(model, &mut dice);
        published::start(model);
    });
    let longest = *dice.pick(&[4_000, 10_000, 20_000]).unwrap_or(&10_000);
    act(&server, &mut dice, ACTS, longest, &calm, &muted).await;
    loop {
        server.with(requests::conclude);
        sleep(LOOK).await;
    }
}
