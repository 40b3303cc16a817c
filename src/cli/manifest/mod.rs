//! Reads the manifest of a node's kube-controller-manager, and makes of it what starts Coxswain with the same flags: the patch of
//! a kustomize overlay ([`overlay`]), or a static pod ([`static_pod`]). The result is a function of the manifest.
//! [`Destination`] puts the static pod in the place of a manifest.

mod overlay;
mod replace;
mod static_pod;
#[cfg(test)]
mod tests;
mod yaml;

use coxswain_machinery::options::{self, OptionErrors, WrittenFlag};
use serde_yaml_ng::Value;

pub(super) use overlay::overlay;
pub(super) use replace::{Destination, Done, write_file};
pub(super) use static_pod::{judge, static_pod};

/// The program of the image of Coxswain.
const COXSWAIN: &str = "coxswain";
/// The programs whose flags are read: a manifest that was converted before can be converted again.
const PROGRAMS: [&str; 2] = ["kube-controller-manager", COXSWAIN];
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
    #[error(
        "{0}; allowed are the flags of kube-controller-manager 1.36, see coxswain --help; remove the flag from the manifest, or \
         from a copy of it, and try again"
    )]
    Flags(#[from] OptionErrors),
    /// Coxswain does not start with the values of these flags.
    #[error("{0}; correct the flag in the manifest, or in a copy of it, and try again")]
    Values(OptionErrors),
    /// A probe or a hook that fails in Coxswain's image.
    #[error("{field}: {found}: expected {allowed}")]
    Handler {
        /// The field of the container.
        field: String,
        /// What the field has.
        found: String,
        /// What works.
        allowed: &'static str,
    },
}

/// The form to which a manifest is converted.
#[derive(Debug)]
pub(super) struct Converted {
    /// The patch or the pod.
    pub(super) text: String,
    /// Notes about steps that the user must take by hand.
    pub(super) notes: Vec<String>,
}

/// The place of a container's file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodePath {
    /// A path of the node.
    Host(String),
    /// In no volume.
    NoVolume,
    /// In a volume that is no path of the node.
    OtherVolume,
}

/// The manifest of a pod that runs kube-controller-manager.
#[derive(Debug)]
pub(super) struct Manifest {
    pod: Value,
    /// Position among the pod's containers.
    container: usize,
    flags: Vec<WrittenFlag>,
    has_comments: bool,
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
        let is_comment = |line: &str| line.trim_start().starts_with('#') || line.contains(" #");
        Ok(Self { pod, container, flags, has_comments: text.lines().any(is_comment) })
    }

    /// The image of the container, if that runs Coxswain.
    pub(super) fn image_of_coxswain(&self) -> Option<&str> {
        let image = self.container()["image"].as_str().unwrap_or_default();
        let runs_coxswain = match self.container()["command"].get(0).and_then(Value::as_str) {
            Some(program) => last_segment(program) == COXSWAIN,
            None => last_segment(image).split([':', '@']).next() == Some(COXSWAIN),
        };
        runs_coxswain.then_some(image)
    }

    /// Returns the flags in their order.
    pub(super) fn flags(&self) -> &[WrittenFlag] {
        &self.flags
    }

    /// Returns where a file of the container is on the node, by the volume that is mounted there.
    ///
    /// # Errors
    /// The mounts or the volumes are no lists.
    pub(super) fn path_on_node(&self, path: &str) -> Result<NodePath, ManifestError> {
        let mounts = list(&self.container()["volumeMounts"], "spec.containers[].volumeMounts")?;
        let under = |mount: &&Value| mount["mountPath"].as_str().is_some_and(|at| is_under(path, at));
        let Some(mount) =
            mounts.iter().filter(under).max_by_key(|mount| mount["mountPath"].as_str().map(str::len))
        else {
            return Ok(NodePath::NoVolume);
        };
        let from = self.volume(mount)?.and_then(|volume| volume["hostPath"]["path"].as_str());
        let (Some(from), Some(at)) = (from, mount["mountPath"].as_str()) else {
            return Ok(NodePath::OtherVolume);
        };
        let sub = mount["subPath"].as_str().map(|sub| format!("/{sub}")).unwrap_or_default();
        let rest = path.strip_prefix(at.trim_end_matches('/')).unwrap_or_default();
        Ok(NodePath::Host(format!("{}{sub}{rest}", from.trim_end_matches('/'))))
    }

    /// The volume that a mount is of.
    fn volume(&self, mount: &Value) -> Result<Option<&Value>, ManifestError> {
        let volumes = list(&self.pod["spec"]["volumes"], "spec.volumes")?;
        Ok(volumes.iter().find(|volume| volume["name"] == mount["name"]))
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

/// Whether a text is a Pod with a container that runs kube-controller-manager or Coxswain, by its program or by its image. Flags that
/// [`Manifest::parse`] refuses change nothing.
fn starts_manager(text: &str) -> bool {
    let Ok(pod) = serde_yaml_ng::from_str::<Value>(text) else { return false };
    let is_manager = |container: &Value| {
        let program = container["command"].get(0).and_then(Value::as_str).map(last_segment);
        let image = container["image"].as_str().map(last_segment);
        let image = image.and_then(|image| image.split([':', '@']).next());
        [program, image].into_iter().flatten().any(|name| PROGRAMS.contains(&name))
    };
    pod.get("kind").and_then(Value::as_str) == Some("Pod")
        && pod["spec"]["containers"].as_sequence().is_some_and(|containers| containers.iter().any(is_manager))
}

/// The container that starts kube-controller-manager. One without a command starts what its image starts, which can be told for
/// an only container.
fn find_container(containers: &[Value]) -> Result<usize, ManifestError> {
    let program = |container: &Value| container["command"].get(0)?.as_str().map(str::to_owned);
    let is_manager = |container: &Value| {
        program(container).is_some_and(|program| PROGRAMS.contains(&last_segment(&program)))
    };
    match containers {
        [only] if only["command"].is_null() => Ok(0),
        containers => containers
            .iter()
            .position(is_manager)
            .ok_or_else(|| ManifestError::Program(containers.iter().filter_map(program).collect())),
    }
}

/// Whether a path is `directory` or below it.
fn is_under(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory.trim_end_matches('/'));
    !directory.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The part of a path or an image after the last slash.
fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
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
