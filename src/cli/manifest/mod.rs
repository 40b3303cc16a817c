//! Reads the manifest of a node's kube-controller-manager, and makes of it what starts Coxswain with the same flags: the patch of
//! a kustomize overlay ([`overlay`]), or a static pod ([`static_pod`]). The result is a function of the manifest.

mod overlay;
mod static_pod;
#[cfg(test)]
mod tests;
mod yaml;

use coxswain_machinery::options::{self, OptionErrors, WrittenFlag};
use serde_yaml_ng::Value;

pub(super) use overlay::overlay;
pub(super) use static_pod::static_pod;

/// The programs whose flags are read: a manifest that was converted before can be converted again.
const PROGRAMS: [&str; 2] = ["kube-controller-manager", "coxswain"];
/// Texts that are a truth value in YAML 1.1, as kubelets read it, and text in YAML 1.2, as this module reads it.
const TRUTH_VALUES: [&str; 6] = ["n", "no", "off", "on", "y", "yes"];

/// A manifest that nothing can be made of.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    /// The file is not YAML.
    #[error("parse: {0}")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// The file holds another object.
    #[error("kind is {0:?}: expected a Pod")]
    Kind(String),
    /// No container starts kube-controller-manager.
    #[error(
        "no container has kube-controller-manager or coxswain as the first word of its command; found {0:?}"
    )]
    Program(Vec<String>),
    /// A field has another type than the API gives it.
    #[error("{0}: expected {1}")]
    Field(&'static str, &'static str),
    /// A text that a kubelet reads otherwise.
    #[error(
        "line {0}: {1:?} is ambiguous, because kubelets parse YAML 1.1; use true, false, a decimal number or quotes, and no merge keys"
    )]
    Version(usize, String),
    /// Coxswain does not start with these flags.
    #[error("{0}; remove the flag from the manifest, or from a copy of it, and try again")]
    Flags(#[from] OptionErrors),
}

/// The form to which a manifest is converted.
#[derive(Debug)]
pub(super) struct Converted {
    /// The patch or the pod.
    pub(super) text: String,
    /// Notes about steps that the user must take by hand.
    pub(super) notes: Vec<String>,
}

/// The manifest of a pod that runs kube-controller-manager.
#[derive(Debug)]
pub(super) struct Manifest {
    pod: Value,
    /// Position among the pod's containers.
    container: usize,
    flags: Vec<WrittenFlag>,
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// The manifest is no Pod, does not start kube-controller-manager, or gives a flag that Coxswain does not accept.
    pub(super) fn parse(text: &str) -> Result<Self, ManifestError> {
        if let Some((line, found)) = first_of_other_version(text) {
            return Err(ManifestError::Version(line, found));
        }
        let pod: Value = serde_yaml_ng::from_str(text)?;
        let kind = pod.get("kind").and_then(Value::as_str).unwrap_or_default();
        if kind != "Pod" {
            return Err(ManifestError::Kind(kind.to_owned()));
        }
        let containers = list(&pod["spec"]["containers"], "spec.containers")?;
        let container = find_container(containers)?;
        let mut words = strings(&containers[container]["command"], "spec.containers[].command")?;
        if !words.is_empty() {
            words.remove(0);
        }
        words.extend(strings(&containers[container]["args"], "spec.containers[].args")?);
        let flags = options::split(&words)?;
        Ok(Self { pod, container, flags })
    }

    fn container(&self) -> &Value {
        &self.pod["spec"]["containers"][self.container]
    }
}

/// The first line, and the text in it, that means something else in YAML 1.1 than in YAML 1.2.
fn first_of_other_version(text: &str) -> Option<(usize, String)> {
    text.lines().enumerate().find_map(|(at, line)| {
        let item = line.trim().trim_start_matches("- ");
        let value = item.split_once(": ").map_or(item, |(_, value)| value).trim();
        let is_truth = TRUTH_VALUES.iter().any(|word| value.eq_ignore_ascii_case(word));
        let is_octal =
            value.len() > 1 && value.starts_with('0') && value.bytes().all(|byte| byte.is_ascii_digit());
        let found = if item.starts_with("<<:") { "<<" } else { value };
        (is_truth || is_octal || found == "<<").then(|| (at + 1, found.to_owned()))
    })
}

/// The container that starts kube-controller-manager. One without a command starts what its image starts, which can be told for
/// an only container.
fn find_container(containers: &[Value]) -> Result<usize, ManifestError> {
    let program = |container: &Value| container["command"].get(0)?.as_str().map(str::to_owned);
    let is_manager = |container: &Value| {
        program(container)
            .is_some_and(|program| PROGRAMS.contains(&program.rsplit('/').next().unwrap_or_default()))
    };
    match containers {
        [only] if only["command"].is_null() => Ok(0),
        containers => containers
            .iter()
            .position(is_manager)
            .ok_or_else(|| ManifestError::Program(containers.iter().filter_map(program).collect())),
    }
}

/// The items of a list; none if it is absent.
fn list<'a>(value: &'a Value, field: &'static str) -> Result<&'a [Value], ManifestError> {
    match value {
        Value::Null => Ok(&[]),
        Value::Sequence(items) => Ok(items),
        _ => Err(ManifestError::Field(field, "a list")),
    }
}

fn strings(value: &Value, field: &'static str) -> Result<Vec<String>, ManifestError> {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    let all = list(value, field)?.iter().map(text).collect::<Option<Vec<_>>>();
    all.ok_or(ManifestError::Field(field, "a list of strings"))
}
