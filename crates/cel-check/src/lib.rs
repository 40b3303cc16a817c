//! Checks the types of CEL expressions, as Kubernetes does, against the schemas of OpenAPI v3 documents.
//!
//! It parses and checks; it never evaluates an expression, and reads nothing but what it is given. What it says of a mistake
//! is what `cel-go` says, in text, line and caret, so that its warnings can stand where those of Kubernetes stood.
//!
//! Whoever has expressions of their own declares the variables and asks for the type:
//!
//! ```
//! use cel_check::{Environment, Type};
//!
//! let mut environment = Environment::kubernetes();
//! environment.declare("names", Type::list(Type::String));
//! assert_eq!(environment.check("names.exists(n, n.startsWith('a'))"), Ok(Type::Bool));
//!
//! let issues = environment.check("names + 1").unwrap_err();
//! assert_eq!(
//!     issues.to_string(),
//!     "ERROR: <input>:1:7: found no matching overload for '_+_' applied to '(list(string), int)'\n \
//!      | names + 1\n \
//!      | ......^"
//! );
//! ```
//!
//! Types of objects come from an OpenAPI v3 document, which is read as a stream and kept as a small table:
//!
//! ```
//! use cel_check::{Environment, Schemas};
//!
//! let document = br##"{"components": {"schemas": {"Pod": {
//!     "type": "object",
//!     "properties": {"spec": {"type": "object", "properties": {"nodeName": {"type": "string"}}}},
//!     "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]
//! }}}}"##;
//! let schemas = Schemas::read(document.as_slice()).unwrap();
//! let pod = schemas.find("", "v1", "Pod").unwrap();
//!
//! let mut environment = Environment::kubernetes();
//! environment.declare("object", pod.object_type("Pod"));
//! assert!(environment.check("object.spec.nodeName == ''").is_ok());
//! assert!(environment.check("object.spec.nodeNmae == ''").is_err());
//! ```
//!
//! The expressions of a ValidatingAdmissionPolicy are checked against all kinds that it matches by [`Policy::warnings`].
//!
//! No expression and no document makes it panic, recurse without bound, or take more than its share of time and memory: see
//! [`Limit`]. It depends on nothing but serde.

mod checker;
#[cfg(test)]
mod conformance;
mod declarations;
mod environment;
mod literals;
mod policy;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod recorded;
mod report;
mod schema;
mod syntax;
mod types;
mod unify;

pub use environment::Environment;
pub use policy::{Checked, ExpressionWarning, Params, Policy, PolicyValidation, PolicyVariable};
pub use report::{Issue, IssueKind, Issues, Limit};
pub use schema::{DocumentError, Schema, Schemas};
pub use types::{ObjectType, Type};
