//! Planted bugs of quotas.

use http::Method;
use serde_json::{Map, json};

use super::{Mutant, NONE, is};
use apiserver_model::http::Asked;
use apiserver_model::{amount, spelt};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[Mutant {
    name: "a quota counts what is not there",
    breaks: "what is counted was there",
    send: count_more,
    ..NONE
}];

/// The controller counts more than there is.
fn count_more(controller: &str, asked: &mut Asked) {
    if controller != "resourcequota-controller" || !is(asked, &Method::PUT, "resourcequotas") {
        return;
    }
    asked.edit(|quota| {
        let used = &mut quota["status"]["used"];
        let names: Vec<String> = used.as_object().into_iter().flat_map(Map::keys).cloned().collect();
        for name in names {
            let more = amount(used, &name).unwrap_or(0) + 50;
            used[&name] = json!(spelt(&name, more));
        }
    });
}
