//! Tables of the plan, on stores that are filled by hand and with lists that were read live.

use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::storage::ModifyVolumeStatus;
use coxswain_machinery::framework::{ApiError, Read};
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::{Message as _, Str, Time};

fn class(finalizers: &[&str], is_deleting: bool) -> VolumeAttributesClass {
    let mut class = VolumeAttributesClass::default();
    class.metadata.name = "gold".into();
    class.metadata.resource_version = "7".into();
    class.metadata.finalizers = finalizers.iter().map(|held| Str::from(*held)).collect();
    class.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
    class
}

/// What a claim asks for, has and is to have.
fn claim(wanted: &str, current: &str, target: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = "ns".into();
    claim.metadata.name = "data".into();
    claim.spec.volume_attributes_class_name = wanted.into();
    claim.status.current_volume_attributes_class_name = current.into();
    if !target.is_empty() {
        let status = ModifyVolumeStatus { target_volume_attributes_class_name: target.into() };
        claim.status.modify_volume_status = Some(Box::new(status));
    }
    claim
}

fn volume(class: Option<&str>) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = "pv".into();
    volume.spec.volume_attributes_class_name = class.map(Str::from);
    volume
}

/// A room whose caches have these.
fn room(
    class: &VolumeAttributesClass,
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
) -> Controller {
    let [classes, claims, volumes] =
        [&VOLUME_ATTRIBUTES_CLASSES, &PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES]
            .map(|kind| Arc::new(Store::new(kind)));
    classes.upsert(&(VOLUME_ATTRIBUTES_CLASSES.decode)(&class.to_bytes().into()).unwrap());
    if let Some(claim) = claim {
        claims.upsert(&(Arc::new(claim.clone()) as AnyObject));
    }
    if let Some(volume) = volume {
        volumes.upsert(&(Arc::new(volume.clone()) as AnyObject));
    }
    Controller {
        classes: Lister::new(classes),
        claims: Indexed::new(&claims, &CLAIMS_BY_CLASS),
        volumes: Indexed::new(&volumes, &VOLUMES_BY_CLASS),
        unheard: Arc::default(),
    }
}

fn observed(room: &Controller, read: &Reads) -> Result<Observation<View>, ObserveError> {
    room.observe(&Key::new("", "gold"), &[], read)
}

fn live(claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>) -> Reads {
    let claims = claims.into_iter().map(|claim| Arc::new(claim) as AnyObject).collect();
    let volumes = volumes.into_iter().map(|volume| Arc::new(volume) as AnyObject).collect();
    Reads::default().with_list(&PERSISTENT_VOLUME_CLAIMS, Str::EMPTY, Ok(claims)).with_list(
        &PERSISTENT_VOLUMES,
        Str::EMPTY,
        Ok(volumes),
    )
}

/// The finalizers that are written, if anything is, and whether the class is looked at again.
fn decided(room: &Controller, read: &Reads) -> (Option<Vec<Str>>, bool) {
    let Observation::View(view) = observed(room, read).unwrap() else { panic!("it is decided") };
    let plan = Controller::plan(&view, Timestamp::UNIX_EPOCH);
    let written = plan.writes().next().map(|write| {
        let Verb::Update(bytes) = &write.verb else { panic!("{write}") };
        (VOLUME_ATTRIBUTES_CLASSES.decode)(bytes).unwrap().meta().finalizers.clone()
    });
    (written, plan.requeue_after.is_some())
}

#[test]
fn any_name_in_a_claim_or_a_volume_keeps_a_class() {
    let going = class(&["example.com/a", FINALIZER], true);
    let none = || live(vec![], vec![]);
    for (what, claim, volume) in [
        ("asks for it", Some(claim("gold", "", "")), None),
        ("has it", Some(claim("silver", "gold", "")), None),
        ("is to have it", Some(claim("", "", "gold")), None),
        ("is all", Some(claim("gold", "gold", "gold")), None),
        ("is a volume", None, Some(volume(Some("gold")))),
    ] {
        let room = room(&going, claim.as_ref(), volume.as_ref());
        assert_eq!(
            decided(&room, &Reads::default()),
            (None, false),
            "what {what} is in the cache: no live read"
        );
    }
    for (claim, volume) in
        [(None, None), (Some(claim("silver", "", "")), Some(volume(Some("")))), (None, Some(volume(None)))]
    {
        let room = room(&going, claim.as_ref(), volume.as_ref());
        assert_eq!(decided(&room, &none()), (Some(vec!["example.com/a".into()]), false));
    }
}

#[test]
fn a_class_goes_only_if_live_lists_know_no_user() {
    let room = room(&class(&[FINALIZER], true), None, None);
    let Ok(Observation::Needs(reads)) = observed(&room, &Reads::default()) else { panic!("it reads live") };
    let lists = [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES].map(|kind| Read::List(kind, Str::EMPTY));
    assert_eq!(reads, lists);
    assert_eq!(decided(&room, &live(vec![claim("gold", "", "")], vec![])), (None, true));
    assert_eq!(decided(&room, &live(vec![], vec![volume(Some("gold"))])), (None, true));
    assert_eq!(
        decided(&room, &live(vec![claim("", "x", "y")], vec![volume(Some("z"))])),
        (Some(vec![]), false)
    );
    let refused = || ApiError::Malformed { request: "GET".to_owned(), what: "no".to_owned() };
    let failed = live(vec![], vec![]).with_list(&PERSISTENT_VOLUMES, Str::EMPTY, Err(refused()));
    let error = observed(&room, &failed).unwrap_err();
    assert!(
        matches!(&error, ObserveError::Retry(text) if text.starts_with("live list of persistentvolumes failed: "))
    );
}

#[test]
fn a_class_that_stays_gets_the_finalizer_and_one_that_goes_does_not() {
    let decided = |class: &VolumeAttributesClass| decided(&room(class, None, None), &Reads::default());
    assert_eq!(decided(&class(&["x"], false)), (Some(vec!["x".into(), FINALIZER.into()]), false));
    assert_eq!(decided(&class(&[FINALIZER], false)), (None, false));
    assert_eq!(decided(&class(&["x"], true)), (None, false));
    let empty = room(&class(&[], false), None, None);
    let absent = empty.observe(&Key::new("", "silver"), &[], &Reads::default());
    assert!(matches!(absent, Ok(Observation::Nothing)));
}

#[test]
fn names_that_are_given_up_wake_their_classes_and_names_that_are_gained_do_not() {
    let woken = |old: Option<PersistentVolumeClaim>, new: Option<PersistentVolumeClaim>| {
        let (old, new) =
            (old.map(|old| Arc::new(old) as AnyObject), new.map(|new| Arc::new(new) as AnyObject));
        let mut keys = Vec::new();
        let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
        named_no_longer(classes_of_claim)(delta, &mut |key| keys.push(key.name.to_string()));
        keys
    };
    let none = Vec::<String>::new();
    assert_eq!(woken(None, Some(claim("a", "b", "c"))), none);
    assert_eq!(woken(Some(claim("a", "b", "c")), None), ["a", "b", "c"]);
    assert_eq!(woken(Some(claim("a", "b", "")), Some(claim("b", "a", "c"))), none);
    assert_eq!(woken(Some(claim("b", "a", "b")), Some(claim("b", "b", ""))), ["a"]);
    let deltas =
        [(Some("a"), Some("b"), 1), (Some("a"), Some("a"), 0), (None, Some("a"), 0), (Some("a"), None, 1)];
    for (old, new, expected) in deltas {
        let (old, new) = (Arc::new(volume(old)) as AnyObject, Arc::new(volume(new)) as AnyObject);
        let mut keys = 0;
        let delta = Delta { old: Some(&old), new: Some(&new), initial: false, resync: false };
        named_no_longer(classes_of_volume)(delta, &mut |_| keys += 1);
        assert_eq!(keys, expected);
    }
}

#[test]
fn it_says_who_keeps_a_class() {
    let room = room(&class(&[FINALIZER], true), Some(&claim("gold", "", "")), Some(&volume(Some("gold"))));
    let Ok(Observation::View(view)) = observed(&room, &Reads::default()) else { panic!("it is decided") };
    let said = Controller::reasons(&view, Timestamp::UNIX_EPOCH).remove(0);
    assert!(said.contains("because claim ns/data and volume pv name it"), "{said}");
}
