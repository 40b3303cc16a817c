//! What each RPC asks of the cluster's authorization, and of whom nothing is asked.
//!
//! Every RPC is a verb on a resource of the group `admin.coxswain.dev`, so that plain ClusterRoles grant viewing and
//! operating (`viewer.yaml` and `operator.yaml` in `deploy/kustomize/roles`). The judgment is a SubjectAccessReview, made
//! by the secure port's authorizer; nothing here caches or decides.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tonic::{Extensions, Status};

use super::errors::{ErrorReply, Reason};
use coxswain_machinery::serve::{
    AuthorizeError, Authorizer, Decision, Lines, ResourceAttributes, UserInfo, quoted,
};

/// API group of the resources.
pub const GROUP: &str = "admin.coxswain.dev";

/// When to ask again after the API server could not judge.
const RETRY: Duration = Duration::from_secs(2);

/// The RPCs that are authorized, by what they ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Service and RPC: `ControllerService/ListControllers`.
    pub rpc: &'static str,
    /// Verb.
    pub verb: &'static str,
    /// Resource.
    pub resource: &'static str,
}

const fn method(rpc: &'static str, verb: &'static str, resource: &'static str) -> Method {
    Method { rpc, verb, resource }
}

/// `ControllerService.ListControllers`
pub const LIST_CONTROLLERS: Method = method("ControllerService/ListControllers", "list", "controllers");
/// `ControllerService.GetController`
pub const GET_CONTROLLER: Method = method("ControllerService/GetController", "get", "controllers");
/// `ControllerService.EnableController`
pub const ENABLE_CONTROLLER: Method = method("ControllerService/EnableController", "update", "controllers");
/// `ControllerService.DisableController`
pub const DISABLE_CONTROLLER: Method = method("ControllerService/DisableController", "update", "controllers");
/// `ControllerService.ClearOverrides`
pub const CLEAR_OVERRIDES: Method = method("ControllerService/ClearOverrides", "update", "controllers");
/// `ControllerService.WatchControllers`
pub const WATCH_CONTROLLERS: Method = method("ControllerService/WatchControllers", "watch", "controllers");
/// `EventService.StreamEvents`
pub const STREAM_EVENTS: Method = method("EventService/StreamEvents", "watch", "events");
/// `LeaderService.GetLeader`
pub const GET_LEADER: Method = method("LeaderService/GetLeader", "get", "leader");
/// `LeaderService.WatchLeader`
pub const WATCH_LEADER: Method = method("LeaderService/WatchLeader", "watch", "leader");
/// `LeaderService.StepDown`
pub const STEP_DOWN: Method = method("LeaderService/StepDown", "update", "leader");
/// `QueueService.ListQueues`
pub const LIST_QUEUES: Method = method("QueueService/ListQueues", "list", "queues");
/// `QueueService.GetQueue`
pub const GET_QUEUE: Method = method("QueueService/GetQueue", "get", "queues");
/// `QueueService.SyncObject`
pub const SYNC_OBJECT: Method = method("QueueService/SyncObject", "update", "queues");
/// `QueueService.ExplainObject`, and `QueueService.SyncObject` with `explain`
pub const EXPLAIN_OBJECT: Method = method("QueueService/ExplainObject", "get", "queues");

/// All of them.
pub const METHODS: &[Method] = &[
    LIST_CONTROLLERS,
    GET_CONTROLLER,
    ENABLE_CONTROLLER,
    DISABLE_CONTROLLER,
    CLEAR_OVERRIDES,
    WATCH_CONTROLLERS,
    STREAM_EVENTS,
    GET_LEADER,
    WATCH_LEADER,
    STEP_DOWN,
    LIST_QUEUES,
    GET_QUEUE,
    SYNC_OBJECT,
    EXPLAIN_OBJECT,
];

impl Method {
    /// Returns the attributes of the SubjectAccessReview; `namespace` and `name` restrict it, and an empty text means all.
    pub fn attributes(&self, namespace: &str, name: &str) -> ResourceAttributes {
        ResourceAttributes {
            verb: self.verb.to_owned(),
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            resource: self.resource.to_owned(),
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// Judges what callers may do.
pub trait Authorize: Send + Sync + 'static {
    /// Whether a user may do something with a resource.
    fn authorize<'a>(
        &'a self,
        user: &'a Arc<UserInfo>,
        attributes: ResourceAttributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizeError>>;
}

impl Authorize for Authorizer {
    fn authorize<'a>(
        &'a self,
        user: &'a Arc<UserInfo>,
        attributes: ResourceAttributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizeError>> {
        Box::pin(self.authorize_resource(user, attributes))
    }
}

/// Who calls, if they showed credentials.
pub fn caller(extensions: &Extensions) -> Result<Arc<UserInfo>, Status> {
    match extensions.get::<Arc<UserInfo>>() {
        Some(user) if !user.is_anonymous() => Ok(Arc::clone(user)),
        _ => Err(unauthenticated()),
    }
}

/// Whether the caller showed credentials.
pub fn is_known(extensions: &Extensions) -> bool {
    extensions.get::<Arc<UserInfo>>().is_some_and(|user| !user.is_anonymous())
}

pub(super) fn unauthenticated() -> Status {
    let message = "unauthenticated: send a client certificate or a bearer token";
    ErrorReply::new(Reason::Unauthenticated, message).into()
}

/// Returns the caller if roles allow the method in each of these namespaces; without a namespace, roles must allow it everywhere.
pub async fn check_in(
    judge: &dyn Authorize,
    refusals: &Lines,
    extensions: &Extensions,
    method: Method,
    namespaces: &[String],
) -> Result<Arc<UserInfo>, Status> {
    if namespaces.is_empty() {
        return check(judge, refusals, extensions, method, "").await;
    }
    for namespace in namespaces {
        check_one(judge, refusals, extensions, method, (namespace, "")).await?;
    }
    caller(extensions)
}

/// Lets the caller through, or says why not.
pub async fn check(
    judge: &dyn Authorize,
    refusals: &Lines,
    extensions: &Extensions,
    method: Method,
    name: &str,
) -> Result<Arc<UserInfo>, Status> {
    check_one(judge, refusals, extensions, method, ("", name)).await
}

async fn check_one(
    judge: &dyn Authorize,
    refusals: &Lines,
    extensions: &Extensions,
    method: Method,
    (namespace, name): (&str, &str),
) -> Result<Arc<UserInfo>, Status> {
    let user = caller(extensions)?;
    let Method { verb, resource, .. } = method;
    match judge.authorize(&user, method.attributes(namespace, name)).await {
        Ok(Decision::Allowed) => Ok(user),
        Ok(Decision::Denied { reason }) => {
            let mut message = format!("user {:?} cannot {verb} {resource} in group {GROUP:?}", user.name);
            if !name.is_empty() {
                message =
                    format!("user {:?} cannot {verb} {resource} {name:?} in group {GROUP:?}", user.name);
            }
            if !namespace.is_empty() {
                message = format!("{message} in namespace {namespace:?}");
            }
            if !reason.is_empty() {
                message = format!("{message}: {reason}");
            }
            if let Some(left_out) = refusals.next() {
                let (user, name) = (quoted(&user.name), quoted(name));
                tracing::info!(user, verb, resource, name, rpc = method.rpc, left_out, "Admin call denied");
            }
            let failure = ErrorReply::new(Reason::Forbidden, message);
            Err(failure.with("verb", verb).with("resource", resource).with("name", name).into())
        }
        Err(error) => {
            if let Some(left_out) = refusals.next() {
                let (user, name) = (quoted(&user.name), quoted(name));
                tracing::warn!(user, verb, resource, name, %error, left_out, "Failed to authorize an admin call");
            }
            let message = "authorize the call: the API server did not answer";
            Err(ErrorReply::new(Reason::ApiServer, message).retry_after(RETRY).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use prost::Message as _;
    use serde::Deserialize;

    use super::*;
    use crate::admin::proto::FILE_DESCRIPTOR_SET;

    #[test]
    fn every_rpc_asks_for_something() {
        let described = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let ours = described.file.iter().filter(|file| file.package() == "coxswain.admin.v1");
        let rpcs: BTreeSet<_> = ours
            .flat_map(|file| &file.service)
            .flat_map(|service| {
                service.method.iter().map(move |method| format!("{}/{}", service.name(), method.name()))
            })
            .collect();
        let listed: BTreeSet<_> = METHODS.iter().map(|method| method.rpc.to_owned()).collect();
        assert_eq!(rpcs, listed);
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Role {
        kind: String,
        rules: Vec<Rule>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rule {
        api_groups: Vec<String>,
        resources: Vec<String>,
        verbs: Vec<String>,
    }

    fn granted(yaml: &str) -> BTreeMap<String, BTreeSet<String>> {
        let mut granted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let role: Role = serde_yaml_ng::from_str(yaml).unwrap();
        assert_eq!(role.kind, "ClusterRole");
        for rule in role.rules {
            assert_eq!(rule.api_groups, [GROUP]);
            for resource in rule.resources {
                granted.entry(resource).or_default().extend(rule.verbs.iter().cloned());
            }
        }
        granted
    }

    fn asked(read_only: bool) -> BTreeMap<String, BTreeSet<String>> {
        let mut asked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for method in METHODS.iter().filter(|method| !read_only || method.verb != "update") {
            asked.entry(method.resource.to_owned()).or_default().insert(method.verb.to_owned());
        }
        asked
    }

    #[test]
    fn the_roles_grant_what_rpcs_ask_for_and_no_more() {
        assert_eq!(granted(include_str!("../../deploy/kustomize/roles/viewer.yaml")), asked(true));
        assert_eq!(granted(include_str!("../../deploy/kustomize/roles/operator.yaml")), asked(false));
    }
}
