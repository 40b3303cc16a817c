//! `enable`, `disable` and `reset`: overrides, which outrank the manager's flags.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::{Context, message_duration, switch, valued};
use crate::admin::proto::{
    ClearOverridesRequest, ClearOverridesResponse, Controller, DisableControllerRequest,
    DisableControllerResponse, EnableControllerRequest, EnableControllerResponse,
};
use crate::cli::common::{self, parse_duration};
use crate::cli::connect::{CALL, Session, WAIT};
use crate::cli::error::CliError;
use crate::cli::find::Whom;
use crate::cli::output::{Format, controllers as show, objects};

fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .num_args(1..)
                .help("Names or aliases of controllers; '*' means all"),
        )
        .arg(valued("reason", "TEXT", "Reason to record with this change"))
        .arg(valued("expected-version", "VERSION", "Fail unless the controller is at this version"))
        .arg(switch("wait", "Wait until the change is applied"))
        .arg(switch("dry-run", "Check the request without changing anything"))
        .arg(common::output("Output format"))
}

/// Ends an override by itself.
fn lasting(command: Command) -> Command {
    let help = "Lifetime of the override, such as 30m or 12h [default: until it is changed]";
    command.arg(valued("for", "DURATION", help).value_parser(parse_duration))
}

pub(super) fn enable() -> Command {
    let about = "Enable controllers; '*' removes the overrides that disable controllers";
    let force = "Enable even controllers that --controllers excludes, and even if this replica's flags differ from the leader's";
    lasting(arguments(Command::new("enable").about(about))).arg(switch("force", force))
}

pub(super) fn disable() -> Command {
    lasting(arguments(
        Command::new("disable").about("Disable controllers, regardless of the manager's flags"),
    ))
    .arg(switch("force", "Allow disabling '*', and critical controllers for more than 1h or without --for"))
}

pub(super) fn reset() -> Command {
    arguments(Command::new("reset").about("Remove overrides, so that the manager's flags apply"))
        .arg(switch("force", "Remove overrides even if this replica's flags differ from the leader's"))
}

/// What the commands take.
#[derive(Clone)]
pub(super) struct Order {
    pub(super) names: Vec<String>,
    pub(super) reason: String,
    pub(super) lasting: Option<Duration>,
    pub(super) expected_version: Option<String>,
    pub(super) wait: bool,
    pub(super) dry_run: bool,
    pub(super) force: bool,
}

impl Order {
    fn read(direction: Direction, matches: &ArgMatches) -> Result<Self, CliError> {
        let has_end = direction != Direction::Reset;
        let order = Self {
            names: common::texts(matches, "name"),
            reason: common::text(matches, "reason").unwrap_or_default(),
            lasting: if has_end { matches.get_one::<Duration>("for").copied() } else { None },
            expected_version: common::text(matches, "expected-version"),
            wait: matches.get_flag("wait"),
            dry_run: matches.get_flag("dry-run"),
            force: matches.get_flag("force"),
        };
        if order.expected_version.is_some() && order.names.len() > 1 {
            return Err(CliError::Usage("--expected-version requires exactly one NAME".to_owned()));
        }
        Ok(order)
    }

    fn limit(&self) -> Duration {
        if self.wait { WAIT } else { CALL }
    }

    fn enable(&self, name: &str) -> EnableControllerRequest {
        EnableControllerRequest {
            name: name.to_owned(),
            reason: self.reason.clone(),
            duration: self.lasting.map(message_duration),
            expected_version: self.expected_version.clone(),
            wait: self.wait,
            dry_run: self.dry_run,
            force: self.force,
        }
    }

    fn disable(&self, name: &str) -> DisableControllerRequest {
        DisableControllerRequest {
            name: name.to_owned(),
            reason: self.reason.clone(),
            duration: self.lasting.map(message_duration),
            expected_version: self.expected_version.clone(),
            wait: self.wait,
            dry_run: self.dry_run,
            force: self.force,
        }
    }

    fn reset(&self, name: &str) -> ClearOverridesRequest {
        ClearOverridesRequest {
            name: name.to_owned(),
            reason: self.reason.clone(),
            expected_version: self.expected_version.clone(),
            wait: self.wait,
            dry_run: self.dry_run,
            force: self.force,
        }
    }
}

/// Which of the commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Enable,
    Disable,
    Reset,
}

/// The controllers concerned, and whether anything was changed.
pub(super) type Answer = (Vec<Controller>, bool);

pub(super) async fn run_enable(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    run(Direction::Enable, matches, context).await
}

pub(super) async fn run_disable(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    run(Direction::Disable, matches, context).await
}

pub(super) async fn run_reset(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    run(Direction::Reset, matches, context).await
}

/// Makes the call of a command for one name.
pub(super) async fn ask(
    session: &Session,
    order: &Order,
    direction: Direction,
    name: &str,
) -> Result<Answer, CliError> {
    let mut client = session.controllers();
    let limit = order.limit();
    match direction {
        Direction::Enable => {
            let call = session.call(order.enable(name), limit, |request| async move {
                client.enable_controller(request).await
            });
            let EnableControllerResponse { controllers, changed } = call.await?;
            Ok((controllers, changed))
        }
        Direction::Disable => {
            let call = session.call(order.disable(name), limit, |request| async move {
                client.disable_controller(request).await
            });
            let DisableControllerResponse { controllers, changed } = call.await?;
            Ok((controllers, changed))
        }
        Direction::Reset => {
            let call = session.call(order.reset(name), limit, |request| async move {
                client.clear_overrides(request).await
            });
            let ClearOverridesResponse { controllers, changed } = call.await?;
            Ok((controllers, changed))
        }
    }
}

fn document(
    direction: Direction,
    format: Format,
    (controllers, changed): Answer,
) -> Result<String, CliError> {
    match direction {
        Direction::Enable => {
            let answer = EnableControllerResponse { controllers, changed };
            objects::document(format, "EnableControllerResponse", &answer)
        }
        Direction::Disable => {
            let answer = DisableControllerResponse { controllers, changed };
            objects::document(format, "DisableControllerResponse", &answer)
        }
        Direction::Reset => {
            let answer = ClearOverridesResponse { controllers, changed };
            objects::document(format, "ClearOverridesResponse", &answer)
        }
    }
}

/// One call for each name. What is wrong with one is no reason to leave out the others.
async fn run(direction: Direction, matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let order = Order::read(direction, matches)?;
    let format = common::format(matches);
    // Only the leader can wait; overrides are taken by any replica with the leader's flags.
    let session = if order.wait { None } else { Some(context.finder.connect(Whom::Anyone).await?) };
    let mut all = Vec::new();
    let mut changed = false;
    let mut failed = None;
    for name in &order.names {
        let outcome = match &session {
            Some(session) => {
                let call = async |session: &Session| ask(session, &order, direction, name).await;
                context.finder.follow(session, call).await
            }
            None => {
                context.finder.of_leader(async |session| ask(session, &order, direction, name).await).await
            }
        };
        match outcome {
            Ok((controllers, has_changed)) => {
                if !format.is_object() {
                    let now = context.now();
                    let lines: String = controllers
                        .iter()
                        .map(|controller| show::toggled(controller, has_changed, order.dry_run, now))
                        .collect();
                    context.screen.print(&lines)?;
                }
                all.extend(controllers);
                changed |= has_changed;
            }
            Err(error @ CliError::Refused(_)) if order.names.len() > 1 => {
                context.screen.note(&format!("{name}: {}", error.text()));
                failed.get_or_insert(error.exit());
            }
            Err(error) => return Err(error),
        }
    }
    // An order for all controllers may concern none.
    if format.is_object() && (failed.is_none() || !all.is_empty()) {
        let text = document(direction, format, (all, changed))?;
        context.screen.print(&text)?;
    }
    failed.map_or(Ok(()), |exit| Err(CliError::Said(exit)))
}
