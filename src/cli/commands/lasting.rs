//! Streams that outlast a replica: when one is lost, the next replica goes on.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

use super::Context;
use crate::cli::connect::{Session, is_late};
use crate::cli::error::{CliError, Exit};
use crate::cli::find::Whom;

/// How long a replica is looked for that goes on with a stream that was lost: longer than it takes until one leads.
const GO_ON_WITHIN: Duration = Duration::from_mins(1);
/// How long after the loss, and after each try that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Opens a stream at any replica and shows its messages, again and again, until an error that no other replica changes.
pub(super) async fn watch<M>(
    context: &Context,
    open: impl AsyncFn(&Session) -> Result<Streaming<M>, Status>,
    mut show: impl FnMut(M) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let session = context.finder.connect(Whom::Anyone).await?;
    let mut stream = open(&session).await?;
    loop {
        let why = match stream.message().await {
            Ok(Some(message)) => {
                show(message)?;
                continue;
            }
            Ok(None) => ended(),
            Err(status) if is_lost(&status) => {
                if !is_expired(&status) {
                    context
                        .screen
                        .note(&format!("{}; looking for another replica", CliError::from(status.clone())));
                }
                status.into()
            }
            Err(status) => return Err(status.into()),
        };
        if context.finder.is_bounded() {
            return Err(why);
        }
        stream = go_on(async || {
            let session = context.finder.anew().await?.connect(Whom::Anyone).await?;
            Ok(open(&session).await?)
        })
        .await?;
    }
}

/// Opens a stream again; tries for as long as it may take until a replica leads.
pub(super) async fn go_on<T>(
    mut open_again: impl AsyncFnMut() -> Result<T, CliError>,
) -> Result<T, CliError> {
    let until = Instant::now() + GO_ON_WITHIN;
    loop {
        sleep(RETRY).await;
        let error = match open_again().await {
            Ok(stream) => return Ok(stream),
            Err(CliError::Refused(status)) if is_lost(&status) => CliError::Refused(status),
            Err(error @ CliError::Cluster(_)) if error.exit() != Exit::Denied => error,
            Err(error @ (CliError::Unreachable(_) | CliError::TimedOut(_))) => error,
            Err(error) => return Err(error),
        };
        if Instant::now() >= until {
            return Err(error);
        }
    }
}

/// Whether a stream ended with its replica or the connection, so that another may go on.
pub(super) fn is_lost(status: &Status) -> bool {
    let is_lost =
        matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled);
    is_lost && !is_late(status)
}

/// Whether a stream ended because each ends after a while.
fn is_expired(status: &Status) -> bool {
    status.get_details_error_info().is_some_and(|info| info.reason == "STREAM_EXPIRED")
}

/// The error of a stream that the replica ended without a status.
pub(super) fn ended() -> CliError {
    CliError::Outcome { message: "the replica closed the stream".to_owned(), exit: Exit::Unreachable }
}
