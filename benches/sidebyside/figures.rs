//! Figures of both managers, over rounds.

use std::fmt;

use serde_json::{Value, json};

use crate::program::Program;

/// What is measured. Less is better, of all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Wall,
    Cpu,
    Settled,
    Peak,
    /// Leases are told apart, by their requests: they follow the clock and not the work.
    Writes,
    Reads,
    Received,
    /// A latency at this percentile, in milliseconds.
    Latency(u8),
    /// Seconds until the Lease has another holder.
    Lease,
    /// Seconds until the new leader has written something.
    FirstWrite,
    /// Something derived from others: its words, and how many decimals it has.
    Derived(String, usize),
    /// Requests with this verb.
    Verb(String),
    /// Requests with this verb for this resource, as the audit log names them.
    Request(String, String),
}

impl What {
    /// What it is, with its unit.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Wall => "wall time, s".to_owned(),
            Self::Cpu => "CPU, s".to_owned(),
            Self::Settled => "settled RSS, MiB".to_owned(),
            Self::Peak => "peak RSS, MiB".to_owned(),
            Self::Writes => "write requests without Leases".to_owned(),
            Self::Reads => "read requests".to_owned(),
            Self::Received => "received, MiB".to_owned(),
            Self::Latency(percentile) => format!("latency p{percentile}, ms"),
            Self::Lease => "seconds to another holder of the Lease".to_owned(),
            Self::FirstWrite => "seconds to the new leader's first write".to_owned(),
            Self::Derived(words, _) => words.clone(),
            Self::Verb(verb) => format!("requests: {verb}"),
            Self::Request(verb, resource) => format!("requests: {verb} {resource}"),
        }
    }

    /// What these words mean, as [`What::words`] has them; what is none of the usual is derived, with so many decimals.
    pub(crate) fn told(words: &str, decimals: Option<u64>) -> Self {
        const USUAL: [What; 9] = [
            What::Wall,
            What::Cpu,
            What::Settled,
            What::Peak,
            What::Writes,
            What::Reads,
            What::Received,
            What::Lease,
            What::FirstWrite,
        ];
        if let Some(usual) = USUAL.into_iter().find(|each| each.words() == words) {
            return usual;
        }
        if let Some(request) = words.strip_prefix("requests: ") {
            return match request.split_once(' ') {
                None => Self::Verb(request.to_owned()),
                Some((verb, resource)) => Self::Request(verb.to_owned(), resource.to_owned()),
            };
        }
        let percentile =
            words.strip_prefix("latency p").and_then(|rest| rest.strip_suffix(", ms")?.parse().ok());
        percentile.map_or_else(
            || Self::Derived(words.to_owned(), decimals.map_or(2, |decimals| decimals as usize)),
            Self::Latency,
        )
    }

    /// A value, as precise as it can be read.
    pub(crate) fn show(&self, value: f64) -> String {
        let decimals = self.decimals(value);
        format!("{value:.decimals$}")
    }

    /// As how many decimals a value can be read.
    fn decimals(&self, value: f64) -> usize {
        match self {
            // Between two rounds, the median of counts may be a half.
            Self::Writes | Self::Reads | Self::Verb(_) | Self::Request(..) => {
                usize::from(value.fract() > 0.0)
            }
            Self::Settled | Self::Peak | Self::Latency(_) => 1,
            Self::Derived(_, decimals) => *decimals,
            Self::Wall | Self::Cpu | Self::Received | Self::Lease | Self::FirstWrite => 2,
        }
    }

    /// How parts make a whole: by their sum, or by the highest.
    fn join(&self, one: f64, other: f64) -> f64 {
        match self {
            Self::Peak | Self::Settled | Self::Latency(_) => one.max(other),
            _ => one + other,
        }
    }
}

/// A figure of a scenario: of one phase, or, where that is empty, of the whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Figure {
    pub(crate) phase: &'static str,
    pub(crate) what: What,
}

/// What one manager did in one round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Vec<(Figure, f64)>);

impl Figures {
    /// One more.
    pub(crate) fn add(&mut self, figure: Figure, value: f64) {
        self.0.push((figure, value));
    }

    /// With what the phases make together.
    pub(crate) fn totaled(mut self) -> Self {
        let mut totals: Vec<(Figure, f64)> = Vec::new();
        for (figure, value) in &self.0 {
            let whole = Figure { phase: "", what: figure.what.clone() };
            match totals.iter_mut().find(|(total, _)| *total == whole) {
                Some((_, total)) => *total = figure.what.join(*total, *value),
                None => totals.push((whole, *value)),
            }
        }
        self.0.splice(0..0, totals);
        self
    }
}

/// A figure over all rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// The middle one; between two, their mean.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (half, last) = (sorted.len() / 2, sorted.len().checked_sub(1)?);
        Some(f64::midpoint(sorted[half.min(last)], sorted[last / 2]))
    }

    /// The least and the most.
    pub(crate) fn spread(&self) -> Option<(f64, f64)> {
        let least = self.0.iter().copied().min_by(f64::total_cmp)?;
        Some((least, self.0.iter().copied().max_by(f64::total_cmp)?))
    }

    /// What came of each round.
    pub(crate) fn rounds(&self) -> &[f64] {
        &self.0
    }
}

/// One figure of both managers.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) figure: Figure,
    pub(crate) go: Samples,
    pub(crate) ours: Samples,
    pub(crate) target: Option<Target>,
}

impl Row {
    /// What this one did.
    pub(crate) fn of(&self, program: Program) -> &Samples {
        match program {
            Program::Go => &self.go,
            Program::Coxswain => &self.ours,
        }
    }

    /// Coxswain's median by the Go manager's, where both are there and it can be told.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (go, ours) = (self.go.median()?, self.ours.median()?);
        (go > 0.0).then(|| ours / go)
    }

    /// Whether the target is reached; `None` where there is none or it cannot be told.
    pub(crate) fn reached(&self) -> Option<bool> {
        match self.target? {
            Target::Ratio(most) => {
                // None of both is not more.
                let both = self.go.median()? == 0.0 && self.ours.median()? == 0.0;
                // A hundredth is what the ratio is told to.
                Some(both || self.ratio().is_some_and(|ratio| ratio < most + 0.005))
            }
            Target::Value(most) => Some(self.ours.median()? <= most),
        }
    }
}

/// A lead to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Coxswain's value by the Go manager's, at most.
    Ratio(f64),
    /// Coxswain's value, at most.
    Value(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio(most) if *most < 1.0 => write!(formatter, "ratio ≤ 1/{:.0}", 1.0 / most),
            Self::Ratio(most) => write!(formatter, "ratio ≤ {most}"),
            Self::Value(most) => write!(formatter, "≤ {most}"),
        }
    }
}

/// A figure of the whole scenario.
pub(crate) fn whole(what: What) -> Figure {
    Figure { phase: "", what }
}

/// What came of a scenario.
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Those that run; none for all that are built.
    pub(crate) controllers: &'static [&'static str],
    /// Why it was not played.
    pub(crate) skipped: Option<String>,
    /// Why it ended early.
    pub(crate) failed: Option<String>,
    pub(crate) rows: Vec<Row>,
    targets: Vec<(Figure, Target)>,
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn new(
        name: String,
        about: String,
        controllers: &'static [&'static str],
        targets: Vec<(Figure, Target)>,
    ) -> Self {
        Self { name, about, controllers, skipped: None, failed: None, rows: Vec::new(), targets }
    }

    /// What a manager did in a round.
    pub(crate) fn add(&mut self, program: Program, figures: Figures) {
        for (figure, value) in figures.0 {
            let at = self.rows.iter().position(|row| row.figure == figure).unwrap_or_else(|| {
                let target = self.targets.iter().find(|(of, _)| *of == figure).map(|(_, target)| *target);
                self.rows.push(Row { figure, go: Samples::default(), ours: Samples::default(), target });
                self.rows.len() - 1
            });
            match program {
                Program::Go => self.rows[at].go.0.push(value),
                Program::Coxswain => self.rows[at].ours.0.push(value),
            }
        }
    }

    /// The row of the whole scenario with this figure.
    pub(crate) fn whole(&self, what: &What) -> Option<&Row> {
        self.rows.iter().find(|row| row.figure.phase.is_empty() && row.figure.what == *what)
    }

    /// All of it, with every round.
    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "phase": row.figure.phase,
                    "figure": row.figure.what.words(),
                    "decimals": row.figure.what.decimals(0.0),
                    "go": row.go.rounds(),
                    "coxswain": row.ours.rounds(),
                    "ratio": row.ratio(),
                    "target": row.target.map(|target| target.to_string()),
                    "reached": row.reached(),
                })
            })
            .collect();
        json!({
            "scenario": self.name,
            "about": self.about,
            "controllers": self.controllers,
            "skipped": self.skipped,
            "failed": self.failed,
            "figures": rows,
        })
    }
}
