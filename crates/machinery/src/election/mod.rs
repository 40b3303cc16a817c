//! Leader election on a Lease, interoperable with every client-go elector on the same Lease.
//!
//! The rules (see "Leases" in the Kubernetes documentation): whoever's identity is in the Lease leads, as long as the
//! Lease changes within its own duration, measured with the observer's clock from when the observer saw the change.
//! Nobody compares clocks between machines. A candidate takes over an abandoned or expired Lease with an update that
//! carries the resource version it saw, so that two candidates can't both succeed. The leader renews well before the
//! others lose patience, and stops leading by itself when it could not renew within the renew deadline.
//!
//! A standby also watches the Lease: a leader that releases it is followed at once, not at the next poll.
//!
//! # Handing over
//! A leader that goes on living can give the Lease up and stand for it again. It holds back until somebody else has had
//! it, or for the Lease's duration if nobody takes it. It may also name its successor, in annotations of the Lease,
//! written by the same update that releases it: the other candidates of this kind hold back likewise, by their own
//! clocks, from when they saw it; other software ignores it. Whoever takes the Lease removes the annotations. A Lease
//! of which nobody asked that has none.
//!
//! # Coordinated elections
//! With the feature gate `CoordinatedLeaderElection` the API server chooses who has the Lease, among those who stand for
//! it ([`Contender`]). An elector then takes what it is named the holder of, and nothing else, renews it, and gives it up
//! when the API server prefers another. All else stays as it is.

mod candidate;
mod elector;
mod lock;
mod record;
mod watch;

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
#[cfg(test)]
mod tests;

pub use candidate::{Candidacy, CandidateApi, CandidateObject, Contender, ObservedCandidate};
pub use elector::{Elector, ElectorHealth, Leadership, NotReleased, Timing};
pub use lock::{LeaseApi, LeaseLock, ObservedLease};
pub use record::{Record, SUCCESSOR_ANNOTATION, SUCCESSOR_TERM_ANNOTATION};
