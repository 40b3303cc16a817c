//! Which keys a change of Endpoints concerns. (Those of Services and pods: see the EndpointSlice controller's tests.)

use super::super::keys;
use super::fixtures::{any, labels, meta};
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::kinds::ENDPOINTS;
use coxswain_machinery::informer::Delta;

#[test]
fn endpoints_concern_their_service_when_they_go_and_at_the_start() {
    let made = |name: &str, annotations: &[(&str, &str)]| {
        let mut metadata = meta("default", name);
        metadata.annotations = labels(annotations);
        any(&ENDPOINTS, &Endpoints { metadata, ..Endpoints::default() })
    };
    let (plain, lock) = (made("web", &[]), made("lock", &[("control-plane.alpha.kubernetes.io/leader", "")]));
    let map = keys::of_endpoints();
    for (what, old, new, initial, resync, expected) in [
        ("made", None, Some(&plain), false, false, ""),
        ("changed", Some(&plain), Some(&plain), false, false, ""),
        ("gone", Some(&plain), None, false, false, "default/web"),
        ("a lock gone", Some(&lock), None, false, false, "default/lock"),
        ("there at the start", None, Some(&plain), true, false, "default/web"),
        ("a lock there at the start", None, Some(&lock), true, false, ""),
        ("nothing new", Some(&plain), Some(&plain), false, true, ""),
    ] {
        let mut told = Vec::new();
        map(Delta { old, new, initial, resync }, &mut |key| told.push(key.to_string()));
        assert_eq!(told.join(","), expected, "{what}");
    }
}
