//! What can go wrong in the client: words for people, and exit codes for scripts.

use std::fmt::Write as _;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::output::{clean, human};
use coxswain_machinery::client::{ApiError, ConfigError};

/// How the program ends. The numbers are part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    /// All was done.
    Done = 0,
    /// It failed, for a reason that no other code is for.
    Failed = 1,
    /// The command line, or a file that it names, is wrong.
    Usage = 2,
    /// No replica, not the leader, or no API server to find one by, could be reached; or the call returned `UNAVAILABLE`.
    Unreachable = 3,
    /// Not authenticated, or not allowed.
    Denied = 4,
    /// There is no such thing.
    NotFound = 5,
    /// The state of things is against it.
    Refused = 6,
    /// It took too long.
    TimedOut = 7,
}

/// What the exit codes mean, for `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  invalid flag, argument or file
  3  no replica, or not the leader, could be reached; no API server answered the search
     for replicas; or the call returned UNAVAILABLE
  4  unauthenticated or forbidden
  5  controller, queue, object, Lease or replica not found
  6  precondition failed, or concurrent change
  7  timed out";

/// Why a command ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The command line is wrong in a way that only shows once it is carried out.
    #[error("{0}")]
    Usage(String),
    /// The kubeconfig is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A credential or a certificate authority can't be used.
    #[error("{0}")]
    Credentials(String),
    /// There is no replica to call, or none could be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The API server was asked for replicas and did not tell.
    #[error("list replicas' Leases: {0}")]
    Cluster(#[source] ApiError),
    /// The replica refused.
    #[error("{}", describe(.0))]
    Refused(#[from] Box<Status>),
    /// The replica did not answer in time.
    #[error("timed out after {}; the request may still be applied", human::duration(*.0))]
    TimedOut(std::time::Duration),
    /// The call went well and what it was for did not.
    #[error("{message}")]
    Outcome {
        /// What became of it.
        message: String,
        /// How to end.
        exit: Exit,
    },
    /// Standard output can't be written to.
    #[error("write standard output: {0}")]
    Output(#[source] std::io::Error),
    /// A message that can't be shown: a defect of the build.
    #[error("{0}")]
    Encoding(String),
    /// What went wrong has been said already.
    #[error("the command failed for some names")]
    Said(Exit),
}

impl From<Status> for CliError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

impl CliError {
    /// How the program ends for it.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::Credentials(_) => Exit::Usage,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Cluster(error) => match error.code() {
                0 => Exit::Unreachable,
                401 | 403 => Exit::Denied,
                _ => Exit::Failed,
            },
            Self::Refused(status) => of_code(status.code()),
            Self::TimedOut(_) => Exit::TimedOut,
            Self::Outcome { exit, .. } | Self::Said(exit) => *exit,
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) | Self::Encoding(_) => Exit::Failed,
        }
    }

    /// Whether there is nothing to say: the reader has gone and has seen what it wanted, or all has been said.
    pub(super) fn is_silent(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == std::io::ErrorKind::BrokenPipe,
            Self::Said(_) => true,
            _ => false,
        }
    }

    /// The error with all that helps, in lines.
    pub(super) fn text(&self) -> String {
        let mut text = self.to_string();
        if let Self::Cluster(error) = self
            && matches!(error.code(), 401 | 403)
        {
            text.push_str("\n  use --server HOST:PORT to call a replica without reading Leases");
        }
        text
    }
}

fn of_code(code: Code) -> Exit {
    match code {
        Code::Ok => Exit::Done,
        Code::InvalidArgument => Exit::Usage,
        Code::Unavailable => Exit::Unreachable,
        Code::Unauthenticated | Code::PermissionDenied => Exit::Denied,
        Code::NotFound => Exit::NotFound,
        Code::FailedPrecondition | Code::Aborted | Code::OutOfRange | Code::AlreadyExists => Exit::Refused,
        Code::DeadlineExceeded => Exit::TimedOut,
        _ => Exit::Failed,
    }
}

/// The flag or argument that a field of a request comes from.
fn flag(field: &str) -> &str {
    match field {
        "name" | "filter.names" => "NAME",
        "duration" => "--for",
        "reason" => "--reason",
        "expected_version" => "--expected-version",
        "successor_identity" => "--to",
        "expected_leader_identity" => "--expected-leader",
        "lease" => "--lease",
        "counts_interval" => "--every",
        "controller" => "CONTROLLER",
        "queue" => "--queue",
        "object" | "object.name" | "object.namespace" => "NAMESPACE/NAME",
        "max_keys" => "--keys",
        "filter.controllers" => "--controller",
        "filter.types" => "--type",
        "filter.namespaces" => "--namespace",
        "filter.objects" => "--object",
        "filter.min_severity" => "--severity",
        "filter.resource" => "--resource",
        "since_sequence" => "--since",
        "last" => "--tail",
        "log_id" => "--log",
        other => other,
    }
}

/// `FailedPrecondition` as the API writes it.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// A status and its details in words: what is wrong, then a line for each thing that helps.
fn describe(status: &Status) -> String {
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
    let mut text = String::new();
    let fields = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
    if fields.is_empty() {
        let message = clean(status.message());
        text.push_str(if message.is_empty() { "the call failed" } else { &message });
    } else {
        text.push_str("invalid request");
    }
    let code = code_name(status.code());
    let _ = match reason.as_str() {
        "" => write!(text, " ({code})"),
        reason if reason == code => write!(text, " ({code})"),
        reason => write!(text, " ({code}, {})", clean(reason)),
    };
    for field in fields {
        let _ = write!(text, "\n  {}: {}", clean(flag(&field.field)), clean(&field.description));
    }
    for line in hints(status, &details, &reason) {
        let _ = write!(text, "\n  {line}");
    }
    text
}

fn hints(status: &Status, details: &ErrorDetails, reason: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let violations = details.precondition_failure().map(|held| held.violations.as_slice());
    for violation in violations.unwrap_or_default() {
        // Most say in other words what the message says.
        let said = status.message().contains(&violation.description);
        if !said && !violation.description.is_empty() {
            let subject = if violation.subject.is_empty() { &violation.r#type } else { &violation.subject };
            lines.push(format!("{}: {}", clean(subject), clean(&violation.description)));
        }
    }
    let fact =
        |key: &str| details.error_info().and_then(|info| info.metadata.get(key)).map(|value| clean(value));
    match reason {
        "FORCE_REQUIRED" => lines.push("use --force to override".to_owned()),
        "VERSION_MISMATCH" => {
            if let Some(version) = fact("version") {
                lines.push(format!("the current version is {version}"));
            }
        }
        "SEQUENCE_IN_FUTURE" => {
            if let Some(newest) = fact("newest_sequence") {
                lines.push(format!("the newest sequence number is {newest}"));
            }
        }
        "" if status.code() == Code::Unimplemented => {
            lines.push(
                "check that the server is Coxswain with its admin API enabled, and that its version matches"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let delay = details.retry_info().and_then(|info| info.retry_delay);
    if let Some(delay) = delay {
        lines.push(format!("retry in {}", human::duration(delay)));
    }
    lines
}
