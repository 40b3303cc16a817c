//! What a registry must be before anything starts from it: every name means one controller.

use coxswain_machinery::framework::Descriptor;
use coxswain_machinery::options::gates;
use coxswain_machinery::random::HashMap;

/// A registry that nothing can start from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two controllers have one name.
    #[error("two controllers have the name {name}")]
    DuplicateName {
        /// The name.
        name: &'static str,
    },
    /// An alias means more than one controller, or stands twice.
    #[error("the alias {alias} of {controller} is already a name or alias of {other}")]
    AliasConflict {
        /// The alias.
        alias: &'static str,
        /// The controller that it was read at.
        controller: &'static str,
        /// The controller that had it first.
        other: &'static str,
    },
    /// A name that `--controllers` could not take.
    #[error(
        "{name:?} cannot be used in --controllers: a name has lower-case letters, digits and inner dashes only"
    )]
    BadName {
        /// The name or alias.
        name: &'static str,
    },
    /// A gate that does not exist, so that the controller could never run.
    #[error("{controller} needs the feature gate {gate}, which does not exist")]
    UnknownGate {
        /// The controller.
        controller: &'static str,
        /// The gate.
        gate: &'static str,
    },
    /// More than one controller wants to be the first.
    #[error("{controller} and {other} both start first; only one controller can")]
    SecondSpecial {
        /// The controller that it was read at.
        controller: &'static str,
        /// The controller that was first.
        other: &'static str,
    },
}

/// Refuses a registry in which a name means two controllers, or one that could never run.
///
/// # Errors
/// The first thing found wrong.
pub fn validate(registry: &[Descriptor]) -> Result<(), RegistryError> {
    let mut owners: HashMap<&str, &'static str> = HashMap::default();
    let mut special = None;
    for descriptor in registry {
        let name = descriptor.name;
        check_name(name)?;
        if owners.insert(name, name).is_some() {
            return Err(RegistryError::DuplicateName { name });
        }
        for gate in descriptor.gates {
            if !gates::TABLE.iter().any(|known| known.name == *gate) {
                return Err(RegistryError::UnknownGate { controller: name, gate });
            }
        }
        if descriptor.special
            && let Some(other) = special.replace(name)
        {
            return Err(RegistryError::SecondSpecial { controller: name, other });
        }
    }
    // Names come first, so that an alias that is another controller's name is the one to blame, whatever the order.
    for descriptor in registry {
        for alias in descriptor.aliases {
            check_name(alias)?;
            if let Some(other) = owners.insert(alias, descriptor.name) {
                return Err(RegistryError::AliasConflict { alias, controller: descriptor.name, other });
            }
        }
    }
    Ok(())
}

fn check_name(name: &'static str) -> Result<(), RegistryError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let outer = |c: Option<char>| c.is_some_and(|c| inner(c) && c != '-');
    if name.chars().all(inner) && outer(name.chars().next()) && outer(name.chars().last()) {
        Ok(())
    } else {
        Err(RegistryError::BadName { name })
    }
}
