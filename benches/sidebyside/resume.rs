//! What an earlier run has measured. With `RESUME=1` it is kept, so that hours of rounds may be taken in several goes.
//!
//! Kept is only what was taken of the same binaries, on the same machine, with as many rounds and objects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::figures::{Figure, Figures, Outcome, What};
use crate::program::Program;

/// The figures of scenarios that were played to their end, by their names.
#[derive(Default)]
pub(crate) struct Played(BTreeMap<String, Value>);

impl Played {
    /// Reads `target/bench/sidebyside.json`; of other facts than these nothing is kept.
    pub(crate) fn read(path: &Path, facts: &Value) -> Self {
        let Ok(text) = fs::read_to_string(path) else { return Self::default() };
        let earlier: Value = serde_json::from_str(&text).expect("the results of the earlier run");
        if earlier["facts"] != *facts {
            println!("{} is of other binaries or settings: nothing of it is kept", path.display());
            return Self::default();
        }
        let scenarios = earlier["scenarios"].as_array().into_iter().flatten();
        let whole = scenarios.filter(|each| each["skipped"].is_null() && each["failed"].is_null());
        Self(whole.map(|each| (words(&each["scenario"]), each.clone())).collect())
    }

    /// What there is of scenarios but for these, as it was written.
    pub(crate) fn but_for<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())).map(|(_, scenario)| scenario)
    }

    /// Adds what there is to a scenario's outcome; whether there is anything.
    pub(crate) fn add_to(&self, outcome: &mut Outcome) -> bool {
        let Some(scenario) = self.0.get(&outcome.name) else { return false };
        for (program, key) in [(Program::Go, "go"), (Program::Coxswain, "coxswain")] {
            for row in scenario["figures"].as_array().into_iter().flatten() {
                // As long as the process, as those are that stand in the code.
                let phase = String::leak(words(&row["phase"]));
                let what = What::told(&words(&row["figure"]), row["decimals"].as_u64());
                for value in row[key].as_array().into_iter().flatten().filter_map(Value::as_f64) {
                    let mut figures = Figures::default();
                    figures.add(Figure { phase, what: what.clone() }, value);
                    outcome.add(program, figures);
                }
            }
        }
        true
    }
}

fn words(value: &Value) -> String {
    value.as_str().expect("a text in the results of the earlier run").to_owned()
}
