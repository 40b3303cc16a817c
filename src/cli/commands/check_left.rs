//! `check-left`: checks that no kube-controller-manager runs controllers which Coxswain is to get. Calls no replica.

use clap::{Arg, ArgMatches, Command};

use super::Context;
use super::uninstall::pods;
use crate::cli::common;
use crate::cli::error::{CliError, Exit};
use crate::cli::left;
use coxswain_controllers::registry;
use coxswain_machinery::framework::Descriptor;

pub(super) fn command() -> Command {
    Command::new("check-left")
        .about("Check that no kube-controller-manager runs these controllers")
        .after_help(
            "Reads --controllers of the pods in kube-system with the label component=kube-controller-manager. Run this \
             command before you enable the controllers in Coxswain, because a kube-controller-manager whose --controllers is not \
             changed yet would also run them. The check fails if it finds no kube-controller-manager. It also fails if a pod starts \
             a script, because the flags in a script cannot be read.",
        )
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .num_args(1..)
                .value_delimiter(',')
                .help("Names or aliases of controllers"),
        )
}

pub(super) async fn run(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let wanted: Vec<&Descriptor> =
        common::texts(matches, "name").iter().map(|name| find(name)).collect::<Result<_, _>>()?;
    let api = context.finder.api().await?;
    let pods = pods(&api).await.map_err(CliError::Cluster)?;
    let number =
        left::check(&pods, &wanted).map_err(|message| CliError::Outcome { message, exit: Exit::Refused })?;
    let names: Vec<&str> = wanted.iter().map(|descriptor| descriptor.name).collect();
    let noun = if number == 1 { "kube-controller-manager runs" } else { "kube-controller-managers run" };
    context.screen.print(&format!("{number} {noun} without {}\n", names.join(", ")))
}

fn find(name: &str) -> Result<&'static Descriptor, CliError> {
    registry::find(name).ok_or_else(|| {
        CliError::Usage(format!("NAME {name:?}: no such controller; `coxswain controllers` lists them"))
    })
}
