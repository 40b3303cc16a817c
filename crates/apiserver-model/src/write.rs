//! What creates, updates and deletes do.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};

use super::admission::check_owners;
use super::{Model, Place, Refusal, Stored, defaults};

/// A change, for those who check what is written.
pub struct Change {
    /// When it was made.
    pub at: Timestamp,
    /// Who made it: `user`, `kubelet` …, or a controller of a manager.
    pub by: String,
    /// `create`, `update` or `delete`.
    pub verb: &'static str,
    /// The subresource that was written; empty for the object itself.
    pub subresource: String,
    /// What there was before; `None` when it was created.
    pub before: Option<Arc<Stored>>,
    /// `None` when the object is gone.
    pub after: Option<Arc<Stored>>,
}

/// How an object is to be deleted.
#[derive(Clone, Debug, Default)]
pub struct Deletion {
    /// The UID that it must have; empty for any.
    pub uid: String,
    /// The resource version that it must have; empty for any.
    pub version: String,
    /// What becomes of its dependents; empty for the default.
    pub propagation: String,
    /// Seconds that it gets to end; its own if `None`.
    pub grace: Option<i64>,
}

/// Text at a path; empty if there is none.
pub fn text<'a>(json: &'a Json, pointer: &str) -> &'a str {
    json.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// Items of a list at a path.
pub fn items<'a>(json: &'a Json, pointer: &str) -> &'a [Json] {
    json.pointer(pointer).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// Sets a member, or takes it away when there is nothing to set.
fn put(object: &mut Json, name: &str, value: Option<Json>) {
    let Some(members) = object.as_object_mut() else { return };
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.shift_remove(name),
    };
}

/// Whether both say the same, whatever is spelt out in one that is empty in the other.
fn same(one: &Json, other: &Json) -> bool {
    fn is_empty(json: &Json) -> bool {
        match json {
            Json::Null => true,
            Json::Array(items) => items.is_empty(),
            Json::Object(members) => members.values().all(is_empty),
            _ => false,
        }
    }
    match (one, other) {
        (Json::Object(ours), Json::Object(theirs)) => {
            let in_other = ours.iter().all(|(name, value)| match theirs.get(name) {
                Some(their) => same(value, their),
                None => is_empty(value),
            });
            in_other && theirs.iter().all(|(name, value)| ours.contains_key(name) || is_empty(value))
        }
        (Json::Array(ours), Json::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(one, other)| same(one, other))
        }
        _ => one == other,
    }
}

impl Model {
    /// Creates an object.
    pub fn create(
        &mut self,
        by: &str,
        resource: &'static str,
        namespace: &str,
        mut json: Json,
    ) -> Result<Arc<Stored>, Refusal> {
        if !json["metadata"].is_object() {
            json["metadata"] = json!({});
        }
        if text(&json, "/metadata/name").is_empty() {
            let name = format!("{}{}", text(&json, "/metadata/generateName"), self.suffix());
            json["metadata"]["name"] = Json::from(name);
        }
        let place = Place::new(resource, namespace, text(&json, "/metadata/name"));
        if !namespace.is_empty() {
            let home = Place::new("namespaces", "", namespace);
            match self.get(&home) {
                None => return Err(Refusal::not_found(&home)),
                Some(home) if home.json["metadata"]["deletionTimestamp"].is_string() => {
                    return Err(Refusal::terminating(&place));
                }
                Some(_) => json["metadata"]["namespace"] = Json::from(namespace),
            }
        }
        let uid = self.uid();
        let metadata = &mut json["metadata"];
        for unset in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
            put(metadata, unset, None);
        }
        metadata["uid"] = Json::from(uid);
        metadata["creationTimestamp"] = Json::from(self.seconds().to_string());
        defaults::on_create(resource, &mut json);
        validate(&place, None, &json)?;
        check_owners((self.roles)(by), by, &place, None, &json)?;
        self.charge(&place, &json)?;
        if self.objects.contains_key(&place) {
            return Err(Refusal::exists(&place));
        }
        let stored = self.commit(place, json, false);
        self.note(by, "create", "", None, Some(&stored));
        Ok(stored)
    }

    /// Makes another version of an object, or of a part of it, with what `edit` makes of the present one. The UID and the version
    /// in what it makes must be the present ones, where they are given.
    pub fn update(
        &mut self,
        by: &str,
        place: &Place,
        subresource: &str,
        edit: impl FnOnce(&Json) -> Result<Json, Refusal>,
    ) -> Result<Arc<Stored>, Refusal> {
        let old = Arc::clone(self.get(place).ok_or_else(|| Refusal::not_found(place))?);
        let mut new = edit(&old.json)?;
        let version = text(&new, "/metadata/resourceVersion");
        if !version.is_empty() && version != old.version.to_string() {
            return Err(Refusal::conflict(place));
        }
        let uid = text(&new, "/metadata/uid");
        if !uid.is_empty() && uid != text(&old.json, "/metadata/uid") {
            return Err(Refusal::invalid(place, "has another UID, which cannot be changed"));
        }
        defaults::on_update(place.resource, subresource, &old.json, &mut new);
        validate(place, Some(&old.json), &new)?;
        check_owners((self.roles)(by), by, place, Some(&old.json), &new)?;
        if same(&old.json, &new) {
            return Ok(old);
        }
        Ok(self.conclude(by, "update", subresource, &old, new))
    }

    /// Makes another version of an object, or of a part of it, that differs from the present one by what `change` changes.
    pub fn change(
        &mut self,
        by: &str,
        place: &Place,
        subresource: &str,
        change: impl FnOnce(&mut Json),
    ) -> Result<Arc<Stored>, Refusal> {
        self.update(by, place, subresource, |held| {
            let mut object = held.clone();
            change(&mut object);
            Ok(object)
        })
    }

    /// Deletes an object, or begins to.
    pub fn delete(&mut self, by: &str, place: &Place, how: &Deletion) -> Result<Arc<Stored>, Refusal> {
        let old = Arc::clone(self.get(place).ok_or_else(|| Refusal::not_found(place))?);
        let has_other = |wanted: &str, held: &str| !wanted.is_empty() && wanted != held;
        if has_other(&how.uid, text(&old.json, "/metadata/uid"))
            || has_other(&how.version, &old.version.to_string())
        {
            return Err(Refusal::conflict(place));
        }
        let grace = grace_of(place, &old.json, how.grace);
        let held = old.json["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let is_deleting = old.json["metadata"]["deletionTimestamp"].is_string();
        // Who ends already is only told to end sooner.
        if is_deleting && held.is_some_and(|held| held > 0 && grace >= held) {
            return Ok(old);
        }
        let mut new = old.json.clone();
        let mut finalizers: Vec<&str> =
            items(&old.json, "/metadata/finalizers").iter().filter_map(Json::as_str).collect();
        for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
            let wanted = how.propagation == policy;
            if (wanted || !how.propagation.is_empty()) && finalizers.contains(&finalizer) != wanted {
                finalizers.retain(|held| *held != finalizer);
                finalizers.extend(wanted.then_some(finalizer));
            }
        }
        put(&mut new["metadata"], "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
        if !is_deleting || held.is_some_and(|held| grace < held) {
            let at = self.seconds() + SignedDuration::from_secs(grace);
            new["metadata"]["deletionTimestamp"] = Json::from(at.to_string());
            new["metadata"]["deletionGracePeriodSeconds"] = Json::from(grace);
            let generation = new["metadata"]["generation"].as_i64();
            if let Some(generation) = generation.filter(|_| !is_deleting) {
                new["metadata"]["generation"] = Json::from(generation + 1);
            }
            if place.resource == "namespaces" {
                new["status"]["phase"] = Json::from("Terminating");
            }
        }
        // What nothing holds any more goes, though somebody has deleted it before.
        if same(&old.json, &new) && !is_done(place, &new) {
            return Ok(old);
        }
        Ok(self.conclude(by, "delete", "", &old, new))
    }

    /// Stores a version, or takes the object away if nothing holds it any more.
    fn conclude(
        &mut self,
        by: &str,
        verb: &'static str,
        subresource: &str,
        old: &Arc<Stored>,
        new: Json,
    ) -> Arc<Stored> {
        let is_done = is_done(&old.place, &new);
        let stored = self.commit(old.place.clone(), new, is_done);
        self.note(by, verb, subresource, Some(old), (!is_done).then_some(&stored));
        stored
    }

    fn note(
        &mut self,
        by: &str,
        verb: &'static str,
        subresource: &str,
        before: Option<&Arc<Stored>>,
        after: Option<&Arc<Stored>>,
    ) {
        self.changes.push(Change {
            at: self.now,
            by: by.to_owned(),
            verb,
            subresource: subresource.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        });
    }

    /// How late it is, in whole seconds, as objects say it.
    pub fn seconds(&self) -> Timestamp {
        Timestamp::from_second(self.now.as_second()).unwrap_or_default()
    }
}

/// Whether an object is being deleted, and nothing holds it any more.
fn is_done(place: &Place, object: &Json) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && items(object, "/metadata/finalizers").is_empty()
        && (place.resource != "namespaces" || items(object, "/spec/finalizers").is_empty())
}

/// For how long an object may go on when it is deleted: pods that run have time to end.
fn grace_of(place: &Place, object: &Json, asked: Option<i64>) -> i64 {
    let has_ended = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
    if place.resource != "pods" || has_ended || text(object, "/spec/nodeName").is_empty() {
        return 0;
    }
    asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30)
}

/// What every object must be.
fn validate(place: &Place, old: Option<&Json>, new: &Json) -> Result<(), Refusal> {
    let owners = items(new, "/metadata/ownerReferences");
    if owners.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        return Err(Refusal::invalid(place, "may have one controller only"));
    }
    if let Some(old) = old
        && old["metadata"]["deletionTimestamp"].is_string()
    {
        let held = items(old, "/metadata/finalizers");
        if !items(new, "/metadata/finalizers").iter().all(|finalizer| held.contains(finalizer)) {
            return Err(Refusal::invalid(place, "is being deleted and takes no new finalizers"));
        }
    }
    if place.resource == "pods"
        && let Some(old) = old
        && ["volumes", "hostname", "subdomain"].iter().any(|fixed| old["spec"][fixed] != new["spec"][fixed])
    {
        return Err(Refusal::invalid(place, "pod updates may not change fields other than some"));
    }
    let issued = |request: &Json| text(request, "/status/certificate").to_owned();
    if place.resource == "certificatesigningrequests"
        && let Some(old) = old.map(issued)
        && !old.is_empty()
        && old != issued(new)
    {
        return Err(Refusal::invalid(place, "has a certificate, which cannot be changed"));
    }
    Ok(())
}
