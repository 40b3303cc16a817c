//! The scale of whatever a reference names by API version, kind and name, custom resources included: which reads it takes, and
//! what they tell.
//!
//! Who observes asks anew in each pass, and gets the next read or an answer. A reconcile reads a few scales at a time, and a scale
//! that several reconciles ask for is read once for all of them (`shared_reads`). Nothing is kept beyond a reconcile: an
//! answer is as fresh as the question.

use super::reads::{DeclaredRead, LiveRead, Read, Reads};
use crate::api::Kind;
use crate::api::autoscaling::Scale;
use crate::client::{ApiResource, ApiResources};
use crate::model::Key;

/// The rows of the reads by which a controller finds scales.
#[derive(Clone, Copy, Debug)]
pub struct ScaleReads {
    /// The row for the resources of the API.
    pub discovery: &'static LiveRead,
    /// The row for the scale.
    pub scale: &'static LiveRead,
}

/// What is known of a scale.
#[derive(Debug)]
pub enum ScaleLookup<'a> {
    /// Read this, and ask again.
    Needs(DeclaredRead),
    /// The scale.
    Found(&'a Scale),
    /// Objects of this kind have a scale, and this one is not there.
    Gone,
    /// There is no telling.
    Failed(ScaleError),
}

/// Why there is no scale to be had, in the words in which Kubernetes' own clients say it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// The reference is malformed.
    #[error("unexpected GroupVersion string: {0}")]
    ApiVersion(String),
    /// The API has no such kind.
    #[error("no matches for kind \"{kind}\" in version \"{api_version}\"")]
    NoMatch {
        /// API version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// The API has no such kind in any version of the group.
    #[error("no matches for kind \"{kind}\" in group \"{group}\"")]
    NoKind {
        /// Group.
        group: String,
        /// Kind.
        kind: String,
    },
    /// The API has the kind, and its objects have no scale.
    #[error("{0} does not implement the scale subresource")]
    NotScalable(String),
    /// The name cannot be in a request: it is not legal in a path, or too long for a URI.
    #[error("{0}")]
    Unaddressable(String),
    /// The API server, or one behind it, has no answer.
    #[error("{0}")]
    Unanswered(String),
}

impl ScaleError {
    /// Whether it may be over in a moment, without a change of anything.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }
}

/// The scale of the object at `key` that is of this API version and kind.
pub fn find<'a>(
    rows: ScaleReads,
    read: &'a Reads,
    api_version: &str,
    kind: &str,
    key: &Key,
) -> ScaleLookup<'a> {
    let (group, version) = match parts(api_version) {
        Ok(parts) => parts,
        Err(error) => return ScaleLookup::Failed(error),
    };
    search(rows, read, key, format!("{api_version} {kind}"), |resources| {
        scalable(resources, group, version, kind)
    })
}

/// The scale of the object at `key` that is of this kind in whatever version of the group of this API version.
pub fn find_in_group<'a>(
    rows: ScaleReads,
    read: &'a Reads,
    api_version: &str,
    kind: &str,
    key: &Key,
) -> ScaleLookup<'a> {
    let (group, _) = match parts(api_version) {
        Ok(parts) => parts,
        Err(error) => return ScaleLookup::Failed(error),
    };
    search(rows, read, key, format!("{group} {kind}"), |resources| scalable_in_group(resources, group, kind))
}

/// The row of the resource whose scale [`find_in_group`] finds.
pub fn row_in_group(read: &Reads, api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, _) = parts(api_version).ok()?;
    scalable_in_group(read.resources()?.ok()?, group, kind).ok()
}

/// Group and version.
fn parts(api_version: &str) -> Result<(&str, &str), ScaleError> {
    match api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => Err(ScaleError::ApiVersion(api_version.to_owned())),
        Some(parts) => Ok(parts),
        None => Ok(("", api_version)),
    }
}

/// Reads the scale of the resource that is found among all. `name` is that of its kind.
fn search<'a>(
    rows: ScaleReads,
    read: &'a Reads,
    key: &Key,
    name: String,
    find: impl Fn(&ApiResources) -> Result<&'static Kind, ScaleError>,
) -> ScaleLookup<'a> {
    let resources = match read.resources() {
        None => return ScaleLookup::Needs(rows.discovery.of(Read::Resources)),
        Some(Err(error)) => return ScaleLookup::Failed(ScaleError::Unanswered(error.message())),
        Some(Ok(resources)) => resources,
    };
    let row = match find(resources) {
        Ok(row) => row,
        // What is half a minute old may lack what was just installed.
        Err(_) if read.latest_resources().is_none() => {
            return ScaleLookup::Needs(rows.discovery.of(Read::SearchedResources(name.into())));
        }
        Err(error) => return ScaleLookup::Failed(error),
    };
    match read.scale(row, key) {
        None => ScaleLookup::Needs(rows.scale.of(Read::Scale(row, key.clone()))),
        Some(Ok(Some(scale))) => ScaleLookup::Found(scale),
        Some(Ok(None)) => ScaleLookup::Gone,
        Some(Err(error)) if error.is_not_found() => {
            ScaleLookup::Failed(ScaleError::NotScalable(row.to_string()))
        }
        Some(Err(error)) if error.is_unaddressable() => {
            ScaleLookup::Failed(ScaleError::Unaddressable(error.message()))
        }
        Some(Err(error)) => ScaleLookup::Failed(ScaleError::Unanswered(error.message())),
    }
}

/// The resource of a kind, in the version that the server prefers among those whose objects have a scale.
fn scalable(
    resources: &ApiResources,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<&'static Kind, ScaleError> {
    let is_meant = |held: &&ApiResource| held.version == version && held.kind == kind;
    let Some(meant) = resources.of_group(group).find(is_meant) else {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let failed = resources.failures().find(|failure| failure.group_version() == api_version);
        return Err(match failed {
            Some(failure) => ScaleError::Unanswered(failure.why()),
            None => ScaleError::NoMatch { api_version, kind: kind.to_owned() },
        });
    };
    let has_scale = |held: &&ApiResource| {
        held.resource == meant.resource && held.subresources.iter().any(|subresource| subresource == "scale")
    };
    match resources.of_group(group).find(has_scale) {
        Some(resource) => Ok(resource.metadata_kind()),
        None => Err(ScaleError::NotScalable(meant.metadata_kind().to_string())),
    }
}

/// The resource of a kind in any version: of those that have a scale, the one that the server prefers. The kind may be written
/// in lower case.
fn scalable_in_group(resources: &ApiResources, group: &str, kind: &str) -> Result<&'static Kind, ScaleError> {
    let in_lower_case = |held: &str| held.chars().flat_map(char::to_lowercase).eq(kind.chars());
    let meant = || resources.of_group(group).filter(|held| held.kind == kind || in_lower_case(&held.kind));
    let has_scale = |held: &&ApiResource| held.subresources.iter().any(|subresource| subresource == "scale");
    // Whether one without a scale in what is known has one after all, the server says.
    match meant().find(has_scale).or_else(|| meant().next()) {
        Some(resource) => Ok(resource.metadata_kind()),
        None => Err(ScaleError::NoKind { group: group.to_owned(), kind: kind.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::{ApiError, DiscoveryError};
    use crate::model::live_reads::TEST_READ;
    use crate::wire::Str;

    const ROWS: ScaleReads = ScaleReads { discovery: &TEST_READ, scale: &TEST_READ };

    fn resource(group: &str, version: &str, kind: &str, resource: &str, scalable: bool) -> ApiResource {
        let subresources: &[&str] = if scalable { &["status", "scale"] } else { &["status"] };
        ApiResource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            resource: resource.into(),
            namespaced: true,
            subresources: subresources.iter().map(|name| Str::from(*name)).collect(),
            ..ApiResource::default()
        }
    }

    /// What an API has: Rollouts in two versions, of which the older has a scale; Jobs, which have none; a group that does not
    /// answer.
    fn api() -> Arc<ApiResources> {
        let known = vec![
            resource("rolls.io", "v2", "Rollout", "rollouts", true),
            resource("rolls.io", "v1", "Rollout", "rollouts", false),
            resource("batch", "v1", "Job", "jobs", false),
            resource("", "v1", "ReplicationController", "replicationcontrollers", true),
        ];
        let silent = DiscoveryError::Stale { group_version: "silent.io/v1".to_owned() };
        Arc::new(ApiResources::of(known, vec![silent]))
    }

    fn refused(code: u16, message: &str) -> ApiError {
        ApiError::Refused {
            request: "GET /".to_owned(),
            code,
            reason: Str::EMPTY,
            message: message.to_owned(),
            status: Box::default(),
            retry_after: None,
        }
    }

    fn key() -> Key {
        Key::new("default", "web")
    }

    fn told(lookup: ScaleLookup<'_>) -> String {
        match lookup {
            ScaleLookup::Needs(read) => format!("{read:?}"),
            ScaleLookup::Found(scale) => scale.spec.replicas.to_string(),
            ScaleLookup::Gone => "gone".to_owned(),
            ScaleLookup::Failed(error) => {
                format!("{error}{}", if error.may_pass() { " for now" } else { "" })
            }
        }
    }

    #[test]
    fn discovery_is_read_then_the_scale_in_the_version_that_has_it() {
        let ask = |read: &Reads| told(find(ROWS, read, "rolls.io/v1", "Rollout", &key()));
        assert_eq!(ask(&Reads::default()), "Resources");
        let read = Reads::default().with_resources(Ok(api()));
        let ScaleLookup::Needs(needs) = find(ROWS, &read, "rolls.io/v1", "Rollout", &key()) else {
            panic!("a scale is to be read");
        };
        assert_eq!(needs.row(), Some(&TEST_READ));
        let Read::Scale(row, at) = Read::from(needs) else { panic!("a scale is to be read") };
        assert_eq!((row.api_version().as_str(), row.resource, &at), ("rolls.io/v2", "rollouts", &key()));
        let mut scale = Scale::default();
        scale.spec.replicas = 7;
        let with = |found| Reads::default().with_resources(Ok(api())).with_scale(row, key(), found);
        assert_eq!(ask(&with(Ok(Some(scale)))), "7");
        assert_eq!(ask(&with(Ok(None))), "gone");
        assert_eq!(ask(&with(Err(refused(503, "no")))), "no for now");
        let what = "invalid resource name \"..\": [may not be '..']".to_owned();
        let unaddressable = ApiError::Unaddressable { request: "GET".to_owned(), what: what.clone() };
        assert_eq!(ask(&with(Err(unaddressable))), what, "it does not pass");
        assert_eq!(
            ask(&with(Err(refused(404, "no")))),
            "rollouts.rolls.io does not implement the scale subresource"
        );
    }

    #[test]
    fn a_kind_is_found_in_whatever_version_of_its_group_has_a_scale() {
        let read = || Reads::default().with_resources(Ok(api())).with_latest_resources(Ok(api()));
        let ask = |version: &str, kind: &str| told(find_in_group(ROWS, &read(), version, kind, &key()));
        for (version, kind, path) in [
            ("rolls.io/v9", "Rollout", "rolls.io/v2"),
            ("rolls.io/v1", "rollout", "rolls.io/v2"),
            ("batch/v1", "Job", "batch/v1"),
            ("v7", "ReplicationController", "v1"),
        ] {
            assert!(ask(version, kind).starts_with("Scale("), "{kind}");
            let row = row_in_group(&read(), version, kind).unwrap();
            assert_eq!(row.api_version(), path);
        }
        assert_eq!(ask("rolls.io/v1", "ROLLOUT"), "no matches for kind \"ROLLOUT\" in group \"rolls.io\"");
        assert_eq!(ask("a/b/c", "Job"), "unexpected GroupVersion string: a/b/c");
        assert!(row_in_group(&read(), "a/b/c", "Job").is_none());
        let cached = Reads::default().with_resources(Ok(api()));
        assert_eq!(
            told(find_in_group(ROWS, &cached, "rolls.io/v1", "Thing", &key())),
            "SearchedResources(\"rolls.io Thing\")"
        );
    }

    #[test]
    fn what_is_not_there_is_looked_up_anew_before_that_is_said() {
        let ask = |read: &Reads, version: &str, kind: &str| told(find(ROWS, read, version, kind, &key()));
        let cached = Reads::default().with_resources(Ok(api()));
        let latest = Reads::default().with_resources(Ok(api())).with_latest_resources(Ok(api()));
        let no_match = "no matches for kind \"Thing\" in version \"rolls.io/v1\"";
        for (version, kind, answer) in [
            ("batch/v1", "Job", "jobs.batch does not implement the scale subresource"),
            ("rolls.io/v1", "Thing", no_match),
            ("silent.io/v1", "Thing", "stale GroupVersion discovery: silent.io/v1 for now"),
            ("v2", "Pod", "no matches for kind \"Pod\" in version \"v2\""),
        ] {
            assert_eq!(ask(&cached, version, kind), format!("SearchedResources(\"{version} {kind}\")"));
            assert_eq!(ask(&latest, version, kind), answer);
        }
        assert_eq!(ask(&cached, "a/b/c", "Job"), "unexpected GroupVersion string: a/b/c");
        let installed = vec![resource("rolls.io", "v1", "Thing", "things", true)];
        let anew = Reads::default()
            .with_resources(Ok(api()))
            .with_latest_resources(Ok(Arc::new(ApiResources::of(installed, Vec::new()))));
        assert!(ask(&anew, "rolls.io/v1", "Thing").starts_with("Scale("));
        let silent = Reads::default().with_resources(Err(refused(500, "down")));
        assert_eq!(ask(&silent, "rolls.io/v1", "Thing"), "down for now");
    }
}
