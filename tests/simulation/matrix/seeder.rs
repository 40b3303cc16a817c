//! Objects as users and other components make them, for one tag.

use std::fmt::Write as _;

use coxswain_machinery::api::Kind;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use serde_json::{Value as Json, json};

use apiserver_model::{Model, Place, codec, message, stored_kind, text};

/// Makes the objects of one tag: in the namespace of this name, or with this name where the kind has no namespaces.
pub(crate) struct Seeder<'a> {
    pub(super) model: &'a mut Model,
    pub(super) tag: &'static str,
    /// Objects that were made, in order.
    pub(super) made: &'a mut Vec<Place>,
}

impl Seeder<'_> {
    /// Returns a time this long ago.
    pub(super) fn ago(&self, ago: SignedDuration) -> String {
        (self.model.seconds() - ago).to_string()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.model.seconds()
    }

    /// Creates an object, named after the tag if it has no name, in the namespace of the tag if it has none.
    pub(super) fn make(&mut self, resource: &'static str, object: Json) -> Json {
        let kind = stored_kind(resource);
        let namespace = self.namespace_of(kind, &object);
        self.make_in(resource, &namespace, object)
    }

    fn namespace_of(&mut self, kind: &Kind, object: &Json) -> String {
        if !kind.namespaced {
            return String::new();
        }
        let given = text(object, "/metadata/namespace");
        let namespace = if given.is_empty() { self.tag } else { given }.to_owned();
        if self.model.get(&Place::new("namespaces", "", &namespace)).is_none() {
            self.make_in("namespaces", "", json!({ "metadata": { "name": namespace } }));
        }
        namespace
    }

    fn make_in(&mut self, resource: &'static str, namespace: &str, mut object: Json) -> Json {
        if text(&object, "/metadata/name").is_empty() && text(&object, "/metadata/generateName").is_empty() {
            if !object["metadata"].is_object() {
                object["metadata"] = json!({});
            }
            object["metadata"]["name"] = json!(self.tag);
        }
        let made = self.model.create("user", resource, namespace, object);
        let made = made.unwrap_or_else(|refusal| panic!("create {resource}: {}", refusal.message));
        self.made.push(made.place.clone());
        made.json.clone()
    }

    /// Writes any part of an object, as a restored backup does.
    pub(super) fn amend(
        &mut self,
        resource: &'static str,
        object: &Json,
        edit: impl FnOnce(&mut Json),
    ) -> Json {
        let mut json = object.clone();
        edit(&mut json);
        let kind = stored_kind(resource);
        let encoded = codec::encode(message(kind).expect("a stored kind"), &json);
        self.model.restore(kind, &encoded).json.clone()
    }

    /// Creates an object and writes its status.
    pub(super) fn make_with_status(&mut self, resource: &'static str, object: Json, status: Json) -> Json {
        let made = self.make(resource, object);
        self.amend(resource, &made, |object| object["status"] = status)
    }

    /// Creates an object and marks it as deleted now.
    pub(super) fn make_deleted(&mut self, resource: &'static str, object: Json) -> Json {
        let made = self.make(resource, object);
        let now = self.now().to_string();
        self.amend(resource, &made, |object| {
            object["metadata"]["deletionTimestamp"] = json!(now);
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        })
    }
}

/// Returns the name of the VolumeAttachment of a volume and a node that have this name and handle.
pub(super) fn attachment_name(driver: &str, tag: &str) -> String {
    let hash = digest(&SHA256, format!("{tag}{driver}{tag}").as_bytes());
    hash.as_ref().iter().fold("csi-".to_owned(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// The CSI driver of all volumes.
pub(super) const DRIVER: &str = "csi.example.com";

/// Returns a reference to the controller of an object.
pub(super) fn owner(api_version: &str, kind: &str, of: &Json) -> Json {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": of["metadata"]["name"], "uid": of["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Returns a pod template with one container.
pub(super) fn template() -> Json {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "main" }], "terminationGracePeriodSeconds": 0 },
    })
}

/// Returns a selector of the template's pods.
pub(super) fn selector() -> Json {
    json!({ "matchLabels": { "app": "web" } })
}
