//! Where encoded pods may run, changed without decoding the rest of them.

use crate::api::pod::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec};
use crate::api::shape::{ShapedToleration, Toleration};
use crate::wire::splice::{Edit, edit, put_bytes};
use crate::wire::{Message, Reader, Str, WireError, field, path};

use super::NAME_FIELD;

/// The encoded pod, required to run on this node and on no other. What else its affinity says stays.
pub fn meant_for(pod: &[u8], node: &Str) -> Result<Vec<u8>, WireError> {
    let only =
        NodeSelectorRequirement { key: NAME_FIELD.into(), operator: "In".into(), values: vec![node.clone()] };
    let term = NodeSelectorTerm { match_fields: vec![only], ..NodeSelectorTerm::default() };
    let required = NodeSelector { node_selector_terms: vec![term] };
    let path = path!(Pod, spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution);
    edit(pod, &[Edit::SetBytes(path, required.to_bytes())])
}

/// The encoded spec of pods, tolerating this as well. A toleration that it has of the same key, effect, operator and value is
/// replaced where it stands, so that one with an end has none any more.
pub fn tolerating(spec: &[u8], tolerations: &[Toleration]) -> Result<Vec<u8>, WireError> {
    const TOLERATIONS: u32 = field!(PodSpec, tolerations);
    let mut missing: Vec<&Toleration> = tolerations.iter().collect();
    let mut out = Vec::with_capacity(spec.len() + 64 * tolerations.len());
    let mut fields = Reader::new(spec);
    while let Some((number, value, raw)) = fields.next_raw()? {
        let held = if number == TOLERATIONS {
            let held = ShapedToleration::decode(&bytes::Bytes::copy_from_slice(value.bytes()?))?;
            // Linear: a controller adds a handful.
            tolerations.iter().find(|added| is_same(added, &Toleration::from(held.clone())))
        } else {
            None
        };
        match held {
            Some(added) => {
                put_bytes(&mut out, TOLERATIONS, &encoded(added));
                missing.retain(|other| *other != added);
            }
            None => out.extend_from_slice(raw),
        }
    }
    for added in missing {
        put_bytes(&mut out, TOLERATIONS, &encoded(added));
    }
    Ok(out)
}

/// Whether both tolerate the same, if perhaps not for as long.
fn is_same(a: &Toleration, b: &Toleration) -> bool {
    (&a.key, &a.effect, &a.operator, &a.value) == (&b.key, &b.effect, &b.operator, &b.value)
}

fn encoded(toleration: &Toleration) -> Vec<u8> {
    let Toleration { key, operator, value, effect, seconds } = toleration.clone();
    ShapedToleration { key, operator, value, effect, toleration_seconds: seconds }.to_bytes()
}
