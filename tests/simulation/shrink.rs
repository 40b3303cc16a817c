//! A failing run is made smaller before it is shown: as few kinds of faults, of mishaps and of acts as can be left, and as little
//! time.

use std::time::{Duration, Instant};

use crate::actors;
use crate::faults::FATES;
use crate::run::{Report, Setup, run};

/// For how long others are tried. What is smallest then is shown.
const PATIENCE: Duration = Duration::from_mins(3);
/// A turmoil is not made shorter than this.
const SHORTEST: Duration = Duration::from_secs(20);

/// The smallest run so far that breaks the rule.
struct Least {
    setup: Setup,
    rule: String,
    until: Instant,
    runs: usize,
}

impl Least {
    /// Takes another run if it breaks the same rule first. Whether it did.
    fn try_out(&mut self, setup: Setup) -> bool {
        if Instant::now() > self.until {
            return false;
        }
        self.runs += 1;
        let report = run(&setup);
        let breaks = report.violations.first().is_some_and(|held| held.rule == self.rule);
        if breaks {
            self.setup = setup;
        }
        breaks
    }

    /// Does without all of these, or without as many as it can: halves of them, halves of the halves.
    fn mute(&mut self, names: &[&'static str]) {
        let mut tried = self.setup.clone();
        tried.muted.extend(names);
        if names.is_empty() || self.try_out(tried) || names.len() == 1 {
            return;
        }
        let (first, second) = names.split_at(names.len() / 2);
        self.mute(first);
        self.mute(second);
    }
}

/// The smallest run that was found which breaks the same rule first; it is shown in full.
pub(crate) fn shrink(setup: &Setup, report: Report) -> (Setup, Report) {
    let Some(rule) = report.violations.first().map(|held| held.rule.clone()) else {
        return (setup.clone(), report);
    };
    let until = Instant::now() + PATIENCE;
    // What would have come after it does not matter.
    let turmoil = setup.turmoil.min(report.lasted + Duration::from_secs(1));
    let mut least = Least { setup: Setup { turmoil, ..setup.clone() }, rule, until, runs: 0 };
    for names in [FATES.to_vec(), actors::mishaps().collect(), actors::acts().collect()] {
        least.mute(&names);
    }
    while least.setup.turmoil > SHORTEST {
        let turmoil = least.setup.turmoil / 2;
        if !least.try_out(Setup { turmoil, ..least.setup.clone() }) {
            break;
        }
    }
    println!("made smaller by {} runs", least.runs);
    least.setup.traced = true;
    let report = run(&least.setup);
    (least.setup, report)
}
