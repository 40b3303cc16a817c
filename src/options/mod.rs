//! Flags, validation, feature gates and the component configuration that they make.
//!
//! The way of a command line: [`parse`] reads it into [`Flags`] by the one table of flags, completes and validates
//! all of it together, and gives a [`Config`], which the rest of the manager never changes. Nothing here talks to an
//! API server, and nothing but the files that flags name is read.

mod composite;
pub mod duration;
mod error;
mod flag;
mod flags;
pub mod gates;
mod parser;
mod value;
pub mod versions;

pub use composite::{
    ByteQuantity, ComponentSetting, ComponentSettings, ModuleVerbosity, NamedCertKey, VersionRequest,
};
pub use error::{OptionError, OptionErrors, OptionWarning};
pub use flag::{Effect, Flag};
pub use flags::{Flags, TABLE};
pub use gates::FeatureGates;
pub use value::{ValueError, Verbosity};
pub use versions::EffectiveVersions;

/// The manager's configuration, complete and valid. It holds names of files, never what is secret in them.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The value of every flag.
    pub flags: Flags,
    /// Which features are on.
    pub gates: FeatureGates,
    /// Which releases the manager behaves as and works with.
    pub versions: EffectiveVersions,
}

/// temporary
#[derive(Debug)]
pub enum Enablement {
    /// x
    Enabled,
    /// x
    Disabled,
    /// x
    Skipped(String),
}
impl Config {
    /// temporary
    pub fn enablement(&self, _: &crate::framework::Descriptor) -> Enablement {
        Enablement::Enabled
    }
    /// temporary
    pub fn configz(&self) -> serde_json::Value {
        serde_json::json!({})
    }
    /// temporary
    pub fn temp(args: &[String]) -> Self {
        let p = parser::parse(args);
        for e in &p.errors {
            tracing::error!("{e:?}");
        }
        Self { flags: p.flags, ..Self::default() }
    }
}
