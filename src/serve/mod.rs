//! placeholder until the serving module lands.
/// A health check.
pub trait HealthCheck: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// Whether all is well.
    fn check(&self) -> Result<(), String>;
}
