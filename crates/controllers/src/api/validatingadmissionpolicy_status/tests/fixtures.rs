//! An API with a few kinds and their documents, and policies about them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::documents::{Learned, Library, TABLES};

/// Where the index of OpenAPI is.
pub(super) const INDEX: &str = "/openapi/v3";
use super::super::view::{self, View};
use super::super::{Controller, plan};
use coxswain_machinery::api::kinds::VALIDATING_ADMISSION_POLICIES;
use coxswain_machinery::api::system::{
    AdmissionRule, MatchResources, NamedRuleWithOperations, ParamKind, RuleWithOperations,
    ValidatingAdmissionPolicy, Validation, Variable,
};
use coxswain_machinery::framework::{
    ApiError, ApiResource, ApiResources, Observation, ObserveError, Read, Reads,
};
use coxswain_machinery::informer::{Lister, Store};
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::wire::{Message as _, Str};

pub(super) fn texts(all: &[&str]) -> Vec<Str> {
    all.iter().map(|each| Str::from(*each)).collect()
}

pub(super) fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> NamedRuleWithOperations {
    let rule = AdmissionRule {
        api_groups: texts(groups),
        api_versions: texts(versions),
        resources: texts(resources),
    };
    NamedRuleWithOperations { rule_with_operations: RuleWithOperations { rule } }
}

/// A policy with these rules and expressions, of generation 1, that nobody has checked.
pub(super) fn policy(rules: Vec<NamedRuleWithOperations>, expressions: &[&str]) -> ValidatingAdmissionPolicy {
    let mut policy = ValidatingAdmissionPolicy::default();
    policy.metadata.name = "a".into();
    policy.metadata.uid = "11111111-2222-3333-4444-555555555555".into();
    policy.metadata.resource_version = "1".into();
    policy.metadata.generation = 1;
    policy.spec.match_constraints = Some(Box::new(MatchResources { resource_rules: rules }));
    policy.spec.validations = expressions
        .iter()
        .map(|expression| Validation { expression: (*expression).into(), message_expression: Str::EMPTY })
        .collect();
    policy
}

pub(super) fn about_webs(expressions: &[&str]) -> ValidatingAdmissionPolicy {
    policy(vec![rule(&["example.com"], &["v1"], &["webs"])], expressions)
}

pub(super) fn with_params(
    policy: ValidatingAdmissionPolicy,
    api_version: &str,
    kind: &str,
) -> ValidatingAdmissionPolicy {
    let mut policy = policy;
    policy.spec.param_kind = Some(Box::new(ParamKind { api_version: api_version.into(), kind: kind.into() }));
    policy
}

pub(super) fn with_variable(
    policy: ValidatingAdmissionPolicy,
    name: &str,
    expression: &str,
) -> ValidatingAdmissionPolicy {
    let mut policy = policy;
    policy.spec.variables.push(Variable { name: name.into(), expression: expression.into() });
    policy
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        resource: plural.into(),
        singular: kind.to_lowercase().into(),
        ..ApiResource::default()
    }
}

/// What the API has: Webs in two versions, Caches, which are in no group, and Jobs, whose document is not to be had.
pub(super) fn resources() -> ApiResources {
    let known = vec![
        resource("", "v1", "Cache", "caches"),
        resource("example.com", "v1", "Web", "webs"),
        resource("example.com", "v2", "Web", "webs"),
        resource("batch", "v1", "Job", "jobs"),
    ];
    ApiResources::of(known, Vec::new())
}

/// The API's documents by their paths, each with one kind that has one field of its own in its spec.
pub(super) fn document(path: &str) -> Option<Value> {
    let (group, version, kind, field) = match path {
        "/openapi/v3/api/v1" => ("", "v1", "Cache", "bytes"),
        "/openapi/v3/apis/example.com/v1" => ("example.com", "v1", "Web", "replicas"),
        "/openapi/v3/apis/example.com/v2" => ("example.com", "v2", "Web", "pods"),
        _ => return None,
    };
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": { "type": "object", "properties": { "name": text, "generateName": text } },
            "spec": { "type": "object", "properties": { field: { "type": "integer" } } },
        },
        "x-kubernetes-group-version-kind": [{ "group": group, "version": version, "kind": kind }],
    });
    Some(json!({ "openapi": "3.0.0", "components": { "schemas": { kind: schema } } }))
}

/// The index of documents, each with this hash.
pub(super) fn index(hash: &str) -> Value {
    let of = |path: &str| json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") });
    let paths = ["api/v1", "apis/example.com/v1", "apis/example.com/v2", "apis/batch/v1"];
    let paths: serde_json::Map<String, Value> =
        paths.into_iter().map(|path| (path.to_owned(), of(path))).collect();
    json!({ "paths": paths })
}

pub(super) fn refused(code: u16) -> ApiError {
    ApiError::Refused {
        request: "GET /".to_owned(),
        code,
        reason: Str::EMPTY,
        message: "no".to_owned(),
        status: Box::default(),
        retry_after: None,
    }
}

/// A manager with policies, and an API server that it reads from.
pub(super) struct World {
    pub(super) store: Arc<Store>,
    pub(super) room: Controller,
    pub(super) hash: &'static str,
    /// What is answered to who asks for the documents that are not there.
    pub(super) failure: u16,
    /// What has come since discovery was read last.
    pub(super) installed: Vec<ApiResource>,
}

impl World {
    pub(super) fn of(policies: &[ValidatingAdmissionPolicy]) -> Self {
        let store = Arc::new(Store::new(&VALIDATING_ADMISSION_POLICIES));
        let lister = Lister::new(Arc::clone(&store));
        let library = Arc::new(Library::of(lister.clone()));
        let world = Self {
            store,
            room: Controller { policies: lister, library },
            hash: "1",
            failure: 404,
            installed: Vec::new(),
        };
        for policy in policies {
            world.put(policy);
        }
        world
    }

    pub(super) fn put(&self, policy: &ValidatingAdmissionPolicy) {
        self.store.upsert(&(VALIDATING_ADMISSION_POLICIES.decode)(&policy.to_bytes().into()).unwrap());
    }

    pub(super) fn observed(&self, reads: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(&self.room, &Key::new("", "a"), reads)
    }

    fn answer(&self, reads: Reads, read: Read) -> Reads {
        match read {
            Read::Resources => reads.with_resources(Ok(Arc::new(resources()))),
            Read::LatestResources => {
                let all = resources().all().chain(&self.installed).cloned().collect();
                reads.with_latest_resources(Ok(Arc::new(ApiResources::of(all, Vec::new()))))
            }
            Read::Json(uri) => reads.with_json(uri, Ok(index(self.hash))),
            Read::Document(form, uri) => {
                let found = document(uri.as_str()).ok_or_else(|| refused(self.failure));
                let made = found.map(|found| (form.read)(&mut found.to_string().as_bytes()).unwrap());
                reads.with_document(&TABLES, uri, made)
            }
            other => panic!("it reads {other:?}"),
        }
    }

    /// What the policy called `a` comes to, and what was read for it, pass by pass.
    pub(super) fn reconciled(&self) -> (Result<Option<View>, ObserveError>, Vec<Vec<String>>) {
        let (mut reads, mut told) = (Reads::default(), Vec::new());
        loop {
            match self.observed(&reads) {
                Err(error) => return (Err(error), told),
                Ok(Observation::Nothing) => return (Ok(None), told),
                Ok(Observation::View(view)) => return (Ok(Some(view)), told),
                Ok(Observation::Needs(needs)) => {
                    told.push(needs.iter().map(|need| name(need)).collect());
                    assert!(told.len() < 6, "{told:?}");
                    reads = needs.into_iter().fold(reads, |reads, read| self.answer(reads, read.into()));
                }
            }
        }
    }

    pub(super) fn planned(&self) -> Plan<Learned> {
        plan::plan(&self.reconciled().0.unwrap().expect("a policy"))
    }

    /// Reconciles it, and says that all was written.
    pub(super) fn committed(&self) -> Vec<Vec<String>> {
        use coxswain_machinery::framework::Memory as _;
        let (view, told) = self.reconciled();
        let (_, learned) = plan::plan(&view.unwrap().expect("a policy")).into_parts();
        self.room.library.commit(&Key::new("", "a"), learned);
        told
    }

    /// The status that is applied.
    pub(super) fn status(&self) -> Value {
        let (plan, _) = self.planned().into_parts();
        applied(&plan)["status"].clone()
    }

    /// What is warned of, each by the reference of its field.
    pub(super) fn warnings(&self) -> Vec<(String, String)> {
        let status = self.status();
        let warnings = status["typeChecking"]["expressionWarnings"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        warnings.iter().map(|each| (text(&each["fieldRef"]), text(&each["warning"]))).collect()
    }
}

fn name(read: &Read) -> String {
    match read {
        Read::Json(uri) => uri.to_string(),
        Read::Document(_, uri) => uri.as_str().strip_prefix(INDEX).unwrap_or(uri.as_str()).to_owned(),
        other => format!("{other:?}"),
    }
}

/// The object of a plan's only write, an apply of a status.
pub(super) fn applied(plan: &Plan) -> Value {
    let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!((write.kind, write.subresource), (&VALIDATING_ADMISSION_POLICIES, "status"));
    assert_eq!(write.tolerate, Tolerate { absent: true, conflict: true, ..Tolerate::default() });
    match &write.verb {
        Verb::Patch(Patch::Apply { manager: "validatingadmissionpolicy-status", force: true, object }) => {
            object.clone()
        }
        other => panic!("{other:?}"),
    }
}
