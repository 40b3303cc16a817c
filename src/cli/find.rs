//! Brings a command to a replica: the one that is named, or one that is found; the one that leads, where only that
//! one can answer.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::OnceCell;
use tonic::Status;
use tonic_types::StatusExt as _;

use super::common::Common;
use super::connect::{Address, CALL, Session, Way};
use super::discover::{Candidate, FROM_THERE, MainLease, Replicas, discover, is_elsewhere};
use super::environment::Environment;
use super::error::CliError;
use super::identity::{Identity, Trust};
use super::output::Screen;
use super::pods;
use super::trust::Voucher;
use crate::admin::proto::GetLeaderRequest;
use coxswain_machinery::client::ApiClient;

/// Why a replica is not called by someone who has a token and nothing else.
const NOT_VOUCHED_FOR: &str = "refusing to send a token: nothing but the replica's own Lease confirms the replica's identity; \
     use --certificate-authority, --server, --tls-server-name or a client certificate, or accept the risk with \
     --trust-announced-authority";
/// What to say besides when the authority that a replica has announced was not trusted.
const SET_ASIDE: &str = "; the client does not trust the CA in the replica's Lease when it sends a token; use a client \
     certificate or --trust-announced-authority";

/// Who is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// Any replica. The leader is asked first, if it is known: it sees most.
    Anyone,
    /// The replica that leads.
    Leader,
}

/// Finds replicas and connects to them.
pub(super) struct Finder {
    common: Common,
    environment: Environment,
    screen: Screen,
    found: OnceCell<Found>,
}

struct Found {
    identity: Arc<Identity>,
    replicas: Replicas,
    /// Pods of managers, for `--via-pod`.
    pods: OnceCell<Vec<Pod>>,
}

impl Finder {
    /// Looks for nothing yet.
    pub(super) fn new(common: Common, environment: Environment, screen: Screen) -> Self {
        Self { common, environment, screen, found: OnceCell::new() }
    }

    async fn found(&self) -> Result<&Found, CliError> {
        self.found.get_or_try_init(|| self.look()).await
    }

    async fn look(&self) -> Result<Found, CliError> {
        if let Some(server) = &self.common.server {
            // Before anything else is asked for, a password by a plugin for one.
            Address::parse(server).map_err(|why| CliError::Usage(format!("--server: {why}")))?;
        }
        let identity = Arc::new(Identity::load(&self.common, &self.environment).await?);
        if self.common.insecure {
            self.screen.note(
                "warning: TLS verification is disabled; the credentials are sent to any server that answers",
            );
        }
        let replicas = self.replicas(&identity).await?;
        Ok(Found { identity, replicas, pods: OnceCell::new() })
    }

    /// The replica that is named, or those that there are.
    async fn replicas(&self, identity: &Identity) -> Result<Replicas, CliError> {
        if let Some(server) = &self.common.server {
            let named =
                Candidate { identity: String::new(), address: server.clone(), authority: None, leads: false };
            return Ok(Replicas { candidates: vec![named], ..Replicas::default() });
        }
        let mut token = identity.token(None).await?;
        let Some(mut api) = identity.api(token.as_ref()).await? else {
            return Err(CliError::Unreachable(
                "find a replica: no cluster is configured; use --server or --kubeconfig".to_owned(),
            ));
        };
        let now = self.environment.clock.now();
        let mut listed = discover(&api, &self.common.main_lease, now).await;
        if let (Err(error), Some(refused)) = (&listed, &token)
            && error.code() == 401
        {
            token = identity.token(Some(refused)).await?;
            if token.is_some()
                && let Some(again) = identity.api(token.as_ref()).await?
            {
                api = again;
                listed = discover(&api, &self.common.main_lease, now).await;
            }
        }
        let mut replicas = listed.map_err(CliError::Cluster)?;
        if let Some(host) = self.environment.host.as_deref().filter(|_| !self.common.via_pod) {
            replicas.pass_over_elsewhere(host);
        }
        if replicas.candidates.is_empty() {
            return Err(CliError::Unreachable(nobody(&replicas)));
        }
        Ok(replicas)
    }

    /// A finder for the replicas as they are now, as the same identity.
    pub(super) async fn anew(&self) -> Result<Self, CliError> {
        let identity = Arc::clone(&self.found().await?.identity);
        let replicas = self.replicas(&identity).await?;
        Ok(Self {
            common: self.common.clone(),
            environment: self.environment.clone(),
            screen: self.screen.clone(),
            found: OnceCell::new_with(Some(Found { identity, replicas, pods: OnceCell::new() })),
        })
    }

    /// The holder of the Lease when the replicas were looked up.
    pub(super) async fn holder(&self) -> Result<Option<String>, CliError> {
        Ok(self.found().await?.replicas.holder.clone())
    }

    /// Connects to the API server. Looks for no replica.
    pub(super) async fn api(&self) -> Result<ApiClient, CliError> {
        let identity = Identity::load(&self.common, &self.environment).await?;
        let token = identity.token(None).await?;
        let api = identity.api(token.as_ref()).await?;
        api.ok_or_else(|| {
            CliError::Usage(
                "--server is not sufficient: this command calls the cluster's API server; use --kubeconfig"
                    .to_owned(),
            )
        })
    }

    /// The Lease by which the leader leads.
    pub(super) fn main_lease(&self) -> &MainLease {
        &self.common.main_lease
    }

    /// How long a call may take (`--timeout`).
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.common.timeout
    }

    /// Whether a call may take only so long (`--timeout`).
    pub(super) fn is_bounded(&self) -> bool {
        self.common.timeout.is_some()
    }

    /// Connects to the first replica that can be reached; for [`Whom::Leader`] goes on to the leader if that one
    /// knows a better address.
    pub(super) async fn connect(&self, whom: Whom) -> Result<Session, CliError> {
        let found = self.found().await?;
        let mut tried: Vec<String> = Vec::new();
        for candidate in &found.replicas.candidates {
            match self.open(found, candidate).await {
                Ok(session) => {
                    for line in &tried {
                        self.screen.note(line);
                    }
                    return match whom {
                        Whom::Leader if !candidate.leads => self.leader_of(session).await,
                        _ => Ok(session),
                    };
                }
                Err(Failed::Unreachable(why)) => {
                    tried.push(format!("connect to {}: {why}", name(candidate)));
                }
                Err(Failed::Fatal(error)) => return Err(error),
            }
        }
        tried.extend(found.replicas.passed_over.iter().cloned());
        Err(CliError::Unreachable(tried.join("\n  ")))
    }

    /// Asks who leads, and goes there. Stays if nobody does, or if the caller may not ask: what follows will tell.
    async fn leader_of(&self, session: Session) -> Result<Session, CliError> {
        let mut client = session.leader();
        let asked = session.call(GetLeaderRequest::default(), CALL, |request| async move {
            client.get_leader(request).await
        });
        let leader = match asked.await {
            Ok(answer) => answer.leader.unwrap_or_default(),
            Err(CliError::Refused(status)) if status.code() == tonic::Code::PermissionDenied => {
                return Ok(session);
            }
            Err(error) => return Err(error),
        };
        if leader.leading || leader.admin_address.is_empty() {
            return Ok(session);
        }
        self.connect_to(&leader.holder_identity, &leader.admin_address).await
    }

    /// Connects to a replica that another one has named. Replicas on loopback addresses of several machines have the same address, so
    /// the identity decides.
    async fn connect_to(&self, identity: &str, address: &str) -> Result<Session, CliError> {
        let found = self.found().await?;
        let host = self.environment.host.as_deref().filter(|_| !self.common.via_pod);
        if host.is_some_and(|host| is_elsewhere(identity, address, host)) {
            return Err(CliError::Unreachable(format!(
                "the leader {identity} listens only on {address} of its own machine; {FROM_THERE}"
            )));
        }
        let all = &found.replicas.candidates;
        let same: Vec<&Candidate> = all.iter().filter(|each| each.address == address).collect();
        let known = match same.as_slice() {
            // It may have restarted under another identity.
            [only] if !self.common.via_pod => Some(*only),
            several => several.iter().find(|each| each.identity == identity).copied(),
        };
        let candidate = known.cloned().unwrap_or_else(|| Candidate {
            identity: identity.to_owned(),
            address: address.to_owned(),
            authority: None,
            leads: true,
        });
        self.open(found, &candidate).await.map_err(|failed| match failed {
            Failed::Unreachable(why) => {
                CliError::Unreachable(format!("connect to the leader {}: {why}", name(&candidate)))
            }
            Failed::Fatal(error) => error,
        })
    }

    /// The way to a replica's port.
    async fn way(&self, found: &Found, candidate: &Candidate) -> Result<Way, Failed> {
        if !self.common.via_pod {
            return Ok(Way::Direct);
        }
        let no_cluster =
            || CliError::Unreachable("--via-pod: no cluster is configured; use --kubeconfig".to_owned());
        let token = found.identity.token(None).await?;
        let connection = found.identity.connection(token.as_ref())?.ok_or_else(no_cluster)?;
        let list = || async {
            let api = found.identity.api(token.as_ref()).await?.ok_or_else(no_cluster)?;
            pods::list(&api).await
        };
        let pods = found.pods.get_or_try_init(list).await?;
        let pod = pods::find(pods, &candidate.identity).map_err(Failed::Unreachable)?;
        Ok(Way::Pod(Box::new(connection), pod.to_owned()))
    }

    async fn open(&self, found: &Found, candidate: &Candidate) -> Result<Session, Failed> {
        let address = Address::parse(&candidate.address).map_err(Failed::Unreachable)?;
        let announced = candidate.authority.as_deref();
        let facts = found.identity.facts(&self.common, &address, announced.is_some());
        let Some(decision) = facts.decide() else {
            return Err(Failed::Unreachable(NOT_VOUCHED_FOR.to_owned()));
        };
        let trust = found.identity.trust(&self.common, decision.voucher, announced);
        let trust: Trust = match trust {
            // What one Lease says must not keep anybody from the other replicas.
            Err(error) if decision.voucher == Voucher::Announcement => {
                return Err(Failed::Unreachable(error.to_string()));
            }
            trust => trust?,
        };
        let tls = found.identity.tls(&trust)?;
        let tokens = found.identity.tokens().filter(|_| decision.send_token).cloned();
        let way = Box::pin(self.way(found, candidate)).await?;
        let replica = (candidate.identity.as_str(), &address);
        let name = (decision.name, self.common.tls_server_name.as_deref());
        let session = Box::pin(Session::open(replica, &way, name, tls, tokens, self.common.timeout)).await;
        session.map_err(|why| {
            let hint = if facts.sets_announcement_aside() { SET_ASIDE } else { "" };
            Failed::Unreachable(format!("{why}{hint}"))
        })
    }

    /// Makes a call of the leader, and once more of the one that the first names as the leader, if it does.
    pub(super) async fn of_leader<R>(
        &self,
        call: impl AsyncFn(&Session) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        let session = self.connect(Whom::Leader).await?;
        self.follow(&session, call).await
    }

    /// Makes a call of a replica, and once more of the leader if the replica names one instead of doing anything.
    pub(super) async fn follow<R>(
        &self,
        session: &Session,
        call: impl AsyncFn(&Session) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        match call(session).await {
            Err(CliError::Refused(status)) => match leader(&status) {
                Some((identity, address)) if session.is_of_another(&identity, &address) => {
                    call(&self.connect_to(&identity, &address).await?).await
                }
                _ => Err(CliError::Refused(status)),
            },
            outcome => outcome,
        }
    }
}

/// Why there is no connection to a replica.
enum Failed {
    /// Another replica may do.
    Unreachable(String),
    /// It would be the same with any other.
    Fatal(CliError),
}

impl From<CliError> for Failed {
    fn from(error: CliError) -> Self {
        Self::Fatal(error)
    }
}

/// The leader's identity and address, according to a replica that did nothing because it does not lead or has other flags.
fn leader(status: &Status) -> Option<(String, String)> {
    let info = status.get_details_error_info()?;
    let is_refusal = matches!(info.reason.as_str(), "NOT_LEADER" | "FLAGS_DIFFER");
    let address = info.metadata.get("leader_address").filter(|address| is_refusal && !address.is_empty())?;
    Some((info.metadata.get("leader").cloned().unwrap_or_default(), address.clone()))
}

/// A replica in words.
fn name(candidate: &Candidate) -> String {
    match candidate.identity.as_str() {
        "" => candidate.address.clone(),
        identity => format!("{identity} at {}", candidate.address),
    }
}

fn nobody(replicas: &Replicas) -> String {
    let mut text =
        "find a replica: no Lease in kube-system announces a replica that serves the admin API".to_owned();
    if let Some(holder) = &replicas.holder {
        text = format!("{text}; {holder} leads");
    }
    for line in &replicas.passed_over {
        text = format!("{text}\n  {line}");
    }
    text
}
