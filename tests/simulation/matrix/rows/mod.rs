//! The rows: the writes of controllers, each with the objects for which the controller sends it.

use std::time::Duration;

use super::fault::Fault;
use super::seeder::Seeder;
use super::{TAGS, VICTIM};

mod api;
mod devices;
mod identity;
mod network;
mod never;
mod nodes;
mod storage;
mod workloads;

pub(super) use never::NEVER_SENT;

/// A write of a controller.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(super) controller: &'static str,
    /// Verb and resource: `create pods`, `update deployments.apps/status`.
    pub(super) write: &'static str,
    /// Makes objects of one tag for which the controller sends the write as soon as it starts.
    pub(super) seed: fn(&mut Seeder<'_>),
    /// Makes objects that all tags share.
    pub(super) world: fn(&mut Seeder<'_>),
    /// Changes objects of one tag a few seconds after the controller has started.
    pub(super) later: fn(&mut Seeder<'_>),
    /// Whether there is one such object in a cluster, so that no other can go on.
    pub(super) single: bool,
    /// Flags of the manager.
    pub(super) flags: &'static [&'static str],
    /// Whether the manager has files with an authority, a bundle and a key.
    pub(super) files: bool,
    /// How often the controller acts without a change. Zero: never.
    pub(super) period: Duration,
    /// After which time objects of this age are written.
    pub(super) starts_after: Duration,
    /// How often one pass may send the write for one set of objects.
    pub(super) writes_per_pass: u64,
    /// A write that the API server answers with 405 for every object.
    pub(super) unsupported: Option<&'static str>,
    /// Reads of one set of objects that one try may take.
    pub(super) reads_per_try: u64,
    /// How many requests that time out another object may wait for, where one worker takes all.
    pub(super) timeouts: u32,
    /// Answers after which nothing is sent again before the object changes.
    pub(super) waits_for_change: &'static [Wait],
    /// Answers after which an object is deleted and created again.
    pub(super) recreates: &'static [Wait],
    /// Why the victim may stay as it is for good, as under kube-controller-manager.
    pub(super) may_stay: Option<&'static str>,
    /// Answers that this write cannot get.
    pub(super) without: &'static [Fault],
}

impl Row {
    /// Returns the tags of its sets of objects.
    pub(super) fn tags(&self) -> impl Iterator<Item = &'static str> + use<> {
        let single = self.single;
        TAGS.into_iter().filter(move |tag| !single || *tag == VICTIM)
    }
}

/// Answers for which a row makes an exception, and the reason.
pub(super) struct Wait {
    pub(super) answers: &'static [Fault],
    pub(super) reason: &'static str,
}

impl Wait {
    /// Returns the exception for an answer.
    pub(super) fn of(waits: &'static [Self], fault: Fault) -> Option<&'static Self> {
        waits.iter().find(|wait| wait.answers.contains(&fault))
    }
}

const fn row(controller: &'static str, write: &'static str, seed: fn(&mut Seeder<'_>)) -> Row {
    Row {
        controller,
        write,
        seed,
        world: |_| {},
        later: |_| {},
        single: false,
        flags: &[],
        files: false,
        period: Duration::ZERO,
        starts_after: Duration::ZERO,
        writes_per_pass: 1,
        unsupported: None,
        reads_per_try: 8,
        timeouts: 1,
        waits_for_change: &[],
        recreates: &[],
        may_stay: None,
        without: &[],
    }
}

/// Returns all rows.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    let areas = [
        workloads::ROWS,
        nodes::ROWS,
        storage::ROWS,
        network::ROWS,
        identity::ROWS,
        api::ROWS,
        devices::ROWS,
    ];
    areas.into_iter().flatten()
}
