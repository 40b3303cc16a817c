//! `flags-from`: what starts Coxswain with the flags of a node's kube-controller-manager. Asks nobody.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::valued;
use crate::cli::common;
use crate::cli::error::CliError;
use crate::cli::manifest::{Manifest, overlay, static_pod};
use crate::cli::output::Screen;

const STATIC_POD: &str = "static-pod";

pub(super) fn command() -> Command {
    Command::new("flags-from")
        .about("Prints what runs Coxswain with the flags of a kube-controller-manager manifest")
        .after_help(
            "Deployment: coxswain flags-from /etc/kubernetes/manifests/kube-controller-manager.yaml \\\n                \
             --image REGISTRY/coxswain:VERSION > deploy/kustomize/overlays/cluster/flags.yaml\n\
             Static pod: the same with --as static-pod, into a file outside of /etc/kubernetes/manifests",
        )
        .arg(
            Arg::new("manifest")
                .value_name("MANIFEST")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Manifest of the static pod kube-controller-manager"),
        )
        .arg(
            valued("as", "FORM", "overlay: patch of overlays/cluster; static-pod: the manifest with Coxswain")
                .value_parser(["overlay", STATIC_POD])
                .default_value("overlay"),
        )
        .arg(
            valued("image", "IMAGE", "Image of Coxswain, with its registry and tag")
                .required_if_eq("as", STATIC_POD),
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
        (Some(STATIC_POD), None) => return Err(CliError::Usage("--image is empty".to_owned())),
        _ => overlay(&manifest, &path.to_string_lossy(), image.as_deref()),
    };
    let converted = converted.map_err(|error| usage(&error))?;
    for note in &converted.notes {
        screen.note(note);
    }
    screen.print(&converted.text)
}
