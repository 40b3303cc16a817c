//! Plays lists next to each other, repeats and shrinks the lists that show a difference, and counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::RwLock;
use tokio::time::{Instant, timeout};

use crate::compare::{Difference, compare};
use crate::generate::operations;
use crate::known::Table;
use crate::operation::{Action, Operation};
use crate::plane::{self, Plane, namespace};
use crate::play::{Played, clean_up, play};
use crate::repeat::{self, Finding, MORE, REPEATS, Trial};
use crate::shrink::Shrinker;
use crate::story;

/// Lists that play at the same time, by default. Plays mostly wait.
const AT_A_TIME: usize = 10;
/// Shorter lists that are tried at the same time.
const TRIES_AT_A_TIME: usize = 6;
/// Time for making one list shorter.
const PATIENCE: Duration = Duration::from_secs(100);
/// The same time for lists that play alone, one after the other.
const PATIENCE_ALONE: Duration = Duration::from_mins(4);

/// Differences of one list that are judged at most. Most of them follow from the first.
const CANDIDATES: usize = 60;

/// Time after which the play of a list fails.
const LONGEST: Duration = Duration::from_mins(4);

/// The control planes, the tables and the counts of a run.
pub(crate) struct Search {
    planes: Vec<Plane>,
    noise: Table,
    wanted: Table,
    /// The lock that plays hold for reading, and a play whose list concerns the whole control plane for writing.
    gate: RwLock<()>,
    /// Number of namespaces that were made.
    namespaces: AtomicUsize,
    began: Instant,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    seeds: usize,
    /// The first and the last seed.
    range: Option<(u64, u64)>,
    operations: usize,
    objects: usize,
    wanted: usize,
    /// Noise by signature.
    noise: BTreeMap<String, usize>,
    /// Seeds that show a confirmed sort of difference, by its signature.
    found: BTreeMap<String, Vec<u64>>,
    /// Seeds with a difference that some repeats do not show, although all plays under kube-controller-manager agree.
    rare: Vec<(u64, String)>,
    /// Candidates that are noise, because repeats under kube-controller-manager differ in their objects, by signature of the noise.
    unsteady: BTreeMap<String, usize>,
    /// Seeds that were not calm next to other lists, and were calm alone.
    disturbed: Vec<u64>,
    /// Whether a story was printed.
    has_story: bool,
    /// Lists that could not be played.
    broken: Vec<String>,
}

/// Returns the differences of a list that are judged: up to [`CANDIDATES`], one of each sort first.
fn candidates(differences: &[Difference]) -> Vec<&Difference> {
    let mut seen = BTreeSet::new();
    let is_new = |difference: &&Difference| seen.insert(difference.signature());
    let (mut all, others): (Vec<&Difference>, Vec<&Difference>) = differences.iter().partition(is_new);
    all.extend(others);
    all.truncate(CANDIDATES);
    all
}

impl Search {
    pub(crate) async fn start() -> Self {
        let planes = plane::start().await;
        Self {
            planes,
            noise: Table::noise(),
            wanted: Table::wanted(),
            gate: RwLock::default(),
            namespaces: AtomicUsize::new(0),
            began: Instant::now(),
            totals: Mutex::new(Totals::default()),
        }
    }

    /// Plays seeds, until a time has passed.
    pub(crate) async fn run(&self, seeds: impl IntoIterator<Item = u64>, limit: Option<Duration>) {
        let until = limit.map(|limit| self.began + limit);
        let stops_at_first = std::env::var_os("FIRST").is_some();
        let in_time = |_: &u64| {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            let has_ended = stops_at_first && self.totals.lock().has_story;
            !is_over && !has_ended
        };
        let at_a_time = std::env::var("AT_A_TIME").ok().and_then(|text| text.parse().ok());
        let plays = futures::stream::iter(seeds.into_iter().take_while(in_time));
        let plays = plays.map(|seed| async move { self.judge(seed, &operations(seed)).await });
        plays.buffer_unordered(at_a_time.unwrap_or(AT_A_TIME)).for_each(|()| async {}).await;
    }

    /// Plays a list, and reports its first difference.
    ///
    /// A list can keep a manager so busy that no list of the control plane is calm. So a list that was not calm is played alone, and judged by
    /// these plays.
    pub(crate) async fn judge(&self, seed: u64, list: &[Operation]) {
        let concerns_plane = list.iter().any(Operation::concerns_plane);
        let Some(mut trial) = self.trial(seed, list, concerns_plane).await else { return };
        if trial.is_busy() && !concerns_plane {
            let Some(alone) = self.trial(seed, list, true).await else { return };
            trial = alone;
            if !trial.is_busy() {
                self.totals.lock().disturbed.push(seed);
            }
        }
        let is_alone = concerns_plane || trial.is_busy();
        {
            let mut totals = self.totals.lock();
            totals.seeds += 1;
            let (first, last) = totals.range.unwrap_or((seed, seed));
            totals.range = Some((first.min(seed), last.max(seed)));
        }
        let (mut repeats, mut planned) = (Vec::new(), 0);
        let mut rare = BTreeSet::new();
        for candidate in candidates(&trial.verdict.differences) {
            if self.counts_as_known(seed, candidate) {
                continue;
            }
            if planned == 0 {
                planned = REPEATS;
                repeats = self.again(REPEATS, seed, list, is_alone).await;
            }
            let mut finding = repeat::judge(candidate, &trial, &repeats);
            if matches!(finding, Finding::Rare | Finding::Outside) && planned == REPEATS {
                planned += MORE;
                repeats.extend(self.again(MORE, seed, list, is_alone).await);
                finding = repeat::judge(candidate, &trial, &repeats);
            }
            match finding {
                // Another seed may have confirmed this sort of difference meanwhile.
                Finding::Repeated | Finding::Outside if self.counts_as_known(seed, candidate) => {}
                Finding::Repeated | Finding::Outside => {
                    self.totals.lock().found.insert(candidate.signature(), vec![seed]);
                    let candidate = candidate.clone();
                    return self.report(seed, list, is_alone, &candidate, trial).await;
                }
                Finding::Unsteady(noise) => {
                    *self.totals.lock().unsteady.entry(noise.signature()).or_default() += 1;
                }
                Finding::Rare => {
                    if rare.is_empty() {
                        println!("{}", story::of_rare(seed, list));
                    }
                    if rare.insert(candidate.signature()) {
                        self.totals.lock().rare.push((seed, candidate.to_string()));
                    }
                }
            }
        }
    }

    /// Counts a seed with a sort of difference that another seed has confirmed. Returns false if none has.
    fn counts_as_known(&self, seed: u64, candidate: &Difference) -> bool {
        let mut totals = self.totals.lock();
        let Some(seeds) = totals.found.get_mut(&candidate.signature()) else { return false };
        if seeds.last() != Some(&seed) {
            seeds.push(seed);
        }
        true
    }

    async fn again(&self, times: usize, seed: u64, list: &[Operation], is_alone: bool) -> Vec<Trial> {
        let trials = join_all((0..times).map(|_| self.trial(seed, list, is_alone))).await;
        trials.into_iter().flatten().collect()
    }

    /// Makes a list with a confirmed difference shorter, and prints its story.
    async fn report(
        &self,
        seed: u64,
        list: &[Operation],
        is_alone: bool,
        candidate: &Difference,
        trial: Trial,
    ) {
        let signature = candidate.signature();
        let list = self.shrink(seed, list, is_alone, &signature).await;
        let shown = match self.trial(seed, &list, is_alone).await {
            Some(last) if last.shows(&signature) => last,
            _ => trial,
        };
        self.totals.lock().has_story = true;
        // Later differences may follow from the first ones that show the candidate.
        let all = &shown.verdict.differences;
        let round = all.iter().find(|each| each.signature() == signature).map(|each| each.round);
        let of_round: Vec<Difference> =
            all.iter().filter(|each| Some(each.round) == round).cloned().collect();
        println!("{}", story::write(seed, &list, &of_round, &shown.played));
    }

    /// Plays a list on all control planes, alone or next to others. Returns nothing if it could not be played.
    async fn trial(&self, seed: u64, list: &[Operation], is_alone: bool) -> Option<Trial> {
        let namespace = namespace(seed, self.namespaces.fetch_add(1, Ordering::Relaxed));
        let beside = if is_alone { None } else { Some(self.gate.read().await) };
        let alone = if is_alone { Some(self.gate.write().await) } else { None };
        let plays = join_all(self.planes.iter().map(|plane| play(plane, &namespace, list, is_alone)));
        let too_long = |_| vec![Err(format!("{namespace} was not played within {LONGEST:?}"))];
        let mut plays = timeout(LONGEST, plays).await.unwrap_or_else(too_long);
        if plays.len() < self.planes.len() {
            let ends = self.planes.iter().map(|plane| clean_up(plane, &namespace));
            plays.extend(join_all(ends).await.into_iter().filter_map(Result::err).map(Err));
        }
        if list.iter().any(Operation::concerns_plane) {
            let ends = self.planes.iter().map(|plane| async move {
                plane.permit().await?;
                plane.give_back().await
            });
            plays.extend(join_all(ends).await.into_iter().filter_map(Result::err).map(Err));
        }
        drop((beside, alone));
        let played: Result<Vec<Played>, String> = plays.into_iter().collect();
        let played = match played {
            Ok(played) => played,
            Err(error) => {
                self.totals.lock().broken.push(format!("seed {seed}: {error}"));
                return None;
            }
        };
        if let Ok(folder) = std::env::var("LOOKS") {
            let names = ["kube-controller-manager", "kube-controller-manager-again", "coxswain"];
            for (name, played) in names.iter().zip(&played) {
                let text = serde_json::to_string_pretty(&played.looks).expect("JSON");
                std::fs::write(format!("{folder}/{namespace}-{name}.json"), text).expect("the folder exists");
            }
        }
        let lines = list.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let verdict = compare([&played[0], &played[1], &played[2]], &self.noise, &self.wanted, &lines);
        let mut totals = self.totals.lock();
        totals.operations += list.iter().filter(|operation| operation.action != Action::Calm).count();
        totals.objects += verdict.objects;
        totals.wanted += verdict.wanted;
        for difference in &verdict.noise {
            *totals.noise.entry(difference.signature()).or_default() += 1;
        }
        Some(Trial { played, verdict })
    }

    /// Returns the shortest list that shows a difference and was found in time.
    async fn shrink(&self, seed: u64, list: &[Operation], is_alone: bool, signature: &str) -> Vec<Operation> {
        let until = Instant::now() + if is_alone { PATIENCE_ALONE } else { PATIENCE };
        let mut shrinker = Shrinker::new(list.len());
        // Lists that play alone wait for each other.
        let tries = if is_alone { 1 } else { TRIES_AT_A_TIME };
        let pick = |kept: &[usize]| kept.iter().map(|at| list[*at].clone()).collect::<Vec<_>>();
        while Instant::now() < until {
            let candidates: Vec<Vec<Operation>> =
                shrinker.candidates(tries).iter().map(|kept| pick(kept)).collect();
            if candidates.is_empty() {
                break;
            }
            let trials = join_all(candidates.iter().map(|list| self.trial(seed, list, is_alone))).await;
            let shows = |trial: &Option<Trial>| trial.as_ref().is_some_and(|trial| trial.shows(signature));
            shrinker.record(trials.iter().position(shows));
        }
        pick(shrinker.kept())
    }

    /// Returns the rows of `wanted.tsv` that no difference matched.
    pub(crate) fn unmet(&self) -> Vec<String> {
        self.wanted.unmet()
    }

    /// Prints the counts. Differences that some repeats do not show are an error if `rare_counts`.
    ///
    /// # Errors
    /// If there was a difference, or a list that could not be played.
    pub(crate) fn end(&self, rare_counts: bool) -> Result<(), String> {
        let totals = self.totals.lock();
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        println!(
            "{} seeds in {:.1} minutes: {} operations for each manager ({:.0} a minute), {} objects compared, \
             {} known differences, {} sorts of difference",
            totals.seeds,
            minutes,
            totals.operations,
            totals.operations as f64 / minutes,
            totals.objects,
            totals.wanted,
            totals.found.len(),
        );
        if let Some((first, last)) = totals.range {
            println!("seeds {first} to {last}");
        }
        for (signature, count) in &totals.noise {
            println!("noise of kube-controller-manager, {count} times: {signature}");
        }
        for (signature, count) in &totals.unsteady {
            println!("noise of kube-controller-manager between repeats, {count} times: {signature}");
        }
        for (signature, seeds) in &totals.found {
            println!("different, seeds {seeds:?}: {signature}");
        }
        if !totals.disturbed.is_empty() {
            println!("not calm next to other lists, calm alone: {:?}", totals.disturbed);
        }
        for (seed, text) in &totals.rare {
            println!("different in some repeats only, seed {seed}: {text}");
        }
        let rare: &[(u64, String)] = if rare_counts { &totals.rare } else { &[] };
        if totals.broken.is_empty() && totals.found.is_empty() && rare.is_empty() {
            return Ok(());
        }
        Err(format!(
            "differences, with their seeds: {:#?}; differences in some repeats only: {rare:#?}; \
             lists that could not be played: {:#?}",
            totals.found, totals.broken
        ))
    }
}
