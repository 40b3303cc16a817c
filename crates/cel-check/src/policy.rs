//! The expressions of a ValidatingAdmissionPolicy, checked against each kind that it matches, and the warnings of its status.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::types::{ObjectType, Type};
use crate::{Environment, Schema};

/// What is checked of a ValidatingAdmissionPolicy's spec. Build it from the fields of the spec, in their order.
#[derive(Debug, Default, Clone)]
pub struct Policy<'a> {
    /// `spec.variables`.
    pub variables: Vec<PolicyVariable<'a>>,
    /// `spec.validations`.
    pub validations: Vec<PolicyValidation<'a>>,
}

/// One of `spec.variables`.
#[derive(Debug, Clone, Copy)]
pub struct PolicyVariable<'a> {
    /// The name, without `variables.`.
    pub name: &'a str,
    /// What it stands for.
    pub expression: &'a str,
}

/// One of `spec.validations`.
#[derive(Debug, Clone, Copy)]
pub struct PolicyValidation<'a> {
    /// `expression`.
    pub expression: &'a str,
    /// `messageExpression`, empty where there is none.
    pub message_expression: &'a str,
}

/// A kind that the policy matches, and its schema. A kind whose schema cannot be found is left out by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    /// The API group, empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind, in its own letters.
    pub kind: &'a str,
    /// What `object` and `oldObject` are made of.
    pub schema: &'a Schema,
}

/// What the policy's parameters are.
#[derive(Debug, Clone, Copy)]
pub enum Params<'a> {
    /// The policy has no `paramKind`: `params` is not declared.
    None,
    /// It has one, whose schema cannot be found: `params` is dyn.
    Unknown,
    /// It has one of this kind and schema.
    Of {
        /// The kind, in its own letters.
        kind: &'a str,
        /// Its schema.
        schema: &'a Schema,
    },
}

/// An entry of `status.typeChecking.expressionWarnings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// `fieldRef`, as `spec.validations[0].expression`.
    pub field_ref: String,
    /// `warning`, as Kubernetes words it.
    pub warning: String,
}

/// The warnings of a policy have no more bytes: no object holds more. What would go beyond is left out.
const MAX_BYTES: usize = 1 << 20;
/// The work that the check of a policy is worth, in nodes visited and types compared: seconds. What is left then is unchecked.
const MAX_WORK: usize = 20_000_000;

impl Policy<'_> {
    /// The warnings of `status.typeChecking`, in Kubernetes' order. None are an empty `typeChecking`.
    ///
    /// `kinds` are taken in the order in which they are given: sort them by group, version and kind. An expression that is
    /// beyond a [`crate::Limit`] is not warned of, nor is what comes after more work or text than any policy is worth.
    pub fn warnings(&self, params: Params<'_>, kinds: &[Checked<'_>]) -> Vec<ExpressionWarning> {
        let (mut work, mut bytes) = (0, 0);
        let environments: Vec<_> =
            kinds.iter().map(|kind| (kind, self.environment(params, kind, &mut work))).collect();
        let mut warnings = Vec::new();
        let mut warn = |expression: &str, field_ref: String| {
            let mut warning = String::new();
            for (kind, environment) in &environments {
                if work > MAX_WORK || bytes + warning.len() > MAX_BYTES {
                    return;
                }
                let issues = environment.check_counted(expression, &mut work).err();
                if let Some(issues) = issues.filter(|issues| !issues.is_limit()) {
                    let blank = if warning.is_empty() { "" } else { "\n" };
                    let Checked { group, version, kind, .. } = kind;
                    // Writing to a string does not fail.
                    let _ = writeln!(warning, "{blank}{group}/{version}, Kind={kind}: {issues}");
                }
            }
            bytes += warning.len();
            if !warning.is_empty() && bytes <= MAX_BYTES {
                warnings.push(ExpressionWarning { field_ref, warning });
            }
        };
        for (at, validation) in self.validations.iter().enumerate() {
            warn(validation.expression, format!("spec.validations[{at}].expression"));
            if !validation.message_expression.is_empty() {
                warn(validation.message_expression, format!("spec.validations[{at}].messageExpression"));
            }
        }
        warnings
    }

    fn environment(&self, params: Params<'_>, kind: &Checked<'_>, work: &mut usize) -> Environment {
        self.environment_of(params, kind.schema.object_type(&format!("{}{OBJECT}", kind.kind)), work)
    }

    /// What the expressions see where the object is of this type. Variables that nobody has the time to check are dyn.
    pub(crate) fn environment_of(&self, params: Params<'_>, object: Type, work: &mut usize) -> Environment {
        let mut environment = Environment::kubernetes();
        environment.declare("object", object.clone());
        environment.declare("oldObject", object);
        match params {
            Params::None => {}
            Params::Unknown => environment.declare("params", Type::Dyn),
            Params::Of { kind, schema } => {
                environment.declare("params", schema.object_type(&format!("{kind}{PARAMS}")));
            }
        }
        environment.declare("request", request());
        environment.declare("namespaceObject", namespace());
        let authorizer = ObjectType::unresolved("kubernetes.authorization.Authorizer");
        environment.declare("authorizer", Type::Object(Arc::new(authorizer)));
        if !self.variables.is_empty() {
            environment.declare("variables", object_of("kubernetes.variables", &[]));
        }
        for variable in &self.variables {
            let of = match *work {
                ..=MAX_WORK => environment.check_counted(variable.expression, work).ok(),
                _ => None,
            };
            let of = of.map_or(Type::Dyn, |of| plain(&of));
            environment.declare_field("variables", variable.name, of);
        }
        environment
    }
}

/// What stands behind a kind in the names of its types. Kubernetes has the nanoseconds of its clock there.
const OBJECT: &str = "1000";
const PARAMS: &str = "2000";

fn object_of(name: &str, fields: &[(&str, Type)]) -> Type {
    Type::Object(Arc::new(ObjectType::declared(name, fields.iter().cloned())))
}

/// The type that a variable has for the expressions that use it: objects and the like are dyn.
fn plain(of: &Type) -> Type {
    match of {
        Type::Object(_) | Type::Opaque(_) | Type::Type(_) | Type::Error | Type::Parameter(_) => Type::Dyn,
        other => other.with_parts(&mut plain),
    }
}

fn strings<'a>(names: &[&'a str]) -> Vec<(&'a str, Type)> {
    names.iter().map(|name| (*name, Type::String)).collect()
}

/// `AdmissionRequest`, as "Validation expression" of the documentation has it.
fn request() -> Type {
    let kind = object_of("kubernetes.GroupVersionKind", &strings(&["group", "version", "kind"]));
    let resource = object_of("kubernetes.GroupVersionResource", &strings(&["group", "version", "resource"]));
    let mut user = strings(&["username", "uid"]);
    user.push(("groups", Type::list(Type::String)));
    user.push(("extra", Type::map(Type::String, Type::list(Type::String))));
    let mut fields = strings(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    fields.extend([("kind", kind.clone()), ("requestKind", kind)]);
    fields.extend([("resource", resource.clone()), ("requestResource", resource)]);
    fields.push(("userInfo", object_of("kubernetes.UserInfo", &user)));
    fields.extend([("dryRun", Type::Bool), ("options", Type::Dyn)]);
    object_of("kubernetes.AdmissionRequest", &fields)
}

/// The fields of a Namespace that expressions see.
fn namespace() -> Type {
    let texts = Type::map(Type::String, Type::String);
    let mut metadata = strings(&["name", "generateName", "namespace", "UID", "resourceVersion"]);
    metadata.extend([("labels", texts.clone()), ("annotations", texts)]);
    metadata.extend([("generation", Type::Int), ("creationTimestamp", Type::Timestamp)]);
    metadata.extend([("deletionTimestamp", Type::Timestamp), ("deletionGracePeriodSeconds", Type::Int)]);
    metadata.push(("finalizers", Type::list(Type::String)));
    let spec = [("finalizers", Type::list(Type::String))];
    let mut condition = strings(&["type", "status", "reason", "message"]);
    condition.push(("lastTransitionTime", Type::Timestamp));
    let conditions = Type::list(object_of("kubernetes.NamespaceCondition", &condition));
    let status = [("conditions", conditions), ("phase", Type::String)];
    let fields = [
        ("metadata", object_of("kubernetes.NamespaceMetadata", &metadata)),
        ("spec", object_of("kubernetes.NamespaceSpec", &spec)),
        ("status", object_of("kubernetes.NamespaceStatus", &status)),
    ];
    object_of("kubernetes.Namespace", &fields)
}
