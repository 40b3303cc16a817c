//! Keeps a PersistentVolume from being deleted while it is bound, by a finalizer. See "Storage Object in Use Protection" in the
//! Kubernetes documentation.
//!
//! A volume concerns its own key while it is being deleted with the finalizer, or is there without it. Whether it is bound is what
//! its own status says: what it is claimed by is not looked at, for the binder writes the volume before the claim. The update
//! carries the resource version that this was read at, so no live read would say more: the API server refuses to take the
//! finalizer off a volume that has changed meanwhile.
//!
//! It never binds, releases or deletes a volume, and leaves the finalizers of others as they are.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::PERSISTENT_VOLUMES;
use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan, finalizers};

/// What keeps a volume.
const FINALIZER: &str = "kubernetes.io/pv-protection";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-protection-controller",
    aliases: &["pv-protection"],
    description: "Prevents deletion of a PersistentVolume while it is bound.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("pv-protection-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "persistentvolumes", verbs: &["get", "list", "update", "watch"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let volumes = build.watch::<PersistentVolume>(&PERSISTENT_VOLUMES);
    let room = Controller { volumes: volumes.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "pvprotection",
            kind: Some(&PERSISTENT_VOLUMES),
            settings: LoopSettings::default(),
            wake_ups: vec![volumes.wakes(wake::protected(FINALIZER))],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// A volume. What is to be known of it stands in it.
#[derive(Debug)]
struct View {
    volume: Arc<PersistentVolume>,
}

/// The room: what it reads.
struct Controller {
    volumes: Lister<PersistentVolume>,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(self.volumes.get(key).map(|volume| View { volume }).into())
    }

    fn plan(View { volume }: &View, _: Timestamp) -> Plan {
        finalizers::plan(&PERSISTENT_VOLUMES, &**volume, FINALIZER, is_bound(volume))
    }

    fn reasons(View { volume }: &View, _: Timestamp) -> Vec<String> {
        let claim = volume.spec.claim_ref.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let bound = claim.map_or_else(|| "it is bound".to_owned(), |claim| format!("it is bound to {claim}"));
        finalizers::reasons(&volume.metadata, FINALIZER, "volume", is_bound(volume).then_some(bound))
    }
}

fn is_bound(volume: &PersistentVolume) -> bool {
    volume.status.phase == "Bound"
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::api::AnyObject;
    use coxswain_machinery::api::core::ObjectReference;
    use coxswain_machinery::informer::{Delta, Store, downcast};
    use coxswain_machinery::model::plan::Verb;
    use coxswain_machinery::wire::{Message as _, Str, Time};

    fn volume(phase: &str, finalizers: &[&str], is_deleting: bool) -> Arc<PersistentVolume> {
        let mut volume = PersistentVolume::default();
        volume.metadata.name = "a".into();
        volume.metadata.uid = "uid".into();
        volume.metadata.resource_version = "7".into();
        volume.metadata.finalizers = finalizers.iter().map(|held| Str::from(*held)).collect();
        volume.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
        volume.status.phase = phase.into();
        let claim =
            ObjectReference { namespace: "ns".into(), name: "data".into(), ..ObjectReference::default() };
        volume.spec.claim_ref = Some(Box::new(claim));
        let mut bytes = volume.to_bytes();
        // A source of volumes that nobody here has heard of.
        bytes.extend([0xfa, 0x3f, 1, b'x']);
        downcast((PERSISTENT_VOLUMES.decode)(&bytes.into()).unwrap()).unwrap()
    }

    /// The finalizers that are written; `None` if nothing is.
    fn written(volume: &Arc<PersistentVolume>) -> Option<Vec<Str>> {
        let plan = Controller::plan(&View { volume: Arc::clone(volume) }, Timestamp::UNIX_EPOCH);
        let write = plan.writes().next()?;
        let Verb::Update(bytes) = &write.verb else { panic!("{write}") };
        assert!(bytes.ends_with(&[0xfa, 0x3f, 1, b'x']), "what is unknown stays");
        let found: Arc<PersistentVolume> = downcast((PERSISTENT_VOLUMES.decode)(bytes).unwrap()).unwrap();
        assert_eq!(
            (&found.metadata.resource_version, &found.spec),
            (&volume.metadata.resource_version, &volume.spec)
        );
        Some(found.metadata.finalizers.clone())
    }

    #[test]
    fn a_volume_is_kept_exactly_while_its_phase_is_bound() {
        let [attached, provisioned] =
            ["external-attacher/csi", "external-provisioner.volume.kubernetes.io/finalizer"];
        for phase in ["", "Pending", "Available", "Released", "Failed"] {
            assert_eq!(written(&volume(phase, &[FINALIZER], true)), Some(vec![]), "{phase}, claimed or not");
        }
        assert_eq!(written(&volume("Bound", &[FINALIZER], true)), None);
        assert_eq!(
            written(&volume("Released", &[attached, FINALIZER, provisioned], true)),
            Some(vec![attached.into(), provisioned.into()])
        );
        assert_eq!(written(&volume("Released", &[attached], true)), None);
        for phase in ["Available", "Bound"] {
            assert_eq!(written(&volume(phase, &[], false)), Some(vec![FINALIZER.into()]));
            assert_eq!(written(&volume(phase, &[FINALIZER], false)), None);
            assert_eq!(
                written(&volume(phase, &[attached], false)),
                Some(vec![attached.into(), FINALIZER.into()])
            );
        }
    }

    #[test]
    fn a_volume_concerns_itself_when_there_is_something_to_decide() {
        let woken = |old: Option<Arc<PersistentVolume>>, new: Option<Arc<PersistentVolume>>| {
            let (old, new) = (old.map(|old| old as AnyObject), new.map(|new| new as AnyObject));
            let mut keys = Vec::new();
            let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
            wake::protected(FINALIZER)(delta, &mut |key| keys.push(key.to_string()));
            keys.len()
        };
        let bound = volume("Bound", &[FINALIZER], true);
        assert_eq!(
            woken(Some(bound.clone()), Some(volume("Released", &[FINALIZER], true))),
            1,
            "it was released"
        );
        assert_eq!(woken(None, Some(volume("Available", &[], false))), 1);
        assert_eq!(woken(None, Some(volume("Available", &[FINALIZER], false))), 0);
        assert_eq!(woken(Some(bound.clone()), Some(volume("Released", &[], true))), 0);
        assert_eq!(woken(Some(bound), None), 0);
    }

    #[test]
    fn it_says_what_keeps_a_volume() {
        let said = |volume: &Arc<PersistentVolume>| {
            Controller::reasons(&View { volume: Arc::clone(volume) }, Timestamp::UNIX_EPOCH).remove(0)
        };
        assert!(
            said(&volume("Bound", &[FINALIZER], true))
                .contains("keeps the finalizer kubernetes.io/pv-protection because it is bound to ns/data")
        );
        assert!(said(&volume("Released", &[FINALIZER], true)).contains("nothing uses it"));
        assert!(said(&volume("Released", &["x"], true)).contains("other finalizers keep it (x)"));
    }

    #[test]
    fn one_that_is_gone_concerns_nobody() {
        let store = Arc::new(Store::new(&PERSISTENT_VOLUMES));
        let room = Controller { volumes: Lister::new(Arc::clone(&store)) };
        let observed = |room: &Controller| room.observe(&Key::new("", "a"), &[], &Reads::default()).unwrap();
        assert!(matches!(observed(&room), Observation::Nothing));
        let held = volume("Bound", &[FINALIZER], true);
        store.upsert(&(held.clone() as AnyObject));
        let Observation::View(found) = observed(&room) else { panic!("it is there") };
        assert_eq!(found.volume.metadata.uid, held.metadata.uid);
    }
}
