//! temp
use coxswain::{manager, options::Config, registry::REGISTRY};
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(manager::run(Config::temp(&args), REGISTRY))?;
    Ok(())
}
