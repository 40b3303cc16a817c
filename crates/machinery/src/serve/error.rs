//! What can be wrong with the secure port when it is set up. Each error names the flag or file at fault.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The secure port cannot be opened as asked. None of these is worth a retry with the same options, except
/// [`ServeError::Lookup`].
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, not ours, or needs privileges.
    #[error("listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A file that flags name cannot be read.
    #[error("read {what} {}: {source}", path.display())]
    Read {
        /// What the file is, by its flag.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file was read and its content is of no use.
    #[error("{what} {}: {reason}", path.display())]
    Content {
        /// What the file is, by its flag.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it; never what is in it.
        reason: String,
    },
    /// The self-signed certificate cannot be made or kept.
    #[error("self-signed serving certificate: {0}")]
    SelfSigned(String),
    /// Values that are each allowed and leave nothing to offer together.
    #[error("{0}")]
    Nothing(String),
    /// An always-allow path with a `*` that is not at its end.
    #[error("--authorization-always-allow-paths: {0:?}: only a trailing * is allowed")]
    Pattern(String),
    /// The cluster's authentication configuration cannot be had.
    #[error(
        "read ConfigMap kube-system/extension-apiserver-authentication: {0}; set --client-ca-file and \
         --requestheader-client-ca-file, or bind the role extension-apiserver-authentication-reader in kube-system \
         to this user, or set --authentication-tolerate-lookup-failure or --authentication-skip-lookup"
    )]
    Lookup(String),
    /// TLS refuses the configuration as a whole.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system has no randomness to give.
    #[error("read random bytes for the cache keys: the system has none")]
    Random,
}
