//! [`Reachability`]: whether the API server can be reached, as the reflectors of one set tell each other.
//!
//! Each waits for a server that is away by a backoff of its own, so that by the end of an outage their next tries are
//! spread over up to a minute, and all would be caught up only when the last had woken. Hence whoever gets through first
//! calls the others.
//!
//! Returns are counted. Who failed waits for a return since its own request *began*: one that came while the request
//! was under way has not been missed. A return is counted only after a loss in the same outages, so that neither the
//! successes of ordinary days nor the late news of an outage that is over call anybody.

use crate::latest;

/// How often the server had come back at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::informer) struct Outages(u64);

/// What the reflectors of a set know together.
#[derive(Debug, Default)]
pub(in crate::informer) struct Reachability(latest::Sender<Known>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    outages: Outages,
    /// Whether a request of this outages got no answer.
    lost: bool,
}

impl Reachability {
    /// The present outages: what a request that begins now is told by.
    pub(super) fn outages(&self) -> Outages {
        self.0.borrow().outages
    }

    /// A request that began in `outages` got no answer.
    pub(super) fn lost(&self, outages: Outages) {
        self.0.send_if_modified(|known| {
            known.lost |= known.outages == outages;
            // There is nothing in it for those who wait.
            false
        });
    }

    /// A request has succeeded.
    pub(super) fn reached(&self) {
        self.0.send_if_modified(|known| {
            let back = std::mem::take(&mut known.lost);
            known.outages.0 += u64::from(back);
            back
        });
    }

    /// Waits until `outages` is over: the server has come back since.
    pub(super) async fn back_since(&self, outages: Outages) {
        // An error would mean that the sender is gone, and it is borrowed here.
        let _ = self.0.subscribe().wait_for(|known| known.outages != outages).await;
    }
}
