//! Which keys a change concerns. Pods and PodGroups without claims cost nothing: they are filed nowhere and wake nobody.

use std::any::Any;
use std::sync::Arc;

use super::claim::is_done;
use super::departed::Departed;
use super::names;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{ResourceClaim, ResourceClaimTemplate};
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::api::{Index, IndexKeys, Object, distinct};
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Pods by the claims that they name.
pub(super) static PODS_BY_CLAIM: Index = Index { name: "resource-claim", keys: claims_of_pod };
/// Pods by the templates that claims are made from for them.
pub(super) static PODS_BY_TEMPLATE: Index = Index { name: "resource-claim-template", keys: templates_of_pod };
/// Pods with claims, by their PodGroup.
pub(super) static PODS_BY_GROUP: Index = Index { name: "pod-group-with-claims", keys: group_of_pod };
/// PodGroups by the claims that they name.
pub(super) static GROUPS_BY_CLAIM: Index = Index { name: "resource-claim", keys: claims_of_group };
/// PodGroups by the templates that claims are made from for them.
pub(super) static GROUPS_BY_TEMPLATE: Index =
    Index { name: "resource-claim-template", keys: templates_of_group };

/// The value under which objects of a namespace are filed that name something.
fn value(namespace: &str, name: &str) -> Str {
    Str::from(format!("{namespace}/{name}"))
}

fn values<'a>(meta: &ObjectMeta, names: impl Iterator<Item = &'a Str>) -> IndexKeys {
    distinct(names.map(|name| value(&meta.namespace, name)))
}

fn typed<T: Object>(object: &dyn Object) -> Option<&T> {
    let any: &dyn Any = object;
    any.downcast_ref()
}

fn claims_of_pod(object: &dyn Object) -> IndexKeys {
    typed(object).map(|pod: &Pod| values(&pod.metadata, names::of_pod(pod))).unwrap_or_default()
}

fn templates_of_pod(object: &dyn Object) -> IndexKeys {
    let templates = |pod: &Pod| {
        values(&pod.metadata, pod.shape.resource_claims.iter().filter_map(|entry| entry.template.as_ref()))
    };
    typed(object).map(templates).unwrap_or_default()
}

fn group_of_pod(object: &dyn Object) -> IndexKeys {
    let group = |pod: &Pod| {
        let is_member = has_claims(pod) && !pod.shape.pod_group.is_empty();
        is_member.then(|| value(&pod.metadata.namespace, &pod.shape.pod_group)).into_iter().collect()
    };
    typed(object).map(group).unwrap_or_default()
}

fn claims_of_group(object: &dyn Object) -> IndexKeys {
    typed(object).map(|group: &PodGroup| values(&group.metadata, names::of_group(group))).unwrap_or_default()
}

fn templates_of_group(object: &dyn Object) -> IndexKeys {
    let templates = |group: &PodGroup| {
        let entries = group.spec.resource_claims.iter();
        values(&group.metadata, entries.filter_map(|entry| entry.resource_claim_template_name.as_ref()))
    };
    typed(object).map(templates).unwrap_or_default()
}

/// The value of a claim itself.
pub(super) fn of_claim(claim: &ResourceClaim) -> IndexKeys {
    std::iter::once(value(&claim.metadata.namespace, &claim.metadata.name)).collect()
}

/// The value of a PodGroup itself.
pub(super) fn of_group(group: &PodGroup) -> IndexKeys {
    std::iter::once(value(&group.metadata.namespace, &group.metadata.name)).collect()
}

fn has_claims(pod: &Pod) -> bool {
    !pod.shape.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some()
}

/// A pod concerns its own key while it may need claims.
pub(super) fn own_pod() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let needs = |pod: &&Pod| {
            !pod.shape.resource_claims.is_empty() && !pod.metadata.is_deleting() && !pod.is_finished()
        };
        if let Some(pod) = delta.typed::<Pod>().1.filter(needs) {
            add(Key::of(&pod.metadata));
        }
    })
}

/// A PodGroup with claims concerns its own key.
pub(super) fn own_group() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let has_claims = |group: &&PodGroup| !group.spec.resource_claims.is_empty();
        if let Some(group) = delta.typed::<PodGroup>().1.filter(has_claims) {
            add(Key::of(&group.metadata));
        }
    })
}

/// A template that is new or has changed concerns those that are filed under it. One that is gone was used before, or will be missed
/// when it is asked for.
pub(super) fn of_templates<O: Object>(owners: Indexed<O>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let Some(template) = delta.typed::<ResourceClaimTemplate>().1.filter(|_| delta.is_news()) else {
            return;
        };
        let Key { namespace, name, .. } = Key::of(&template.metadata);
        for owner in owners.filed(&value(&namespace, &name)) {
            add(Key::of(owner.meta()));
        }
    })
}

/// Notes the deletion of a consumer, or that it is there.
fn note(departed: &Departed, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>) {
    if let Some(new) = new {
        departed.remove(&new.uid);
    }
    if let Some(old) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
        departed.add(&old.uid);
    }
}

/// A pod that is done, or gone, concerns the claims that it used.
pub(super) fn left_by_pods(departed: Arc<Departed>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let consumer = |pod: &&Pod| has_claims(pod);
        let [before, now] = [old, new].map(|pod| pod.filter(consumer).map(|pod| &pod.metadata));
        note(&departed, before, now);
        // Where it was done before, the claims were told. One that is done at the start is looked for by its claims, which are all looked at
        // then; one that a later list has first was missed while it ran.
        let leaves = match (old, new) {
            (Some(old), None) => Some(old),
            (Some(old), Some(new)) if old.metadata.uid != new.metadata.uid => Some(old),
            (old, Some(new)) if is_done(new) && !delta.initial && !old.is_some_and(is_done) => Some(new),
            _ => None,
        };
        if let Some(pod) = leaves {
            tell(&pod.metadata, names::of_pod(pod), add);
        }
    })
}

/// A PodGroup that is gone concerns the claims that it used.
pub(super) fn left_by_groups(departed: Arc<Departed>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PodGroup>();
        note(&departed, old.map(|group| &group.metadata), new.map(|group| &group.metadata));
        if let (Some(group), None) = (old, new) {
            tell(&group.metadata, names::of_group(group), add);
        }
    })
}

fn tell<'a>(meta: &ObjectMeta, claims: impl Iterator<Item = &'a Str>, add: &mut dyn FnMut(Key)) {
    claims.for_each(|claim| add(Key::new(meta.namespace.clone(), claim.clone())));
}
