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
/// Lists that play alone one after the other. All other plays must end before the first of them, so they wait for each other.
const BATCH: usize = 4;
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

/// Plays of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plays {
    /// Two plays under kube-controller-manager and one under Coxswain.
    All,
    /// The second play under kube-controller-manager only if the first one differs. A field in which Coxswain has the value of one play is
    /// not different, so the second play cannot add a difference.
    IfDifferent,
}

/// The control planes, the tables and the counts of a run.
pub(crate) struct Search {
    /// Two with kube-controller-manager, one with Coxswain.
    planes: [Plane; 3],
    noise: Table,
    wanted: Table,
    /// The lock that plays hold for reading, and a play whose list concerns the whole control plane for writing.
    gate: RwLock<()>,
    /// Lists that wait until they play alone.
    waiting: Mutex<Vec<(u64, Vec<Operation>)>>,
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
            waiting: Mutex::default(),
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
        let at_a_time = at_a_time.unwrap_or(AT_A_TIME);
        let mut seeds = seeds.into_iter().take_while(in_time).fuse();
        let mut is_over = false;
        while !is_over {
            let next = || {
                let is_due = self.waiting.lock().len() >= BATCH;
                let next = if is_due { None } else { seeds.next() };
                is_over = next.is_none() && !is_due;
                next
            };
            let plays = futures::stream::iter(std::iter::from_fn(next));
            let plays = plays.map(|seed| async move {
                let list = operations(seed);
                if list.iter().any(Operation::concerns_plane) || !self.judge_beside(seed, &list).await {
                    self.waiting.lock().push((seed, list));
                }
            });
            plays.buffer_unordered(at_a_time).for_each(|()| async {}).await;
            let waiting = std::mem::take(&mut *self.waiting.lock());
            for (seed, list) in waiting {
                if stops_at_first && self.totals.lock().has_story {
                    return;
                }
                self.judge_alone(seed, &list).await;
            }
        }
    }

    /// Plays a list, and reports its first difference.
    pub(crate) async fn judge(&self, seed: u64, list: &[Operation]) {
        if list.iter().any(Operation::concerns_plane) || !self.judge_beside(seed, list).await {
            self.judge_alone(seed, list).await;
        }
    }

    /// Plays a list next to others, and reports its first difference. Returns false if it was not calm: a list can keep a manager so busy that
    /// no list of the control plane is calm. So it is to be played alone, and judged by these plays.
    async fn judge_beside(&self, seed: u64, list: &[Operation]) -> bool {
        let Some(trial) = self.trial(seed, list, false, Plays::IfDifferent).await else { return true };
        let is_calm = !trial.is_busy();
        if is_calm {
            self.conclude(seed, list, false, trial).await;
        }
        is_calm
    }

    /// Plays a list when no other plays, and reports its first difference.
    async fn judge_alone(&self, seed: u64, list: &[Operation]) {
        let Some(trial) = self.trial(seed, list, true, Plays::All).await else { return };
        let concerns_plane = list.iter().any(Operation::concerns_plane);
        if !concerns_plane && !trial.is_busy() {
            self.totals.lock().disturbed.push(seed);
        }
        self.conclude(seed, list, concerns_plane || trial.is_busy(), trial).await;
    }

    /// Judges the differences of the first trial of a list, and reports the first that is confirmed.
    async fn conclude(&self, seed: u64, list: &[Operation], is_alone: bool, trial: Trial) {
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
        let trials = join_all((0..times).map(|_| self.trial(seed, list, is_alone, Plays::All))).await;
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
        let shown = match self.trial(seed, &list, is_alone, Plays::All).await {
            Some(last) if last.shows(&signature) => last,
            _ => trial,
        };
        self.totals.lock().has_story = true;
        // Later differences may follow from the first ones that show the candidate.
        let all = &shown.verdict.differences;
        let round = all.iter().find(|each| each.signature() == signature).map(|each| each.round);
        let of_round: Vec<Difference> =
            all.iter().filter(|each| Some(each.round) == round).cloned().collect();
        println!("{}", story::write(seed, &list, &of_round, &shown));
    }

    /// Plays a list, alone or next to others, and compares the plays. Returns nothing if it could not be played.
    async fn trial(&self, seed: u64, list: &[Operation], is_alone: bool, plays: Plays) -> Option<Trial> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let namespace = namespace(seed, number);
        let lines = list.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let judged = |theirs: [&Played; 2], ours: &Played| {
            compare([theirs[0], theirs[1], ours], &self.noise, &self.wanted, &lines)
        };
        let beside = if is_alone { None } else { Some(self.gate.read().await) };
        let alone = if is_alone { Some(self.gate.write().await) } else { None };
        let [one, two, own] = &self.planes;
        // Lists take turns, so that both have the same load.
        let [first, second] = if number.is_multiple_of(2) { [one, two] } else { [two, one] };
        let all = [first, second, own];
        // Lists that play alone concern all control planes.
        let at_once = if plays == Plays::All || is_alone { &all[..] } else { &[first, own] };
        let mut played = self.play(seed, &namespace, list, is_alone, at_once).await?;
        let ours = played.pop()?;
        let mut verdict = judged([&played[0], played.last()?], &ours);
        let is_calm = ours.is_calm() && played.iter().all(Played::is_calm);
        if played.len() == 1 && !verdict.differences.is_empty() && is_calm {
            let again = self.play(seed, &namespace, list, is_alone, &[second]).await?;
            played.extend(again);
            verdict = judged([&played[0], played.last()?], &ours);
        }
        drop((beside, alone));
        if let Ok(folder) = std::env::var("LOOKS") {
            let names = ["kube-controller-manager", "kube-controller-manager-again"];
            for (name, played) in names.iter().zip(&played).chain([(&"coxswain", &ours)]) {
                let text = serde_json::to_string_pretty(&played.looks).expect("JSON");
                std::fs::write(format!("{folder}/{namespace}-{name}.json"), text).expect("the folder exists");
            }
        }
        let mut totals = self.totals.lock();
        totals.operations += list.iter().filter(|operation| operation.action != Action::Calm).count();
        totals.objects += verdict.objects;
        totals.wanted += verdict.wanted;
        for difference in &verdict.noise {
            *totals.noise.entry(difference.signature()).or_default() += 1;
        }
        Some(Trial { theirs: played, ours, verdict })
    }

    /// Plays a list on some control planes at the same time, in their order. Returns nothing if it could not be played.
    async fn play(
        &self,
        seed: u64,
        namespace: &str,
        list: &[Operation],
        is_alone: bool,
        planes: &[&Plane],
    ) -> Option<Vec<Played>> {
        let plays = join_all(planes.iter().map(|plane| play(plane, namespace, list, is_alone)));
        let too_long = |_| vec![Err(format!("{namespace} was not played within {LONGEST:?}"))];
        let mut plays = timeout(LONGEST, plays).await.unwrap_or_else(too_long);
        if plays.len() < planes.len() || plays.iter().any(Result::is_err) {
            let ends = planes.iter().map(|plane| clean_up(plane, namespace));
            plays.extend(join_all(ends).await.into_iter().filter_map(Result::err).map(Err));
        }
        if list.iter().any(Operation::concerns_plane) {
            let ends = planes.iter().map(|plane| async move {
                plane.permit().await?;
                plane.give_back().await
            });
            plays.extend(join_all(ends).await.into_iter().filter_map(Result::err).map(Err));
        }
        let played: Result<Vec<Played>, String> = plays.into_iter().collect();
        played.map_err(|error| self.totals.lock().broken.push(format!("seed {seed}: {error}"))).ok()
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
            let trials = candidates.iter().map(|list| self.trial(seed, list, is_alone, Plays::IfDifferent));
            let trials = join_all(trials).await;
            let shows = |trial: &Option<Trial>| trial.as_ref().is_some_and(|trial| trial.shows(signature));
            shrinker.record(trials.iter().position(shows));
        }
        pick(shrinker.kept())
    }

    /// Returns the rows of `wanted.tsv` that no difference matched.
    pub(crate) fn unmet(&self) -> Vec<String> {
        self.wanted.unmet()
    }

    /// Prints the counts.
    ///
    /// # Errors
    /// If there was a difference, or a list that could not be played.
    pub(crate) fn end(&self) -> Result<(), String> {
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
        if totals.broken.is_empty() && totals.found.is_empty() && totals.rare.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{} sorts of difference, {} differences in some repeats only; lists that could not be played: {:#?}",
            totals.found.len(),
            totals.rare.len(),
            totals.broken
        ))
    }
}
