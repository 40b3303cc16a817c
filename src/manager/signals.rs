//! Signals: the first asks for a clean stop, the second ends the process at once, as in the original.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `shutdown` at the first SIGTERM or SIGINT; ends the process at the second.
#[expect(clippy::exit, reason = "whoever asks twice does not want to wait for destructors")]
pub(super) async fn cancel_on_signal(shutdown: CancellationToken) {
    let (mut terminate, mut interrupt) = match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "Failed to register signal handlers; only SIGKILL stops this process");
            return;
        }
    };
    for again in [false, true] {
        let name = tokio::select! {
            biased;
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        if again {
            tracing::warn!(signal = name, "Received a second signal; exiting immediately");
            std::process::exit(1);
        }
        tracing::info!(signal = name, "Received a signal; stopping");
        shutdown.cancel();
    }
}
