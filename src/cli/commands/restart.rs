//! `restart`: stops controllers and starts them again, which ends reconciles that hang and fills caches again. It takes two orders, of
//! which the first ends by itself. The second one aborts reconciles that have not ended.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use tokio::time::{Instant, sleep};

use super::toggle::{Direction, Order, ask};
use super::{Context, valued};
use crate::admin::proto::{Controller, GetControllerRequest, Phase};
use crate::cli::common;
use crate::cli::connect::{CALL, Session};
use crate::cli::error::{CliError, Exit};
use crate::cli::output::clean;

/// When the controller starts again by itself, if this command is cut off between the two orders.
const LASTING: Duration = Duration::from_mins(1);
/// Time that reconciles in flight have to end. It is shorter than [`LASTING`], and longer than the default of `--controller-shutdown-timeout`.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks at a controller that stops.
const POLL: Duration = Duration::from_millis(200);

pub(super) fn command() -> Command {
    Command::new("restart")
        .about("Restart controllers, and abort reconciles that hang")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .num_args(1..)
                .help("Names or aliases of controllers"),
        )
        .arg(valued("reason", "TEXT", "Reason to record with this change"))
}

pub(super) async fn run(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let order = Order {
        names: common::texts(matches, "name"),
        reason: common::text(matches, "reason").unwrap_or_default(),
        lasting: Some(LASTING),
        expected_version: None,
        wait: true,
        dry_run: false,
        force: false,
    };
    let mut failed = None;
    for name in &order.names {
        match restart(context, &order, name).await {
            Ok(name) => context.screen.print(&format!("{} restarted\n", clean(&name)))?,
            // A refusal for one is no reason to leave out the others.
            Err(error @ (CliError::Refused(_) | CliError::Outcome { .. })) if order.names.len() > 1 => {
                context.screen.note(&format!("{name}: {}", error.text()));
                failed.get_or_insert(error.exit());
            }
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(()), |exit| Err(CliError::Said(exit)))
}

/// Restarts one controller, and returns its name.
async fn restart(context: &Context, order: &Order, name: &str) -> Result<String, CliError> {
    let look = async || context.finder.of_leader(async |session| find(session, name).await).await;
    let controller = look().await?;
    let name = controller.name.as_str();
    check(&controller)?;
    // The second order ends the override of the first one, and nothing else: the version says that there was none.
    let order = Order { expected_version: Some(controller.version.clone()), wait: false, ..order.clone() };
    let stop = async |session: &Session| ask(session, &order, Direction::Disable, name).await;
    let (stopped, _) = context.finder.of_leader(stop).await?;
    if !has_stopped(look).await? {
        context
            .screen
            .note(&format!("{}: reconciles did not end within {PATIENCE:?}; aborting them", clean(name)));
    }
    let version = stopped.into_iter().map(|controller| controller.version).next();
    let order = Order { expected_version: version, wait: true, ..order.clone() };
    let start = async |session: &Session| ask(session, &order, Direction::Reset, name).await;
    drop(context.finder.of_leader(start).await?);
    Ok(controller.name)
}

/// Waits for the end of a controller, and returns whether it has ended in time.
async fn has_stopped(look: impl AsyncFn() -> Result<Controller, CliError>) -> Result<bool, CliError> {
    let until = Instant::now() + PATIENCE;
    while look().await?.phase() != Phase::Disabled {
        if Instant::now() >= until {
            return Ok(false);
        }
        sleep(POLL).await;
    }
    Ok(true)
}

async fn find(session: &Session, name: &str) -> Result<Controller, CliError> {
    let mut client = session.controllers();
    let request = GetControllerRequest { name: name.to_owned() };
    let answer =
        session.call(request, CALL, |request| async move { client.get_controller(request).await }).await?;
    Ok(answer.controller.unwrap_or_default())
}

/// Fails unless the flags alone run the controller: an override would be lost, and a controller that is off would be started.
fn check(controller: &Controller) -> Result<(), CliError> {
    let desired = controller.desired.clone().unwrap_or_default();
    let why = if desired.r#override.is_some() {
        "an override is active; run coxswain disable and then coxswain enable instead"
    } else if !desired.enabled {
        "--controllers does not select the controller"
    } else {
        return Ok(());
    };
    let message = format!("restart {}: {why}", clean(&controller.name));
    Err(CliError::Outcome { message, exit: Exit::Refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn controller_that_does_not_stop_is_started_before_its_override_ends() {
        let look = async |phase: Phase| {
            let mut controller = Controller::default();
            controller.set_phase(phase);
            Ok(controller)
        };
        let began = Instant::now();
        assert!(!has_stopped(async || look(Phase::Stopping).await).await.unwrap());
        assert!(began.elapsed() < LASTING);
        assert!(has_stopped(async || look(Phase::Disabled).await).await.unwrap());
    }
}
