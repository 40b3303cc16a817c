//! The line between one place's managers and the API server, which may be cut without anybody being told: what is sent meanwhile
//! never arrives, and what was on its way back comes when the line is whole again, as TCP has it.

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Line {
    cut_until: Mutex<Option<Instant>>,
}

impl Line {
    /// Nothing passes before then.
    pub(crate) fn cut(&self, until: Instant) {
        *self.cut_until.lock() = Some(until);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.end().is_some()
    }

    /// Returns when something can pass.
    pub(crate) async fn whole(&self) {
        while let Some(end) = self.end() {
            sleep_until(end).await;
        }
    }

    fn end(&self) -> Option<Instant> {
        self.cut_until.lock().filter(|until| Instant::now() < *until)
    }
}
