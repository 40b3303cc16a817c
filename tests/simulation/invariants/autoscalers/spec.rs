//! What an autoscaler says: its bounds, how fast it may go, and which replicas it makes of a metric. Pure numbers.

use jiff::SignedDuration;
use serde_json::Value as Json;

use apiserver_model::{items, text};

/// For how long recommendations keep a target from shrinking by default, as managers are told.
const DOWNSCALE_STABILIZATION: SignedDuration = SignedDuration::from_secs(120);
/// How far a metric may be off by default.
const TOLERANCE: f64 = 0.1;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) min: i64,
    pub(super) max: i64,
    /// How fast it may go up and down, if it says that.
    pub(super) behavior: Option<(Rules, Rules)>,
}

/// How fast it may go in one direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rules {
    /// `Max`, `Min` or `Disabled`.
    pub(super) select: String,
    pub(super) policies: Vec<Policy>,
    window: Option<SignedDuration>,
    tolerance: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    pub(super) is_percent: bool,
    pub(super) value: i64,
    pub(super) period: SignedDuration,
}

fn seconds(json: &Json) -> Option<SignedDuration> {
    json.as_i64().map(SignedDuration::from_secs)
}

fn quantity(json: &Json) -> Option<f64> {
    let spelt = json.as_str()?;
    match spelt.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().ok().map(|value| value / 1000.0),
        None => spelt.parse().ok(),
    }
}

impl Rules {
    fn of(rules: &Json) -> Self {
        let policy = |policy: &Json| Policy {
            is_percent: policy["type"] == "Percent",
            value: policy["value"].as_i64().unwrap_or(0),
            period: seconds(&policy["periodSeconds"]).unwrap_or_default(),
        };
        Self {
            select: text(rules, "/selectPolicy").to_owned(),
            policies: items(rules, "/policies").iter().map(policy).collect(),
            window: seconds(&rules["stabilizationWindowSeconds"]),
            tolerance: quantity(&rules["tolerance"]),
        }
    }
}

impl Spec {
    pub(super) fn of(spec: &Json) -> Self {
        let behavior = &spec["behavior"];
        let behavior = behavior
            .is_object()
            .then(|| (Rules::of(&behavior["scaleUp"]), Rules::of(&behavior["scaleDown"])));
        Self {
            min: spec["minReplicas"].as_i64().unwrap_or(1),
            max: spec["maxReplicas"].as_i64().unwrap_or(0),
            behavior,
        }
    }

    /// For how long recommendations keep it from growing, and from shrinking.
    pub(super) fn windows(&self) -> (SignedDuration, SignedDuration) {
        let Some((up, down)) = &self.behavior else { return (SignedDuration::ZERO, DOWNSCALE_STABILIZATION) };
        (up.window.unwrap_or_default(), down.window.unwrap_or(DOWNSCALE_STABILIZATION))
    }

    /// For how long what was done counts; `None` if that is not remembered.
    pub(super) fn longest_period(&self) -> Option<SignedDuration> {
        let (up, down) = self.behavior.as_ref()?;
        up.policies.iter().chain(&down.policies).map(|policy| policy.period).max()
    }

    /// How far the ratio of the metric to its target may be below 1, and above.
    fn tolerances(&self) -> (f64, f64) {
        let own = self.behavior.as_ref().map(|(up, down)| (down.tolerance, up.tolerance));
        let (down, up) = own.unwrap_or_default();
        (down.unwrap_or(TOLERANCE), up.unwrap_or(TOLERANCE))
    }

    /// How many replicas a metric asks for at least and at most, so many thousandths of its target: those that there are, if they
    /// are about as many as it asks for. What the status says of those may be old.
    pub(super) fn asked(&self, usage: i64) -> (i64, i64) {
        let (down, up) = self.tolerances();
        let exact = usage as f64 / 1000.0;
        let wanted = exact.ceil() as i64;
        // A little more than it is, for the last digit of a ratio.
        let least = (exact / (1.0 + up + 1e-9)).ceil() as i64;
        let most = if down >= 1.0 { i64::MAX } else { (exact / (1.0 - down - 1e-9)).floor() as i64 };
        (least.min(wanted), most.max(wanted))
    }

    /// How many replicas a metric asks for once there are so many.
    pub(super) fn settles_at(&self, usage: i64, replicas: i64) -> i64 {
        let (down, up) = self.tolerances();
        let ratio = usage as f64 / (1000.0 * replicas as f64);
        let stays = 1.0 - down <= ratio && ratio <= 1.0 + up;
        if stays { replicas } else { (usage as f64 / 1000.0).ceil() as i64 }
    }
}
