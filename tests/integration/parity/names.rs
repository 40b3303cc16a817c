//! Names with parts that differ from run to run, as words that do not: the namespace, the hashes of templates, the
//! ends of the names of pods, EndpointSlices and ResourceClaims.

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::Value;

use super::slices::order;

const HASH_LABEL: &str = "pod-template-hash";
/// What words for VolumeAttachments begin with.
const ATTACHED: &str = "ATTACHED-";
/// What the API server makes random names of.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
const RANDOM_LENGTH: usize = 5;
/// The longest prefix of a random name, without its dash.
const LONGEST_PREFIX: usize = 57;

/// The first bytes of the digest of a bundle, as names have them.
fn digest(bundle: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bundle.as_bytes());
    digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// The names known so far.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: String,
    /// The first half of IPv4 addresses of its own, `10.123`; empty if it needs none.
    net: String,
    /// The authorities of the cluster, of which the word is BUNDLE.
    bundle: String,
    /// The part of the name of a ClusterTrustBundle that is made of them, of which the word is DIGEST.
    digest: String,
    /// Hashes in the order in which they were first seen: the first is written HASH1.
    hashes: Vec<String>,
    /// What pods are named after.
    makers: Vec<String>,
    /// EndpointSlices and ResourceClaims with random names, and what is written for them: `web-SLICE1`.
    generated: Vec<(String, String)>,
    /// Minutes since 1970 in the names of Jobs, in the order in which they were first seen: the first is written TIME1.
    minutes: Vec<i64>,
    /// Blocks of addresses that nodes were given, and the words for them: `BLOCK1`, and of the other family `BLOCK1-6`.
    blocks: Vec<(String, String)>,
    /// UIDs, and the words for them: `UID(KIND/NAME)`. The last is the present one.
    uids: Vec<(String, String)>,
    /// Whether the word for the second UID of an object is `UID(KIND/NAME#2)`.
    counts_uids: bool,
}

impl Names {
    pub(super) fn new(namespace: &str, net: String, bundle: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            net,
            bundle: bundle.to_owned(),
            digest: digest(bundle),
            hashes: Vec::new(),
            makers: Vec::new(),
            generated: Vec::new(),
            minutes: Vec::new(),
            blocks: Vec::new(),
            uids: Vec::new(),
            counts_uids: false,
        }
    }

    /// Returns names that number the UIDs of objects that were deleted and created again, in the order in which they were first seen.
    #[allow(dead_code, reason = "the differential tests use it")]
    pub(super) fn counting_uids(self) -> Self {
        Self { counts_uids: true, ..self }
    }

    /// Whether an object that is in no namespace belongs to this one: it is, or is named after it, or has an address of
    /// its own.
    pub(super) fn owns(&self, name: &str) -> bool {
        let begins = |with: &str, then: char| {
            !with.is_empty() && name.strip_prefix(with).is_some_and(|rest| rest.starts_with(then))
        };
        name == self.namespace || begins(&self.namespace, '-') || begins(&self.net, '.')
    }

    /// Takes note of ReplicaSets. Those that are seen for the first time at once are numbered by their owner's name,
    /// revision and template.
    pub(super) fn note(&mut self, sets: &[Value]) {
        let mut new: Vec<(String, String)> = Vec::new();
        for set in sets {
            let name = set["metadata"]["name"].as_str().unwrap_or_default();
            if !self.makers.iter().any(|maker| maker == name) {
                self.makers.push(name.to_owned());
            }
            let hash = set["metadata"]["labels"][HASH_LABEL].as_str().unwrap_or_default();
            let Some(owner) = name.strip_suffix(hash).filter(|_| !hash.is_empty()) else { continue };
            if !self.hashes.iter().any(|known| known == hash) {
                let revision = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
                    .as_str()
                    .unwrap_or_default();
                let template = set["spec"]["template"].to_string().replace(hash, "");
                new.push((format!("{owner} {revision:0>9} {template}"), hash.to_owned()));
            }
        }
        new.sort();
        for (_, hash) in new {
            if !self.hashes.contains(&hash) {
                self.hashes.push(hash);
            }
        }
        // The longest first: `web` makes pods, and so may `web-2`.
        self.makers.sort_by_key(|maker| std::cmp::Reverse(maker.len()));
    }

    /// Takes note of Jobs: these make pods, of Indexed ones with the index in their names.
    pub(super) fn note_jobs(&mut self, jobs: &[Value]) {
        for job in jobs {
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            let indexes =
                job["spec"]["completions"].as_u64().filter(|_| job["spec"]["completionMode"] == "Indexed");
            // Of a long name there is as much in it as leaves room for index and random end.
            let of_indexes = (0..indexes.unwrap_or(0)).map(|index| {
                let end = format!("-{index}");
                let room = LONGEST_PREFIX - end.len();
                format!("{}{end}", name.get(..room).unwrap_or(name))
            });
            for maker in of_indexes.chain([name.to_owned()]) {
                if !self.makers.contains(&maker) {
                    self.makers.push(maker);
                }
            }
        }
        self.makers.sort_by_key(|maker| std::cmp::Reverse(maker.len()));
    }

    /// Takes note of the ControllerRevisions of DaemonSets: these make pods, and the hashes are numbered as those of ReplicaSets,
    /// by owner and number. (Those of StatefulSets are the same for whoever makes them.)
    pub(super) fn note_revisions(&mut self, revisions: &[Value]) {
        let mut new: Vec<(&str, i64, &str)> = Vec::new();
        let is_of_daemons =
            |revision: &&Value| revision["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        for revision in revisions.iter().filter(is_of_daemons) {
            let name = revision["metadata"]["name"].as_str().unwrap_or_default();
            let Some((owner, hash)) = name.rsplit_once('-') else { continue };
            if !self.makers.iter().any(|maker| maker == owner) {
                self.makers.push(owner.to_owned());
            }
            new.push((owner, revision["revision"].as_i64().unwrap_or_default(), hash));
        }
        new.sort_unstable();
        for (_, _, hash) in new {
            if !self.hashes.iter().any(|known| known == hash) {
                self.hashes.push(hash.to_owned());
            }
        }
        self.makers.sort_by_key(|maker| std::cmp::Reverse(maker.len()));
    }

    /// Takes note of EndpointSlices. Those of a Service are numbered as they come, those that come at once by what
    /// they hold.
    pub(super) fn note_slices(&mut self, slices: &[Value]) {
        let mut new: Vec<(String, &str, &str)> = Vec::new();
        for slice in slices {
            let text = |field: &str| slice["metadata"][field].as_str().unwrap_or_default();
            let (name, stem) = (text("name"), text("generateName"));
            if !stem.is_empty() && !self.generated.iter().any(|(known, _)| known == name) {
                new.push((order(slice), name, stem));
            }
        }
        new.sort();
        for (_, name, stem) in new {
            let of_stem = self.generated.iter().filter(|(_, word)| word.starts_with(&format!("{stem}SLICE")));
            let word = format!("{stem}SLICE{}", of_stem.count() + 1);
            self.generated.push((name.to_owned(), word));
        }
    }

    /// Takes note of ResourceClaims with random names. Those of a prefix are numbered as they come.
    pub(super) fn note_claims(&mut self, claims: &[Value]) {
        for claim in claims {
            let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
            let (name, stem) = (text("name"), text("generateName"));
            if !stem.is_empty() && !self.generated.iter().any(|(known, _)| known == name) {
                let of_stem =
                    self.generated.iter().filter(|(_, word)| word.starts_with(&format!("{stem}CLAIM")));
                let word = format!("{stem}CLAIM{}", of_stem.count() + 1);
                self.generated.push((name.to_owned(), word));
            }
        }
    }

    /// Takes note of the Workloads or PodGroups of Jobs, which end in hashes: those of a Job `web` are `web-WORKLOAD` and
    /// `web-PODGROUP`.
    pub(super) fn note_gangs(&mut self, kind: &str, made: &[Value]) {
        for each in made {
            let name = each["metadata"]["name"].as_str().unwrap_or_default();
            let owners = each["metadata"]["ownerReferences"].as_array();
            let job = owners.into_iter().flatten().find(|owner| owner["kind"] == "Job");
            let Some(job) = job.and_then(|owner| owner["name"].as_str()) else { continue };
            let is_named_after = name.strip_prefix(job).is_some_and(|end| end.starts_with('-'));
            if is_named_after && !self.generated.iter().any(|(known, _)| known == name) {
                self.generated.push((name.to_owned(), format!("{job}-{}", kind.to_uppercase())));
            }
        }
    }

    /// Takes note of VolumeAttachments, which are named after hashes: of a PersistentVolume `NAMESPACE-data` on a node `NAMESPACE-n` one
    /// is `ATTACHED-data-n`.
    pub(super) fn note_attachments(&mut self, attachments: &[Value]) {
        for attachment in attachments {
            let name = attachment["metadata"]["name"].as_str().unwrap_or_default();
            let spec = &attachment["spec"];
            let begin = format!("{}-", self.namespace);
            let own = |value: &Value| {
                let text = value.as_str().unwrap_or("inline");
                text.strip_prefix(&begin).unwrap_or(text).to_owned()
            };
            let word = format!(
                "{ATTACHED}{}-{}",
                own(&spec["source"]["persistentVolumeName"]),
                own(&spec["nodeName"])
            );
            if name.starts_with("csi-") && !self.generated.iter().any(|(known, _)| known == name) {
                self.generated.push((name.to_owned(), word));
            }
        }
    }

    /// Takes over the words for VolumeAttachments, which are the same whenever these are seen first.
    pub(super) fn take_attachments(&mut self, from: &Self) {
        let new: Vec<_> = from
            .generated
            .iter()
            .filter(|(name, word)| {
                word.starts_with(ATTACHED) && self.generated.iter().all(|(known, _)| known != name)
            })
            .cloned()
            .collect();
        self.generated.extend(new);
    }

    /// Takes note of the activations that Jobs are named after, and of their UIDs, which are in their labels.
    pub(super) fn note_activations(&mut self, jobs: &[Value]) {
        let text = |job: &Value, field: &str| job["metadata"][field].as_str().unwrap_or_default().to_owned();
        let minutes = |job: &Value| {
            let name = text(job, "name");
            let (_, end) = name.rsplit_once('-')?;
            (end.len() >= 7).then(|| end.parse::<i64>().ok()).flatten()
        };
        let mut new: Vec<i64> = jobs.iter().filter_map(minutes).collect();
        new.sort_unstable();
        for each in new {
            if !self.minutes.contains(&each) {
                self.minutes.push(each);
            }
        }
        for job in jobs {
            self.know(&format!("Job/{}", self.plain(&text(job, "name"))), &text(job, "uid"));
        }
    }

    /// Takes note of the blocks that nodes were given. Those that are seen for the first time at once are numbered by their nodes'
    /// names.
    pub(super) fn note_blocks(&mut self, nodes: &[Value]) {
        let mut nodes: Vec<&Value> = nodes.iter().collect();
        nodes.sort_by_key(|node| node["metadata"]["name"].to_string());
        let blocks = nodes.into_iter().filter_map(|node| node["spec"]["podCIDRs"].as_array()).flatten();
        for block in blocks.filter_map(Value::as_str).filter(|block| is_given_out(block)) {
            if !self.blocks.iter().any(|(known, _)| known == block) {
                let end = if block.contains(':') { "-6" } else { "" };
                let is_alike = |(known, _): &&(String, String)| known.contains(':') == block.contains(':');
                let number = self.blocks.iter().filter(is_alike).count() + 1;
                self.blocks.push((block.to_owned(), format!("BLOCK{number}{end}")));
            }
        }
    }

    /// What is written for a time: that it is the one of an activation, or lately. `None` for one of long ago.
    fn plain_time(&self, text: &str) -> Option<String> {
        if let Some(day) = text.parse::<Date>().ok().filter(|_| text.len() == 10) {
            let today = SystemClock.now().to_zoned(TimeZone::UTC).date();
            return (today == day || today.yesterday().ok() == Some(day)).then(|| "A DAY LATELY".to_owned());
        }
        let (time, zone) = (text.parse::<Timestamp>().ok()?, text.get(19..)?);
        let seconds = time.as_second();
        if let Some(at) = self.minutes.iter().position(|minutes| minutes * 60 == seconds) {
            return Some(format!("TIME{} {zone}", at + 1));
        }
        let days = SystemClock.now().duration_since(time).as_hours() / 24;
        (days.abs() < 2).then(|| "LATELY".to_owned())
    }

    /// A text with the words instead.
    pub(super) fn plain(&self, text: &str) -> String {
        if let Some(word) = self.plain_time(text) {
            return word;
        }
        if let Some((_, word)) = self.blocks.iter().find(|(known, _)| known == text) {
            return word.clone();
        }
        let mut text = text.to_owned();
        for (at, minutes) in self.minutes.iter().enumerate() {
            text = text.replace(&format!("-{minutes}"), &format!("-TIME{}", at + 1));
        }
        if !self.bundle.is_empty() {
            text = text.replace(&self.bundle, "BUNDLE").replace(&self.digest, "DIGEST");
        }
        for (name, word) in &self.generated {
            text = text.replace(name, word);
        }
        for maker in &self.makers {
            text = without_random_ends(&text, &format!("{maker}-"));
        }
        for (at, hash) in self.hashes.iter().enumerate() {
            text = text.replace(hash, &format!("HASH{}", at + 1));
        }
        for (at, (uid, word)) in self.uids.iter().enumerate() {
            if text.contains(uid) {
                text = text.replace(uid, &self.uid_word(at, word));
            }
        }
        let text = text.replace(&self.namespace, "NAMESPACE");
        if self.net.is_empty() { text } else { text.replace(&format!("{}.", self.net), "NET.") }
    }

    /// Returns the word for the UID at this index.
    fn uid_word(&self, at: usize, word: &str) -> String {
        let before = self.uids[..at].iter().filter(|(_, other)| self.counts_uids && other == word).count();
        if before == 0 { word.to_owned() } else { format!("{}#{})", word.trim_end_matches(')'), before + 1) }
    }

    /// Takes note of an object's UID.
    pub(super) fn know(&mut self, object: &str, uid: &str) {
        if !self.uids.iter().any(|(known, _)| known == uid) {
            self.uids.push((uid.to_owned(), format!("UID({object})")));
        }
    }

    /// Whether a scenario's word for this object's UID can be said.
    pub(super) fn knows(&self, object: &str) -> bool {
        self.uids.iter().any(|(_, word)| *word == format!("UID({object})"))
    }

    /// A text of a scenario, which names hashes, slices, claims, UIDs and the namespace by their words, as the API server understands
    /// it.
    pub(super) fn real(&self, text: &str) -> String {
        if let Some((name, _)) = self.generated.iter().find(|(_, word)| word == text) {
            return name.clone();
        }
        if let Some(time) = time(text) {
            return time;
        }
        let words = self.hashes.iter().enumerate().rev();
        let text =
            words.fold(text.to_owned(), |text, (at, hash)| text.replace(&format!("HASH{}", at + 1), hash));
        let minutes = self.minutes.iter().enumerate().rev();
        let text = minutes
            .fold(text, |text, (at, minutes)| text.replace(&format!("TIME{}", at + 1), &minutes.to_string()))
            .replace("NEWYEAR", &new_year().to_string());
        let uids = self.uids.iter().rev();
        let text = uids
            .fold(text, |text, (uid, word)| text.replace(word, uid))
            .replace("DIGEST", &self.digest)
            .replace("NAMESPACE", &self.namespace);
        if self.net.is_empty() { text } else { text.replace("NET.", &format!("{}.", self.net)) }
    }

    /// [`Names::real`] of all texts in a document.
    pub(super) fn really(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.real(text).into(),
            Value::Array(items) => items.iter().map(|item| self.really(item)).collect(),
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), self.really(value))).collect(),
            other => other.clone(),
        }
    }

    /// [`Names::plain`] of everything in a document, keys included.
    pub(super) fn plainly(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.plain(text).into(),
            Value::Array(items) => items.iter().map(|item| self.plainly(item)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (self.plain(key), self.plainly(value))).collect()
            }
            other => other.clone(),
        }
    }
}

/// The first minute of this year, since 1970.
fn new_year() -> i64 {
    let year = SystemClock.now().to_zoned(TimeZone::UTC).first_of_year().expect("a year");
    year.start_of_day().expect("a day").timestamp().as_second() / 60
}

/// `NOW+5s` and `NOW-90s` as the API server writes times; `None` for other texts.
fn time(text: &str) -> Option<String> {
    let seconds: i64 = text.strip_prefix("NOW")?.strip_suffix('s')?.parse().ok()?;
    let now = SystemClock.now().round(Unit::Second).ok()?;
    now.checked_add(SignedDuration::from_secs(seconds)).ok().map(|time| time.to_string())
}

/// Writes POD for what follows each `stem` in `text`, where it is a random end of a name.
fn without_random_ends(text: &str, stem: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(at) = rest.find(stem) {
        let (before, found) = rest.split_at(at);
        let end = &found[stem.len()..];
        let is_name_character = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let starts_here = !before.ends_with(is_name_character);
        let length = end.find(|c: char| !is_name_character(c)).unwrap_or(end.len());
        let is_random = length == RANDOM_LENGTH && end[..length].chars().all(|c| RANDOM.contains(c));
        out.push_str(before);
        out.push_str(stem);
        if starts_here && is_random {
            out.push_str("POD");
            rest = &end[length..];
        } else {
            rest = end;
        }
    }
    out + rest
}

/// Whether a block is one of those that nodes are given; the last of the ranges are for scenarios, which give them by hand.
fn is_given_out(block: &str) -> bool {
    const BY_HAND: u32 = 200;
    let (rest, radix) = match (block.strip_prefix("10.244."), block.strip_prefix("fd00:10:244:")) {
        (Some(rest), _) => (rest, 10),
        (_, Some(rest)) => (rest, 16),
        _ => return false,
    };
    let number = rest.split(['.', ':', '/']).next().unwrap_or_default();
    number.is_empty() || u32::from_str_radix(number, radix).is_ok_and(|number| number < BY_HAND)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_stand_for_what_is_random() {
        let mut names = Names::new("parity-7", String::new(), "-----BEGIN CERTIFICATE-----\n");
        let set = |hash: &str, revision: &str| {
            json!({ "metadata": {
                "name": format!("web-{hash}"),
                "labels": { "pod-template-hash": hash },
                "annotations": { "deployment.kubernetes.io/revision": revision },
            } })
        };
        names.note(&[set("7c5ddbdf54", "2"), set("86c57db685", "1")]);
        names.note(&[set("5d9c4f8b7d", "3"), set("86c57db685", "4")]);
        names.note(&[json!({ "metadata": { "name": "bare", "labels": { "pod-template-hash": "other" } } })]);
        for (text, plain) in [
            ("Created pod: web-86c57db685-x2kqz", "Created pod: web-HASH1-POD"),
            ("pods \"bare-x2kqz\" is forbidden", "pods \"bare-POD\" is forbidden"),
            ("web-7c5ddbdf54 and web-5d9c4f8b7d in parity-7", "web-HASH2 and web-HASH3 in NAMESPACE"),
            ("-----BEGIN CERTIFICATE-----\n", "BUNDLE"),
            (
                "bare-first, bare-x2kqzz, foobare-x2kqz, bare-",
                "bare-first, bare-x2kqzz, foobare-x2kqz, bare-",
            ),
        ] {
            assert_eq!(names.plain(text), plain);
        }
        assert_eq!(names.real("pod-template-hash=HASH3"), "pod-template-hash=5d9c4f8b7d");
        names.know("ConfigMap/owner", "0a1b");
        assert!(names.knows("ConfigMap/owner") && !names.knows("ConfigMap/other"));
        assert_eq!(names.real("UID(ConfigMap/owner) in NAMESPACE"), "0a1b in parity-7");
        assert_eq!(names.plain("0a1b in parity-7"), "UID(ConfigMap/owner) in NAMESPACE");
    }

    #[test]
    fn uids_of_an_object_that_was_created_again_are_numbered() {
        let mut names = Names::new("parity-7", String::new(), "").counting_uids();
        for (object, uid) in [("Job/a", "0a1b"), ("Job/b", "2c3d"), ("Job/a", "4e5f"), ("Job/a", "0a1b")] {
            names.know(object, uid);
        }
        assert_eq!(names.plain("0a1b 2c3d 4e5f"), "UID(Job/a) UID(Job/b) UID(Job/a#2)");
        assert_eq!(names.real("UID(Job/a)"), "4e5f", "the last is the present one");
    }

    #[test]
    fn activations_are_numbered_by_time() {
        let mut names = Names::new("parity-9", String::new(), "");
        let job = |name: &str, uid: &str| json!({ "metadata": { "name": name, "uid": uid } });
        names.note_activations(&[
            job("cron-29453760", "1a"),
            job("cron-29453700", "2b"),
            job("by-hand", "3c"),
        ]);
        for (text, plain) in [
            ("Created job cron-29453760", "Created job cron-TIME2"),
            ("2026-01-01T00:00:00Z", "TIME2 Z"),
            ("2026-01-01T01:00:00+01:00", "TIME2 +01:00"),
            ("2025-12-31T23:00:00Z", "TIME1 Z"),
            ("2025-12-31T22:00:00Z", "2025-12-31T22:00:00Z"),
            ("2b and 3c", "UID(Job/cron-TIME1) and UID(Job/by-hand)"),
        ] {
            assert_eq!(names.plain(text), plain);
        }
        assert_eq!(names.plain(&SystemClock.now().to_string()), "LATELY");
        assert_eq!(names.real("cron-TIME2"), "cron-29453760");
        assert!(names.real("NEWYEAR").parse::<i64>().expect("minutes") >= 29_453_760);
        assert_eq!(names.real("NOW"), "NOW");
        assert!(names.real("NOW-90s").parse::<Timestamp>().expect("a time") < SystemClock.now());
    }

    #[test]
    fn blocks_are_numbered_by_their_nodes_and_those_given_by_hand_are_not() {
        let mut names = Names::new("parity-8", String::new(), "");
        let node = |name: &str, blocks: &[&str]| json!({ "metadata": { "name": name }, "spec": { "podCIDRs": blocks } });
        names.note_blocks(&[
            node("b", &["10.244.7.0/24", "fd00:10:244:8::/64"]),
            node("a", &["10.244.9.0/24", "fd00:10:244::/64"]),
            node("c", &["10.244.250.0/24", "fd00:10:244:fa::/64"]),
        ]);
        names.note_blocks(&[node("b", &["10.244.10.0/24"])]);
        for (text, plain) in [
            ("10.244.9.0/24", "BLOCK1"),
            ("10.244.7.0/24", "BLOCK2"),
            ("10.244.10.0/24", "BLOCK3"),
            ("fd00:10:244::/64", "BLOCK1-6"),
            ("fd00:10:244:8::/64", "BLOCK2-6"),
            ("10.244.250.0/24", "10.244.250.0/24"),
            ("fd00:10:244:fa::/64", "fd00:10:244:fa::/64"),
        ] {
            assert_eq!(names.plain(text), plain);
        }
    }

    #[test]
    fn slices_are_numbered_as_they_come() {
        let mut names = Names::new("parity-8", String::new(), "");
        let slice = |name: &str, stem: &str, pod: &str| {
            let endpoints = json!([{ "addresses": ["10.0.0.1"], "targetRef": { "name": pod } }]);
            json!({ "metadata": { "name": name, "generateName": stem }, "endpoints": endpoints })
        };
        names.note_slices(&[
            slice("web-vwxyz", "web-", "b"),
            slice("web-zzzzz", "web-", "a"),
            slice("mine", "", "c"),
        ]);
        names.note_slices(&[
            slice("web-vwxyz", "web-", "d"),
            slice("web-bbbbb", "web-", "a"),
            slice("api-bbbbb", "api-", "a"),
        ]);
        let words =
            ["web-zzzzz", "web-vwxyz", "web-bbbbb", "api-bbbbb", "mine"].map(|name| names.plain(name));
        assert_eq!(words, ["web-SLICE1", "web-SLICE2", "web-SLICE3", "api-SLICE1", "mine"]);
        assert_eq!(names.real("web-SLICE2"), "web-vwxyz");
    }
}
