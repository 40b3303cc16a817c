//! The objects of one tag, without parts that differ between runs: two tags are in the same state if these texts are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::Value as Json;

use super::{TAGS, TOUCHED};
use apiserver_model::{Model, Place, Stored, text};

/// Texts longer than this are tokens, keys or certificates.
const LONGEST: usize = 300;
/// Shorter names are not looked for in texts.
const SHORTEST_NAME: usize = 5;

/// Members that differ between tags, or that a refused write loses for good: an autoscaler does not know when it scaled if it could
/// not write that.
const VOLATILE: [&str; 3] = ["resourceVersion", "managedFields", "lastScaleTime"];

/// UIDs of the objects that were there at the start, by their order of creation: an object that is replaced has another one.
pub(super) type Seeded = BTreeMap<String, String>;

/// Returns the UIDs of the objects that were made for each tag.
pub(super) fn seeded(model: &Model, made: &[Vec<Place>]) -> Seeded {
    let uid = |place: &Place| Some(text(&model.get(place)?.json, "/metadata/uid").to_owned());
    let of_tag = |made: &Vec<Place>| -> Vec<(String, String)> {
        let numbered = made.iter().enumerate();
        numbered.filter_map(|(at, place)| Some((uid(place)?, format!("SEEDED-{at}")))).collect()
    };
    made.iter().flat_map(of_tag).collect()
}

fn is_of(stored: &Stored, tag: &str) -> bool {
    let Place { resource, namespace, name } = &stored.place;
    let is_attachment = *resource == "volumeattachments" && stored.json["spec"]["nodeName"] == tag;
    (is_attachment || namespace.contains(tag) || name.contains(tag))
        && !matches!(*resource, "events" | "leases")
}

/// Returns the state of a tag.
pub(super) fn state(model: &Model, tag: &str, seeded: &Seeded) -> Vec<String> {
    let mut words: Vec<(String, String)> =
        seeded.iter().map(|(uid, sign)| (uid.clone(), sign.clone())).collect();
    for stored in model.everything() {
        let metadata = &stored.json["metadata"];
        let uid = text(metadata, "/uid");
        if !seeded.contains_key(uid) {
            words.push((uid.to_owned(), "UID".to_owned()));
        }
        for hash in ["controller-revision-hash", "pod-template-hash"] {
            let hash = metadata["labels"][hash].as_str().unwrap_or_default();
            if hash.len() >= SHORTEST_NAME {
                words.push((hash.to_owned(), "HASH".to_owned()));
            }
        }
        // Their names have a hash of UIDs, unless a seed has named them.
        if matches!(stored.place.resource, "workloads" | "podgroups" | "volumeattachments")
            && stored.place.name != tag
            && is_of(stored, tag)
        {
            words.push((stored.place.name.clone(), stored.place.resource.to_owned()));
        }
        let prefix = text(metadata, "/generateName");
        if !prefix.is_empty() && stored.place.name.len() >= SHORTEST_NAME {
            words.push((stored.place.name.clone(), format!("{prefix}*")));
        }
    }
    // A UID or a name before the part of it that is a tag.
    words.push((tag.to_owned(), "TAG".to_owned()));
    words.push((BASE64_STANDARD.encode(tag), "TAG".to_owned()));
    let objects = model.everything().filter(|stored| is_of(stored, tag)).map(|stored| {
        let mut json = stored.json.clone();
        if let Some(metadata) = json["metadata"].as_object_mut() {
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Json::as_object_mut) {
                annotations.shift_remove(TOUCHED);
            }
            if metadata
                .get("annotations")
                .is_some_and(|held| held.as_object().is_some_and(serde_json::Map::is_empty))
            {
                metadata.shift_remove("annotations");
            }
        }
        scrub(&mut json, &words);
        format!("{} {json}", stored.place.resource)
    });
    let mut objects: Vec<String> = objects.collect();
    objects.sort();
    objects
}

fn scrub(json: &mut Json, words: &[(String, String)]) {
    match json {
        Json::String(held) => *held = scrubbed(held, words),
        Json::Array(items) => items.iter_mut().for_each(|item| scrub(item, words)),
        Json::Object(members) => {
            let old = std::mem::take(members);
            let kept = old.into_iter().filter(|(name, _)| !VOLATILE.contains(&name.as_str()));
            let scrubbed = kept.map(|(name, mut value)| {
                scrub(&mut value, words);
                (scrubbed(&name, words), value)
            });
            // By name, whatever their order is in the object.
            members.extend(scrubbed.collect::<BTreeMap<String, Json>>());
        }
        _ => {}
    }
}

fn scrubbed(held: &str, words: &[(String, String)]) -> String {
    if held.parse::<Timestamp>().is_ok() {
        return "TIME".to_owned();
    }
    let address = held.split_once('/').map_or(held, |(address, _)| address);
    if address.parse::<IpAddr>().is_ok() {
        return "ADDRESS".to_owned();
    }
    if held.len() > LONGEST {
        return "LONG".to_owned();
    }
    let mut text = held.to_owned();
    for (word, sign) in words {
        if text.contains(word.as_str()) {
            text = text.replace(word.as_str(), sign);
        }
    }
    text
}

/// The objects that there have been of each tag. More than in another tag are duplicates.
#[derive(Default)]
pub(super) struct Census {
    version: u64,
    uids: BTreeMap<(&'static str, &'static str), BTreeSet<String>>,
}

impl Census {
    pub(super) fn since(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// Takes up what has changed since the last time.
    pub(super) fn take(&mut self, model: &Model) {
        for event in model.after(self.version) {
            if let Some(tag) = TAGS.into_iter().find(|tag| is_of(&event.after, tag)) {
                let uid = text(&event.after.json, "/metadata/uid").to_owned();
                self.uids.entry((tag, event.after.place.resource)).or_default().insert(uid);
            }
        }
        self.version = model.version();
    }

    /// Returns how many objects there have been of a tag, by resource.
    pub(super) fn of(&self, tag: &str) -> BTreeMap<&'static str, usize> {
        let of_tag = self.uids.iter().filter(|((of, _), _)| *of == tag);
        of_tag.map(|((_, resource), uids)| (*resource, uids.len())).collect()
    }
}

/// Characters that are shown before and after the place where two texts differ.
const SHOWN: (usize, usize) = (120, 240);

/// Returns the first difference of two states, for messages.
pub(super) fn difference(victim: &[String], other: &[String]) -> String {
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        // Linear: a state has a handful of objects, and this is the end of a test that fails.
        these.iter().filter(|text| !those.contains(text)).cloned().collect()
    };
    let (ours, theirs) = (only(victim, other), only(other, victim));
    let (ours, theirs) = (ours.first(), theirs.first());
    let [ours, theirs] =
        [ours, theirs].map(|text| text.map_or("nothing", String::as_str).chars().collect::<Vec<_>>());
    let same = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
    let part = |text: &[char]| -> String {
        let from = same.saturating_sub(SHOWN.0).min(text.len());
        text[from..text.len().min(same + SHOWN.1)].iter().collect()
    };
    format!("\n    victim:    {}\n    bystander: {}", part(&ours), part(&theirs))
}
