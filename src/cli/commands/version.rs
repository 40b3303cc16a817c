//! `version`: what this program is. Asks nobody.

use clap::{ArgMatches, Command};
use serde_json::json;

use crate::cli::common;
use crate::cli::error::CliError;
use crate::cli::output::{Format, Screen};
use coxswain_machinery::options::versions;

pub(super) fn command() -> Command {
    Command::new("version")
        .about("Print this program's version; `leader` shows the replicas' versions")
        .arg(common::output("Output format"))
}

pub(super) fn run(matches: &ArgMatches, screen: &Screen) -> Result<(), CliError> {
    let version = format!("v{}", versions::COXSWAIN);
    let value = json!({ "version": version, "kubernetes": versions::KUBERNETES });
    let text = match common::format(matches) {
        Format::Json => format!("{value:#}\n"),
        Format::Yaml => {
            serde_yaml_ng::to_string(&value).map_err(|error| CliError::Encoding(error.to_string()))?
        }
        Format::Table | Format::Wide => format!("Coxswain {version} (Kubernetes {})\n", versions::KUBERNETES),
    };
    screen.print(&text)
}
