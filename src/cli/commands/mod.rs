//! The commands: each file defines its arguments beside what is done with them.

mod check_left;
mod complete;
mod completion;
mod controllers;
mod debug;
pub(super) mod events;
mod flags_from;
mod install;
mod lasting;
mod leader;
mod preflight;
mod queues;
mod restart;
mod sync;
mod toggle;
mod uninstall;
mod version;

use clap::{Arg, ArgMatches, Command};

pub(super) use complete::{COMPLETE, complete};

#[cfg(test)]
pub(super) use sync::{Picked, resolve};

use super::common::{self, Common};
use super::environment::Environment;
use super::error::{CliError, EXIT_CODES};
use super::find::Finder;
use super::output::{Palette, Screen};

/// What a command works with.
struct Context {
    finder: Finder,
    screen: Screen,
    environment: Environment,
    palette: Palette,
}

impl Context {
    fn now(&self) -> jiff::Timestamp {
        self.environment.clock.now()
    }
}

const ABOUT: &str = "\
Inspect and control a running Coxswain through its admin API.

The client finds replicas by their Leases in the kubeconfig's cluster, or calls the replica given by --server. \
Without a command, coxswain runs the manager; see coxswain --help.";

/// The client's command line.
pub(super) fn command() -> Command {
    let command = Command::new("coxswain")
        .about(ABOUT)
        .after_help(EXIT_CODES)
        .disable_version_flag(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .infer_long_args(false)
        .max_term_width(120)
        .subcommands([
            controllers::list(),
            controllers::show(),
            toggle::enable(),
            toggle::disable(),
            toggle::reset(),
            restart::command(),
            events::command(),
            leader::show(),
            leader::step_down(),
            queues::list(),
            queues::show(),
            sync::sync(),
            sync::explain(),
            debug::command(),
            preflight::command(),
            install::command(),
            flags_from::command(),
            check_left::command(),
            uninstall::command(),
            completion::command(),
            version::command(),
        ]);
    common::add(command)
}

/// Does what the command line says.
pub(super) async fn run(
    matches: &ArgMatches,
    environment: Environment,
    screen: Screen,
) -> Result<(), CliError> {
    let Some((name, matches)) = matches.subcommand() else {
        return Err(CliError::Usage("COMMAND is missing; coxswain help lists the commands".to_owned()));
    };
    match name {
        "completion" => return completion::run(matches, &screen),
        "flags-from" => return flags_from::run(matches, &screen),
        "install" => return install::run(matches, &screen),
        "version" => return version::run(matches, &screen),
        _ => {}
    }
    let common = Common::read(matches, &environment);
    let palette = common.palette;
    let finder = Finder::new(common, environment.clone(), screen.clone());
    let context = Context { finder, screen, environment, palette };
    match name {
        "controllers" => controllers::run_list(matches, &context).await,
        "controller" => controllers::run_show(matches, &context).await,
        "enable" => toggle::run_enable(matches, &context).await,
        "disable" => toggle::run_disable(matches, &context).await,
        "reset" => toggle::run_reset(matches, &context).await,
        "restart" => restart::run(matches, &context).await,
        "events" => events::run(matches, &context).await,
        "leader" => leader::run_show(matches, &context).await,
        "step-down" => leader::run_step_down(matches, &context).await,
        "queues" => queues::run_list(matches, &context).await,
        "queue" => queues::run_show(matches, &context).await,
        "sync" => sync::run_sync(matches, &context).await,
        "explain" => sync::run_explain(matches, &context).await,
        "debug" => debug::run(matches, &context).await,
        "preflight" => preflight::run(matches, &context).await,
        "check-left" => check_left::run(matches, &context).await,
        "uninstall" => uninstall::run(matches, &context).await,
        other => Err(CliError::Usage(format!(
            "COMMAND {other:?}: no such command; coxswain help lists the commands"
        ))),
    }
}

/// A flag that takes one or several of these values.
fn choice<E>(name: &'static str, choices: &[(String, E)], help: &'static str) -> Arg {
    let names: Vec<String> = choices.iter().map(|(name, _)| name.clone()).collect();
    Arg::new(name)
        .long(name)
        .value_name(name.to_ascii_uppercase())
        .value_parser(clap::builder::PossibleValuesParser::new(names))
        .ignore_case(true)
        .help(help)
}

/// What [`choice`] was given.
fn chosen<E: Copy>(matches: &ArgMatches, name: &str, choices: &[(String, E)]) -> Vec<E> {
    let given = common::texts(matches, name);
    let find = |given: &String| choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(given));
    given.iter().filter_map(find).map(|(_, value)| *value).collect()
}

/// Adds values to a flag: `--phase running,failed` or `--phase running --phase failed`.
fn many(arg: Arg) -> Arg {
    arg.action(clap::ArgAction::Append).value_delimiter(',')
}

/// A switch.
fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(clap::ArgAction::SetTrue).help(help)
}

/// A flag with a value.
fn valued(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// `namespace/name` or a name, with the namespace that `--namespace` gives.
pub(super) fn object_key(
    text: &str,
    namespace: Option<&str>,
) -> Result<crate::admin::proto::ObjectKey, CliError> {
    let (given, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || given == Some("") {
        return Err(CliError::Usage(format!("object {text:?}: expected NAMESPACE/NAME or NAME")));
    }
    if let (Some(given), Some(namespace)) = (given, namespace)
        && given != namespace
    {
        return Err(CliError::Usage(format!(
            "object {text:?}: its namespace differs from --namespace {namespace:?}"
        )));
    }
    let namespace = given.or(namespace).unwrap_or_default().to_owned();
    Ok(crate::admin::proto::ObjectKey { namespace, name: name.to_owned() })
}

/// A duration as a message.
fn message_duration(of: std::time::Duration) -> prost_types::Duration {
    let seconds = i64::try_from(of.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: of.subsec_nanos() as i32 }
}

/// The flag for a namespace.
fn namespace(help: &'static str) -> Arg {
    valued("namespace", "NAMESPACE", help).short('n')
}
