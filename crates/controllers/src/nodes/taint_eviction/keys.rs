//! Which pods a change concerns: heartbeats of nodes and statuses of pods concern nobody.

use std::sync::Arc;

use super::memory::Timers;
use super::verdict::{is_tainted, no_execute};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::Key;

/// A node that is new, or whose `NoExecute` taints have changed, concerns the pods that are bound to it.
pub(super) fn of_nodes(pods: Indexed<Pod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if delta.resync {
            return;
        }
        let (old, Some(node)) = delta.typed::<Node>() else { return };
        let is_news = match old {
            Some(old) => !no_execute(&old.spec.taints).eq(no_execute(&node.spec.taints)),
            // Of what is there at the start nobody waits for anything yet.
            None => !delta.initial || is_tainted(node),
        };
        if is_news {
            for pod in pods.filed(&node.metadata.name) {
                add(Key::of(&pod.metadata));
            }
        }
    })
}

/// A pod concerns itself when it is bound, tolerates other taints or goes: if its node is tainted, or it waits.
pub(super) fn of_pods(nodes: Lister<Node>, timers: Arc<Timers>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        if delta.resync || old.zip(new).is_some_and(|(old, new)| alike(old, new)) {
            return;
        }
        let Some(pod) = new.or(old).filter(|pod| !pod.spec.node_name.is_empty()) else { return };
        let key = Key::of(&pod.metadata);
        let node = nodes.get(&Key::new("", pod.spec.node_name.clone()));
        if node.is_some_and(|node| is_tainted(&node)) || timers.knows(&key) {
            add(key);
        }
    })
}

fn alike(old: &Pod, new: &Pod) -> bool {
    old.spec.node_name == new.spec.node_name
        && (old.shape.is_same(&new.shape) || old.shape.tolerations == new.shape.tolerations)
}
