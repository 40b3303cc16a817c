//! Who calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Extensions;

/// The group of everyone who was authenticated.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everyone who was not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// The name of who shows no credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// An identity, as the API server's authentication would describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// UID; empty where the method knows none.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Anything more the method says.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Who shows no credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Whether no credentials were shown.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS && self.is_in(UNAUTHENTICATED)
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    /// The caller of a request that the secure port has let in.
    pub fn of(extensions: &Extensions) -> Option<&Arc<Self>> {
        extensions.get()
    }

    /// With the group that authentication itself grants.
    pub(super) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}
