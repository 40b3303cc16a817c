//! The newer API server: puts unknown fields into whatever it serves, and looks for them in whatever is written.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;

use super::fields::{each, fields, inner, open, refill, shape_of, text, unknown, with_unknown, without};
use crate::harness::Tamper;
use coxswain_machinery::random::HashMap;

const METADATA: u32 = 1;
const SPEC: u32 = 2;
const STATUS: u32 = 3;
const TEMPLATE: u32 = 3;
const SELECTOR: u32 = 2;
const ANNOTATIONS: u32 = 12;
const OWNERS: u32 = 13;
const FINALIZERS: u32 = 14;
const CONDITIONS: u32 = 6;
const MANAGED_FIELDS: &[u32] = &[METADATA, 17];

/// See the module.
#[derive(Default)]
pub(super) struct Newer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was served, by UID and resource version, without managed fields.
    served: HashMap<(String, String), Vec<u8>>,
    /// Writes that were checked, by method and what they write.
    checked: BTreeMap<String, usize>,
    lost: Vec<String>,
}

impl Newer {
    /// What was checked how often. Fails when a write has lost something.
    pub(super) fn checked(&self) -> BTreeMap<String, usize> {
        let state = self.state.lock();
        assert!(state.lost.is_empty(), "{}", state.lost.join("\n"));
        state.checked.clone()
    }

    fn tampered(&self, kind: &str, object: &[u8]) -> Vec<u8> {
        let Some(shape) = shape_of(kind) else { return object.to_vec() };
        let key = (text(object, &[METADATA, 5]), text(object, &[METADATA, 6]));
        let tampered = with_unknown(object, shape, &format!("{kind} {}", key.0));
        self.state.lock().served.insert(key, without(&tampered, &[MANAGED_FIELDS]));
        tampered
    }

    /// An object or a list of them, in an envelope.
    fn tampered_envelope(&self, body: &Bytes) -> Bytes {
        let (kind, content) = open(body);
        let content = match kind.strip_suffix("List") {
            Some(kind) => each(&content, 2, |item| self.tampered(kind, item)),
            None => self.tampered(&kind, &content),
        };
        refill(body, &content).into()
    }
}

impl Tamper for Newer {
    fn request(&self, method: &Method, path: &str, body: Bytes) -> Bytes {
        let (kind, object) = open(&body);
        let status = if path.ends_with("/status") { "/status" } else { "" };
        let what = format!("{method} {kind}{status}");
        let mut state = self.state.lock();
        let verdict = match *method {
            Method::PUT => state.replaced(&what, &object),
            Method::POST => state.created(&kind, &object),
            _ => return body,
        };
        match verdict {
            Ok(true) => *state.checked.entry(what).or_default() += 1,
            Ok(false) => {}
            Err(lost) => state.lost.push(format!("{what} {}: {lost}", text(&object, &[METADATA, 1]))),
        }
        drop(state);
        body
    }

    fn answer(&self, body: Bytes) -> Bytes {
        self.tampered_envelope(&body)
    }

    fn event(&self, frame: Bytes) -> Bytes {
        if text(&frame, &[1]) == "ERROR" {
            return frame;
        }
        let tampered = each(&frame, 2, |extension| {
            each(extension, 1, |envelope| self.tampered_envelope(&Bytes::copy_from_slice(envelope)).to_vec())
        });
        tampered.into()
    }
}

impl State {
    /// A PUT must hold what was served at the version that it was made from, except what is set by it.
    fn replaced(&self, what: &str, object: &[u8]) -> Result<bool, String> {
        let key = (text(object, &[METADATA, 5]), text(object, &[METADATA, 6]));
        let served = self.served.get(&key).ok_or_else(|| format!("{key:?} was never served"))?;
        let (annotations, conditions) = ([METADATA, ANNOTATIONS], [STATUS, CONDITIONS]);
        let status: Vec<[u32; 2]> = (1..=9).map(|number| [STATUS, number]).collect();
        let lease: Vec<[u32; 2]> = (1..=5).map(|number| [SPEC, number]).collect();
        let mut set: Vec<&[u32]> = match what {
            "PUT ReplicaSet/status" | "PUT Deployment/status" | "PUT ResourceQuota/status" => {
                status.iter().map(<[u32; 2]>::as_slice).collect()
            }
            // The size and minReadySeconds.
            "PUT ReplicaSet" => vec![&[SPEC, 1], &[SPEC, 4]],
            "PUT ConfigMap" | "PUT Secret" | "PUT ServiceAccount" => vec![&[2]],
            "PUT ServiceCIDR" => vec![&[METADATA, FINALIZERS]],
            "PUT ServiceCIDR/status" => vec![&[STATUS, 1]],
            "PUT Lease" => lease.iter().map(<[u32; 2]>::as_slice).collect(),
            other => return Err(format!("nobody said what {other} sets")),
        };
        // Where annotations are set, others must still be there; they are no messages.
        if what != "PUT ServiceAccount" && what != "PUT Lease" {
            set.push(&annotations);
        }
        let (before, after) = (without(served, &set), without(object, &set));
        if before != after {
            return Err(format!("\n{before:?} became\n{after:?}"));
        }
        if set.contains(&conditions.as_slice()) {
            items_keep(inner(served, STATUS), inner(object, STATUS), CONDITIONS, &[1])?;
        }
        if what == "PUT ServiceAccount" {
            items_keep(served, object, 2, &[3])?;
        }
        Ok(true)
    }

    /// What is made from a template holds what was served of it.
    fn created(&self, kind: &str, object: &[u8]) -> Result<bool, String> {
        let metadata = inner(object, METADATA);
        let owner = text(metadata, &[OWNERS, 4]);
        let mut templates =
            self.served.iter().filter(|((uid, _), _)| *uid == owner).map(|(_, served)| served);
        let fits = match kind {
            "Pod" => templates.any(|owner| {
                let template = inner(inner(owner, SPEC), TEMPLATE);
                let inherited = unknown(inner(template, METADATA));
                !inherited.is_empty()
                    && unknown(metadata) == inherited
                    && inner(object, SPEC) == inner(template, SPEC)
            }),
            "ReplicaSet" => templates.any(|owner| {
                // Labels of the template and of the selector have the hash in them.
                let (of_owner, of_set) = (inner(owner, SPEC), inner(object, SPEC));
                let template = |spec| without(inner(spec, TEMPLATE), &[&[METADATA, 11]]);
                let selector = |spec| without(inner(spec, SELECTOR), &[&[1]]);
                template(of_owner) == template(of_set) && selector(of_owner) == selector(of_set)
            }),
            _ => return Ok(false),
        };
        if fits { Ok(true) } else { Err(format!("not made from any template of {owner}")) }
    }
}

/// Items that are still there, found by the text at `name`, keep what is unknown in them.
fn items_keep(before: &[u8], after: &[u8], field: u32, name: &[u32]) -> Result<(), String> {
    let items = |message| -> BTreeMap<String, Vec<Vec<u8>>> {
        let items = fields(message).into_iter().filter(|(number, ..)| *number == field);
        items
            .map(|(_, value, _)| value.bytes().expect("a message"))
            .map(|item| (text(item, name), unknown(item)))
            .collect()
    };
    let (before, after) = (items(before), items(after));
    for (name, unknown) in &before {
        if after.get(name).is_some_and(|kept| kept != unknown) {
            return Err(format!("{name} had {unknown:?} and has {:?}", after[name]));
        }
    }
    Ok(())
}
