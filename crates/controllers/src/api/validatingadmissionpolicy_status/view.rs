//! A policy, the kinds that it is checked against, and their schemas. Decides nothing.

use std::sync::Arc;

use cel_check::{Schema, Schemas};
use serde_json::Value;

use super::Controller;
use super::documents::{Document, Learned, Title, title};
use super::kinds::{CheckedKind, Matched, matched, names_any};
use crate::live_reads::{POLICY_DISCOVERY, POLICY_INDEX};
use coxswain_machinery::api::system::{ParamKind, ValidatingAdmissionPolicy};
use coxswain_machinery::framework::{
    ApiError, DeclaredRead, Observation, ObserveError, Read, Reads, RequestUri,
};
use coxswain_machinery::model::Key;

/// What a check rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) policy: Arc<ValidatingAdmissionPolicy>,
    /// The kinds that it names and that the API has, with their schemas where they are known.
    pub(super) kinds: Vec<(CheckedKind, Option<Schema>)>,
    /// The schema of its parameters, if it has any and it is known.
    pub(super) params: Option<Schema>,
    /// The documents that were read for it.
    pub(super) learned: Learned,
}

/// Whether a policy was checked as it is.
pub(super) fn is_checked(policy: &ValidatingAdmissionPolicy) -> bool {
    policy.metadata.generation <= policy.status.observed_generation
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let Some(policy) = room.policies.get(key) else { return Ok(Observation::Nothing) };
    let nothing = |policy| View { policy, kinds: Vec::new(), params: None, learned: Learned::default() };
    if is_checked(&policy) || policy.spec.validations.is_empty() || !names_any(&policy.spec) {
        return Ok(Observation::View(nothing(policy)));
    }
    let kinds = match kinds(&policy, read)? {
        Ok(kinds) => kinds,
        Err(needs) => return Ok(Observation::Needs(vec![needs])),
    };
    if kinds.is_empty() {
        return Ok(Observation::View(nothing(policy)));
    }
    let index = RequestUri::openapi_index();
    let index = match read.json(&index) {
        None => return Ok(Observation::Needs(vec![POLICY_INDEX.of(Read::Json(index))])),
        Some(Err(error)) => return Err(retry("the OpenAPI index", error)),
        Some(Ok(index)) => index,
    };
    let learned = Learned { unlisted: room.library.unlisted(index), ..Learned::default() };
    let mut shelf = Shelf { room, read, index, held: Vec::new(), unread: Vec::new(), learned };
    let mut checked = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let schema = shelf.schema(&kind.group, &kind.version, &kind.kind)?;
        checked.push((kind, schema));
    }
    let params = match policy.spec.param_kind.as_deref() {
        None => None,
        Some(ParamKind { api_version, kind }) => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version.as_str()));
            shelf.schema(group, version, kind)?
        }
    };
    if !shelf.unread.is_empty() {
        return Ok(Observation::Needs(shelf.unread));
    }
    Ok(Observation::View(View { kinds: checked, params, learned: shelf.learned, policy }))
}

/// The kinds that a policy names, or what is to be read to find them.
fn kinds(
    policy: &ValidatingAdmissionPolicy,
    read: &Reads,
) -> Result<Result<Vec<CheckedKind>, DeclaredRead>, ObserveError> {
    let resources = match read.resources() {
        None => return Ok(Err(POLICY_DISCOVERY.of(Read::Resources))),
        Some(Err(error)) => return Err(retry("API resources", error)),
        Some(Ok(resources)) => resources,
    };
    let Matched { kinds, has_unknown } = matched(&policy.spec, resources);
    // What is half a minute old may lack what was just installed.
    if has_unknown && read.latest_resources().is_none() {
        return Ok(Err(POLICY_DISCOVERY.of(Read::LatestResources)));
    }
    Ok(Ok(kinds.into_iter().collect()))
}

/// The documents that one policy needs.
struct Shelf<'a> {
    room: &'a Controller,
    read: &'a Reads,
    index: &'a Value,
    /// What was found so far, by group version.
    held: Vec<(Title, Option<Schemas>)>,
    unread: Vec<DeclaredRead>,
    learned: Learned,
}

impl Shelf<'_> {
    /// The schema of a kind; `None` if there is none, or its document must be read first.
    fn schema(&mut self, group: &str, version: &str, kind: &str) -> Result<Option<Schema>, ObserveError> {
        let Some(title) = title(self.index, group, version) else { return Ok(None) };
        if let Some((_, held)) = self.held.iter().find(|(held, _)| *held == title) {
            return Ok(held.as_ref().and_then(|schemas| schemas.find(group, version, kind)));
        }
        let document = self.room.library.look_up(&title, self.read);
        let schemas = match document.map_err(|error| retry(title.path(), &error))? {
            Document::Unread(document) => {
                self.unread.push(document);
                None
            }
            Document::New(schemas) => {
                self.learned.documents.push((title.clone(), schemas.clone()));
                Some(schemas)
            }
            Document::Known(schemas) => Some(schemas),
            Document::None => None,
        };
        let schema = schemas.as_ref().and_then(|schemas| schemas.find(group, version, kind));
        self.held.push((title, schemas));
        Ok(schema)
    }
}

fn retry(what: &str, error: &ApiError) -> ObserveError {
    ObserveError::Retry(format!("live read of {what} failed: {}", error.message()))
}
