//! How many replicas a metric asks for, by the values that were found and the target. Pure numbers: it knows no metrics API.
//!
//! Values are thousandths, whole numbers; averages and percentages are cut to whole numbers; the ratio of usage and target is
//! a double, as in the original, whose results this must have.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::answers::PodValue;
use super::super::settings::Settings;
use coxswain_machinery::api::charge::ChargeRules;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::shape::{ContainerRequests, PodShape};
use coxswain_machinery::wire::{Str, Time};

/// How far the ratio may be from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Tolerance {
    pub(in super::super) down: f64,
    pub(in super::super) up: f64,
}

impl Tolerance {
    /// Whether a ratio is as good as 1.
    pub(in super::super) fn holds(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What a target is to have, and what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Asked {
    /// So many replicas.
    pub(in super::super) replicas: i32,
    /// The average over the pods, in thousandths; of a value its whole.
    pub(in super::super) usage: i64,
    /// The same in percent of what is requested.
    pub(in super::super) utilization: Option<i32>,
}

/// What is missing, so that there is no telling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Missing {
    #[error("no pods returned by selector while calculating replica count")]
    Pods,
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    Values,
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    Request { resource: Str, container: Str, pod: Str },
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    PodRequest { resource: Str, pod: Str },
    #[error("container {container} not found in Pod {pod}")]
    Container { container: Str, pod: Str },
    #[error("no metrics returned matched known pods")]
    KnownPods,
}

/// What is asked of the pods of one metric.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct PodMetric<'a> {
    /// The resource, if it is one.
    pub(in super::super) resource: Option<&'a Str>,
    /// Only this container's.
    pub(in super::super) container: Option<&'a Str>,
    pub(in super::super) target: PodTarget,
}

/// What each pod should have on average.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum PodTarget {
    /// In percent of what it requests.
    Utilization(i32),
    /// In thousandths.
    Average(i64),
}

/// What the replicas of one target are now.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Present<'a> {
    pub(in super::super) current: i32,
    /// The pods of its selector.
    pub(in super::super) pods: &'a [Arc<Pod>],
    pub(in super::super) tolerance: Tolerance,
    pub(in super::super) settings: &'a Settings,
    pub(in super::super) now: Timestamp,
}

/// How pods count.
#[derive(Debug, Default)]
struct Sorted<'a> {
    /// Their values count.
    counted: i32,
    /// They have no values.
    missing: Vec<&'a Str>,
    /// They are not ready; what they use says nothing yet.
    unready: Vec<&'a Str>,
    /// They are about to be gone.
    ignored: Vec<&'a Str>,
}

impl Present<'_> {
    /// What a metric of pods asks for, by the values that were found.
    pub(in super::super) fn by_pods(
        &self,
        metric: &PodMetric<'_>,
        found: &BTreeMap<Str, PodValue>,
    ) -> Result<Asked, Missing> {
        if self.pods.is_empty() {
            return Err(Missing::Pods);
        }
        let sorted = self.sorted(metric, found);
        let mut values: BTreeMap<&Str, i64> = found.iter().map(|(pod, found)| (pod, found.value)).collect();
        for pod in sorted.ignored.iter().chain(&sorted.unready) {
            values.remove(pod);
        }
        if values.is_empty() {
            return Err(Missing::Values);
        }
        let requests = match metric.target {
            PodTarget::Average(_) => BTreeMap::new(),
            PodTarget::Utilization(_) => self.requests(metric)?,
        };
        let usage = ratio(&values, &requests, metric.target)?;
        let asked = |replicas| Asked { replicas, usage: usage.average, utilization: usage.utilization };
        let up_with_unready = usage.ratio > 1.0 && !sorted.unready.is_empty();
        if sorted.missing.is_empty() && !up_with_unready {
            let stays = self.tolerance.holds(usage.ratio);
            let replicas =
                if stays { self.current } else { rounded_up(usage.ratio * f64::from(sorted.counted)) };
            return Ok(asked(replicas));
        }
        if usage.ratio < 1.0 {
            // Those that say nothing may need all that they are to have.
            for pod in &sorted.missing {
                let full = match metric.target {
                    PodTarget::Average(target) => target,
                    PodTarget::Utilization(percent) => {
                        let requested = requests.get(*pod).copied().unwrap_or(0);
                        shared(requested, percent.max(100))
                    }
                };
                values.insert(pod, full);
            }
        } else if usage.ratio > 1.0 {
            values.extend(sorted.missing.iter().map(|pod| (*pod, 0)));
        }
        if up_with_unready {
            values.extend(sorted.unready.iter().map(|pod| (*pod, 0)));
        }
        let anew = ratio(&values, &requests, metric.target)?.ratio;
        let turns = (usage.ratio < 1.0 && anew > 1.0) || (usage.ratio > 1.0 && anew < 1.0);
        if self.tolerance.holds(anew) || turns {
            return Ok(asked(self.current));
        }
        let replicas = rounded_up(anew * values.len() as f64);
        let goes_the_other_way =
            (anew < 1.0 && replicas > self.current) || (anew > 1.0 && replicas < self.current);
        Ok(asked(if goes_the_other_way { self.current } else { replicas }))
    }

    /// What a metric asks for that has one value for all pods together.
    pub(in super::super) fn by_value(&self, usage: i64, target: i64) -> Result<Asked, Missing> {
        let asked = |replicas| Asked { replicas, usage, utilization: None };
        let ratio = usage as f64 / target as f64;
        if self.current == 0 {
            return Ok(asked(rounded_up(ratio)));
        }
        if self.tolerance.holds(ratio) {
            return Ok(asked(self.current));
        }
        if self.pods.is_empty() {
            return Err(Missing::Pods);
        }
        let ready = self.pods.iter().filter(|pod| pod.status.phase == "Running" && pod.is_ready()).count();
        Ok(asked(rounded_up(ratio * ready as f64)))
    }

    /// What a metric asks for of which each of these replicas should have so much.
    pub(in super::super) fn by_average(&self, usage: i64, target: i64, replicas: i32) -> Asked {
        let ratio = usage as f64 / (target as f64 * f64::from(replicas));
        let stays = self.tolerance.holds(ratio);
        let wanted = if stays { replicas } else { rounded_up(usage as f64 / target as f64) };
        // The original divides by zero, and tells what comes of that.
        // Differs: average-of-no-pods.
        let average = if replicas == 0 { usage } else { (usage as f64 / f64::from(replicas)).ceil() as i64 };
        Asked { replicas: wanted, usage: average, utilization: None }
    }

    fn sorted<'a>(&'a self, metric: &PodMetric<'_>, found: &BTreeMap<Str, PodValue>) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        let is_cpu = metric.resource.is_some_and(|resource| *resource == "cpu");
        for pod in self.pods {
            let name = &pod.metadata.name;
            let value = found.get(name);
            // One that has succeeded has no value either, and uses nothing. kube-controller-manager counts it as missing.
            // Differs: succeeded-pods-ignored.
            if pod.metadata.is_deleting() || pod.is_finished() {
                sorted.ignored.push(name);
            } else if pod.status.phase == "Pending" {
                sorted.unready.push(name);
            } else if let Some(value) = value {
                if is_cpu && self.is_warming_up(pod, value) {
                    sorted.unready.push(name);
                } else {
                    sorted.counted = sorted.counted.saturating_add(1);
                }
            } else {
                sorted.missing.push(name);
            }
        }
        sorted
    }

    /// Whether the CPU that a pod uses is what it needs to start.
    fn is_warming_up(&self, pod: &Pod, value: &PodValue) -> bool {
        let (Some(ready), Some(started)) = (pod.condition("Ready"), pod.status.start_time) else {
            return true;
        };
        let is_not_ready = ready.status == "False";
        let (started, changed) = (at(Some(started)), at(ready.last_transition_time));
        let later = |time: Timestamp, by| time.checked_add(by).unwrap_or(Timestamp::MAX);
        if later(started, self.settings.cpu_initialization_period) > self.now {
            is_not_ready || value.at < later(changed, value.window)
        } else {
            is_not_ready && later(started, self.settings.initial_readiness_delay) > changed
        }
    }

    /// What each pod requests of a resource, those included whose values do not count.
    fn requests(&self, metric: &PodMetric<'_>) -> Result<BTreeMap<&Str, i64>, Missing> {
        let Some(resource) = metric.resource else { return Ok(BTreeMap::new()) };
        let requested = self.pods.iter().map(|pod| {
            let requested = match metric.container {
                Some(container) => of_container(pod, resource, container)?,
                None if self.settings.pod_level_resources && has_pod_level(&pod.shape) => {
                    of_pod(pod, resource)?
                }
                None => of_containers(pod, resource)?,
            };
            Ok((&pod.metadata.name, requested))
        });
        requested.collect()
    }
}

fn at(time: Option<Time>) -> Timestamp {
    time.map_or(Timestamp::UNIX_EPOCH, Timestamp::from)
}

/// What the values come to.
struct Usage {
    ratio: f64,
    average: i64,
    utilization: Option<i32>,
}

/// The ratio of what is used to the target.
fn ratio(
    values: &BTreeMap<&Str, i64>,
    requests: &BTreeMap<&Str, i64>,
    target: PodTarget,
) -> Result<Usage, Missing> {
    match target {
        PodTarget::Average(target) => {
            let sum: i128 = values.values().map(|value| i128::from(*value)).sum();
            let average = narrow(sum / (values.len().max(1) as i128));
            Ok(Usage { ratio: average as f64 / target as f64, average, utilization: None })
        }
        PodTarget::Utilization(target) => {
            let known = values.iter().filter_map(|(pod, value)| Some((value, requests.get(pod)?)));
            let (mut used, mut requested, mut number) = (0_i128, 0_i128, 0_i128);
            for (value, request) in known {
                used += i128::from(*value);
                requested += i128::from(*request);
                number += 1;
            }
            if requested == 0 {
                return Err(Missing::KnownPods);
            }
            let percent = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
            Ok(Usage {
                ratio: f64::from(percent) / f64::from(target),
                average: narrow(used / number),
                utilization: Some(percent),
            })
        }
    }
}

fn narrow(wide: i128) -> i64 {
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

/// So many percent of a number.
fn shared(number: i64, percent: i32) -> i64 {
    narrow(i128::from(number) * i128::from(percent) / 100)
}

/// The next whole number of replicas from here upwards.
pub(in super::super) fn rounded_up(number: f64) -> i32 {
    // It saturates at the largest number there is.
    number.ceil() as i32
}

/// Whether a pod says what it requests as a whole.
fn has_pod_level(shape: &PodShape) -> bool {
    let is_pod_level =
        |resource: &str| resource == "cpu" || resource == "memory" || resource.starts_with("hugepages-");
    shape.pod_requests.iter().any(|(resource, _)| is_pod_level(resource))
}

/// Returns the requests of the pod as a whole; its containers count for each resource that the pod itself does not request. The overhead of
/// its RuntimeClass is left out, because no container can use it. kube-controller-manager counts it until 1.37.
/// Differs: requests-without-overhead.
fn of_pod(pod: &Pod, resource: &Str) -> Result<i64, Missing> {
    let requests = pod.charge.requests(ChargeRules { pod_level: true, in_place: false });
    let overhead = pod.shape.overhead.of(resource).milli();
    let requested = requests.of(resource).milli().saturating_sub(overhead);
    let is_overhead_alone = overhead > 0 && requested <= 0;
    if is_overhead_alone || !requests.iter().any(|(held, _)| held == resource) {
        return Err(Missing::PodRequest { resource: resource.clone(), pod: pod.metadata.name.clone() });
    }
    Ok(requested)
}

/// What its containers and sidecars request, without overhead.
fn of_containers(pod: &Pod, resource: &Str) -> Result<i64, Missing> {
    let mut sum = 0_i64;
    for container in pod.shape.requests.iter().filter(|container| !container.starts_only) {
        sum = sum.saturating_add(of(pod, container, resource)?);
    }
    Ok(sum)
}

fn of_container(pod: &Pod, resource: &Str, container: &Str) -> Result<i64, Missing> {
    let mut running = pod.shape.requests.iter().filter(|held| !held.starts_only);
    let Some(held) = running.find(|held| held.container == *container) else {
        return Err(Missing::Container { container: container.clone(), pod: pod.metadata.name.clone() });
    };
    of(pod, held, resource)
}

fn of(pod: &Pod, container: &ContainerRequests, resource: &Str) -> Result<i64, Missing> {
    if !container.amounts.iter().any(|(held, _)| held == resource) {
        return Err(Missing::Request {
            resource: resource.clone(),
            container: container.container.clone(),
            pod: pod.metadata.name.clone(),
        });
    }
    Ok(container.amounts.of(resource).milli())
}
