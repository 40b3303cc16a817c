//! A pod or a PodGroup and the claims of its entries: what is there, what is to be made, what is to be recorded and reserved.
//! Decides nothing.

use std::sync::Arc;

use super::by_entry::ClaimsByEntry;
use crate::live_reads::DEVICE_CLAIM;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::kinds::{POD_GROUPS, PODS, RESOURCE_CLAIMS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{
    ResourceClaim, ResourceClaimConsumer, ResourceClaimSpec, ResourceClaimTemplate,
};
use coxswain_machinery::api::scheduling::{PodGroup, PodGroupResourceClaim};
use coxswain_machinery::framework::{DeclaredRead, Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::{Dependents, Lister, downcast};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Message as _, Str};

/// What both rooms read.
pub(super) struct Rooms {
    pub(super) pods: Lister<Pod>,
    /// `None` where PodGroups have no claims.
    pub(super) groups: Option<Lister<PodGroup>>,
    pub(super) claims: Lister<ResourceClaim>,
    /// Claims by their controller.
    pub(super) by_controller: Dependents<ResourceClaim>,
    pub(super) templates: Lister<ResourceClaimTemplate>,
    /// Whether requests may have alternatives.
    pub(super) prioritized_lists: bool,
    /// Whether requests may ask for access as an administrator.
    pub(super) admin_access: bool,
}

/// The PodGroup that a pod names.
pub(super) struct Membership {
    name: Str,
    /// `None` if the cache lacks it.
    group: Option<Arc<PodGroup>>,
    /// Entries of the PodGroup.
    group_entries: HashSet<EntrySource>,
}

/// Name of an entry, the claim that it names, and the template that it names.
type EntrySource = (Str, Option<Str>, Option<Str>);

/// What claims are made for.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) kind: &'static Kind,
    pub(super) metadata: ObjectMeta,
    pub(super) entries: Vec<Entry>,
    /// Whether claims are to be reserved for it, because no scheduler has done that.
    pub(super) reserves: bool,
}

/// An entry of an owner: a claim that it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Str,
    pub(super) claim: Option<Str>,
    pub(super) template: Option<Str>,
    /// What the status says.
    pub(super) recorded: Recorded,
}

/// What the status of an owner says of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Nothing.
    Nothing,
    /// It needs no claim.
    NotNeeded,
    /// This claim was made.
    Claim(Str),
}

impl Recorded {
    /// What an entry of the status says that names a claim, or none.
    pub(super) fn of(claim: Option<&Str>) -> Self {
        claim.map_or(Self::NotNeeded, |claim| Self::Claim(claim.clone()))
    }
}

/// An owner, and what there is of each of its entries.
#[derive(Debug)]
pub(super) struct View {
    pub(super) owner: Owner,
    /// In the order of the entries.
    pub(super) found: Vec<Found>,
    /// Claims of the entries that are allocated, and not reserved for the owner.
    pub(super) unreserved: Vec<Reservation>,
}

/// What there is of an entry.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// It names a claim that somebody else makes.
    Given(Str),
    /// It needs none.
    NotNeeded,
    /// There is a claim, and the status says so.
    Recorded(Str),
    /// There is a claim, and the status does not say so.
    Unrecorded(Str),
    /// The PodGroup has the same entry: its claim is waited for.
    LeftToGroup,
    /// One is to be made from this.
    Missing(Arc<ResourceClaimTemplate>),
    /// None can be made.
    Fault(String),
}

/// A claim that is to say that an owner uses it.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) claim: Arc<ResourceClaim>,
    /// The owner, or the PodGroup whose claim it is.
    pub(super) consumer: Consumer,
}

/// Who is to use a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    pub(super) kind: &'static Kind,
    pub(super) name: Str,
    pub(super) uid: Str,
}

impl Found {
    /// The claim, if there is one or should be.
    pub(super) fn claim(&self) -> Option<&Str> {
        match self {
            Self::Given(name) | Self::Recorded(name) | Self::Unrecorded(name) => Some(name),
            Self::NotNeeded | Self::LeftToGroup | Self::Missing(_) | Self::Fault(_) => None,
        }
    }
}

impl Rooms {
    /// Returns the PodGroup that a pod names, where PodGroups have claims.
    pub(super) fn membership(&self, pod: &Pod) -> Option<Membership> {
        let groups = self.groups.as_ref()?;
        let name = Some(&pod.shape.pod_group).filter(|name| !name.is_empty())?;
        let group = groups.get(&Key::new(pod.metadata.namespace.clone(), name.clone()));
        let entries = group.iter().flat_map(|group| &group.spec.resource_claims);
        let source = |held: &PodGroupResourceClaim| {
            (held.name.clone(), held.resource_claim_name.clone(), held.resource_claim_template_name.clone())
        };
        let group_entries = entries.map(source).collect();
        Some(Membership { name: name.clone(), group, group_entries })
    }

    /// The claims that were made for an owner: in this reconcile, or as the cache has them.
    fn claims_of(&self, owner: &ObjectMeta, kind: &Kind, read: &Reads) -> ClaimsByEntry {
        let answers = read.written().iter().filter_map(|effect| effect.answer.clone());
        let answers = answers.filter_map(downcast::<ResourceClaim>);
        let held = self.by_controller.with_uid_of(ControllerKey::of(owner, kind));
        ClaimsByEntry::of(owner, kind, answers.chain(held))
    }

    /// An owner, and what there is of its entries.
    pub(super) fn observe(
        &self,
        owner: Owner,
        membership: Option<&Membership>,
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        let mut look = Look {
            rooms: self,
            owner: &owner,
            membership,
            read,
            own_claims: None,
            group_claims: None,
            needs: Vec::new(),
        };
        let mut found = Vec::with_capacity(owner.entries.len());
        for entry in &owner.entries {
            found.push(look.find(entry)?);
        }
        let unreserved = if owner.reserves { look.unreserved(&found)? } else { Vec::new() };
        let needs = look.needs;
        if needs.is_empty() {
            Ok(Observation::View(View { owner, found, unreserved }))
        } else {
            Ok(Observation::Needs(needs))
        }
    }
}

/// One look at an owner's claims.
struct Look<'a> {
    rooms: &'a Rooms,
    owner: &'a Owner,
    membership: Option<&'a Membership>,
    read: &'a Reads,
    /// Claims that were made for the owner; `None` until an entry needs them.
    own_claims: Option<ClaimsByEntry>,
    /// Claims that were made for its PodGroup; `None` until an entry needs them.
    group_claims: Option<ClaimsByEntry>,
    needs: Vec<DeclaredRead>,
}

impl<'a> Look<'a> {
    fn find(&mut self, entry: &Entry) -> Result<Found, ObserveError> {
        if let Some(claim) = &entry.claim {
            return Ok(Found::Given(claim.clone()));
        }
        let Some(template) = &entry.template else { return Ok(Found::Fault(self.unsupported(entry))) };
        match &entry.recorded {
            Recorded::NotNeeded => return Ok(Found::NotNeeded),
            Recorded::Claim(name)
                if self.claim(name)?.is_some_and(|claim| self.is_owned(&claim.metadata)) =>
            {
                return Ok(Found::Recorded(name.clone()));
            }
            _ => {}
        }
        let (rooms, owner, read) = (self.rooms, self.owner, self.read);
        if let Some(group) = self.sharing_group(entry)? {
            let walk = || rooms.claims_of(&group.metadata, &POD_GROUPS, read);
            let made = self.group_claims.get_or_insert_with(walk).claim(&entry.name);
            return Ok(made.map_or(Found::LeftToGroup, Found::Unrecorded));
        }
        let walk = || rooms.claims_of(&owner.metadata, owner.kind, read);
        if let Some(name) = self.own_claims.get_or_insert_with(walk).claim(&entry.name) {
            return Ok(Found::Unrecorded(name));
        }
        Ok(self.template(template))
    }

    /// The PodGroup of the pod. Claims that are missing, or not reserved, cannot be judged without it.
    ///
    /// # Errors
    /// The cache lacks the PodGroup.
    fn group(&self) -> Result<Option<&'a PodGroup>, ObserveError> {
        let Some(Membership { name, group, .. }) = self.membership else { return Ok(None) };
        let absent = || {
            let (pod, namespace) = (Key::of(&self.owner.metadata), self.owner.metadata.namespace.clone());
            ObserveError::Retry(format!(
                "pod {pod}: PodGroup {} not found",
                Key::new(namespace, name.clone())
            ))
        };
        group.as_deref().map(Some).ok_or_else(absent)
    }

    /// The PodGroup of the pod, if it has the same entry.
    ///
    /// # Errors
    /// The cache lacks the PodGroup.
    fn sharing_group(&self, entry: &Entry) -> Result<Option<&'a PodGroup>, ObserveError> {
        let shares = |membership: &Membership| {
            let source: EntrySource = (entry.name.clone(), entry.claim.clone(), entry.template.clone());
            membership.group_entries.contains(&source)
        };
        Ok(self.group()?.filter(|_| self.membership.is_some_and(shares)))
    }

    fn unsupported(&self, entry: &Entry) -> String {
        let ObjectMeta { namespace, name, .. } = &self.owner.metadata;
        let entry = entry.name.as_str();
        let subject = if self.owner.kind == &PODS {
            format!("pod \"{namespace}/{name}\", spec.resourceClaim {entry:?}")
        } else {
            format!("PodGroup {namespace}/{name}, spec.resourceClaim {entry}")
        };
        format!("checking for claim before creating it: {subject}: none of the supported fields are set")
    }

    /// A claim by its name. One that is recorded and that the cache has not is asked for: the cache may be late, and a second
    /// one must not be made.
    fn claim(&mut self, name: &Str) -> Result<Option<Arc<ResourceClaim>>, ObserveError> {
        let key = Key::new(self.owner.metadata.namespace.clone(), name.clone());
        if let Some(claim) = self.rooms.claims.get(&key) {
            return Ok(Some(claim));
        }
        match self.read.object(&RESOURCE_CLAIMS, &key) {
            Some(Ok(found)) => Ok(found.and_then(|found| downcast(Arc::clone(found)))),
            Some(Err(error)) => Err(ObserveError::Retry(format!("{RESOURCE_CLAIMS} {key}: {error}"))),
            None => {
                self.needs.push(DEVICE_CLAIM.of(Read::Object(&RESOURCE_CLAIMS, key)));
                Ok(None)
            }
        }
    }

    fn is_owned(&self, claim: &ObjectMeta) -> bool {
        let is_groups = |Membership { name, group, .. }: &Membership| match group {
            Some(group) => claim.is_controlled_by(&group.metadata),
            // Its UID is not known.
            None => {
                claim.controller().is_some_and(|owner| owner.kind == POD_GROUPS.kind && owner.name == *name)
            }
        };
        claim.is_controlled_by(&self.owner.metadata) || self.membership.is_some_and(is_groups)
    }

    /// Whether a claim is reserved for the owner, or by name for its PodGroup.
    fn is_reserved(&self, claim: &ResourceClaim) -> bool {
        let is_groups = |held: &ResourceClaimConsumer| {
            held.api_group == POD_GROUPS.group
                && held.resource == POD_GROUPS.resource
                && self.membership.is_some_and(|membership| held.name == membership.name)
        };
        let uid = self.owner.metadata.uid.to_str();
        claim.status.reserved_for.iter().any(|held| held.uid == uid || is_groups(held))
    }

    fn template(&self, name: &Str) -> Found {
        let key = Key::new(self.owner.metadata.namespace.clone(), name.clone());
        let Some(template) = self.rooms.templates.get(&key) else {
            return Found::Fault(format!(
                "resource claim template {name:?}: resourceclaimtemplate.resource.k8s.io {name:?} not found",
                name = name.as_str()
            ));
        };
        if !self.rooms.prioritized_lists && has_alternatives(&template) {
            let fault = "template includes a prioritized list of subrequests, but the feature is disabled";
            return Found::Fault(fault.to_owned());
        }
        if !self.rooms.admin_access && asks_for_admin_access(&template) {
            return Found::Fault("admin access is requested, but the feature is disabled".to_owned());
        }
        Found::Missing(template)
    }

    /// Claims that are allocated and not reserved for who is to use them, up to the first that is not there.
    fn unreserved(&mut self, found: &[Found]) -> Result<Vec<Reservation>, ObserveError> {
        let mut unreserved: Vec<Reservation> = Vec::new();
        let mut names: HashSet<&Str> = HashSet::default();
        for (entry, found) in self.owner.entries.iter().zip(found) {
            let Some(name) = found.claim() else { continue };
            // What is not recorded was made a moment ago, or is about to be looked at again.
            if matches!(found, Found::Unrecorded(_)) {
                continue;
            }
            let Some(claim) = self.claim(name)? else { break };
            // Each claim is judged once, whatever the number of entries that name it.
            let is_needed =
                names.insert(name) && claim.status.allocation.is_some() && !self.is_reserved(&claim);
            if is_needed {
                let consumer = self.consumer(entry)?;
                unreserved.push(Reservation { claim, consumer });
            }
        }
        Ok(unreserved)
    }

    /// Who is to use the claim of an entry: the PodGroup if the claim is its.
    fn consumer(&self, entry: &Entry) -> Result<Consumer, ObserveError> {
        let (kind, metadata) = match self.sharing_group(entry)? {
            Some(group) => (&POD_GROUPS, &group.metadata),
            None => (self.owner.kind, &self.owner.metadata),
        };
        Ok(Consumer { kind, name: metadata.name.clone(), uid: metadata.uid.to_str() })
    }
}

/// Whether requests of a template have alternatives.
fn has_alternatives(template: &ResourceClaimTemplate) -> bool {
    let spec = ResourceClaimSpec::decode(&template.spec.spec.0);
    spec.is_ok_and(|spec| spec.devices.requests.iter().any(|request| !request.first_available.is_empty()))
}

/// Whether a request of a template asks for access as an administrator. Alternatives cannot.
fn asks_for_admin_access(template: &ResourceClaimTemplate) -> bool {
    let spec = ResourceClaimSpec::decode(&template.spec.spec.0);
    spec.is_ok_and(|spec| {
        let exact = spec.devices.requests.iter().filter_map(|request| request.exactly.as_deref());
        exact.into_iter().any(|request| request.admin_access == Some(true))
    })
}
