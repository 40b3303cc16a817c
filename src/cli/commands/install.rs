//! `install static-pod`: puts Coxswain into the manifest of a node's kube-controller-manager. Calls nobody.

use std::path::PathBuf;

use clap::{ArgMatches, Command, value_parser};

use super::{switch, valued};
use crate::cli::common;
use crate::cli::error::{CliError, Exit};
use crate::cli::manifest::{Destination, Done, Manifest, static_pod};
use crate::cli::output::{Screen, diff};

/// The manifest that kubeadm writes.
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-controller-manager.yaml";

pub(super) fn command() -> Command {
    Command::new("install")
        .about("Prepare a node for Coxswain")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("static-pod")
                .about("Convert the manifest of kube-controller-manager into a static pod of Coxswain")
                .after_help(
                    "Changes the image and the command, and sets the user root if the manifest sets no user. Every flag, mount and \
                     other field stays.\n\
                     --output may name the same file as --from. The previous file is then copied to --backup, outside of the manifest \
                     directory, because the kubelet runs every file in the manifest directory. Without --output, the command \
                     prints the result.",
                )
                .arg(
                    valued("from", "FILE", "Manifest of the static pod kube-controller-manager")
                        .value_parser(value_parser!(PathBuf))
                        .default_value(MANIFEST),
                )
                .arg(valued(
                    "image",
                    "IMAGE",
                    "Image of Coxswain, with registry and tag [default: the image in --from, if it runs Coxswain]",
                ))
                .arg(
                    valued("output", "FILE", "File to write with mode 0600 [default: standard output]")
                        .short('o')
                        .value_parser(value_parser!(PathBuf)),
                )
                .arg(
                    valued(
                        "backup",
                        "FILE",
                        "Copy of the replaced file [default: the same name, one directory above --output]",
                    )
                    .value_parser(value_parser!(PathBuf))
                    .requires("output"),
                )
                .arg(
                    switch("dry-run", "Check the files, print the difference and write nothing")
                        .visible_alias("check"),
                ),
        )
}

pub(super) fn run(matches: &ArgMatches, screen: &Screen) -> Result<(), CliError> {
    match matches.subcommand() {
        Some(("static-pod", matches)) => run_static_pod(matches, screen),
        _ => Err(CliError::Usage("the subcommand is missing; use coxswain install static-pod".to_owned())),
    }
}

fn run_static_pod(matches: &ArgMatches, screen: &Screen) -> Result<(), CliError> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let source = path("from").unwrap_or_default();
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", source.display()));
    let before = std::fs::read_to_string(&source).map_err(|error| usage(&error))?;
    let manifest = Manifest::parse(&before).map_err(|error| usage(&error))?;
    let image = common::text(matches, "image");
    let image = image.as_deref().or_else(|| manifest.image_of_coxswain()).ok_or_else(|| {
        CliError::Usage("--image is missing: name the image of Coxswain, with registry and tag".to_owned())
    })?;
    if image.chars().any(char::is_whitespace) {
        return Err(CliError::Usage(format!("--image {image:?}: expected REGISTRY/NAME:TAG without spaces")));
    }
    let converted = static_pod(&manifest, image).map_err(|error| usage(&error))?;
    for note in &converted.notes {
        screen.note(note);
    }
    let (output, backup) = (path("output"), path("backup"));
    let destination =
        output.as_ref().map(|output| Destination { source: &source, output, backup: backup.as_deref() });
    let refused = |message| CliError::Outcome { message, exit: Exit::Refused };
    let plan =
        destination.map(|destination| destination.plan(&converted.text)).transpose().map_err(refused)?;
    if matches.get_flag("dry-run") {
        let name = |path: &PathBuf| path.display().to_string();
        let (from, to) = (name(&source), output.as_ref().map_or_else(|| "static pod".to_owned(), name));
        return screen.print(&diff::unified((&from, &before), (&to, &converted.text)));
    }
    let (Some(output), Some(plan)) = (&output, plan) else { return screen.print(&converted.text) };
    let done = plan.apply().map_err(refused)?;
    let output = output.display();
    screen.print(&match done {
        Done::Unchanged => format!("{output} unchanged\n"),
        Done::Written { backup: None } => format!("{output} written\n"),
        Done::Written { backup: Some(backup) } => {
            format!("{output} written; {} is the way back to kube-controller-manager\n", backup.display())
        }
    })
}
