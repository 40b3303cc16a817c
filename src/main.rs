//! The program: reads its command line, then runs what it asks for.
//!
//! With flags only it is the manager. A first argument that is no flag is the name of a command of the client. Under the name
//! kubectl-coxswain it is the client whatever follows: a plugin of kubectl.

use std::ffi::OsString;
use std::io::Write as _;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use coxswain::cli::{self, Called};
use coxswain::manager;
use coxswain_controllers::registry::{self, REGISTRY};
use coxswain_machinery::environment::Environment;
use coxswain_machinery::files;
use coxswain_machinery::options::logging::{self, Logging};
use coxswain_machinery::options::{self, Invocation, Startup, versions};
use coxswain_machinery::telemetry::tracing::Tracing;
use tokio::runtime::{Builder, Runtime};

/// Cores for which controllers get one thread.
const CORES_PER_THREAD: usize = 4;
/// Threads that controllers have at least: what holds one of them does not stop the others.
const FEWEST_THREADS: usize = 2;

/// Gives memory back after start-up and relists, and does not fragment over weeks.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let arguments: Vec<OsString> = words.collect();
    if Path::new(&program).file_stem().is_some_and(|name| name == "kubectl-coxswain") {
        return cli::run(Called::ByKubectl, &arguments);
    }
    if arguments.first().is_some_and(|first| !first.to_string_lossy().starts_with('-')) {
        return cli::run(Called::Directly, &arguments);
    }
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is no one left to tell if even this can't be written.
            let _ = writeln!(std::io::stderr(), "coxswain: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &[OsString]) -> anyhow::Result<()> {
    registry::validate(REGISTRY)?;
    match options::parse(arguments.iter().cloned(), REGISTRY)? {
        Invocation::Print(text) => Ok(std::io::stdout().write_all(text.as_bytes())?),
        Invocation::Run(startup) => run(*startup),
    }
}

fn run(startup: Startup) -> anyhow::Result<()> {
    let Startup { config, warnings, given } = startup;
    let tracing = config.tracing.clone().map(Tracing::new).transpose()?;
    let traces = tracing.as_ref().map(Tracing::layer);
    let environment = Environment::system();
    let Logging { set_verbosity, held_back } =
        logging::init(&config, Arc::clone(&environment.clock), traces)?;
    tracing::info!(version = versions::COXSWAIN, kubernetes = config.kubernetes_version, "Starting");
    if let Err(error) = files::raise_limit() {
        tracing::warn!(%error, limit = files::limit(), "Failed to raise the limit of open files");
    }
    for (name, value) in given {
        tracing::debug!(flag = name, value, "Flag set");
    }
    for warning in warnings {
        tracing::warn!(flag = warning.flag, reason = warning.message, "Warning about a flag");
    }
    let runtime = runtime()?;
    if let Some(held_back) = held_back.clone() {
        runtime.spawn(held_back.write_out_every(config.flags.log_flush_frequency));
    }
    let ended = runtime.block_on(manager::run(config, REGISTRY, set_verbosity, tracing, environment));
    if let Some(held_back) = held_back {
        // Whoever does not read it any more need not be told.
        let _closed = held_back.write_out();
    }
    Ok(ended?)
}

/// Returns the number of threads of the controllers: one for every [`CORES_PER_THREAD`] cores, at least [`FEWEST_THREADS`]. Controllers mostly
/// wait for the API server, which takes ten times what they do, and threads that have little to do each wake one another for it.
fn threads(cores: usize) -> usize {
    cores.div_ceil(CORES_PER_THREAD).max(FEWEST_THREADS)
}

/// Builds the runtime of the controllers. It has as many threads as `TOKIO_WORKER_THREADS` says, if that is set.
fn runtime() -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        builder.worker_threads(threads(std::thread::available_parallelism().map_or(1, NonZero::get)));
    }
    builder.enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::threads;

    /// kube-controller-manager has one for each core.
    #[test]
    fn four_cores_share_a_thread_and_there_are_two_at_least() {
        assert_eq!([1, 4, 8, 9, 64].map(threads), [2, 2, 2, 3, 16]);
    }
}
