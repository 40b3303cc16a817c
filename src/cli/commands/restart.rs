//! `restart`: stops controllers and starts them again, which ends reconciles that hang and fills caches again. It takes two orders, of
//! which the first ends by itself.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::toggle::{Direction, Order, ask};
use super::{Context, valued};
use crate::admin::proto::{Controller, GetControllerRequest};
use crate::cli::common;
use crate::cli::connect::{CALL, Session};
use crate::cli::error::{CliError, Exit};
use crate::cli::output::clean;

/// When the controller starts again by itself, if this command is cut off between the two orders.
const LASTING: Duration = Duration::from_mins(1);

pub(super) fn command() -> Command {
    Command::new("restart")
        .about("Restart controllers, which stops reconciles that hang")
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
    for name in &order.names {
        let controller = context.finder.of_leader(async |session| find(session, name).await).await?;
        let name = controller.name.as_str();
        check(&controller)?;
        // The second order ends the override of the first one, and nothing else: the version says that there was none.
        let order = Order { expected_version: Some(controller.version.clone()), ..order.clone() };
        let stop = async |session: &Session| ask(session, &order, Direction::Disable, name).await;
        let (stopped, _) = context.finder.of_leader(stop).await?;
        let version = stopped.into_iter().map(|controller| controller.version).next();
        let order = Order { expected_version: version, ..order.clone() };
        let start = async |session: &Session| ask(session, &order, Direction::Reset, name).await;
        drop(context.finder.of_leader(start).await?);
        context.screen.print(&format!("{} restarted\n", clean(name)))?;
    }
    Ok(())
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
        "an override is active; use disable and enable"
    } else if !desired.enabled {
        "--controllers does not select it"
    } else {
        return Ok(());
    };
    let message = format!("restart {}: {why}", clean(&controller.name));
    Err(CliError::Outcome { message, exit: Exit::Refused })
}
