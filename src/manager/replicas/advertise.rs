//! Under which name or address others reach this replica.
//!
//! A port bound to one address is advertised with it. One bound to all addresses is advertised with, in this order: the
//! environment variable `POD_IP` (from the downward API), the local address from which the API server is reached, unless
//! that is the loopback's, and the host's name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use http::Uri;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

use coxswain_machinery::environment::hostname;

/// How long the API server's name may take to resolve.
const RESOLVE: Duration = Duration::from_secs(2);

/// The host to advertise for a port bound to `bound`.
pub(in crate::manager) async fn advertised_host(bound: IpAddr, api_server: &Uri) -> String {
    let pod = || std::env::var("POD_IP").ok()?.parse::<IpAddr>().ok();
    if !bound.is_unspecified() {
        return bound.to_string();
    }
    if let Some(address) = pod() {
        return address.to_string();
    }
    match timeout(RESOLVE, towards(api_server)).await {
        Ok(Ok(address)) if !address.is_loopback() && !address.is_unspecified() => address.to_string(),
        Ok(Err(error)) => {
            tracing::debug!(%error, "Failed to find the local address of the route to the API server; advertising the hostname");
            hostname()
        }
        _ => hostname(),
    }
}

/// The local address from which a server is reached. Connecting a datagram socket chooses it, and sends nothing.
async fn towards(server: &Uri) -> std::io::Result<IpAddr> {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for target in lookup_host((host, port)).await? {
        let any: IpAddr =
            if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).await?;
        match socket.connect(target).await {
            Ok(()) => return Ok(socket.local_addr()?.ip()),
            Err(error) => last = error,
        }
    }
    Err(last)
}
