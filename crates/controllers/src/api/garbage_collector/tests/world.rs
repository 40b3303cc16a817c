//! The graph and the decisions at work on the model of the API server: watches that lag, queues, and attempts of which several
//! are under way at a time, each interrupted between any two of its reads and writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::graph::{AffectedObjects, Graph};
use super::super::plan::plan;
use super::super::view::{Attempt, Subject, View, observe};
use super::fixtures::{Discovered, partial};
use super::server::{Event, Refusal, SERVED, Server, place, resolve};
use coxswain_machinery::api::meta::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectMeta, OwnerReference};
use coxswain_machinery::framework::{Observation, Read, Reads};
use coxswain_machinery::model::plan::{Step, Verb, Write};
use coxswain_machinery::wire::Uid;

/// An attempt under way.
struct Running {
    attempt: Attempt,
    reads: Reads,
    /// The server's version before the first of these reads.
    since: u64,
    /// What is still to be written, once that is decided.
    writes: Option<VecDeque<Write>>,
    /// It was put into the queue again meanwhile.
    again: bool,
    /// The API server has refused what it had decided.
    changed: bool,
}

#[derive(Default)]
pub(super) struct World {
    pub(super) server: Server,
    pub(super) graph: Graph,
    pub(super) writes: usize,
    /// The references of each object as the graph was told of them last.
    told: BTreeMap<Uid, Vec<OwnerReference>>,
    queue: BTreeSet<Attempt>,
    running: Vec<Running>,
}

impl World {
    /// A world in which nothing has been seen yet of what the server has.
    pub(super) fn new(server: Server) -> Self {
        Self { server, ..Self::default() }
    }

    fn enqueue(&mut self, affected: AffectedObjects) {
        let deletes = affected.delete.into_iter().map(Attempt::Delete);
        for attempt in deletes.chain(affected.orphan.into_iter().map(Attempt::Orphan)) {
            match self.running.iter_mut().find(|running| running.attempt == attempt) {
                Some(running) => running.again = true,
                None => _ = self.queue.insert(attempt),
            }
        }
    }

    /// The watch of a kind tells of one change.
    pub(super) fn deliver(&mut self, kind: usize) -> bool {
        let mut affected = AffectedObjects::default();
        match self.server.logs[kind].pop_front() {
            None => return false,
            Some(Event::Set(meta)) => {
                self.graph.observe(SERVED[kind], &meta, &mut affected);
                self.told.insert(meta.uid.clone(), meta.owner_references.clone());
            }
            Some(Event::Gone(meta)) => self.graph.gone(SERVED[kind], &meta, &mut affected),
        }
        self.enqueue(affected);
        true
    }

    /// The watch of a kind has broken: the present state is listed.
    pub(super) fn relist(&mut self, kind: usize) {
        self.server.logs[kind].clear();
        let mut affected = AffectedObjects::default();
        let present = self.server.objects.iter().filter(|((of, _), _)| *of == kind).map(|(_, meta)| meta);
        self.told.extend(present.clone().map(|meta| (meta.uid.clone(), meta.owner_references.clone())));
        self.graph.replace(SERVED[kind], present, &mut affected);
        self.enqueue(affected);
    }

    /// A kind is not watched any more; its changes are told when it is listed again.
    pub(super) fn forget(&mut self, kind: usize) {
        self.server.logs[kind].clear();
        let mut affected = AffectedObjects::default();
        self.graph.forget_kind(SERVED[kind], &mut affected);
        self.enqueue(affected);
    }

    /// A worker takes an attempt off the queue.
    pub(super) fn start(&mut self, at: usize) -> bool {
        let Some(attempt) = self.queue.iter().nth(at % self.queue.len().max(1)).cloned() else {
            return false;
        };
        self.queue.remove(&attempt);
        self.running.push(Running {
            attempt,
            reads: Reads::default(),
            since: self.server.version,
            writes: None,
            again: false,
            changed: false,
        });
        true
    }

    /// An attempt under way makes one step: a read, the decision, or a write.
    pub(super) fn advance(&mut self, at: usize) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let mut running = self.running.remove(at % self.running.len());
        match running.writes.as_mut().map(VecDeque::pop_front) {
            Some(Some(write)) => match self.perform(&running, &write) {
                Ok(()) => self.running.push(running),
                Err(Refusal::NotFound) if write.tolerate.absent => self.running.push(running),
                Err(Refusal::Conflict | Refusal::Unprocessable) if !running.changed => {
                    let since = self.server.version;
                    let anew = Running { reads: Reads::default(), since, writes: None, ..running };
                    self.running.push(Running { again: true, changed: true, ..anew });
                }
                Err(_) => _ = self.queue.insert(running.attempt),
            },
            Some(None) => self.done(running),
            None => match self.observe(&running) {
                Observation::Nothing => self.done(running),
                Observation::Needs(needs) => {
                    let Some(Read::Object(kind, key)) = needs.into_iter().map(Read::from).next() else {
                        panic!("an object is needed")
                    };
                    let found = self.server.get(kind, &key).map(partial);
                    running.reads = std::mem::take(&mut running.reads).with_object(kind, key, Ok(found));
                    self.running.push(running);
                }
                Observation::View(View { subject, absent }) => {
                    let mut affected = AffectedObjects::default();
                    if let Attempt::Delete(uid) = &running.attempt {
                        match &subject {
                            Subject::Search(turn) => self.graph.record_turn(uid, turn.clone()),
                            _ => self.graph.end_search(uid),
                        }
                    }
                    self.graph.record_absences(absent.clone(), &mut affected);
                    if let Subject::Blocked { by, found } = &subject {
                        self.graph.looked_for(by, found, &mut affected);
                    }
                    if let Subject::Released { identity, .. } = &subject {
                        self.check_released(&identity.uid);
                    }
                    let plan = plan(&View { subject, absent });
                    assert_eq!(plan.retry, None, "every kind is served");
                    running.again |= plan.requeue_after.is_some();
                    running.writes = Some(writes(&plan.steps));
                    self.running.push(running);
                    self.enqueue(affected);
                }
            },
        }
        true
    }

    fn observe(&self, running: &Running) -> Observation<View> {
        observe(&self.graph, &Discovered(resolve), &running.attempt, running.changed, &running.reads)
            .expect("no read fails")
    }

    /// No owner is let go while an object blocks it of which the graph was told.
    fn check_released(&self, owner: &Uid) {
        for meta in self.server.objects.values().filter(|meta| meta.uid != *owner) {
            let told = self.told.get(&meta.uid);
            let mut blocking = meta.owner_references.iter().filter(|held| {
                held.uid == *owner
                    && held.block_owner_deletion == Some(true)
                    && self.server.owner(meta, held).is_some()
                    && told.is_some_and(|told| told.contains(held))
            });
            assert!(blocking.next().is_none(), "{owner} is let go although {} blocks it", meta.name);
        }
    }

    fn done(&mut self, running: Running) {
        if running.again {
            self.queue.insert(running.attempt);
        }
    }

    fn perform(&mut self, running: &Running, write: &Write) -> Result<(), Refusal> {
        let place = place(write.kind, &write.key);
        let before = self.server.objects.get(&place).cloned();
        let kept = before.as_ref().map(|meta| {
            let keeps = |held| self.server.keeps(meta, held, running.since);
            meta.owner_references.iter().map(keeps).collect::<Vec<bool>>()
        });
        self.server.perform(write)?;
        self.writes += 1;
        let (Some(before), Some(kept)) = (before, kept) else { return Ok(()) };
        match (&write.verb, &running.attempt) {
            // By UID alone it may meet references that are newer than those that were judged.
            (Verb::Delete { resource_version: None, .. }, _)
                if judged(running, write) != Some(&before.owner_references) => {}
            (Verb::Delete { .. }, _) => {
                assert!(!before.owner_references.is_empty(), "{} never had an owner", before.name);
                assert!(!kept.contains(&true), "{} has an owner that is there", before.name);
            }
            (_, Attempt::Delete(_)) => {
                let after = self.server.objects.get(&place);
                let left = |at: usize| {
                    let held = &before.owner_references[at];
                    after.is_none_or(|after| {
                        after
                            .owner_references
                            .iter()
                            .any(|left| (&left.uid, &left.name) == (&held.uid, &held.name))
                    })
                };
                for at in (0..kept.len()).filter(|at| kept[*at]) {
                    assert!(left(at), "{} was cut off an owner that is there", before.name);
                }
            }
            (_, Attempt::Orphan(_)) => {}
        }
        Ok(())
    }

    /// Everything is told and done.
    pub(super) fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 50_000, "it never comes to rest");
            let delivered = (0..SERVED.len()).any(|kind| self.deliver(kind));
            if !delivered && !self.advance(turn) && !self.start(turn) {
                return;
            }
        }
    }

    /// What must be so when everything is told and done.
    pub(super) fn check_settled(&self) {
        let held = self.held();
        for meta in self.server.objects.values() {
            let has = |finalizer: &str| meta.finalizers.iter().any(|held| held == finalizer);
            if meta.is_deleting() {
                assert!(!has(ORPHAN_FINALIZER), "{} is not done with its dependents", meta.name);
                assert!(held.contains(&meta.uid), "{} waits for nobody", meta.name);
                continue;
            }
            let there = |held: &&OwnerReference| self.server.is_there(meta, held);
            let lost: Vec<&str> = meta
                .owner_references
                .iter()
                .filter(|held| !there(held))
                .map(|held| held.name.as_str())
                .collect();
            assert!(lost.is_empty(), "{} still refers to {lost:?}", meta.name);
        }
    }

    /// The objects that rightly wait: for somebody else's finalizer, or in the foreground for one that does.
    fn held(&self) -> BTreeSet<&Uid> {
        let ours = |finalizer: &str| [FOREGROUND_FINALIZER, ORPHAN_FINALIZER].contains(&finalizer);
        let foreign =
            |meta: &&ObjectMeta| meta.is_deleting() && meta.finalizers.iter().any(|held| !ours(held));
        let all = || self.server.objects.values();
        let mut held: BTreeSet<&Uid> = all().filter(foreign).map(|meta| &meta.uid).collect();
        loop {
            let blockers = all().filter(|meta| held.contains(&meta.uid));
            let references =
                blockers.flat_map(|meta| meta.owner_references.iter().map(move |held| (meta, held)));
            let blocking = references.filter(|(_, reference)| reference.block_owner_deletion == Some(true));
            let blocked = blocking.filter_map(|(meta, reference)| self.server.owner(meta, reference));
            let more: Vec<&Uid> = blocked.map(|owner| &owner.uid).collect();
            let before = held.len();
            held.extend(more);
            if held.len() == before {
                return held;
            }
        }
    }
}

fn writes(steps: &[Step]) -> VecDeque<Write> {
    steps.iter().flat_map(Step::writes).cloned().collect()
}

/// The references of the object to be written, as they were read for it.
fn judged<'a>(running: &'a Running, write: &Write) -> Option<&'a Vec<OwnerReference>> {
    let read = running.reads.object(write.kind, &write.key)?;
    read.ok()?.map(|live| &live.meta().owner_references)
}
