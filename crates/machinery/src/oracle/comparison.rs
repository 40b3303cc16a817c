//! Compares two readings of generated and mutated texts.
#![expect(clippy::panic, clippy::print_stdout, reason = "for tests")]

use std::collections::BTreeMap;

use serde_json::Value;

use super::mutate::{mutate, simpler};
use super::{Oracle, Random};
use crate::model::hash::fnv1a;

/// Texts that are sent to the oracle together.
pub const BATCH: usize = 2_000;
/// Batches of `make test`, and with COXSWAIN_FULL.
const BATCHES: (usize, usize) = (10, 5_000);
/// Differences of one run that are made smaller and shown.
const SHOWN: usize = 12;
/// Differences after which a run stops.
const ENOUGH: usize = 300;

/// Returns `usual`, or `full` with COXSWAIN_FULL.
pub fn batches((usual, full): (usize, usize)) -> usize {
    if std::env::var_os("COXSWAIN_FULL").is_some() { full } else { usual }
}

/// A question of the oracle, and Coxswain's answers.
#[derive(Debug)]
pub struct Comparison {
    /// The name in `tests/oracle/questions.go`.
    pub question: &'static str,
    /// Texts that are compared and mutated.
    pub seeds: &'static [&'static str],
    /// Texts that mutations insert.
    pub words: &'static [&'static str],
    /// Generates a text.
    pub generate: fn(&mut Random) -> String,
    /// Reads a text as the oracle does; `None` if Coxswain refuses the text.
    pub read: fn(&str) -> Option<Value>,
    /// Texts that Coxswain refuses for a reason, though Go reads them.
    pub refusals: &'static [KnownRefusal],
    /// Known differences.
    pub differences: &'static [KnownDifference],
}

/// The forms of a question's texts and answers, if they are not those of a [`Comparison`].
#[derive(Clone, Copy, Debug)]
pub struct Translation {
    /// Returns the bytes that the oracle gets for a text.
    pub ask: fn(&str) -> Vec<u8>,
    /// Returns Go's reading of a text in the form of Coxswain's.
    pub understand: fn(&str, Value) -> Value,
}

impl Translation {
    /// The forms of a [`Comparison`].
    pub const NONE: Self = Self { ask: |text| text.as_bytes().to_vec(), understand: |_, reading| reading };
}

/// An oracle, and the forms of its texts and answers.
struct Translated {
    oracle: Oracle,
    translation: Translation,
}

impl Translated {
    fn ask(&mut self, texts: &[String]) {
        let texts: Vec<Vec<u8>> = texts.iter().map(|text| (self.translation.ask)(text)).collect();
        self.oracle.ask(&texts);
    }

    /// Returns Go's reading of each text, or null and the reason why Go refuses it.
    fn answers(&mut self, texts: &[String]) -> Vec<Value> {
        let mut answers = self.oracle.answers(texts.len());
        for (text, answer) in texts.iter().zip(&mut answers) {
            if let Some(reading) = answer.get_mut("reads") {
                *reading = (self.translation.understand)(text, reading.take());
            }
        }
        answers
    }
}

/// Texts that Go reads and Coxswain refuses.
#[derive(Debug)]
pub struct KnownRefusal {
    /// The reason why Coxswain refuses them.
    pub reason: &'static str,
    /// Whether a text with Go's reading is one of them.
    pub covers: fn(&str, &Value) -> bool,
}

/// Fields of readings that differ for a known reason.
#[derive(Debug)]
pub struct KnownDifference {
    /// The reason.
    pub reason: &'static str,
    /// The fields of the answer.
    pub fields: &'static [&'static str],
    /// Returns whether the reason explains the difference between Coxswain's reading (second argument) and Go's (third).
    pub covers: fn(&str, &Value, &Value) -> bool,
}

/// The outcome of comparing two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Both read the same.
    Alike,
    /// Both refuse the text.
    Refused,
    /// Coxswain refuses the text for the reason in this row.
    RefusedHere(usize),
    /// The readings differ for the reason in this row.
    Differs(usize),
    /// Coxswain refuses the text for no known reason.
    RefusedWithoutReason,
    /// Go refuses the text.
    RefusedThere,
    /// The readings differ.
    ReadDifferently,
}

impl Outcome {
    fn is_difference(self) -> bool {
        matches!(self, Self::RefusedWithoutReason | Self::RefusedThere | Self::ReadDifferently)
    }
}

impl Comparison {
    /// Compares 20,000 texts, and ten million with COXSWAIN_FULL. At least a fifth of them must be read by both, and each known
    /// refusal and difference must occur.
    ///
    /// # Panics
    /// A reading differs for no known reason, too few texts are read, or a known refusal or difference does not occur.
    pub fn run(&self) {
        self.run_translated(Translation::NONE);
    }

    /// Like [`Comparison::run`], for texts or answers that have another form in the oracle.
    ///
    /// # Panics
    /// A reading differs, or too few texts are read.
    pub fn run_translated(&self, translation: Translation) {
        let mut oracle = Translated { oracle: Oracle::of(self.question), translation };
        let mut outcomes = BTreeMap::<Outcome, usize>::new();
        let mut differences = Vec::new();
        let mut texts = self.texts(0);
        let count = batches(BATCHES);
        for batch in 1..=count {
            oracle.ask(&texts);
            // Made while the oracle reads the others.
            let next = self.texts(batch);
            for (text, answer) in texts.iter().zip(oracle.answers(&texts)) {
                let outcome = self.compare(text, &answer);
                *outcomes.entry(outcome).or_default() += 1;
                if outcome.is_difference() {
                    differences.push((outcome, text.clone()));
                }
            }
            if differences.len() >= ENOUGH {
                break;
            }
            texts = next;
        }
        println!("{}: {outcomes:?}", self.question);
        self.fail_for(differences, &mut oracle);
        let alike = outcomes.get(&Outcome::Alike).copied().unwrap_or_default();
        assert!(alike > count * BATCH / 5, "too few texts are read by both: {outcomes:?}");
        for (row, refusal) in self.refusals.iter().enumerate() {
            assert!(
                outcomes.contains_key(&Outcome::RefusedHere(row)),
                "no text is refused: {}",
                refusal.reason
            );
        }
        for (row, difference) in self.differences.iter().enumerate() {
            let occurs = outcomes.contains_key(&Outcome::Differs(row));
            assert!(occurs, "no reading differs: {}", difference.reason);
        }
    }

    /// Returns the texts of a batch: the seeds in the first one, then generated and mutated texts.
    fn texts(&self, batch: usize) -> Vec<String> {
        let question = u64::from(fnv1a([self.question.as_bytes()]));
        let mut random = Random::new(question << 32 | batch as u64);
        let seeds: &[&str] = if batch == 0 { self.seeds } else { &[] };
        let mut texts: Vec<String> = seeds.iter().map(|text| (*text).to_owned()).collect();
        while texts.len() < BATCH {
            let text = if random.one_in(3) && !self.seeds.is_empty() {
                random.one_of(self.seeds).to_owned()
            } else {
                (self.generate)(&mut random)
            };
            let is_mutated = random.one_in(2);
            texts.push(if is_mutated { mutate(&text, self.words, self.seeds, &mut random) } else { text });
        }
        texts
    }

    fn compare(&self, text: &str, theirs: &Value) -> Outcome {
        let ours = (self.read)(text);
        match (ours, &theirs["reads"]) {
            (None, Value::Null) => Outcome::Refused,
            (Some(_), Value::Null) => Outcome::RefusedThere,
            (Some(ours), theirs) if ours == *theirs => Outcome::Alike,
            (Some(ours), theirs) => {
                let row = self.known(text, &ours, theirs);
                row.map_or(Outcome::ReadDifferently, Outcome::Differs)
            }
            (None, theirs) => {
                let row = self.refusals.iter().position(|refusal| (refusal.covers)(text, theirs));
                row.map_or(Outcome::RefusedWithoutReason, Outcome::RefusedHere)
            }
        }
    }

    /// Returns the highest row that explains a field that differs; `None` if a field that differs has no row.
    fn known(&self, text: &str, ours: &Value, theirs: &Value) -> Option<usize> {
        let (Value::Object(all), Value::Object(others)) = (ours, theirs) else { return None };
        let mut known = None;
        for name in all.keys().chain(others.keys()).filter(|name| all.get(*name) != others.get(*name)) {
            let covers = |row: &KnownDifference| {
                row.fields.contains(&name.as_str()) && (row.covers)(text, ours, theirs)
            };
            // Linear: a table has few rows.
            known = known.max(Some(self.differences.iter().position(covers)?));
        }
        known
    }

    /// Panics with the differences, each made as small as possible, if there are any.
    fn fail_for(&self, differences: Vec<(Outcome, String)>, oracle: &mut Translated) {
        let mut shown = BTreeMap::new();
        let count = differences.len();
        for (outcome, text) in differences {
            if shown.len() == SHOWN {
                break;
            }
            let (text, theirs) = self.smallest(outcome, text, oracle);
            let ours = (self.read)(&text).map_or_else(|| "refused".to_owned(), |ours| ours.to_string());
            shown.insert(text.clone(), format!("{text:?} ({outcome:?})\n  Go:   {theirs}\n  here: {ours}"));
        }
        if !shown.is_empty() {
            let shown: Vec<String> = shown.into_values().collect();
            panic!("{}: {count} texts differ, for example\n{}", self.question, shown.join("\n"));
        }
    }

    /// Returns the smallest text found with the same kind of difference, and Go's answer.
    fn smallest(&self, outcome: Outcome, mut text: String, oracle: &mut Translated) -> (String, Value) {
        loop {
            let texts = simpler(&text);
            oracle.ask(&texts);
            let answers = oracle.answers(&texts);
            let is_same = |(text, theirs): &(&String, Value)| self.compare(text, theirs) == outcome;
            let Some((smaller, _)) = texts.iter().zip(answers).find(is_same) else { break };
            text.clone_from(smaller);
        }
        let texts = [text];
        oracle.ask(&texts);
        let answer = oracle.answers(&texts).remove(0);
        let [text] = texts;
        (text, answer)
    }
}
