//! The requests by which volumes come and go: VolumeAttachments, and the list of a node. Pure.

use serde_json::{Value, json};

use super::book::Want;
use super::draft::Ask;
use super::source::{Means, Reference};
use super::view::View;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{NODES, VOLUME_ATTACHMENTS};
use coxswain_machinery::api::storage::{VolumeAttachment, VolumeAttachmentSource};
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::{Message as _, Str};

/// A UID that no object has.
const NO_OBJECT: &str = "00000000-0000-0000-0000-000000000000";

/// What an attacher is asked for; `None` for what it cannot be asked for.
pub(super) fn ask(view: &View, ask: &Ask) -> Option<Write> {
    let (name, verb, tolerate) = match ask {
        Ask::Attach(volume, name) => {
            let want = view.book.wants.get(volume)?;
            let tolerate = Tolerate { exists: true, ..Tolerate::default() };
            (name, Verb::Create(attachment(&view.name, name, want)?.into()), tolerate)
        }
        Ask::Detach(name, uid) => {
            (name, Verb::delete(uid.clone()), Tolerate { absent: true, ..Tolerate::default() })
        }
        // A 404 shows that there is none. The precondition holds for no object, so one that is there stays, and the answer is a conflict.
        Ask::Probe(name) => {
            (name, Verb::delete(NO_OBJECT.into()), Tolerate { gone: true, ..Tolerate::default() })
        }
    };
    let write = Write::new(&VOLUME_ATTACHMENTS, Key::new("", name.clone()), verb);
    Some(Write { tolerate, keep_going: true, ..write })
}

/// An encoded VolumeAttachment.
fn attachment(node: &Str, name: &Str, want: &Want) -> Option<Vec<u8>> {
    let Means::Driver { driver, .. } = &want.source.means else { return None };
    let source = match &want.source.reference {
        Reference::Volume => VolumeAttachmentSource {
            persistent_volume_name: Some(want.source.name.clone()),
            ..VolumeAttachmentSource::default()
        },
        Reference::Inline(spec) => VolumeAttachmentSource {
            inline_volume_spec: spec.clone().into(),
            ..VolumeAttachmentSource::default()
        },
        Reference::Unknown => return None,
    };
    let mut made = VolumeAttachment::default();
    made.metadata.name = name.clone();
    made.spec.attacher = driver.clone();
    made.spec.node_name = node.clone();
    made.spec.source = source;
    Some(made.to_bytes())
}

/// The node's list, whole. It carries no version: nobody else writes the list, and others write the node all the time.
pub(super) fn list(node: &Node, wanted: &[(Str, Str)]) -> Write {
    let entry = |(name, path): &(Str, Str)| json!({ "name": name.as_str(), "devicePath": path.as_str() });
    let list = match wanted {
        [] => Value::Null,
        wanted => wanted.iter().map(entry).collect(),
    };
    let patch = json!({
        "metadata": { "uid": node.metadata.uid.to_string() },
        "status": { "volumesAttached": list },
    });
    let verb = Verb::Patch(Patch::Strategic(patch));
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        // What need not be told to the node first goes on.
        keep_going: true,
        ..Write::new(&NODES, Key::of(&node.metadata), verb).on("status")
    }
}
