//! Measures the difference between the clocks of the API server and of this machine. Overrides and the TTL of Jobs end at times of the wall
//! clock: on a replica whose clock is ahead they end early.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus::Gauge;
use tokio::time::sleep;

use coxswain_machinery::model::clock::Clock;
use coxswain_machinery::telemetry::{MetricsError, Registrar, Registry};

/// The time between two measurements.
const PERIOD: Duration = Duration::from_secs(30);
/// A larger difference is logged. The alert `CoxswainClockOffset` has the same limit.
const LIMIT: SignedDuration = SignedDuration::from_secs(30);

pub(super) struct ClockOffset(Gauge);

impl ClockOffset {
    pub(super) fn register(metrics: &Registry) -> Result<Self, MetricsError> {
        let gauge = Registrar::new(metrics).gauge(
            "coxswain_api_server_clock_offset_seconds",
            "Clock offset: the API server's time minus this process's time, in seconds, with a resolution of 1 s.",
        )?;
        Ok(Self(gauge))
    }

    /// Compares the time of the API server, once it is known, with that of this machine, until the future is dropped.
    pub(super) async fn follow(&self, server_time: impl Fn() -> Option<Timestamp>, clock: &dyn Clock) {
        let mut was_large = false;
        loop {
            if let Some(time) = server_time() {
                let offset = time.duration_since(clock.now());
                self.0.set(offset.as_secs_f64());
                let is_large = offset.abs() > LIMIT;
                if is_large && !was_large {
                    tracing::warn!(
                        offset_seconds = offset.as_secs(),
                        "The clock differs from the API server's; overrides expire at the wrong time"
                    );
                }
                was_large = is_large;
            }
            sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use coxswain_machinery::model::clock::RuntimeClock;

    use super::*;

    /// The clock of a replica is an hour behind.
    #[tokio::test(start_paused = true)]
    async fn offset_is_the_time_of_the_api_server_minus_the_time_of_this_machine() {
        let offset = ClockOffset::register(&Registry::new()).unwrap();
        let here = RuntimeClock::new("2026-11-28T16:00:00Z".parse().unwrap());
        let server = Cell::new(None);
        let following = tokio::time::timeout(Duration::from_secs(40), offset.follow(|| server.get(), &here));
        let answering = async {
            sleep(Duration::from_secs(20)).await;
            assert!(offset.0.get().abs() < f64::EPSILON, "nothing is known before the first answer");
            server.set(Some("2026-11-28T17:00:32Z".parse().unwrap()));
        };
        let (ended, ()) = tokio::join!(following, answering);
        assert!(ended.is_err(), "it goes on");
        assert!((offset.0.get() - 3602.0).abs() < 0.1, "{}", offset.0.get());
    }
}
