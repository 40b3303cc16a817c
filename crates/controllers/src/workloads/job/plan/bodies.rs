//! The pods that a Job makes.

use bytes::Bytes;

use super::super::member::{FAILURES, IGNORED_FAILURES, INDEX, TRACKING};
use super::super::view::View;
use coxswain_machinery::api::kinds::JOBS;
use coxswain_machinery::api::pod::{Pod, PodSchedulingGroup, environment};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::pods;
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Message, Path, Value, WireError, path};

const LABELS: Path = path!(Pod, metadata.labels);
const ANNOTATIONS: Path = path!(Pod, metadata.annotations);

/// The longest prefix of a pod's name that the API server does not cut.
const LONGEST_PREFIX: usize = 58;

/// How often pods of an index failed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) counted: i32,
    pub(super) ignored: i32,
}

/// A pod without an index.
pub(super) fn plain(view: &View) -> Result<Bytes, WireError> {
    let name = &view.job.metadata.name;
    made(view, &pods::generate_name(name)).map(Bytes::from)
}

/// The pods of these indexes. Of Jobs with a limit for each index they say how often it has failed.
/// They belong to this `PodGroup`, if there is one.
pub(super) fn indexed(
    view: &View,
    indexes: &[(u32, Option<Failures>)],
    group: Option<&str>,
) -> Result<Vec<Bytes>, WireError> {
    indexes.iter().map(|(index, failures)| of_index(view, *index, *failures, group)).collect()
}

fn of_index(
    view: &View,
    index: u32,
    failures: Option<Failures>,
    group: Option<&str>,
) -> Result<Bytes, WireError> {
    let job = &view.job.metadata.name;
    let pod = made(view, &prefix(job, index))?;
    let spec = get(&pod, path!(Pod, spec))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let value = format!("metadata.labels['{INDEX}']");
    let spec = environment::with_field_variable(spec, "JOB_COMPLETION_INDEX", &value)?;
    let set = |map, name: &str, value: String| Edit::MapSet(map, name.to_owned(), value);
    let mut edits = vec![
        Edit::SetBytes(path!(Pod, spec), spec),
        Edit::set_text(path!(Pod, spec.hostname), &format!("{job}-{index}")),
        set(LABELS, INDEX, index.to_string()),
        set(ANNOTATIONS, INDEX, index.to_string()),
    ];
    if let Some(group) = group {
        let group = PodSchedulingGroup { pod_group_name: group.into() };
        edits.push(Edit::SetBytes(path!(Pod, spec.schedulingGroup), group.to_bytes()));
    }
    if let Some(failures) = failures {
        edits.push(set(ANNOTATIONS, FAILURES, failures.counted.to_string()));
        if failures.ignored > 0 {
            edits.push(set(ANNOTATIONS, IGNORED_FAILURES, failures.ignored.to_string()));
        }
    }
    Ok(edit(&pod, &edits)?.into())
}

/// `JOB-INDEX-`, with as much of the Job's name as fits.
fn prefix(job: &str, index: u32) -> String {
    let end = format!("-{index}-");
    let room = LONGEST_PREFIX.saturating_sub(end.len()).min(job.len());
    format!("{}{end}", job.get(..room).unwrap_or(job))
}

/// A pod of the template, with the finalizer.
fn made(view: &View, generate_name: &str) -> Result<Vec<u8>, WireError> {
    let owner = &view.job.metadata;
    let template = &view.job.spec.template;
    let reference = controller_reference(owner, &JOBS);
    let pod = pods::from_template(template, &owner.namespace, generate_name, &reference)?;
    if pods::template_metadata(template)?.finalizers.iter().any(|held| held == TRACKING) {
        return Ok(pod.to_vec());
    }
    edit(&pod, &[Edit::push_text(path!(Pod, metadata.finalizers), TRACKING)])
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn a_prefix_is_never_cut_by_the_server() {
        assert_eq!(prefix("pi", 3), "pi-3-");
        let long = "x".repeat(63);
        assert_eq!(prefix(&long, 12345), format!("{}-12345-", "x".repeat(51)));
        assert_eq!(prefix(&long, 12345).len(), 58);
    }
}
