//! From kinds to resources and back.

use std::sync::Arc;

use super::{ApiResource, ApiResources};

/// Answers by what path objects of a kind are reached, and what kind a resource has.
#[derive(Clone, Debug)]
pub struct RestMapper(Arc<ApiResources>);

impl RestMapper {
    /// A mapper over these resources.
    pub fn new(resources: Arc<ApiResources>) -> Self {
        Self(resources)
    }

    /// The resources it maps.
    pub fn resources(&self) -> &Arc<ApiResources> {
        &self.0
    }

    /// The resource of a kind: in `version`, or without one in the version that the server prefers.
    pub fn resource_for(&self, group: &str, version: Option<&str>, kind: &str) -> Option<&ApiResource> {
        self.0
            .of_kind(kind)
            .find(|held| held.group == group && version.is_none_or(|version| held.version == version))
    }

    /// The resource of an object's or owner reference's `apiVersion` and `kind`.
    pub fn resource_for_api_version(&self, api_version: &str, kind: &str) -> Option<&ApiResource> {
        let (group, version) = split_api_version(api_version);
        self.resource_for(group, Some(version), kind)
    }

    /// The resource of a plural name: in `version`, or without one in the version that the server prefers.
    pub fn resource(&self, group: &str, version: Option<&str>, resource: &str) -> Option<&ApiResource> {
        self.0.all().find(|held| {
            held.group == group
                && held.resource == resource
                && version.is_none_or(|version| held.version == version)
        })
    }

    /// Whether a kind that was not found may exist all the same, because its group could not be asked.
    pub fn may_be_missing(&self, api_version: &str) -> bool {
        let (group, version) = split_api_version(api_version);
        self.0.has_failed(group, version)
    }
}

/// Group and version of an `apiVersion`; the core group is empty.
fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
