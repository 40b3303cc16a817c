//! Finds the kube-controller-managers that still run controllers which Coxswain is to get. Pure: pods are handed in.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::uninstall::is_of_release;
use coxswain_machinery::framework::Descriptor;
use coxswain_machinery::options::{self, Config};

const PROGRAM: &str = "kube-controller-manager";
const FLAG: &str = "controllers";

/// Returns the number of kube-controller-managers among these pods, none of which runs one of the controllers.
///
/// # Errors
/// No pod runs kube-controller-manager; or the pods that run one of the controllers, or whose flags cannot be read.
pub(super) fn check(pods: &[Pod], wanted: &[&Descriptor]) -> Result<usize, String> {
    let managers: Vec<(&Pod, &Container)> =
        pods.iter().filter(|pod| !is_of_release(pod) && !has_ended(pod)).filter_map(manager).collect();
    if managers.is_empty() {
        return Err(
            "no pod with the label component=kube-controller-manager runs kube-controller-manager; check \
                    --controllers of each kube-controller-manager process"
                .to_owned(),
        );
    }
    let problems: Vec<String> = managers
        .iter()
        .filter_map(|(pod, container)| {
            let why = match kept(container, wanted) {
                Ok(names) if names.is_empty() => return None,
                Ok(names) => format!("runs {}", names.join(", ")),
                Err(error) => error,
            };
            Some(format!("{}: {why}", pod.metadata.name.as_deref().unwrap_or_default()))
        })
        .collect();
    if problems.is_empty() { Ok(managers.len()) } else { Err(problems.join("; ")) }
}

/// The names of the controllers that a container runs.
fn kept<'a>(container: &Container, wanted: &[&'a Descriptor]) -> Result<Vec<&'a str>, String> {
    let command = container.command.iter().flatten().skip(1);
    let words: Vec<String> = command.chain(container.args.iter().flatten()).cloned().collect();
    let flags = options::split(&words).map_err(|error| error.to_string())?;
    let given: Vec<_> = flags.iter().filter(|written| written.flag.name() == FLAG).collect();
    let mut config = Config::default();
    config.flags.controllers = if given.is_empty() {
        vec!["*".to_owned()]
    } else {
        given.iter().flat_map(|written| written.value.split(',')).map(str::to_owned).collect()
    };
    Ok(wanted.iter().filter(|wanted| config.selection(wanted).selected).map(|wanted| wanted.name).collect())
}

/// The pod and its container that runs kube-controller-manager. A container without a command runs the program of its image.
fn manager(pod: &Pod) -> Option<(&Pod, &Container)> {
    let containers = &pod.spec.as_ref()?.containers;
    let is_manager = |container: &&Container| match container.command.as_deref().unwrap_or_default() {
        [] => containers.len() == 1,
        [program, ..] => program.rsplit('/').next() == Some(PROGRAM),
    };
    containers.iter().find(is_manager).map(|container| (pod, container))
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
