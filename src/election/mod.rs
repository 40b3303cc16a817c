//! Leader election on a Lease, interoperable with every client-go elector on the same Lease.
//!
//! The rules (see "Leases" in the Kubernetes documentation): whoever's identity is in the Lease leads, as long as the
//! Lease changes within its own duration, measured with the observer's clock from when the observer saw the change.
//! Nobody compares clocks between machines. A candidate takes over an abandoned or expired Lease with an update that
//! carries the resource version it saw, so that two candidates can't both succeed. The leader renews well before the
//! others lose patience, and stops leading by itself when it could not renew within the renew deadline.
//!
//! A standby also watches the Lease: a leader that releases it is followed at once, not at the next poll.

mod elector;
mod lock;
mod record;
mod watch;

#[cfg(test)]
mod tests;

pub use elector::{Elector, ElectorHealth, Leadership, Timing};
pub use lock::{LeaseApi, LeaseLock, Observed};
pub use record::Record;
