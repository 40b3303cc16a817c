//! `flags-from`: what starts Coxswain with the flags of a node's kube-controller-manager. Asks nobody.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::valued;
use crate::cli::common;
use crate::cli::error::CliError;
use crate::cli::manifest::{Manifest, overlay, static_pod, write_file};
use crate::cli::output::Screen;

const STATIC_POD: &str = "static-pod";

pub(super) fn command() -> Command {
    Command::new("flags-from")
        .about("Convert a kube-controller-manager manifest to one for Coxswain")
        .after_help(
            "Deployment: coxswain flags-from /etc/kubernetes/manifests/kube-controller-manager.yaml \\\n                \
             --file deploy/kustomize/overlays/cluster/flags.yaml\n\
             Static pod: use coxswain install static-pod, which replaces flags-from --as static-pod",
        )
        .arg(
            Arg::new("manifest")
                .value_name("MANIFEST")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Static pod manifest of kube-controller-manager"),
        )
        .arg(
            valued("as", "FORM", "overlay: a patch for overlays/cluster; static-pod: a static pod manifest")
                .value_parser(["overlay", STATIC_POD])
                .default_value("overlay"),
        )
        .arg(
            valued("image", "IMAGE", "Coxswain image with registry and tag")
                .required_if_eq("as", STATIC_POD),
        )
        .arg(
            valued("file", "FILE", "File to write with mode 0600; unchanged on error [default: standard output]")
                .value_parser(value_parser!(PathBuf)),
        )
}

pub(super) fn run(matches: &ArgMatches, screen: &Screen) -> Result<(), CliError> {
    let path = matches.get_one::<PathBuf>("manifest").cloned().unwrap_or_default();
    let image = common::text(matches, "image");
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| usage(&error))?;
    let manifest = Manifest::parse(&text).map_err(|error| usage(&error))?;
    let converted = match (common::text(matches, "as").as_deref(), &image) {
        (Some(STATIC_POD), Some(image)) => static_pod(&manifest, image),
        (Some(STATIC_POD), None) => {
            return Err(CliError::Usage("--image \"\": expected REGISTRY/NAME:TAG".to_owned()));
        }
        _ => overlay(&manifest, &path.to_string_lossy(), image.as_deref()),
    };
    let converted = converted.map_err(|error| usage(&error))?;
    for note in &converted.notes {
        screen.note(note);
    }
    match matches.get_one::<PathBuf>("file") {
        None => screen.print(&converted.text),
        Some(file) => write_file(file, &converted.text)
            .map_err(|error| CliError::Usage(format!("write {}: {error}", file.display()))),
    }
}
