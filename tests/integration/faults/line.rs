//! The line between a manager and the API server, and the faults on it.
//!
//! WriteFault is of a place (see [`super::stage`]): it befalls the writes that concern it and no others. Watches are
//! everybody's: all of a resource are held up, or all of them are cut.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode, Uri};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::harness::{Fate, Tamper};

/// How often each object is changed under the hand of whoever writes it.
const CONFLICTS: usize = 2;
/// How often the watches of a resource are cut.
const CUTS: usize = 2;

/// What goes wrong with the writes of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteFault {
    /// Nothing does.
    #[default]
    None,
    /// Whenever an object is written for the first or second time, somebody else has changed it just before.
    Conflicts,
    /// The first time that anything is asked for it is carried out, and the answer is lost.
    LosesAnswers,
    /// So many writes are carried out. The answer to the last of them is lost, and nothing arrives any more.
    StopsAfter(usize),
}

/// The line.
pub(super) struct Line {
    admin: Client,
    accounts: Mutex<BTreeMap<String, Account>>,
    /// What is done to an object of this name before the next write of it.
    surprises: Mutex<BTreeMap<(String, String), Value>>,
    /// Resources of which watches tell nothing.
    held: watch::Sender<BTreeSet<&'static str>>,
    /// What became of watches since they are being cut, by path; `None` while they are not.
    unsteady: Mutex<Option<BTreeMap<String, Unsteady>>>,
}

/// What happened to the writes of a place since its fault began.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    fault: WriteFault,
    /// Let through, and answered with success or not answered yet.
    begun: usize,
    /// Let through, and not answered yet.
    under_way: usize,
    /// Carried out.
    pub(super) carried: usize,
    /// How often the fault was met.
    pub(super) met: usize,
    /// Answers by status.
    pub(super) answers: BTreeMap<u16, usize>,
    /// How often each was asked for.
    asked: BTreeMap<String, usize>,
}

impl Account {
    /// How often an admission plugin has refused.
    pub(super) fn refusals(&self) -> usize {
        let of = |code: StatusCode| self.answers.get(&code.as_u16()).copied().unwrap_or(0);
        of(StatusCode::FORBIDDEN)
            + of(StatusCode::UNPROCESSABLE_ENTITY)
            + of(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// How often somebody else was first.
    pub(super) fn conflicts(&self) -> usize {
        self.answers.get(&StatusCode::CONFLICT.as_u16()).copied().unwrap_or(0)
    }
}

#[derive(Default)]
struct Unsteady {
    delivered: usize,
    cuts: usize,
    expired: bool,
}

impl Line {
    /// Without faults. `admin` is who interferes.
    pub(super) fn new(admin: Client) -> Self {
        Self {
            admin,
            accounts: Mutex::default(),
            surprises: Mutex::default(),
            held: watch::Sender::default(),
            unsteady: Mutex::default(),
        }
    }

    /// From here on a place has this fault and no other; its account begins anew.
    pub(super) fn set_fault(&self, place: &str, fault: WriteFault) {
        self.accounts.lock().insert(place.to_owned(), Account { fault, ..Account::default() });
    }

    /// The same as soon as no write is under way; whether that is so. What was asked for before is not to be counted.
    pub(super) fn set_fault_if_quiet(&self, place: &str, fault: WriteFault) -> bool {
        let mut accounts = self.accounts.lock();
        let is_quiet = accounts.get(place).is_none_or(|account| account.under_way == 0);
        if is_quiet {
            accounts.insert(place.to_owned(), Account { fault, ..Account::default() });
        }
        is_quiet
    }

    /// What has happened to a place so far.
    pub(super) fn account(&self, place: &str) -> Account {
        self.accounts.lock().get(place).cloned().unwrap_or_default()
    }

    /// The next write of an object finds it changed: `patch` comes just before it.
    pub(super) fn surprise(&self, place: &str, name: &str, patch: Value) {
        self.surprises.lock().insert((place.to_owned(), name.to_owned()), patch);
    }

    /// Watches of a resource tell nothing until [`Line::release`].
    pub(super) fn hold(&self, resource: &'static str) {
        let _ = self.held.send_if_modified(|held| held.insert(resource));
    }

    /// What was held up arrives.
    pub(super) fn release(&self) {
        self.held.send_modify(BTreeSet::clear);
    }

    /// From here on every watch is cut twice, instead of telling something; some find that their version has expired.
    pub(super) fn cut_watches(&self) {
        *self.unsteady.lock() = Some(BTreeMap::new());
    }

    /// Watches hold; how many were cut of which resources.
    pub(super) fn steady(&self) -> BTreeMap<String, usize> {
        let unsteady = self.unsteady.lock().take().unwrap_or_default();
        let resource = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        unsteady.into_iter().map(|(path, watches)| (resource(&path), watches.cuts)).collect()
    }

    fn watch(&self, uri: &Uri) -> Fate {
        let is_anew = uri.query().is_some_and(|query| query.contains("sendInitialEvents"));
        let mut unsteady = self.unsteady.lock();
        let cut = unsteady.as_mut().and_then(|all| all.get_mut(uri.path()));
        // Half of the resources, and always the same ones.
        let is_odd = uri.path().len() % 2 == 1;
        match cut {
            Some(watches) if watches.cuts > 0 && is_odd && !watches.expired && !is_anew => {
                watches.expired = true;
                Fate::Refused(StatusCode::GONE)
            }
            _ => Fate::Passes,
        }
    }

    /// The patch that comes before a write, if one does.
    fn interference(&self, method: &Method, place: &str, target: &str) -> Option<Value> {
        let name = target.rsplit('/').next().unwrap_or_default();
        if let Some(patch) = self.surprises.lock().remove(&(place.to_owned(), name.to_owned())) {
            return Some(patch);
        }
        let mut accounts = self.accounts.lock();
        let account = accounts.get_mut(place)?;
        let asked = account.asked.get(&format!("{method} {target}")).copied().unwrap_or(0);
        if account.fault != WriteFault::Conflicts || asked >= CONFLICTS {
            return None;
        }
        account.met += 1;
        Some(
            json!({ "metadata": { "annotations": { "tests.coxswain.dev/changed": account.met.to_string() } } }),
        )
    }

    async fn write(&self, method: &Method, path: &str, place: String) -> Fate {
        let target = target(path);
        if let Some(target) = target
            && let Some(patch) = self.interference(method, &place, target)
        {
            self.interfere(target, &patch).await;
        }
        let what = format!("{method} {}", target.unwrap_or(path));
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(place).or_default();
        let asked = account.asked.entry(what).or_default();
        *asked += 1;
        let fate = match account.fault {
            WriteFault::LosesAnswers if *asked == 1 => {
                account.met += 1;
                Fate::LosesAnswer
            }
            WriteFault::StopsAfter(most) if account.begun >= most => {
                account.met += 1;
                Fate::Lost
            }
            WriteFault::StopsAfter(most) => {
                account.begun += 1;
                if account.begun == most { Fate::LosesAnswer } else { Fate::Passes }
            }
            WriteFault::None | WriteFault::Conflicts | WriteFault::LosesAnswers => Fate::Passes,
        };
        account.under_way += usize::from(fate != Fate::Lost);
        fate
    }

    /// Changes an object as somebody else. It may have gone.
    async fn interfere(&self, target: &str, patch: &Value) {
        let request = Request::patch(target)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .expect("a request");
        match self.admin.request_text(request).await {
            Err(kube::Error::Api(error)) if error.code == StatusCode::NOT_FOUND.as_u16() => {}
            answer => drop(answer.expect("the change is made")),
        }
    }

    /// The place that a write concerns: it is in that namespace, or of something whose name begins with the place's.
    fn place(&self, method: &Method, uri: &Uri) -> Option<String> {
        if method == Method::GET || uri.path().contains("/events") {
            return None;
        }
        let accounts = self.accounts.lock();
        let concerns = |place: &&String| {
            let is_of = |rest: &str| rest.is_empty() || rest.starts_with('-');
            uri.path().split('/').any(|part| part.strip_prefix(place.as_str()).is_some_and(is_of))
        };
        accounts.keys().find(concerns).cloned()
    }
}

impl Tamper for Line {
    fn fate<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, Fate> {
        Box::pin(async move {
            if uri.query().is_some_and(|query| query.contains("watch=")) {
                return self.watch(uri);
            }
            match self.place(method, uri) {
                Some(place) => self.write(method, uri.path(), place).await,
                None => Fate::Passes,
            }
        })
    }

    fn answered(&self, method: &Method, uri: &Uri, status: StatusCode) {
        let Some(place) = self.place(method, uri) else { return };
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.get_mut(&place) else { return };
        *account.answers.entry(status.as_u16()).or_default() += 1;
        account.under_way = account.under_way.saturating_sub(1);
        if status.is_success() {
            account.carried += 1;
        } else {
            account.begun = account.begun.saturating_sub(1);
        }
    }

    fn delivers<'a>(&'a self, uri: &'a Uri) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let is_held =
                |held: &BTreeSet<&str>| held.iter().any(|held| uri.path().ends_with(&format!("/{held}")));
            // An error means that the line is gone, and whoever watches with it.
            let _ = self.held.subscribe().wait_for(|held| !is_held(held)).await;
            let mut unsteady = self.unsteady.lock();
            let Some(all) = unsteady.as_mut() else { return true };
            let watches = all.entry(uri.path().to_owned()).or_default();
            watches.delivered += 1;
            // Every other time, so that something arrives in between.
            let is_cut = watches.cuts < CUTS && watches.delivered % 2 == 1;
            watches.cuts += usize::from(is_cut);
            !is_cut
        })
    }
}

/// The path of the object that a request writes, whole or in part; `None` for a collection.
fn target(path: &str) -> Option<&str> {
    let is_core = path.starts_with("/api/");
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let resource = &parts[if is_core { 2 } else { 3 }..];
    let in_namespace =
        resource.len() > 2 && resource[0] == "namespaces" && !matches!(resource[2], "status" | "finalize");
    let object = if in_namespace { &resource[2..] } else { resource };
    match object.len() {
        0 | 1 => None,
        2 => Some(path),
        _ => path.rsplit_once('/').map(|(target, _)| target),
    }
}
