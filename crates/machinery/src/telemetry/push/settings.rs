//! How to push: one flag, and the variables of the OpenTelemetry specification that those of traces have siblings in.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, Uri};

use crate::telemetry::tracing::settings::{
    DEFAULT_TIMEOUT, Found, METRICS, Protocol, SettingProblem, SettingSource, Variables, endpoint,
};

/// `OTEL_METRIC_EXPORT_INTERVAL` by default.
const DEFAULT_INTERVAL: Duration = Duration::from_mins(1);
/// `OTEL_METRIC_EXPORT_TIMEOUT` by default.
const DEFAULT_EXPORT_TIMEOUT: Duration = Duration::from_secs(30);
const ENDPOINT: SettingSource = SettingSource::Flag("metrics-otlp-endpoint");

/// How to push.
#[derive(Clone, Debug, PartialEq)]
pub struct PushSettings {
    /// The collector: a URL of scheme, host and, for HTTP, path.
    pub endpoint: Uri,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// From one push to the next.
    pub interval: Duration,
    /// How long a push may take.
    pub timeout: Duration,
    /// PEM file of the authorities that it is trusted by; the system's if `None`.
    pub certificate: Option<PathBuf>,
    /// What is sent with each push. Secret, and marked so: not shown.
    pub headers: HeaderMap,
    /// `service.name`, if it is given.
    pub service_name: Option<String>,
    /// Further attributes of the resource.
    pub attributes: Vec<(String, String)>,
}

impl PushSettings {
    /// Makes out how to push; `None` if nothing asks for it. `given` is what `--metrics-otlp-endpoint` says, or empty;
    /// `environment` gives the value of a variable.
    ///
    /// # Errors
    /// Everything that is wrong, of what is used.
    pub fn complete(
        given: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Vec<SettingProblem>> {
        let mut problems = Vec::new();
        let variables = Variables::new(environment, &METRICS);
        let flag = (!given.is_empty()).then(|| Found::said(ENDPOINT, given));
        let Some(found) = flag.or_else(|| variables.endpoint(&mut problems)) else {
            return if problems.is_empty() { Ok(None) } else { Err(problems) };
        };
        let protocol = variables.protocol(&mut problems).unwrap_or(found.protocol);
        let endpoint = endpoint(&found, protocol, &METRICS, &mut problems);
        let headers = variables.headers(&mut problems);
        variables.compression(&mut problems);
        let interval = variables.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", &mut problems);
        let export = variables.milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", &mut problems);
        let request = variables.timeout(&mut problems).unwrap_or(DEFAULT_TIMEOUT);
        let attributes = variables.attributes(&mut problems);
        let service_name = variables.service_name(&attributes);
        match endpoint {
            Some(endpoint) if problems.is_empty() => Ok(Some(Self {
                endpoint,
                protocol,
                interval: interval.unwrap_or(DEFAULT_INTERVAL),
                // A push is one request.
                timeout: request.min(export.unwrap_or(DEFAULT_EXPORT_TIMEOUT)),
                certificate: variables.certificate(),
                headers,
                service_name,
                attributes,
            })),
            _ => Err(problems),
        }
    }
}
