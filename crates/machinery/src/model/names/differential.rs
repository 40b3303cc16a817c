//! Coxswain's judgment of names next to that of Kubernetes' library.

use serde_json::{Value, json};

use super::*;
use crate::oracle::{Comparison, Random};

#[expect(clippy::unnecessary_wraps, reason = "others refuse texts")]
fn read(text: &str) -> Option<Value> {
    Some(json!({
        "labelKey": is_label_key(text),
        "labelValue": is_label_value(text),
        "subdomain": is_subdomain(text),
        "label": is_dns_label(text),
    }))
}

fn generate(random: &mut Random) -> String {
    let mut text = random.text("abzAZ09-_..", 0, 8);
    if random.one_in(3) {
        text = format!("{}/{text}", random.text("abz09-..", 0, 8));
    }
    if random.one_in(8) {
        let length = random.one_of(&["62", "63", "64", "252", "253", "254"]).parse().unwrap_or(0);
        text += &"a".repeat(length - text.len().min(length));
    }
    text
}

#[test]
fn names_are_never_judged_differently() {
    Comparison {
        question: "name",
        seeds: &["app", "example.com/role", "a.b-c", "", "A", "n1"],
        words: &["/", "-", ".", "_", "a.b", "--", "..", "\n"],
        generate,
        read,
        refusals: &[],
        differences: &[],
    }
    .run();
}
