//! Flags, validation, feature gates and the component configuration that they make.

/// The manager's configuration, complete and valid.
#[derive(Clone, Debug, Default)]
pub struct Config {}
