//! What every controller stands on: the wire format, the client, informers, queues, the framework and the executor, and
//! what the process around them needs. It never knows a controller by name. `ARCHITECTURE.md` is the map.

pub mod api;
pub mod bounds;
pub mod client;
pub mod election;
pub mod environment;
pub mod events;
pub mod executor;
pub mod files;
pub mod framework;
pub mod informer;
pub mod latest;
pub mod model;
pub mod options;
#[cfg(any(test, feature = "testing"))]
pub mod oracle;
pub mod private_key;
pub mod queue;
pub mod random;
pub mod serve;
pub mod telemetry;
pub mod tls;
pub mod wire;
pub mod x509;
pub mod zones;
