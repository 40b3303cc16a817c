//! The secure port: one TLS listener for health, metrics, configuration, debugging and the admin API.
//!
//! ```text
//! TCP ─ TLS (rotated certificates, client certificate asked for) ─ HTTP/1.1 or HTTP/2
//!   └─ authenticate: front proxy headers → client certificate → bearer token (TokenReview) → anonymous
//!        ├─ gRPC: the mounted service, which authorizes each call by itself
//!        └─ authorize: open paths → system:masters → SubjectAccessReview
//!             └─ Router: exact paths and prefixes, added and removed at run time
//! ```
//!
//! It serves before this process leads and regardless of whether it does. It never writes to the cluster (reviews are
//! created but not stored), decides nothing about controllers, and holds no metric of its own: telemetry observes it
//! through [`ServeObserver`]. No credential reaches a handler, a log line or an error.

mod answers;
mod authn;
mod authz;
mod cache;
mod chain;
mod connection;
mod endpoints;
mod error;
mod health;
mod limit;
mod observe;
mod options;
mod reload;
mod renewal;
mod reviews;
mod router;
mod seats;
mod server;
mod signed;
mod tls;
mod user;

#[cfg(test)]
mod tests;

pub use answers::{AnswerBody, PageHandler, RequestBody, full, handler, respond, sync_handler, text};
pub use authz::{AuthorizeError, Authorizer, Decision};
pub use connection::PeerAddress;
pub use endpoints::{ConfigPage, Debugging, FlagsPage, Pages, StatusPage, VerbositySetter};
pub use error::ServeError;
pub use health::{Detail, HealthCheck, HealthRegistry, HealthReport, PingCheck, Probe, Remark};
pub use limit::{Lines, quoted};
pub use observe::{RequestOutcome, ReviewKind, ServeObserver, Unobserved};
pub use options::{
    AuthenticationOptions, AuthorizationOptions, Limits, RequestHeaderOptions, ServeOptions, SniCertKey,
    TlsOptions,
};
pub use reviews::{Access, ApiReviews, Attributes, ResourceAttributes, Reviews};
pub use router::Router;
pub use server::{SecureServer, ServeDeps};
pub use signed::{COXSWAIN_NAME, ServingSigner, SignedCertificate, SigningCa};
pub use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, UserInfo};
