//! Errors as callers get them: a status with `google.rpc` details, for people and for machines.
//!
//! Reasons are part of the API: the proto files list them, at each RPC or for all.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};

/// The longest message, and the longest description of a violation. Details of a failed call travel in its headers, which gRPC clients
/// limit to 8 KiB in all.
const MAX_MESSAGE_BYTES: usize = 512;
const MAX_DESCRIPTION_BYTES: usize = 128;
/// The most violations that an error lists.
const MAX_VIOLATIONS: usize = 10;

/// `ErrorInfo.domain` of all errors.
pub const DOMAIN: &str = "admin.coxswain.dev";

/// `ErrorInfo.reason`: stable names, each with one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Fields of the request are wrong.
    InvalidRequest,
    /// No credentials that hold.
    Unauthenticated,
    /// The cluster's authorization says no.
    Forbidden,
    /// There is no such controller.
    ControllerNotFound,
    /// There is no such queue.
    QueueNotFound,
    /// There is no such Lease.
    LeaseNotFound,
    /// There is no such replica.
    ReplicaNotFound,
    /// There is nothing of that name whose health could be told.
    ServiceNotFound,
    /// Something has changed since the caller looked.
    VersionMismatch,
    /// Somebody else changed the same while the caller waited.
    Superseded,
    /// A feature gate is off.
    FeatureGate,
    /// The cloud provider's controllers are elsewhere.
    CloudProvider,
    /// Another setting stands against it.
    Setting,
    /// There is no such controller yet.
    NotImplemented,
    /// It needs `force`.
    ForceRequired,
    /// This replica's flags for controllers differ from the leader's.
    FlagsDiffer,
    /// Another replica leads.
    NotLeader,
    /// Another replica leads since the change was made.
    LeadershipLost,
    /// The controller does not run.
    NotRunning,
    /// The controller failed.
    ControllerFailed,
    /// Nobody else could lead.
    NoCandidate,
    /// The one that should lead next gives no sign of life.
    SuccessorNotLive,
    /// The leader is another than expected.
    LeaderChanged,
    /// There is no leader election.
    NoLeaderElection,
    /// The events asked for are another process'.
    EventLogChanged,
    /// The events asked for are yet to come.
    SequenceInFuture,
    /// The API server can't be reached or refuses.
    ApiServer,
    /// The API server's answer was lost.
    OutcomeUnknown,
    /// Too many others want to change the same.
    Contention,
    /// Too many streams.
    TooManyStreams,
    /// Too many calls of one user.
    TooManyCalls,
    /// A stream has been open for as long as one may be.
    StreamExpired,
    /// It took too long.
    Timeout,
    /// The process ends.
    ShuttingDown,
}

impl Reason {
    /// The name and its code.
    const fn parts(self) -> (&'static str, Code) {
        match self {
            Self::InvalidRequest => ("INVALID_REQUEST", Code::InvalidArgument),
            Self::Unauthenticated => ("UNAUTHENTICATED", Code::Unauthenticated),
            Self::Forbidden => ("FORBIDDEN", Code::PermissionDenied),
            Self::ControllerNotFound => ("CONTROLLER_NOT_FOUND", Code::NotFound),
            Self::QueueNotFound => ("QUEUE_NOT_FOUND", Code::NotFound),
            Self::LeaseNotFound => ("LEASE_NOT_FOUND", Code::NotFound),
            Self::ReplicaNotFound => ("REPLICA_NOT_FOUND", Code::NotFound),
            Self::ServiceNotFound => ("SERVICE_NOT_FOUND", Code::NotFound),
            Self::VersionMismatch => ("VERSION_MISMATCH", Code::Aborted),
            Self::Superseded => ("SUPERSEDED", Code::Aborted),
            Self::LeadershipLost => ("LEADERSHIP_LOST", Code::Aborted),
            Self::Contention => ("CONTENTION", Code::Aborted),
            Self::FeatureGate => ("FEATURE_GATE", Code::FailedPrecondition),
            Self::CloudProvider => ("CLOUD_PROVIDER", Code::FailedPrecondition),
            Self::Setting => ("SETTING", Code::FailedPrecondition),
            Self::NotImplemented => ("NOT_IMPLEMENTED", Code::FailedPrecondition),
            Self::ForceRequired => ("FORCE_REQUIRED", Code::FailedPrecondition),
            Self::FlagsDiffer => ("FLAGS_DIFFER", Code::FailedPrecondition),
            Self::NotLeader => ("NOT_LEADER", Code::FailedPrecondition),
            Self::NotRunning => ("NOT_RUNNING", Code::FailedPrecondition),
            Self::ControllerFailed => ("CONTROLLER_FAILED", Code::FailedPrecondition),
            Self::NoCandidate => ("NO_CANDIDATE", Code::FailedPrecondition),
            Self::SuccessorNotLive => ("SUCCESSOR_NOT_LIVE", Code::FailedPrecondition),
            Self::LeaderChanged => ("LEADER_CHANGED", Code::FailedPrecondition),
            Self::NoLeaderElection => ("NO_LEADER_ELECTION", Code::FailedPrecondition),
            Self::EventLogChanged => ("EVENT_LOG_CHANGED", Code::FailedPrecondition),
            Self::SequenceInFuture => ("SEQUENCE_IN_FUTURE", Code::OutOfRange),
            Self::ApiServer => ("API_SERVER", Code::Unavailable),
            Self::OutcomeUnknown => ("OUTCOME_UNKNOWN", Code::Unknown),
            Self::ShuttingDown => ("SHUTTING_DOWN", Code::Unavailable),
            Self::TooManyCalls => ("TOO_MANY_CALLS", Code::ResourceExhausted),
            Self::StreamExpired => ("STREAM_EXPIRED", Code::Unavailable),
            Self::TooManyStreams => ("TOO_MANY_STREAMS", Code::ResourceExhausted),
            Self::Timeout => ("TIMEOUT", Code::DeadlineExceeded),
        }
    }

    /// As in `ErrorInfo`.
    pub const fn name(self) -> &'static str {
        self.parts().0
    }

    /// The status code that it comes with.
    pub const fn code(self) -> Code {
        self.parts().1
    }
}

/// An error in the making.
#[derive(Debug)]
pub struct ErrorReply {
    reason: Reason,
    message: String,
    metadata: BTreeMap<String, String>,
    details: ErrorDetails,
}

impl ErrorReply {
    /// An error with a message for people.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), metadata: BTreeMap::new(), details: ErrorDetails::new() }
    }

    /// Adds a fact for machines; an empty one is left out.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.metadata.insert(key.to_owned(), value);
        }
        self
    }

    /// Names the precondition that does not hold, its type being the error's reason.
    #[must_use]
    pub fn violates(mut self, subject: impl Into<String>, description: impl Into<String>) -> Self {
        let description: String = description.into();
        let description = cut(&description, MAX_MESSAGE_BYTES);
        self.details.add_precondition_failure_violation(self.reason.name(), subject, description);
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.details.set_retry_info(Some(delay));
        self
    }
}

impl From<ErrorReply> for Status {
    fn from(failure: ErrorReply) -> Self {
        let ErrorReply { reason, message, metadata, mut details } = failure;
        let message = cut(&message, MAX_MESSAGE_BYTES);
        // Every failed precondition says which, even if only once more by its name.
        if reason.code() == Code::FailedPrecondition && !details.has_precondition_failure_violations() {
            let violation = PreconditionViolation::new(reason.name(), "", message.clone());
            details.set_precondition_failure(vec![violation]);
        }
        #[expect(clippy::disallowed_types, reason = "it is tonic's")]
        let metadata: std::collections::HashMap<_, _> = metadata.into_iter().collect();
        details.set_error_info(reason.name(), DOMAIN, metadata);
        Self::with_error_details(reason.code(), message, details)
    }
}

/// What is wrong with a request's fields.
#[derive(Debug, Default)]
pub struct Violations(Vec<FieldViolation>);

impl Violations {
    /// Complains about a field. `field` is its path as in the proto file: `filter.names`.
    pub fn add(&mut self, field: &str, description: impl Into<String>) {
        self.0.push(FieldViolation::new(field, description));
    }

    /// The fields complained about.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|violation| violation.field.as_str())
    }

    /// `INVALID_ARGUMENT` with all complaints, unless there are none.
    pub fn check(self) -> Result<(), Status> {
        let number = self.0.len();
        if number == 0 {
            return Ok(());
        }
        let shown: Vec<FieldViolation> = self
            .0
            .into_iter()
            .take(MAX_VIOLATIONS)
            .map(|each| FieldViolation::new(each.field, cut(&each.description, MAX_DESCRIPTION_BYTES)))
            .collect();
        let mut all: Vec<_> =
            shown.iter().map(|each| format!("{}: {}", each.field, each.description)).collect();
        if number > shown.len() {
            all.insert(0, format!("{number} invalid fields, the first {} are listed", shown.len()));
        }
        let mut failure = ErrorReply::new(Reason::InvalidRequest, all.join("; "));
        failure.details.set_bad_request(shown);
        Err(failure.into())
    }
}

/// The beginning of a text, with an ellipsis if something is missing.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(most)])
}

/// `NOT_FOUND` that names what may have been meant: of `names` and the names that they go by, the closest.
pub fn not_found<'a>(
    reason: Reason,
    what: &str,
    asked: &str,
    names: impl IntoIterator<Item = (&'a str, &'a [&'a str])>,
) -> Status {
    let close = closest(asked, names);
    let shown: String = asked.chars().take(100).collect();
    let mut message = format!("{what} {shown:?} does not exist");
    if !close.is_empty() {
        message = format!("{message}; did you mean {}?", close.join(" or "));
    }
    ErrorReply::new(reason, message).with("name", shown).with("closest", close.join(",")).into()
}

/// At most three names like `asked`, the most similar first.
fn closest<'a>(asked: &str, names: impl IntoIterator<Item = (&'a str, &'a [&'a str])>) -> Vec<&'a str> {
    // Similarity is quadratic in length: nobody means a name by that many characters.
    if asked.len() > 100 {
        return Vec::new();
    }
    let asked = asked.to_lowercase();
    let likeness = |name: &str| {
        let starts = if !asked.is_empty() && name.starts_with(&asked) { 0.5 } else { 0.0 };
        strsim::jaro_winkler(&asked, name) + starts
    };
    let mut found: Vec<(f64, &str)> = names
        .into_iter()
        .map(|(name, aliases)| {
            let best = aliases.iter().map(|alias| likeness(alias)).fold(likeness(name), f64::max);
            (best, name)
        })
        .filter(|(likeness, _)| *likeness >= 0.8)
        .collect();
    found.sort_by(|(a, name_a), (b, name_b)| b.total_cmp(a).then_with(|| name_a.cmp(name_b)));
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The deadline has passed, or the server's own limit.
pub fn timed_out(message: impl Into<String>) -> Status {
    ErrorReply::new(Reason::Timeout, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [(&str, &[&str]); 4] = [
        ("deployment-controller", &["deployment"]),
        ("daemonset-controller", &["daemonset"]),
        ("replicaset-controller", &["replicaset"]),
        ("ttl-controller", &["ttl"]),
    ];

    #[test]
    fn a_name_not_found_names_the_closest() {
        assert_eq!(closest("deploymnet", NAMES)[0], "deployment-controller");
        assert_eq!(closest("Replicaset-Controler", NAMES)[0], "replicaset-controller");
        assert_eq!(closest("ttl-", NAMES)[0], "ttl-controller");
        assert!(closest("zzzz", NAMES).is_empty());
        assert!(closest(&"d".repeat(5000), NAMES).is_empty());
        let status = not_found(Reason::ControllerNotFound, "controller", "deploymnet", NAMES);
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().contains("did you mean deployment-controller"), "{}", status.message());
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("CONTROLLER_NOT_FOUND", DOMAIN));
        assert!(info.metadata["closest"].starts_with("deployment-controller"));
    }

    #[test]
    fn every_reason_stands_in_a_proto_with_its_code() {
        let protos = [
            include_str!("../../proto/coxswain/admin/v1/controllers.proto"),
            include_str!("../../proto/coxswain/admin/v1/events.proto"),
            include_str!("../../proto/coxswain/admin/v1/leader.proto"),
            include_str!("../../proto/coxswain/admin/v1/queues.proto"),
            include_str!("../../proto/coxswain/admin/v1/types.proto"),
        ]
        .concat();
        // The table itself, so that no reason can be left out here.
        let rows: Vec<&str> = include_str!("errors.rs")
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("Self::"))
            .collect();
        let rows: Vec<&str> = rows.into_iter().filter(|line| line.contains(", Code::")).collect();
        assert!(rows.len() >= 30, "{rows:?}");
        for row in rows {
            let reason = row.split('"').nth(1).unwrap();
            assert!(protos.contains(&format!("`{reason}`")), "no proto says {reason}");
        }
        assert!(!protos.contains("`UNAVAILABLE`: the API server did not store"), "a reason says which it is");
    }

    #[test]
    fn all_fields_at_fault_are_named() {
        let mut violations = Violations::default();
        violations.add("name", "must not be empty");
        violations.add("duration", "must be positive");
        let status = violations.check().unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_error_details();
        let fields: Vec<_> =
            details.bad_request().unwrap().field_violations.iter().map(|each| each.field.as_str()).collect();
        assert_eq!(fields, ["name", "duration"]);
        assert_eq!(details.error_info().unwrap().reason, "INVALID_REQUEST");
        assert!(Violations::default().check().is_ok());
    }

    #[test]
    fn an_error_fits_the_headers_of_a_client() {
        let mut violations = Violations::default();
        for _ in 0..100 {
            violations.add("filter.names", "x".repeat(500));
        }
        let invalid = violations.check().unwrap_err();
        assert!(invalid.message().starts_with("100 invalid fields, the first 10 are listed; "));
        assert_eq!(invalid.get_error_details().bad_request().unwrap().field_violations.len(), 10);
        let why = "é".repeat(10_000);
        let failed: Status =
            ErrorReply::new(Reason::ControllerFailed, format!("job-controller failed: {why}"))
                .violates("job-controller", why)
                .into();
        let plain: Status = ErrorReply::new(Reason::NotLeader, "é".repeat(10_000)).into();
        for status in [invalid, failed, plain] {
            assert!(
                status.message().len() + status.details().len() < 4096,
                "{} bytes",
                status.details().len()
            );
        }
    }

    #[test]
    fn a_failed_precondition_says_which() {
        let status: Status =
            ErrorReply::new(Reason::NotLeader, "x leads").with("leader_address", "a:1").into();
        let details = status.get_error_details();
        assert_eq!(details.precondition_failure().unwrap().violations[0].r#type, "NOT_LEADER");
        assert_eq!(details.error_info().unwrap().metadata["leader_address"], "a:1");
        let status: Status = ErrorReply::new(Reason::FeatureGate, "m").violates("Gate", "is off").into();
        let violations = &status.get_error_details().precondition_failure().unwrap().violations.clone();
        assert_eq!((violations.len(), violations[0].subject.as_str()), (1, "Gate"));
        let status: Status =
            ErrorReply::new(Reason::ApiServer, "m").retry_after(Duration::from_secs(2)).into();
        assert_eq!(
            status.get_error_details().retry_info().unwrap().retry_delay,
            Some(Duration::from_secs(2))
        );
    }
}
