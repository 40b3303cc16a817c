//! What goes wrong between a manager and the API server, drawn from the seed.
//!
//! Which kinds of faults a run has, and how many, is drawn first: runs with one kind of fault find what runs with all of them
//! hide.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::matrix::Aim;
use apiserver_model::Refusal;
use apiserver_model::dice::Dice;
use apiserver_model::http::Asked;

/// By how many milliseconds a slow request is late at most. One that was sent when its leader's protection ended arrives before
/// another manager can have the Lease, which by default is three seconds later; the network bounds later ones; see
/// `docs/adr/0030-writes-end-with-the-lease.md`.
const SLOWEST: u64 = 2900;

/// How long requests and answers take in a run whose faults are aimed.
const NEAR: Duration = Duration::from_millis(5);

/// What becomes of one request.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Fine,
    /// It never arrives.
    LostBefore,
    /// It is carried out, and its answer is lost.
    LostAfter,
    /// It is carried out, and its answer is an error.
    FailedAfter(Refusal),
    /// It is refused, and not carried out.
    Refused(Refusal),
    /// It is carried out, and nobody answers.
    Unanswered,
    /// It is not carried out, and nobody answers.
    Silent,
    /// It is answered as if it were carried out, and a mutating webhook has undone it.
    Undone,
    /// It takes long.
    Slow,
    /// A watch breaks after this long.
    Cut(Duration),
}

impl Fate {
    /// As counts and traces show it; `None` if nothing is wrong.
    pub(crate) fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Fine => return None,
            Self::LostBefore => "lost before",
            Self::LostAfter => "answer lost",
            Self::FailedAfter(_) => "failed after",
            Self::Refused(refusal) => match refusal.code {
                409 => "409",
                410 => "410",
                429 => "429",
                503 => "503",
                _ => "500",
            },
            Self::Unanswered => "unanswered",
            Self::Silent => "unanswered and not carried out",
            Self::Undone => "undone",
            Self::Slow => "slow",
            Self::Cut(_) => "watch cut",
        })
    }

    pub(crate) fn cut_after(&self) -> Option<Duration> {
        if let Self::Cut(after) = self { Some(*after) } else { None }
    }
}

/// The kinds of faults that befall requests.
const KINDS: &[&str] = &["lost before", "answer lost", "failed after", "refused", "unanswered", "slow"];

/// What does not happen in a run although it is drawn: names of faults, mishaps and acts of users.
pub(crate) type Muted = BTreeSet<&'static str>;

/// The names of what befalls requests.
pub(crate) const FATES: &[&str] = &[
    "lost before",
    "answer lost",
    "failed after",
    "409",
    "410",
    "429",
    "500",
    "503",
    "unanswered",
    "slow",
    "watch cut",
];

/// See the module.
pub(crate) struct Faults {
    dice: Dice,
    /// Whether there are any.
    on: bool,
    /// Of a thousand requests, how many have one.
    permille: u32,
    kinds: Vec<&'static str>,
    cut_watches: bool,
    muted: Muted,
    /// The API server cannot be reached before then.
    away_until: Option<Instant>,
    /// Faults for the writes of one controller for one object, in place of those that are drawn.
    pub(crate) aim: Option<Aim>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Those of a seed; `on`: whether there are any.
    pub(crate) fn new(seed: u64, on: bool, muted: Muted) -> Self {
        let mut dice = Dice::new(seed, "faults");
        let permille = *dice.pick(&[0, 5, 20, 60, 150]).unwrap_or(&0);
        let kinds: Vec<&str> = KINDS.iter().copied().filter(|_| dice.permille(600)).collect();
        let cut_watches = dice.permille(500);
        Self {
            dice,
            on,
            permille,
            kinds,
            cut_watches,
            muted,
            away_until: None,
            aim: None,
            counts: BTreeMap::new(),
        }
    }

    /// Nothing goes wrong but that nobody reaches the API server.
    pub(crate) fn outages() -> Self {
        let (dice, muted, counts) = (Dice::new(0, "faults"), Muted::new(), BTreeMap::new());
        let (kinds, away_until) = (Vec::new(), None);
        Self { dice, on: true, permille: 0, kinds, cut_watches: false, muted, away_until, aim: None, counts }
    }

    /// Nothing goes wrong but the writes that `aim` selects.
    pub(crate) fn aimed(aim: Aim) -> Self {
        Self { aim: Some(aim), ..Self::outages() }
    }

    /// From now on nothing goes wrong.
    pub(crate) fn end(&mut self) {
        self.on = false;
        self.away_until = None;
    }

    /// Nobody reaches the API server before then.
    pub(crate) fn away(&mut self, until: Instant) {
        self.away_until = Some(until);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Returns the fate of a request of this controller, and the delays of the request and its answer.
    pub(crate) fn draw(&mut self, agent: &str, asked: &Asked) -> (Fate, Duration, Duration) {
        if let Some(aim) = &mut self.aim {
            return (aim.fate(agent, asked), NEAR, NEAR);
        }
        let mut there = self.dice.millis(1, 10);
        let back = self.dice.millis(1, 10);
        let fate = self.fate(asked);
        let is_muted = fate.name().is_some_and(|name| self.muted.contains(name));
        let fate = if is_muted { Fate::Fine } else { fate };
        if matches!(fate, Fate::Slow) {
            there += self.dice.millis(100, SLOWEST);
        }
        if let Some(name) = fate.name() {
            self.count(name);
        }
        (fate, there, back)
    }

    fn fate(&mut self, asked: &Asked) -> Fate {
        if !self.on {
            return Fate::Fine;
        }
        if self.away_until.is_some_and(|until| Instant::now() < until) {
            return Fate::LostBefore;
        }
        if asked.is_watch && self.cut_watches && self.dice.permille(300) {
            return Fate::Cut(self.dice.millis(100, 120_000));
        }
        // What elections do about their own faults is tested elsewhere; here they would mostly end managers.
        let is_lease = asked.path.contains("/leases");
        let permille = if is_lease { self.permille / 4 } else { self.permille };
        if !self.dice.permille(permille) {
            return Fate::Fine;
        }
        let Some(&kind) = self.dice.pick(&self.kinds) else { return Fate::Fine };
        match kind {
            "answer lost" if !asked.is_watch => Fate::LostAfter,
            "failed after" if asked.is_write() => {
                Fate::FailedAfter(Refusal::new(500, "InternalError", "etcdserver: request timed out"))
            }
            "refused" => self.refusal(asked),
            "unanswered" if !asked.is_watch && !is_lease => Fate::Unanswered,
            "slow" => Fate::Slow,
            _ => Fate::LostBefore,
        }
    }

    fn refusal(&mut self, asked: &Asked) -> Fate {
        let is_change = asked.is_write() && asked.method != http::Method::POST;
        Fate::Refused(match self.dice.below(5) {
            0 if is_change => Refusal::new(409, "Conflict", "the object has been modified"),
            1 if !asked.is_write() && asked.name.is_empty() => Refusal::expired(),
            2 => Refusal::later(1),
            3 => Refusal::new(
                503,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            _ => Refusal::new(500, "InternalError", "an error on the server"),
        })
    }
}
