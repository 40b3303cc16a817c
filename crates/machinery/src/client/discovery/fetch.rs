//! Asks the API server what it has: all at once by aggregated discovery (KEP-3352), or version by version.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::HeaderValue;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroupList, APIResource, APIResourceList, APIVersions,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ApiResource, ApiResources, DiscoveryError, GroupVersion};
use crate::client::{ApiClient, ApiError, RequestPath};
use crate::wire::Str;
use crate::wire::json::read_json;

/// Aggregated discovery, or what a server has that does not know it.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// Versions asked at the same time, when they must be asked one by one.
const AT_ONCE: usize = 8;

/// What is known, and by which documents.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) resources: Arc<ApiResources>,
    core: Document,
    groups: Document,
}

/// What one of the two root documents led to.
#[derive(Clone, Debug)]
struct Document {
    versions: Arc<[GroupVersion]>,
    /// Set only if the document holds everything: otherwise resources can change while it does not.
    tag: Option<HeaderValue>,
}

/// The kind of a document, by which its form is told.
#[derive(Deserialize)]
struct Form {
    #[serde(default)]
    kind: String,
}

/// Aggregated discovery, as far as it is read. Any list may be `null`: what an older form of discovery says of subresources alone
/// is put into this form by the API server with a parent that has no verbs.
#[derive(Deserialize)]
struct GroupList {
    items: Option<Vec<Group>>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMetadata,
    versions: Option<Vec<Version>>,
}

#[derive(Deserialize, Default)]
struct GroupMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are the document's")]
struct Version {
    #[serde(default)]
    version: String,
    freshness: Option<String>,
    resources: Option<Vec<Resource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are the document's")]
struct Resource {
    resource: Option<String>,
    response_kind: Option<ResponseKind>,
    scope: Option<String>,
    singular_resource: Option<String>,
    verbs: Option<Vec<String>>,
    subresources: Option<Vec<Subresource>>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: Option<String>,
}

/// The present state, given what was known before.
pub(super) async fn known(client: &ApiClient, old: Option<Known>) -> Result<Known, ApiError> {
    let (core, groups) = futures::try_join!(
        document(client, RequestPath::CORE_VERSIONS, old.as_ref().map(|old| &old.core)),
        document(client, RequestPath::GROUPS, old.as_ref().map(|old| &old.groups)),
    )?;
    if let Some(old) = old
        && Arc::ptr_eq(&old.core.versions, &core.versions)
        && Arc::ptr_eq(&old.groups.versions, &groups.versions)
    {
        return Ok(old);
    }
    let documents = [Arc::clone(&core.versions), Arc::clone(&groups.versions)];
    Ok(Known { resources: Arc::new(ApiResources::new(documents)), core, groups })
}

async fn document(
    client: &ApiClient,
    path: RequestPath<'static>,
    old: Option<&Document>,
) -> Result<Document, ApiError> {
    let answer = client.document(path, ACCEPT, old.and_then(|old| old.tag.as_ref())).await?;
    let (body, tag) = match (answer, old) {
        (Some(answer), _) => answer,
        (None, Some(old)) => return Ok(old.clone()),
        (None, None) => return Err(malformed(path, "unexpected 304 Not Modified: no document is cached")),
    };
    let form: Form = parse(path, &body)?;
    let names = match form.kind.as_str() {
        "APIGroupDiscoveryList" => {
            let list: GroupList = parse(path, &body)?;
            let versions = list.items.iter().flatten().flat_map(aggregated_group).collect();
            return Ok(Document { versions, tag });
        }
        "APIVersions" => {
            let list: APIVersions = parse(path, &body)?;
            list.versions.into_iter().map(|version| (Str::EMPTY, version.into())).collect()
        }
        "APIGroupList" => group_versions(parse(path, &body)?),
        other => return Err(malformed(path, &format!("unknown discovery content type {other:?}"))),
    };
    Ok(Document { versions: each(client, names).await, tag: None })
}

fn parse<T: DeserializeOwned>(path: RequestPath<'_>, body: &Bytes) -> Result<T, ApiError> {
    read_json(body).map_err(|error| malformed(path, &error.to_string()))
}

fn malformed(path: RequestPath<'_>, what: &str) -> ApiError {
    ApiError::Malformed { request: format!("GET {path}"), what: what.to_owned() }
}

/// The versions of one group in aggregated form.
fn aggregated_group(group: &Group) -> Vec<GroupVersion> {
    let name = group.metadata.name.as_str();
    let of_version = |held: &Version| {
        let version = held.version.as_str();
        let resources = if held.freshness.as_deref() == Some("Stale") {
            Err(DiscoveryError::Stale { group_version: group_version(name, version) })
        } else {
            let resources = held.resources.iter().flatten();
            Ok(resources.filter_map(|resource| aggregated(name, version, resource)).collect())
        };
        GroupVersion { group: name.into(), version: version.into(), resources }
    };
    group.versions.iter().flatten().map(of_version).collect()
}

/// One resource in aggregated form; `None` for one that has no kind: such have only subresources.
fn aggregated(group: &str, version: &str, held: &Resource) -> Option<ApiResource> {
    let kind = held.response_kind.as_ref().map(|held| held.kind.as_str()).filter(|kind| !kind.is_empty())?;
    let subresources = held.subresources.iter().flatten().filter_map(|held| held.subresource.as_deref());
    Some(ApiResource {
        group: group.into(),
        version: version.into(),
        resource: held.resource.as_deref()?.into(),
        singular: held.singular_resource.as_deref().unwrap_or_default().into(),
        kind: kind.into(),
        namespaced: held.scope.as_deref() == Some("Namespaced"),
        verbs: held.verbs.iter().flatten().map(|verb| Str::interned(verb)).collect(),
        subresources: subresources.map(Str::interned).collect(),
    })
}

/// Groups and versions by name, each group's preferred version first.
fn group_versions(list: APIGroupList) -> Vec<(Str, Str)> {
    let mut names = Vec::new();
    for group in list.groups {
        let preferred = group.preferred_version.map(|held| held.version).unwrap_or_default();
        let (first, rest): (Vec<_>, Vec<_>) =
            group.versions.into_iter().map(|held| held.version).partition(|version| *version == preferred);
        names.extend(first.into_iter().chain(rest).map(|version| (Str::from(&group.name), version.into())));
    }
    names
}

/// Asks for each version's resources; one that fails does not keep the others from being known.
async fn each(client: &ApiClient, names: Vec<(Str, Str)>) -> Arc<[GroupVersion]> {
    let asked = names.into_iter().map(|(group, version)| async move {
        let path = RequestPath::group_version(&group, &version);
        let resources = match client.document(path, "application/json", None).await {
            Ok(Some((body, _))) => parse(path, &body).map(|list| listed(&group, &version, list)),
            Ok(None) => Err(malformed(path, "unexpected 304 Not Modified: no document is cached")),
            Err(error) => Err(error),
        };
        let group_version = || group_version(&group, &version);
        let resources =
            resources.map_err(|source| DiscoveryError::Unreadable { group_version: group_version(), source });
        GroupVersion { group, version, resources }
    });
    stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await.into()
}

/// A version's resources in the older form, in which subresources are listed among them as `pods/status`.
fn listed(group: &str, version: &str, list: APIResourceList) -> Vec<ApiResource> {
    let (subresources, resources): (Vec<APIResource>, Vec<_>) =
        list.resources.into_iter().partition(|held| held.name.contains('/'));
    let of = |name: &str| {
        let own = subresources.iter().filter_map(|held| held.name.split_once('/'));
        own.filter(|(parent, _)| *parent == name).map(|(_, sub)| Str::interned(sub)).collect()
    };
    let convert = |held: APIResource| ApiResource {
        subresources: of(&held.name),
        group: group.into(),
        version: version.into(),
        resource: held.name.into(),
        singular: held.singular_name.into(),
        kind: held.kind.into(),
        namespaced: held.namespaced,
        verbs: held.verbs.iter().map(|verb| Str::interned(verb)).collect(),
    };
    resources.into_iter().map(convert).collect()
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
