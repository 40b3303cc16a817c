//! Events about edits of the overrides by hand: one after the other, and as many edits in one as came meanwhile, so that a
//! flood of edits makes neither a flood of Events nor of tasks.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::admin::overrides::HandEdit;

/// Edits that an Event describes; of the others it has the number.
const DESCRIBED: usize = 20;
/// The time between two Events.
const PAUSE: Duration = Duration::from_secs(2);

/// Edits that no Event tells of yet.
#[derive(Debug, Default)]
pub(super) struct HandEdits {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    described: Vec<String>,
    more: usize,
}

impl HandEdits {
    /// Adds edits. Never waits.
    pub(super) fn add(&self, edits: Vec<HandEdit>) {
        let mut waiting = self.waiting.lock();
        for HandEdit { message, .. } in edits {
            if waiting.described.len() < DESCRIBED {
                waiting.described.push(message);
            } else {
                waiting.more += 1;
            }
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// Tells of all edits; for ever.
    pub(super) async fn tell<T: Future<Output = ()>>(&self, write: impl Fn(String) -> T) -> Infallible {
        loop {
            self.added.notified().await;
            let Waiting { described, more } = std::mem::take(&mut *self.waiting.lock());
            if described.is_empty() {
                continue;
            }
            let mut message = described.join("; ");
            if more > 0 {
                message = format!("{message}; {more} more");
            }
            write(message).await;
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(count: usize) -> Vec<HandEdit> {
        let edit = |number| HandEdit { controller: String::new(), message: format!("edit {number}") };
        (0..count).map(edit).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_edits_is_few_events_and_each_edit_is_counted() {
        let (all, written) = (HandEdits::default(), Mutex::new(Vec::new()));
        let write = |message: String| {
            written.lock().push(message);
            std::future::ready(())
        };
        let flood = async {
            all.add(edits(1));
            sleep(Duration::from_millis(1)).await;
            for _ in 0..100 {
                all.add(edits(50));
            }
            sleep(Duration::from_secs(5)).await;
        };
        tokio::select! {
            biased;
            never = all.tell(write) => match never {},
            () = flood => {}
        }
        let written = written.into_inner();
        assert_eq!(written.len(), 2, "{written:?}");
        assert_eq!(written[0], "edit 0");
        assert!(
            written[1].starts_with("edit 0; edit 1; ") && written[1].ends_with("; 4980 more"),
            "{written:?}"
        );
    }
}
