//! What the levels of `start` say together: how memory and CPU grow with the cluster.

use crate::figures::{Figures, Outcome, Target, What, whole};
use crate::program::Program;
use crate::scenarios::pods_of;

/// Settled RSS above the empty cluster's, at the last level.
const ABOVE_EMPTY: f64 = 1.0 / 8.0;
/// Costs per pod are flat when the last level's are no more than a quarter above the first one's: RSS of a thousand pods is
/// not known any better.
const FLAT: f64 = 1.25;

/// The cost of a level beyond the empty cluster, in one round.
struct Level {
    pods: usize,
    mib: f64,
    cpu: f64,
}

/// Derives it from what was played; `None` without the levels that it takes.
pub(crate) fn derive(outcomes: &[Outcome]) -> Option<Outcome> {
    let mut levels: Vec<(usize, &Outcome)> =
        outcomes.iter().filter_map(|outcome| Some((pods_of(&outcome.name)?, outcome))).collect();
    levels.sort_unstable_by_key(|(pods, _)| *pods);
    let (empty, filled) = levels.split_first()?;
    let last = filled.last()?.0;
    if empty.0 > 0 {
        return None;
    }
    let targets = vec![
        (whole(above(last)), Target::Ratio(ABOVE_EMPTY)),
        (whole(memory_growth()), Target::Value(FLAT)),
        (whole(cpu_growth()), Target::Value(FLAT)),
    ];
    let about = "Differences between the starts above. Each pod has a ConfigMap and a Secret.";
    let mut outcome = Outcome::new("growth with the cluster".to_owned(), about.to_owned(), &[], targets);
    for program in [Program::Go, Program::Coxswain] {
        for round in 0.. {
            let level = |(pods, outcome): &(usize, &Outcome)| {
                let of = |what: &What| {
                    let row = outcome.whole(what)?;
                    row.of(program).rounds().get(round).copied()
                };
                Some(Level { pods: *pods, mib: of(&What::Settled)?, cpu: of(&What::Cpu)? })
            };
            let Some(none) = level(empty) else { break };
            let Some(levels) = filled.iter().map(level).collect::<Option<Vec<_>>>() else { break };
            outcome.add(program, figures(&none, &levels));
        }
    }
    Some(outcome)
}

fn figures(none: &Level, levels: &[Level]) -> Figures {
    let mut figures = Figures::default();
    let mut add = |what: What, value: f64| figures.add(whole(what), value);
    let memory = |level: &Level| ((level.mib - none.mib) * 1024.0 / level.pods as f64).max(0.0);
    let cpu = |level: &Level| ((level.cpu - none.cpu) * 1e6 / level.pods as f64).max(0.0);
    for level in levels {
        add(above(level.pods), level.mib - none.mib);
    }
    for level in levels {
        add(What::Derived(format!("RSS per pod, KiB, {} pods", level.pods), 2), memory(level));
    }
    for level in levels {
        add(What::Derived(format!("CPU of a start per pod, µs, {} pods", level.pods), 0), cpu(level));
    }
    if let [first, .., last] = levels {
        for (what, cost) in [(memory_growth(), &memory as &dyn Fn(&Level) -> f64), (cpu_growth(), &cpu)] {
            // What a few pods cost may be too little to be seen.
            if cost(first) > 0.0 {
                add(what, cost(last) / cost(first));
            }
        }
    }
    figures
}

fn above(pods: usize) -> What {
    What::Derived(format!("settled RSS above the empty cluster's, MiB, {pods} pods"), 1)
}

fn memory_growth() -> What {
    What::Derived("RSS per pod with most pods, divided by that with fewest".to_owned(), 2)
}

fn cpu_growth() -> What {
    What::Derived("CPU per pod with most pods, divided by that with fewest".to_owned(), 2)
}
