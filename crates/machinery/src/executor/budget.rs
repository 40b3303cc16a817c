//! Budgets that the plans of one controller share: so many tokens per second, by name.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

use crate::model::plan::Admission;
use crate::queue::{Bucket, BucketConfig};
use crate::random::HashMap;
use crate::wire::Str;

/// The budgets of one controller. A budget that is full is not kept: it is the same when it is asked for anew.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<Str, Bucket>>);

impl Budgets {
    /// Takes a token; otherwise says how long until there is one, and `None` if there will be none.
    pub(super) fn take(&self, admission: &Admission, now: Instant) -> Result<(), Option<Duration>> {
        if admission.per_second.is_nan() || admission.per_second <= 0.0 || admission.burst == 0 {
            return Err(None);
        }
        let config = BucketConfig { qps: admission.per_second, burst: admission.burst };
        let mut held = self.0.lock();
        held.retain(|_, bucket| !bucket.is_full(now));
        let bucket = held.entry(admission.budget.clone()).or_insert_with(|| Bucket::new(config));
        bucket.retune(config, now);
        bucket.try_take(now).map_err(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::PODS;
    use crate::model::Key;

    fn admission(budget: &str, per_second: f64, burst: u32) -> Admission {
        Admission { kind: &PODS, key: Key::new("ns", "x"), budget: budget.into(), per_second, burst }
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_gives_its_burst_and_then_its_rate() {
        let (budgets, began) = (Budgets::default(), Instant::now());
        let seconds = |at: u64| began + Duration::from_secs(at);
        let slow = admission("zone-a", 0.1, 2);
        assert_eq!([0, 0].map(|at| budgets.take(&slow, seconds(at))), [Ok(()), Ok(())]);
        let wait = |seconds| Err(Some(Duration::from_secs(seconds)));
        assert_eq!([0, 4].map(|at| budgets.take(&slow, seconds(at))), [wait(10), wait(6)]);
        assert_eq!(budgets.take(&admission("zone-b", 0.1, 1), seconds(4)), Ok(()), "others have their own");
        assert_eq!([10, 10].map(|at| budgets.take(&slow, seconds(at))), [Ok(()), wait(10)]);
        // It is full again after twenty seconds, and not fuller.
        assert_eq!([99, 99, 99].map(|at| budgets.take(&slow, seconds(at))), [Ok(()), Ok(()), wait(10)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_may_change_and_may_be_none() {
        let (budgets, now) = (Budgets::default(), Instant::now());
        assert_eq!(budgets.take(&admission("zone", 0.1, 1), now), Ok(()));
        let wait = |per_second| budgets.take(&admission("zone", per_second, 1), now);
        assert_eq!(wait(0.1), Err(Some(Duration::from_secs(10))));
        assert_eq!(wait(0.01), Err(Some(Duration::from_secs(100))), "the token that was taken counts on");
        assert_eq!([0.0, -1.0, f64::NAN].map(wait), [Err(None); 3]);
        assert_eq!(wait(0.1), Err(Some(Duration::from_secs(10))));
    }
}
