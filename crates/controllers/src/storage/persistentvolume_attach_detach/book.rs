//! What is known of one node: which volumes its pods want, which ones it has, and what is under way. Pure data, and the rules by
//! which it grows older.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::source::{Means, Source};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::storage::VolumeAttachment;
use coxswain_machinery::model::plan::Regarding;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Str;

/// How long an attacher is waited for.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// After this time a volume that is mounted is taken from a node that is not ready.
pub(super) const FORCED_AFTER: Duration = Duration::from_mins(6);

/// A node whose attaching is the manager's, and not the kubelet's.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// What is known of a node. Volumes are named by their unique names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Book {
    /// Whether its attaching is the manager's. It stays so until the node is gone.
    pub(super) is_managed: bool,
    /// The volumes that its kubelet said last to be in use.
    pub(super) in_use: BTreeSet<Str>,
    pub(super) wants: BTreeMap<Str, Want>,
    pub(super) held: BTreeMap<Str, Held>,
    /// Volumes that it cannot have before another node has given them up.
    pub(super) waits: BTreeSet<Str>,
    /// VolumeAttachments that were asked for, and whose volumes nobody wanted any more when the answer came, or failed to come:
    /// those that are there are taken up in the next look.
    pub(super) doubtful: BTreeSet<Str>,
}

/// A volume that pods of the node want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) source: Arc<Source>,
    /// The name of its VolumeAttachment, if it needs one.
    pub(super) attachment: Option<Str>,
    /// The pods.
    pub(super) pods: Vec<Regarding>,
    /// Whether they were told that another node has it.
    pub(super) is_told: bool,
}

/// A volume that the node has, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// What it is; `None` if its name says nothing that could be attached.
    pub(super) source: Option<Arc<Source>>,
    /// The name of its VolumeAttachment, if it has one.
    pub(super) attachment: Option<Str>,
    pub(super) state: State,
    /// As the node's list has it.
    pub(super) device_path: Str,
    /// Whether detaching has begun: the node is not told any more that it has it.
    pub(super) is_leaving: bool,
    /// The version of the node when this became known: it counts as mounted until the node says more.
    pub(super) known_at: Option<Str>,
    /// Since when no pod wants it.
    pub(super) unwanted_since: Option<Duration>,
    /// Since when its VolumeAttachment says that it is not attached.
    pub(super) missing_since: Option<Duration>,
    pub(super) under_way: Option<Operation>,
    pub(super) backoff: Option<Backoff>,
    /// When a VolumeAttachment is read again that the API server has and the cache lacks.
    pub(super) unheard: Option<Backoff>,
}

/// Whether a node has a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is not attached: it is being attached for the first time, or the node is still to be told that it is gone.
    Absent,
    /// It is attached.
    Attached,
    /// Attaching or detaching it has failed.
    Uncertain,
}

/// What is done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Attach,
    Detach,
}

/// Something that an attacher is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) task: Task,
    pub(super) since: Duration,
    /// The pods that are told what became of it.
    pub(super) pods: Vec<Regarding>,
}

/// Something that has failed, and is not tried again before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) task: Task,
    failures: u32,
    pub(super) until: Duration,
}

/// How far an operation has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waits,
    Done,
    Failed(String),
}

impl Operation {
    /// How far it has come by the volume's VolumeAttachment.
    pub(super) fn progress(
        &self,
        attachment: Option<&VolumeAttachment>,
        source: Option<&Source>,
        at: Duration,
    ) -> Progress {
        let is_over = at.saturating_sub(self.since) >= PATIENCE;
        match (self.task, attachment) {
            (Task::Attach, Some(found)) if found.metadata.is_deleting() => {
                Progress::Failed("volume attachment is being deleted".to_owned())
            }
            (Task::Attach, Some(found)) if found.status.attached => Progress::Done,
            (Task::Attach, Some(found)) if found.status.attach_error.is_some() => {
                let error = found.status.attach_error.as_ref();
                Progress::Failed(error.map(|error| error.message.to_string()).unwrap_or_default())
            }
            (Task::Detach, None) => Progress::Done,
            (Task::Detach, Some(found)) if found.status.detach_error.is_some() => {
                let error = found.status.detach_error.as_ref();
                Progress::Failed(error.map(|error| error.message.to_string()).unwrap_or_default())
            }
            _ if is_over => Progress::Failed(self.timed_out(source)),
            _ => Progress::Waits,
        }
    }

    fn timed_out(&self, source: Option<&Source>) -> String {
        let (driver, handle) = match source.map(|source| &source.means) {
            Some(Means::Driver { driver, handle }) => (driver.as_str(), handle.as_str()),
            _ => ("", ""),
        };
        let what = match self.task {
            Task::Attach => "attach",
            Task::Detach => "detach",
        };
        format!("timed out waiting for external-attacher of {driver} CSI driver to {what} volume {handle}")
    }
}

impl Backoff {
    /// How long the first failure is waited for.
    pub(super) const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(122);

    /// Another failure of a task; of the other sort than the last one it is the first.
    pub(super) fn after(last: Option<Self>, task: Task, at: Duration) -> Self {
        let failures = last.filter(|last| last.task == task).map_or(0, |last| last.failures);
        let doubled = Self::FIRST.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
        Self { task, failures: failures.saturating_add(1), until: at + doubled.min(Self::LONGEST) }
    }
}

impl Held {
    /// One that became known when the node had this version.
    pub(super) fn new(state: State, source: Option<Arc<Source>>, node: &str) -> Self {
        let attachment = source.as_ref().and_then(|source| source.attachment(node));
        Self {
            source,
            attachment,
            state,
            device_path: Str::EMPTY,
            is_leaving: false,
            known_at: None,
            unwanted_since: None,
            missing_since: None,
            under_way: None,
            backoff: None,
            unheard: None,
        }
    }

    /// Whether this may not be tried yet.
    pub(super) fn backs_off(&self, task: Task, at: Duration) -> Option<Duration> {
        let backoff = self.backoff.filter(|backoff| backoff.task == task && backoff.until > at)?;
        Some(backoff.until.saturating_sub(at))
    }

    /// How long its VolumeAttachment is not read again.
    pub(super) fn left_unheard(&self, at: Duration) -> Option<Duration> {
        self.unheard.map(|backoff| backoff.until.saturating_sub(at)).filter(|left| !left.is_zero())
    }

    /// A task has failed.
    pub(super) fn failed(&mut self, task: Task, at: Duration) {
        self.state = State::Uncertain;
        self.under_way = None;
        self.missing_since = None;
        self.backoff = Some(Backoff::after(self.backoff, task, at));
    }

    /// Whether no pod has wanted it for six minutes.
    pub(super) fn is_unwanted_for_long(&self, at: Duration) -> bool {
        at.saturating_sub(self.unwanted_since.unwrap_or(at)) >= FORCED_AFTER
    }

    /// Delays a task that cannot be judged yet. The volume stays attached, so no other node gets it meanwhile.
    pub(super) fn delay(&mut self, task: Task, at: Duration) {
        self.backoff = Some(Backoff::after(self.backoff, task, at));
    }

    /// Whether the node is told that it has it.
    pub(super) fn is_reported(&self) -> bool {
        self.state == State::Attached && !self.is_leaving
    }

    /// The same by what shows now: an operation may have ended before the book says so. `None` if the volume has gone.
    pub(super) fn settled(mut self, attachment: Option<&VolumeAttachment>, at: Duration) -> Option<Self> {
        let Some(operation) = &self.under_way else { return Some(self) };
        match (operation.task, operation.progress(attachment, self.source.as_deref(), at)) {
            (Task::Detach, Progress::Done) => return None,
            (Task::Attach, Progress::Done) => {
                self.state = State::Attached;
                self.under_way = None;
            }
            (task, Progress::Failed(_)) => self.failed(task, at),
            (_, Progress::Waits) => {}
        }
        Some(self)
    }
}

impl Book {
    /// Whether there is nothing to remember of a node that is gone.
    pub(super) fn is_blank(&self) -> bool {
        self.wants.is_empty() && self.held.is_empty() && self.doubtful.is_empty()
    }
}

/// What a node says of itself that matters here.
pub(super) fn is_managed(node: &Node) -> bool {
    node.metadata.annotations.contains_key(MANAGED)
}

/// Whether its list has this volume.
pub(super) fn lists(node: &Node, volume: &str) -> bool {
    node.status.volumes_attached.iter().any(|listed| listed.name == volume)
}

/// Returns the volumes that a node lists, to check many volumes against.
pub(super) fn listed_by(node: &Node) -> HashSet<&Str> {
    node.status.volumes_attached.iter().map(|listed| &listed.name).collect()
}

/// Its version, by which it is seen that it has said more.
pub(super) fn version(node: Option<&Node>) -> Str {
    node.map(|node| node.metadata.resource_version.clone()).unwrap_or_default()
}
