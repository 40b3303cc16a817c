//! Finds the kube-controller-managers that still run controllers which Coxswain is to get. Pure: pods are handed in.

use k8s_openapi::api::core::v1::Pod;

use super::uninstall::is_of_release;
use coxswain_machinery::framework::Descriptor;
use coxswain_machinery::options::{self, Config};

const PROGRAM: &str = "kube-controller-manager";
const COXSWAIN: &str = "coxswain";
const FLAG: &str = "controllers";

/// The command line of kube-controller-manager in a pod.
enum CommandLine {
    /// Its flags.
    Flags(Vec<String>),
    /// The programs that start it, which hide its flags.
    Unreadable(String),
}

/// Returns the number of kube-controller-managers among these pods, none of which runs one of the controllers.
///
/// # Errors
/// No pod runs kube-controller-manager; or the pods that run one of the controllers, or whose flags cannot be read.
pub(super) fn check(pods: &[Pod], wanted: &[&Descriptor]) -> Result<usize, String> {
    let managers: Vec<(&Pod, CommandLine)> = running(pods).collect();
    if managers.is_empty() {
        return Err(
            "no pod with the label component=kube-controller-manager runs kube-controller-manager; check \
                    --controllers of each kube-controller-manager process"
                .to_owned(),
        );
    }
    let problems: Vec<String> = managers
        .iter()
        .filter_map(|(pod, line)| {
            let why = match kept(line, wanted) {
                Ok(names) if names.is_empty() => return None,
                Ok(names) => format!("runs {}", names.join(", ")),
                Err(error) => error,
            };
            Some(format!("{}: {why}", pod.metadata.name.as_deref().unwrap_or_default()))
        })
        .collect();
    if problems.is_empty() { Ok(managers.len()) } else { Err(problems.join("; ")) }
}

/// Returns the kube-controller-managers among these pods: the name of each pod, and the flags of its program or the reason why they cannot be
/// read.
pub(super) fn managers(pods: &[Pod]) -> Vec<(String, Result<Vec<String>, String>)> {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    running(pods)
        .map(|(pod, line)| match line {
            CommandLine::Flags(words) => (name(pod), Ok(words)),
            CommandLine::Unreadable(programs) => (name(pod), Err(may_start(&programs))),
        })
        .collect()
}

/// Returns the pods that run kube-controller-manager.
fn running(pods: &[Pod]) -> impl Iterator<Item = (&Pod, CommandLine)> {
    let running = pods.iter().filter(|pod| !is_of_release(pod) && !has_ended(pod));
    running.filter_map(|pod| Some((pod, command_line(pod)?)))
}

fn may_start(programs: &str) -> String {
    format!("starts {programs}, which may start kube-controller-manager")
}

/// The names of the controllers that a kube-controller-manager runs.
fn kept<'a>(line: &CommandLine, wanted: &[&'a Descriptor]) -> Result<Vec<&'a str>, String> {
    let words = match line {
        CommandLine::Flags(words) => words,
        CommandLine::Unreadable(programs) => {
            return Err(format!("{}: compare --controllers of its process by hand", may_start(programs)));
        }
    };
    let flags = options::split(words).map_err(|error| error.to_string())?;
    let given: Vec<_> = flags.iter().filter(|written| written.flag.name() == FLAG).collect();
    let mut config = Config::default();
    config.flags.controllers = if given.is_empty() {
        vec!["*".to_owned()]
    } else {
        given.iter().flat_map(|written| written.value.split(',')).map(str::to_owned).collect()
    };
    Ok(wanted.iter().filter(|wanted| config.selection(wanted).selected).map(|wanted| wanted.name).collect())
}

/// The command line of the kube-controller-manager of a labeled pod; `None` if the pod runs Coxswain instead. A wrapper, such as `go-runner`
/// or `tini`, has the program among its arguments. A script hides it. Only the program of the container shows that it is Coxswain: an
/// argument with this name may be a directory.
fn command_line(pod: &Pod) -> Option<CommandLine> {
    let containers = &pod.spec.as_ref()?.containers;
    let lines: Vec<Vec<&String>> = containers
        .iter()
        .map(|container| container.command.iter().chain(&container.args).flatten().collect())
        .collect();
    if let Some(flags) = lines.iter().find_map(|words| flags_of_program(words)) {
        return Some(CommandLine::Flags(flags));
    }
    let mut programs = containers.iter().filter_map(|container| container.command.iter().flatten().next());
    if programs.any(|program| is_named(program, COXSWAIN)) {
        return None;
    }
    // The program of the image, whose flags are the arguments.
    if let [only] = containers.as_slice()
        && only.command.iter().flatten().next().is_none()
    {
        return Some(CommandLine::Flags(only.args.clone().unwrap_or_default()));
    }
    let programs: Vec<&str> = containers
        .iter()
        .map(|container| match container.command.iter().flatten().next() {
            Some(program) => program.as_str(),
            None => container.name.as_str(),
        })
        .collect();
    Some(CommandLine::Unreadable(programs.join(", ")))
}

/// The words after the one that names kube-controller-manager: the first word, or one before which no flag can take it as its value.
fn flags_of_program(words: &[&String]) -> Option<Vec<String>> {
    let may_take_value = |word: &str| word.starts_with('-') && word != "--" && !word.contains('=');
    let at = words.iter().position(|word| !word.starts_with('-') && is_named(word, PROGRAM))?;
    let is_program =
        at == 0 || !is_named(words[0], COXSWAIN) && !words[..at].iter().any(|word| may_take_value(word));
    is_program.then(|| words[at + 1..].iter().map(|word| (*word).clone()).collect())
}

/// Whether a path names this program.
fn is_named(path: &str, program: &str) -> bool {
    path.rsplit('/').next() == Some(program)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
