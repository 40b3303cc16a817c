//! Trees of owned objects whose roots are deleted: half of them in the background, half in the foreground.
//!
//! Beside them are others of which an owner stays. It fails when anything goes but what must, or anything is left.
//!
//! What is measured is a manager at work: before it, unmeasured, one owner with one dependent is deleted, and what a manager
//! does once, such as asking for a token, is done then (see `churn`).

use std::collections::BTreeSet;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, count, many};
use crate::figures::{Figure, Figures, Target, What};
use crate::harness::{Namespace, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, never_more, until_none, wall_at};

const OBJECTS: usize = 10_000;
/// Objects of a tree, its root included.
const TREE: usize = 100;
/// Objects of a chain below its root.
const CHAIN: usize = 9;
/// Of so many trees the last two, a fan and chains, have their roots kept.
const KEPT: usize = 20;

pub(super) struct Garbage {
    trees: usize,
}

impl Garbage {
    pub(super) fn of(bench: &Bench) -> Self {
        // Of each kind, and in each phase, at least one.
        Self { trees: bench.scaled(OBJECTS).div_ceil(TREE).max(4) }
    }
}

impl Scenario for Garbage {
    fn name(&self) -> String {
        "garbage collection".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} ConfigMaps form {} trees. The root of each tree has {} dependents, either all directly (a fan) or in {} chains of \
             {CHAIN}, and owns one more object together with an object that stays. The roots of the trees are deleted, half in the \
             background, half in the foreground; a tenth of the trees stays. --kube-api-qps is so high that it never delays a request.",
            self.trees * (TREE + 1),
            self.trees,
            TREE - 1,
            (TREE - 1) / CHAIN
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        vec![never_more(What::Writes), wall_at(Qps::Unlimited)]
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("garbage").await;
            self.fill(&namespace).await;
            let manager = bench.manager(turn, "garbage", &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            warm_up(&namespace).await;
            calm(manager.pid).await;
            self.verify(&namespace, &|_| true).await;
            let phases =
                [("background", DeleteParams::background()), ("foreground", DeleteParams::foreground())];
            for (phase, (name, params)) in phases.iter().enumerate() {
                let stays = |tree: usize| is_kept(tree) || (tree / 2) % 2 > phase;
                let doomed: Vec<usize> =
                    (0..self.trees).filter(|tree| !is_kept(*tree) && (tree / 2) % 2 == phase).collect();
                let after = self.expected(&stays).len();
                let maps = namespace.api::<ConfigMap>();
                let gauge = Gauge::start(bench, turn.program, manager.pid);
                many(doomed.len(), async |at| {
                    maps.delete(&format!("tree-{}", doomed[at]), params).await.expect("deleted");
                })
                .await;
                let left = || count(&maps);
                until(&format!("all but {after} objects to go"), LIMIT, left, |count| *count <= after).await;
                gauge.close(name, Until::Calm, &mut figures).await;
                self.verify(&namespace, &stays).await;
            }
            figures.totaled()
        }
        .boxed_local()
    }
}

impl Garbage {
    /// Trees, and beside each an object that it owns together with an object that stays.
    async fn fill(&self, namespace: &Namespace) {
        let keeper = create(namespace, "keeper", &[]).await;
        many(self.trees, async |tree| {
            let root = create(namespace, &format!("tree-{tree}"), &[]).await;
            create(namespace, &format!("tree-{tree}-shared"), &[keeper.clone(), root.clone()]).await;
            let mut above = vec![root];
            for level in below(tree) {
                let mut made = Vec::new();
                for (at, name) in level.iter().enumerate() {
                    let owner = std::slice::from_ref(&above[at % above.len()]);
                    made.push(create(namespace, name, owner).await);
                }
                above = made;
            }
        })
        .await;
    }

    /// The names that must be there when the roots of `stays` are.
    fn expected(&self, stays: &dyn Fn(usize) -> bool) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = (0..self.trees).map(|tree| format!("tree-{tree}-shared")).collect();
        names.insert("keeper".to_owned());
        for tree in (0..self.trees).filter(|tree| stays(*tree)) {
            names.insert(format!("tree-{tree}"));
            names.extend(below(tree).into_iter().flatten());
        }
        names
    }

    /// All that must be there is, and nothing else; what was owned by two refers to those alone that are there.
    async fn verify(&self, namespace: &Namespace, stays: &dyn Fn(usize) -> bool) {
        let names = self.expected(stays);
        let list = namespace.api::<ConfigMap>().list(&ListParams::default()).await.expect("a list").items;
        let found: BTreeSet<String> = list.iter().filter_map(|each| each.metadata.name.clone()).collect();
        let difference: Vec<&String> = found.symmetric_difference(&names).take(10).collect();
        assert!(difference.is_empty(), "{difference:?} differ");
        for each in &list {
            assert!(each.metadata.deletion_timestamp.is_none());
            let name = each.metadata.name.as_deref().unwrap_or_default();
            let Some(tree) = name.strip_prefix("tree-").and_then(|rest| rest.strip_suffix("-shared")) else {
                continue;
            };
            let owners = each.metadata.owner_references.as_ref().map_or(0, Vec::len);
            let expected = 1 + usize::from(stays(tree.parse().expect("a number")));
            assert_eq!(owners, expected, "owners of {name}");
        }
    }
}

/// An owner is deleted in the background, and its only dependent goes.
async fn warm_up(namespace: &Namespace) {
    let (owner, dependent) = ("first-owner", "first-dependent");
    let owned = [create(namespace, owner, &[]).await];
    create(namespace, dependent, &owned).await;
    let maps = namespace.api::<ConfigMap>();
    maps.delete(owner, &DeleteParams::background()).await.expect("deleted");
    until_none(&maps, dependent).await;
}

/// Whether the root of a tree stays.
fn is_kept(tree: usize) -> bool {
    tree % KEPT >= KEPT - 2
}

/// Names of a tree's objects below its root, by level.
fn below(tree: usize) -> Vec<Vec<String>> {
    if tree.is_multiple_of(2) {
        return vec![(1..TREE).map(|at| format!("tree-{tree}-fan-{at}")).collect()];
    }
    let chains = (TREE - 1) / CHAIN;
    (0..CHAIN)
        .map(|level| (0..chains).map(|chain| format!("tree-{tree}-chain-{chain}-{level}")).collect())
        .collect()
}

async fn create(namespace: &Namespace, name: &str, owners: &[OwnerReference]) -> OwnerReference {
    let made: ConfigMap =
        namespace.create(json!({ "metadata": { "name": name, "ownerReferences": owners } })).await;
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: name.to_owned(),
        uid: made.metadata.uid.expect("a UID"),
        block_owner_deletion: Some(true),
        controller: None,
    }
}
