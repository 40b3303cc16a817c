//! Whether a node fits a pod template: the template's node name, node selector and required node affinity, and the node's
//! taints. Pure: it looks at nothing but the template and the node, so neither at what else runs there.
//!
//! | first that holds | the node |
//! |---|---|
//! | the template names another node | is [`Fit::Excluded`] |
//! | node selector or required affinity do not match | is [`Fit::Excluded`] |
//! | it has a `NoExecute` taint that is not tolerated | is [`Fit::Excluded`] |
//! | it has a `NoSchedule` taint that is not tolerated | [`Fit::Keeps`] a pod that is there |
//! | else | [`Fit::Runs`] one |
//!
//! See "Assigning Pods to Nodes" and "Taints and Tolerations" in the Kubernetes documentation, and KEP-5471 for tolerations
//! that compare numbers. A template is read once ([`NodeConstraints`]), and matched with many nodes.

use crate::api::core::{Node, Taint};
use crate::api::placement::PlacedTemplate;
use crate::api::pod::{NodeSelectorRequirement, NodeSelectorTerm};
use crate::api::shape::Toleration;
use crate::wire::{Labels, Message, Raw, Str, WireError};
use std::collections::BTreeSet;

mod encoded;
#[cfg(test)]
mod tests;

pub use encoded::{meant_for, tolerating};

/// The effect of a taint that leaves pods where they are.
const NO_SCHEDULE: &str = "NoSchedule";
/// The field of a node that terms can ask for.
const NAME_FIELD: &str = "metadata.name";

/// What a template asks of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConstraints {
    /// The only node that its pods may run on; any if empty.
    node_name: Str,
    /// Whether its pods have the node's network.
    pub host_network: bool,
    selector: Labels,
    /// Alternatives; absent if affinity requires nothing.
    terms: Option<Box<[Term]>>,
    tolerations: Box<[Toleration]>,
}

/// How a node fits a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A pod may run there.
    Runs,
    /// A pod that is there may stay, and no other may come.
    Keeps,
    /// No pod may be there.
    Excluded,
}

/// Why no pod may come to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Misfit {
    /// The template names another node, or its selector or affinity does not match.
    NotSelected,
    /// It has this taint, which is not tolerated.
    Tainted(Taint),
}

impl Fit {
    /// Whether a pod may run there.
    pub fn runs(self) -> bool {
        self == Self::Runs
    }

    /// Whether a pod that is there may stay.
    pub fn keeps(self) -> bool {
        self != Self::Excluded
    }
}

/// What keeps pods from a node.
enum Hindrance<'n> {
    Selection,
    Taint(&'n Taint),
}

/// All of these must hold. A term that is malformed, or asks for nothing, is no term at all.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    labels: Box<[Requirement]>,
    /// Names of nodes, and whether the node must have this name or must not.
    names: Box<[(Str, bool)]>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    label: Str,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq)]
enum LabelTest {
    In(BTreeSet<Str>),
    NotIn(BTreeSet<Str>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

impl NodeConstraints {
    /// What an encoded `PodTemplateSpec` asks of nodes.
    pub fn of_template(template: &Raw) -> Result<Self, WireError> {
        let spec = PlacedTemplate::decode(&template.0)?.spec;
        let required = spec
            .affinity
            .and_then(|affinity| affinity.node_affinity)
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        Ok(Self {
            node_name: spec.node_name,
            host_network: spec.host_network,
            selector: spec.node_selector,
            terms: required
                .map(|required| required.node_selector_terms.iter().filter_map(Term::compile).collect()),
            tolerations: spec.tolerations.into_iter().map(Toleration::from).collect(),
        })
    }

    /// How a node fits, where pods tolerate this as well. `comparing`: whether tolerations may compare numbers (feature gate
    /// `TaintTolerationComparisonOperators`).
    pub fn fit(&self, node: &Node, also_tolerated: &[Toleration], comparing: bool) -> Fit {
        match self.misfit(node, also_tolerated, comparing) {
            None => Fit::Runs,
            Some(Hindrance::Taint(taint)) if taint.effect == NO_SCHEDULE => Fit::Keeps,
            Some(_) => Fit::Excluded,
        }
    }

    /// Why no pod may come to a node; `None` if one may. As for [`NodeConstraints::fit`].
    pub fn why_not(&self, node: &Node, also_tolerated: &[Toleration], comparing: bool) -> Option<Misfit> {
        self.misfit(node, also_tolerated, comparing).map(|hindrance| match hindrance {
            Hindrance::Selection => Misfit::NotSelected,
            Hindrance::Taint(taint) => Misfit::Tainted(taint.clone()),
        })
    }

    fn misfit<'n>(
        &self,
        node: &'n Node,
        also_tolerated: &[Toleration],
        comparing: bool,
    ) -> Option<Hindrance<'n>> {
        if !self.selects(node) {
            return Some(Hindrance::Selection);
        }
        let tolerates = |taint: &Taint| {
            let mut all = self.tolerations.iter().chain(also_tolerated);
            all.any(|toleration| tolerates(toleration, taint, comparing))
        };
        let untolerated =
            |effect: &str| node.spec.taints.iter().find(|taint| taint.effect == effect && !tolerates(taint));
        untolerated("NoExecute").or_else(|| untolerated(NO_SCHEDULE)).map(Hindrance::Taint)
    }

    /// Whether name, selector and affinity let pods run there, taints aside.
    fn selects(&self, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        let is_named = self.node_name.is_empty() || self.node_name == node.metadata.name;
        is_named
            && self.selector.iter().all(|(label, value)| labels.value_of(label) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

impl Term {
    fn compile(term: &NodeSelectorTerm) -> Option<Self> {
        let labels: Box<[Requirement]> =
            term.match_expressions.iter().map(Requirement::compile).collect::<Option<_>>()?;
        let names: Box<[(Str, bool)]> = term.match_fields.iter().map(named).collect::<Option<_>>()?;
        (!labels.is_empty() || !names.is_empty()).then_some(Self { labels, names })
    }

    fn matches(&self, node: &Node) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(&node.metadata.labels))
            && self.names.iter().all(|(name, wanted)| (node.metadata.name == *name) == *wanted)
    }
}

/// What a requirement of fields asks of a node's name; `None` if it is malformed.
fn named(field: &NodeSelectorRequirement) -> Option<(Str, bool)> {
    let [name] = field.values.as_slice() else { return None };
    let wanted = match field.operator.as_str() {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    (field.key == NAME_FIELD).then(|| (name.clone(), wanted))
}

impl Requirement {
    fn compile(expression: &NodeSelectorRequirement) -> Option<Self> {
        let values = &expression.values;
        let number = || if let [value] = values.as_slice() { value.parse().ok() } else { None };
        let test = match expression.operator.as_str() {
            "In" if !values.is_empty() => LabelTest::In(values.iter().cloned().collect()),
            "NotIn" if !values.is_empty() => LabelTest::NotIn(values.iter().cloned().collect()),
            "Exists" if values.is_empty() => LabelTest::Exists,
            "DoesNotExist" if values.is_empty() => LabelTest::DoesNotExist,
            "Gt" => LabelTest::Above(number()?),
            "Lt" => LabelTest::Below(number()?),
            _ => return None,
        };
        Some(Self { label: expression.key.clone(), test })
    }

    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.value_of(&self.label);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            LabelTest::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelTest::Exists => value.is_some(),
            LabelTest::DoesNotExist => value.is_none(),
            LabelTest::Above(bound) => number().is_some_and(|number| number > *bound),
            LabelTest::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// The number that a text is, if it is written as numbers are printed: without a plus sign and without zeros in front.
fn canonical(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = if digits.starts_with('0') { text == "0" } else { !text.starts_with('+') };
    text.parse().ok().filter(|_| is_canonical)
}

/// Whether a toleration tolerates a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint, comparing: bool) -> bool {
    let is_of_effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let is_of_key = toleration.key.is_empty() || toleration.key == taint.key;
    // Those of the taint and of the toleration, in this order.
    let numbers = || canonical(&taint.value).zip(canonical(&toleration.value));
    is_of_effect
        && is_of_key
        && match toleration.operator.as_str() {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            "Gt" => comparing && numbers().is_some_and(|(taint, toleration)| taint > toleration),
            "Lt" => comparing && numbers().is_some_and(|(taint, toleration)| taint < toleration),
            _ => false,
        }
}
