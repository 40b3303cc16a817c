//! `completion`: a script that teaches a shell the commands, their flags, and the controllers of this version.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use clap_complete::{Shell, generate};

use crate::cli::error::CliError;
use crate::cli::output::Screen;
use coxswain_controllers::registry::REGISTRY;

pub(super) fn command() -> Command {
    Command::new("completion")
        .about("Print a shell completion script")
        .after_help(
            "bash: source <(coxswain completion bash)\nzsh:  coxswain completion zsh > \"${fpath[1]}/_coxswain\"\n\
             fish: coxswain completion fish > ~/.config/fish/completions/coxswain.fish",
        )
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(["bash", "zsh", "fish"]))
}

pub(super) fn run(matches: &ArgMatches, screen: &Screen) -> Result<(), CliError> {
    let shell = match matches.get_one::<String>("shell").map(String::as_str) {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    generate(shell, &mut with_controllers(super::command()), "coxswain", &mut script);
    screen.print(&String::from_utf8_lossy(&script))
}

/// The commands, with the names of controllers where they take one. Only for shells: other names are just as good,
/// aliases for one, and whether there is such a controller is for the replica to say.
pub(super) fn with_controllers(command: Command) -> Command {
    let names = || PossibleValuesParser::new(REGISTRY.iter().map(|controller| controller.name));
    command.mut_subcommands(|subcommand| {
        let takes = match subcommand.get_name() {
            "controllers" | "controller" | "enable" | "disable" | "reset" | "restart" | "check-left" => {
                "name"
            }
            "events" | "queues" | "sync" | "explain" => "controller",
            _ => return subcommand,
        };
        subcommand.mut_arg(takes, |arg| arg.value_parser(names()))
    })
}
