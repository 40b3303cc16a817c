//! The client: `coxswain SUBCOMMAND` lists, watches and changes a running manager through its admin API.
//!
//! ```text
//! common (flags) ─► find ─► discover (Leases) ─► connect (TLS, credentials) ─► commands ─► output
//!                     └── identity (kubeconfig)
//! ```
//!
//! It decides nothing: it asks a replica and shows what came of it. It keeps nothing between two runs, and writes
//! nothing but its output and the bundle of `debug dump`. `flags-from` and `install` call nobody: they read a manifest of the node
//! (`manifest`), and `install` may replace it. `check-left`, `preflight` and `uninstall` call the API server alone; `uninstall` deletes
//! Leases there.

mod commands;
mod common;
mod connect;
mod discover;
mod dump;
mod environment;
mod error;
mod find;
mod identity;
mod kinds;
mod left;
mod manifest;
mod output;
mod pods;
mod preflight;
mod token;
mod trust;
mod uninstall;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use environment::Environment;
use error::Exit;
use output::Screen;

/// What a person types to call the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// `coxswain`.
    Directly,
    /// `kubectl coxswain`.
    ByKubectl,
}

impl Called {
    /// The words.
    const fn words(self) -> &'static str {
        match self {
            Self::Directly => "coxswain",
            Self::ByKubectl => "kubectl coxswain",
        }
    }
}

/// Returns the client's command line, for the manual.
#[cfg(test)]
pub(crate) fn command() -> clap::Command {
    commands::command()
}

/// Runs a command of the client, given without the program's name, and says how the program is to end.
pub fn run(called: Called, arguments: &[OsString]) -> ExitCode {
    let screen = Screen::of_process();
    // One thread does: there is one call at a time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            screen.note(&error.to_string());
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    let exit = runtime.block_on(execute(called, arguments, Environment::of_process(), screen));
    // A credential plugin or a name lookup that still runs is nobody's concern any more.
    runtime.shutdown_background();
    ExitCode::from(exit as u8)
}

/// The same in any surroundings.
async fn execute(called: Called, arguments: &[OsString], environment: Environment, screen: Screen) -> Exit {
    if let Some((commands::COMPLETE, words)) =
        arguments.split_first().and_then(|(first, words)| Some((first.to_str()?, words)))
    {
        return end(screen.print(&commands::complete(words)), &screen);
    }
    let program = OsString::from("coxswain");
    let command = commands::command().bin_name(called.words());
    let matches = match command.try_get_matches_from(std::iter::once(&program).chain(arguments)) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => {
            screen.complain(&error.render().to_string());
            return Exit::Usage;
        }
        Err(help) => {
            return end(screen.print(&help.render().to_string()), &screen);
        }
    };
    end(commands::run(&matches, environment, screen.clone()).await, &screen)
}

fn end(outcome: Result<(), error::CliError>, screen: &Screen) -> Exit {
    let Err(error) = outcome else { return Exit::Done };
    if !error.is_silent() {
        screen.note(&error.text());
    }
    error.exit()
}
