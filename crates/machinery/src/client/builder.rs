//! Makes clients: one per controller, with its name, its credentials and its own rate limit.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tower::Layer;

use super::api::{ApiClient, HttpService};
use super::config::{ConfigError, Connection};
use super::credentials::ServiceAccountTokens;
use super::layers::{
    Bearer, ClientMetrics, Faults, JsonOnTheWire, Next, RateLimit, RateLimits, RequestMetrics, Timeout,
    TokenSource, Trace, UserAgent, With, WriteGate,
};
use super::transport::{KeepAlive, Transport};
use crate::environment::Environment;

/// How the clients of a [`ClientBuilder`] behave.
#[derive(Clone)]
pub struct ClientOptions {
    /// `--kube-api-qps`, for each client: for its scales, each metrics API, and everything else; negative for no limit.
    pub qps: f32,
    /// `--kube-api-burst`, likewise.
    pub burst: u32,
    /// How long a request may take that is not a watch. A little more than the API server's own limit of a minute,
    /// so that it is the server that says so.
    pub request_timeout: Duration,
    /// `--use-service-account-credentials`.
    pub use_service_account_credentials: bool,
    /// Whether the API server is spoken to in JSON, and not in protobuf: `--kube-api-content-type`.
    pub json: bool,
    /// Faults on purpose; only tests give any.
    pub faults: Option<Faults>,
    /// Where connections and threads come from.
    pub environment: Environment,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            qps: 20.0,
            burst: 30,
            request_timeout: Duration::from_secs(70),
            use_service_account_credentials: false,
            json: false,
            faults: None,
            environment: Environment::system(),
        }
    }
}

impl std::fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientOptions")
            .field("qps", &self.qps)
            .field("burst", &self.burst)
            .field("request_timeout", &self.request_timeout)
            .field("use_service_account_credentials", &self.use_service_account_credentials)
            .field("json", &self.json)
            .field("faults", &self.faults)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

/// How many times as fast as `--kube-api-qps` and `--kube-api-burst` say a controller may ask: the original grants more to
/// those whose work is requests by the thousand.
/// Differs: no.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QpsFactor {
    /// Of `--kube-api-qps`.
    pub qps: f32,
    /// Of `--kube-api-burst`.
    pub burst: u32,
}

impl QpsFactor {
    /// As the flags say.
    pub const ONE: Self = Self { qps: 1.0, burst: 1 };

    /// The faster of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { qps: self.qps.max(other.qps), burst: self.burst.max(other.burst) }
    }
}

/// A client that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientBuildError {
    /// The connection's configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The builder was shut down: there are no tokens any more.
    #[error("create client {name:?}: the manager is shutting down")]
    Stopped {
        /// Whose client it was to be.
        name: String,
    },
}

/// Makes the clients of the manager. All share its connections: those of the manager's own identity, and, with
/// `--use-service-account-credentials`, those on which each request carries its controller's token.
#[derive(Debug)]
pub struct ClientBuilder {
    connection: Connection,
    options: ClientOptions,
    metrics: ClientMetrics,
    gate: WriteGate,
    root: Transport,
    accounts: Option<Accounts>,
}

#[derive(Debug)]
struct Accounts {
    transport: Transport,
    tokens: ServiceAccountTokens,
}

/// The identity in whose name a client's stack ends.
struct Identity<'a> {
    transport: &'a Transport,
    token: Option<Arc<dyn TokenSource>>,
}

impl ClientBuilder {
    /// Makes ready to connect; nothing is sent yet.
    pub async fn new(
        connection: Connection,
        options: ClientOptions,
        metrics: ClientMetrics,
    ) -> Result<Self, ClientBuildError> {
        let here = Handle::current();
        let transport = async |connection: Connection| {
            Transport::new_in(&options.environment, &here, connection, KeepAlive::default()).await
        };
        let root = transport(connection.clone()).await?;
        root.count(metrics.transport_made());
        let anonymous = if options.use_service_account_credentials {
            Some(transport(connection.anonymous()).await?)
        } else {
            None
        };
        let mut builder = Self { connection, options, metrics, gate: WriteGate::new(), root, accounts: None };
        if let Some(transport) = anonymous {
            transport.count(builder.metrics.transport_made());
            // As the original's: no controller's bucket pays for its token, and 35 of them may ask at once.
            let tokens = ServiceAccountTokens::new(builder.ungated("token-requests"));
            builder.accounts = Some(Accounts { transport, tokens });
        }
        Ok(builder)
    }

    /// The gate that all clients of controllers write through.
    pub fn gate(&self) -> &WriteGate {
        &self.gate
    }

    /// The server and where it is configured.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A client with the manager's own credentials, whose writes stop with leadership.
    pub fn root(&self, name: &str) -> ApiClient {
        self.root_at(name, QpsFactor::ONE)
    }

    fn root_at(&self, name: &str, qps_factor: QpsFactor) -> ApiClient {
        let identity = Identity { transport: &self.root, token: None };
        self.client(name, identity, self.options.request_timeout, Some(qps_factor))
    }

    /// A client with the manager's own credentials that writes whether this process leads or not: for reviews,
    /// tokens, and what replicas say of themselves. Never for a controller.
    pub fn ungated(&self, name: &str) -> ApiClient {
        self.client(name, Identity { transport: &self.root, token: None }, self.options.request_timeout, None)
    }

    /// The client of a controller: as its service account in `kube-system`, if it has one and
    /// `--use-service-account-credentials` is on; otherwise as the manager, under the controller's name.
    pub fn for_controller(
        &self,
        name: &str,
        service_account: Option<&str>,
        qps_factor: QpsFactor,
    ) -> Result<ApiClient, ClientBuildError> {
        match (&self.accounts, service_account) {
            (Some(accounts), Some(account)) => {
                if accounts.tokens.is_stopped() {
                    return Err(ClientBuildError::Stopped { name: name.to_owned() });
                }
                let token = Some(accounts.tokens.source(account));
                let identity = Identity { transport: &accounts.transport, token };
                Ok(self.client(name, identity, self.options.request_timeout, Some(qps_factor)))
            }
            _ => Ok(self.root_at(name, qps_factor)),
        }
    }

    /// A client that acts as a service account in `kube-system` and writes whether this process leads or not: for what
    /// a replica may undo of itself only in a controller's name. `None` without `--use-service-account-credentials`.
    /// Never for a controller.
    pub fn ungated_as(
        &self,
        name: &str,
        service_account: &str,
    ) -> Result<Option<ApiClient>, ClientBuildError> {
        let Some(accounts) = &self.accounts else { return Ok(None) };
        if accounts.tokens.is_stopped() {
            return Err(ClientBuildError::Stopped { name: name.to_owned() });
        }
        let token = Some(accounts.tokens.source(service_account));
        let identity = Identity { transport: &accounts.transport, token };
        Ok(Some(self.client(name, identity, self.options.request_timeout, None)))
    }

    /// The client of the leader election: the manager's own credentials on a connection of its own, no rate limit, no
    /// gate. `timeout` bounds each request, and how long a dead connection can go unnoticed. To be used on `threads` only,
    /// which then serve its connection and nobody else does.
    pub async fn leader_election(
        &self,
        timeout: Duration,
        threads: &Handle,
    ) -> Result<ApiClient, ClientBuildError> {
        let keep_alive = KeepAlive::within(timeout);
        let environment = &self.options.environment;
        let transport = Transport::new_in(environment, threads, self.connection.clone(), keep_alive).await?;
        transport.count(self.metrics.transport_made());
        let identity = Identity { transport: &transport, token: None };
        Ok(self.stack("leader-election", identity, timeout, None))
    }

    /// Ends the renewing of tokens. Clients that act as service accounts fail from now on.
    pub async fn shutdown(&self) {
        if let Some(accounts) = &self.accounts {
            accounts.tokens.shutdown().await;
        }
    }

    /// A client on a transport that others have as well.
    fn client(
        &self,
        name: &str,
        identity: Identity<'_>,
        timeout: Duration,
        qps_factor: Option<QpsFactor>,
    ) -> ApiClient {
        self.metrics.transport_shared();
        self.stack(name, identity, timeout, qps_factor)
    }

    /// A client with a qps_factor writes only while this process leads.
    fn stack(
        &self,
        name: &str,
        identity: Identity<'_>,
        timeout: Duration,
        qps_factor: Option<QpsFactor>,
    ) -> ApiClient {
        let agent = UserAgent::new(name);
        let host = Arc::clone(identity.transport.host());
        // Only what stops with leadership is limited: elections must not wait behind anything, and the rest is rare.
        let limit = |qps_factor: QpsFactor| {
            RateLimits::new(
                self.options.qps * qps_factor.qps,
                self.options.burst.saturating_mul(qps_factor.burst),
            )
        };
        let limits = qps_factor.and_then(limit);
        let metrics = self.metrics.of_host(Arc::clone(&host));
        let rate = RateLimit { limits, metrics: metrics.clone() };
        let server = self.connection.server();
        let scheme = server.scheme_str().unwrap_or("https");
        let trace = Trace { server: format!("{scheme}://{host}").into() };

        let bottom = identity.transport.service();
        let bottom = match &self.options.faults {
            None => HttpService::new(bottom),
            Some(faults) => HttpService::new(With(faults.clone()).layer(bottom)),
        };
        let sent = With(RequestMetrics(metrics)).layer(With(Timeout(timeout)).layer(bottom));
        let gate = qps_factor.is_some().then(|| self.gate.clone());
        let waits_behind = gate.clone();
        let gated =
            if self.options.json { gated(gate, With(JsonOnTheWire).layer(sent)) } else { gated(gate, sent) };
        let limiters = rate.clone();
        let service = match identity.token {
            Some(token) => finish(With(Bearer(token)).layer(gated), agent, trace, rate),
            None => finish(gated, agent, trace, rate),
        };
        let client = ApiClient::new(service, name).limited_by(limiters);
        // As with the rate limit: elections must not wait, and what else writes at any time waits by itself.
        match waits_behind {
            Some(gate) => client.patient(gate, timeout),
            None => client,
        }
    }
}

fn gated<S: Next>(gate: Option<WriteGate>, below: S) -> HttpService {
    match gate {
        Some(gate) => HttpService::new(With(gate).layer(below)),
        None => HttpService::new(below),
    }
}

fn finish<S: Next>(below: S, agent: UserAgent, trace: Trace, rate: RateLimit) -> HttpService {
    HttpService::new(With(agent).layer(With(trace).layer(With(rate).layer(below))))
}
