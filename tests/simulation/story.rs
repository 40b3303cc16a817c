//! A run that failed, for people: what each write changed, and of all that happened what concerns the rule that was broken.

use serde_json::Value as Json;

use crate::run::Report;
use apiserver_model::{Change, items, text};

/// Fields of a change that are shown, and characters of a value.
const MOST_FIELDS: usize = 6;
const LONGEST: usize = 60;
/// Lines of a story, and those just before the end that are shown whatever they are about.
const LINES: usize = 70;
const LAST: usize = 8;
/// Fields that change with every write.
const DULL: &[&str] = &["/metadata/resourceVersion", "/metadata/generation", "/metadata/uid"];
/// What says nothing that other lines do not say: Events, looks at what is as it should be, and requests that were carried out,
/// of which it is told what they changed.
const NOISE: &[&str] = &["/events ", " events/", ": event component=", " plans: nothing"];
/// What concerns everybody.
const ALWAYS: &[&str] = &["  mishap: ", "  manager ", "  it is calm", "  everything is as it is wished for"];

/// What a change has made of an object, in a few words behind its line.
pub(crate) fn difference(change: &Change) -> String {
    let (before, after) = match (&change.before, &change.after) {
        (Some(before), Some(after)) => (&before.json, &after.json),
        (None, Some(after)) => return format!(" {}", summary(&after.json)),
        (_, None) => return String::new(),
    };
    let mut fields = Vec::new();
    differences(before, after, &mut String::new(), &mut fields);
    let more = fields.len().saturating_sub(MOST_FIELDS);
    fields.truncate(MOST_FIELDS);
    if more > 0 {
        fields.push(format!("and {more} more"));
    }
    if fields.is_empty() { String::new() } else { format!(" {{{}}}", fields.join(", ")) }
}

/// What there is to know of an object that is new.
fn summary(object: &Json) -> String {
    let owner = items(object, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
    let of = owner.map(|owner| format!("of {} {}", text(owner, "/kind"), text(owner, "/name")));
    of.unwrap_or_else(|| short(&object["spec"], 2 * LONGEST))
}

fn short(value: &Json, longest: usize) -> String {
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    let mut cut: String = text.chars().take(longest).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

/// Fields of two objects that are not the same, by their paths.
fn differences(before: &Json, after: &Json, path: &mut String, found: &mut Vec<String>) {
    if before == after || DULL.contains(&path.as_str()) {
        return;
    }
    let (Json::Object(old), Json::Object(new)) = (before, after) else {
        found.push(format!("{path}: {} → {}", short(before, LONGEST), short(after, LONGEST)));
        return;
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    for key in new.keys().chain(gone) {
        let length = path.len();
        path.push('/');
        path.push_str(key);
        differences(&before[key], &after[key], path, found);
        path.truncate(length);
    }
}

/// Names of objects in a sentence, and of what they are named after: `rep-1-x7k2p` is of `rep-1`.
fn names(sentence: &str) -> Vec<String> {
    let mut names = Vec::new();
    for word in sentence.split(|c: char| c.is_whitespace() || ",;:()\"'".contains(c)) {
        // What is before the slash is a namespace, or nothing; controllers are behind their manager.
        let Some((before, name)) = word.rsplit_once('/') else { continue };
        let is_agent = before.strip_prefix('m').is_some_and(|number| number.parse::<u32>().is_ok());
        if is_agent || name.is_empty() || before.contains('/') {
            continue;
        }
        let stem =
            name.rsplit_once('-').map_or(name, |(stem, _)| if stem.contains('-') { stem } else { name });
        names.push(stem.to_owned());
    }
    names
}

/// Of these lines those that are about these names or about everybody, and the last ones.
fn concerning<'a>(lines: &[&'a str], names: &[String]) -> Vec<&'a str> {
    let is_about = |line: &str| {
        let what = line.get(12..).unwrap_or_default();
        let is_write = ["POST", "PUT", "PATCH", "DELETE"].iter().any(|verb| what.contains(verb));
        if NOISE.iter().any(|noise| what.contains(noise)) || is_write && what.ends_with(" 200") {
            return false;
        }
        ALWAYS.iter().any(|always| what.contains(always))
            || names.iter().any(|name| what.contains(name.as_str()))
    };
    let last = lines.len().saturating_sub(LAST);
    let of_them = lines.iter().enumerate().filter(|(at, line)| *at >= last || is_about(line));
    of_them.map(|(_, line)| *line).collect()
}

impl Report {
    /// What went wrong, and what came before, for people.
    pub(crate) fn story(&self) -> String {
        let lines: Vec<&str> = self.trace.lines().collect();
        let broken: Vec<String> =
            self.violations.iter().map(|held| format!("{}\n    {}", held.rule, held.what)).collect();
        let names: Vec<String> = self.violations.iter().flat_map(|held| names(&held.what)).collect();
        let told = concerning(&lines, &names);
        let last = &told[told.len().saturating_sub(LINES)..];
        let left_out = lines.len() - last.len();
        format!(
            "{self}\n{}\nwhat came before, as far as it concerns {} ({left_out} lines are left out):\n{}\n",
            broken.join("\n"),
            if names.is_empty() { "anybody".to_owned() } else { names.join(", ") },
            last.join("\n")
        )
    }
}

#[test]
fn a_write_is_told_by_what_it_changes() {
    use serde_json::json;
    let before = json!({ "metadata": { "resourceVersion": "1" }, "status": { "ready": 1, "old": true } });
    let after = json!({ "metadata": { "resourceVersion": "2" }, "status": { "ready": 2, "new": [1] } });
    let mut found = Vec::new();
    differences(&before, &after, &mut String::new(), &mut found);
    assert_eq!(found, ["/status/ready: 1 → 2", "/status/new: nothing → [1]", "/status/old: true → nothing"]);
}

#[test]
fn a_story_is_about_those_who_are_named_in_what_is_wrong() {
    let what = "m1/job-controller at 2027-01-15T08:01:00Z: pods default/job-3-x7k2p is one too many";
    assert_eq!(names(what), ["job-3"]);
    assert_eq!(names("nodes /node-1: it is not ready"), ["node-1"]);
    let far: Vec<String> =
        (0..20).map(|at| format!("{at:>12}   user update deployments/ red dep-1")).collect();
    let mut lines =
        vec!["    1.000000   user create jobs/ default job-3", "    2.000000   mishap: pods lag by 1s"];
    lines.extend(far.iter().map(String::as_str));
    let told = concerning(&lines, &names(what));
    assert_eq!(told[..2], lines[..2]);
    assert_eq!(told[2..], lines[lines.len() - LAST..]);
}
