//! What people and scripts get to know of an error.

use std::io;
use std::time::Duration;

use tonic::{Code, Status};

use crate::admin::errors::{ErrorReply, Reason, Violations};
use crate::cli::connect::is_late;
use crate::cli::error::{CliError, EXIT_CODES, Exit};

fn text(status: Status) -> String {
    CliError::from(status).text()
}

#[test]
fn every_code_has_its_exit() {
    for (code, exit) in [
        (Code::InvalidArgument, Exit::Usage),
        (Code::Unavailable, Exit::Unreachable),
        (Code::Unauthenticated, Exit::Denied),
        (Code::PermissionDenied, Exit::Denied),
        (Code::NotFound, Exit::NotFound),
        (Code::FailedPrecondition, Exit::Refused),
        (Code::Aborted, Exit::Refused),
        (Code::OutOfRange, Exit::Refused),
        (Code::DeadlineExceeded, Exit::TimedOut),
        (Code::Internal, Exit::Failed),
        (Code::ResourceExhausted, Exit::Failed),
    ] {
        assert_eq!(CliError::from(Status::new(code, "m")).exit(), exit, "{code:?}");
    }
    for exit in [
        Exit::Failed,
        Exit::Usage,
        Exit::Unreachable,
        Exit::Denied,
        Exit::NotFound,
        Exit::Refused,
        Exit::TimedOut,
    ] {
        assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit as u8)), "{exit:?}");
    }
}

#[test]
fn fields_go_by_their_flags() {
    let mut violations = Violations::default();
    violations.add("duration", "must be positive");
    violations.add("filter.something_new", "is wrong");
    assert_eq!(
        text(violations.check().unwrap_err()),
        "invalid request (INVALID_ARGUMENT, INVALID_REQUEST)\n  --for: must be positive\n  \
         filter.something_new: is wrong"
    );
}

#[test]
fn details_become_lines() {
    let status = ErrorReply::new(Reason::VersionMismatch, "it has changed").with("version", "4");
    assert_eq!(text(status.into()), "it has changed (ABORTED, VERSION_MISMATCH)\n  the current version is 4");
    let status = ErrorReply::new(Reason::FeatureGate, "it can't run").violates("SomeGate", "is off");
    assert_eq!(text(status.into()), "it can't run (FAILED_PRECONDITION, FEATURE_GATE)\n  SomeGate: is off");
    let status =
        ErrorReply::new(Reason::ApiServer, "the API server is away").retry_after(Duration::from_secs(2));
    assert_eq!(text(status.into()), "the API server is away (UNAVAILABLE, API_SERVER)\n  retry in 2s");
    let status = ErrorReply::new(Reason::ForceRequired, "it takes force");
    assert!(text(status.into()).ends_with("\n  use --force to override"));
    assert_eq!(text(Status::internal("")), "the call failed (INTERNAL)");
    assert!(text(Status::unimplemented("what?")).contains("check that the server is Coxswain"));
    // Nothing that comes from afar moves the cursor.
    assert_eq!(text(Status::internal("a\u{1b}[2Jb\nc")), "a\\u{1b}[2Jb c (INTERNAL)");
    assert_eq!(text(Status::internal("a\u{202e}b é\u{200d}")), "a\\u{202e}b é\u{200d} (INTERNAL)");
}

#[test]
fn a_deadline_that_passes_here_is_one_too() {
    #[derive(Debug, thiserror::Error)]
    #[error("transport error")]
    struct Wrapped(#[source] tonic::TimeoutExpired);

    assert!(is_late(&Status::from_error(Box::new(tonic::TimeoutExpired(())))));
    assert!(is_late(&Status::from_error(Box::new(Wrapped(tonic::TimeoutExpired(()))))));
    assert!(!is_late(&Status::cancelled("Timeout expired")), "said by somebody else");
    let late = CliError::TimedOut(Duration::from_secs(30));
    assert!(late.exit() == Exit::TimedOut && late.text().starts_with("timed out after 30s"));
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let gone = CliError::Output(io::Error::from(io::ErrorKind::BrokenPipe));
    assert!(gone.is_silent() && gone.exit() == Exit::Done);
    let full = CliError::Output(io::Error::from(io::ErrorKind::StorageFull));
    assert!(!full.is_silent() && full.exit() == Exit::Failed);
}
