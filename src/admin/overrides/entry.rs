//! One override as an annotation.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A longer reason is refused.
pub const MAX_REASON_BYTES: usize = 1024;
/// A longer name of a user or a replica is cut when an entry is made, and refused in one that was edited by hand.
pub const MAX_USER_BYTES: usize = 256;
/// A longer annotation is not looked into. Far beyond what an entry within its limits can take, escapes included.
const MAX_ENTRY_BYTES: usize = 16 << 10;

/// What an entry orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Run the controller.
    Enabled,
    /// Stop it.
    Disabled,
    /// Nothing: an earlier order was withdrawn, and the flags hold.
    Default,
}

/// One override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it orders.
    pub order: Order,
    /// Who gave the order.
    pub user: String,
    /// When.
    pub time: Timestamp,
    /// Why.
    pub reason: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
    /// Grows with every entry that is written, over all controllers.
    pub version: u64,
    /// Identity of the replica that wrote it; empty for one that was written by hand.
    pub replica: String,
    /// Whether the caller set `force`. `None` for an entry that was written by hand or by an older version.
    pub force: Option<bool>,
}

/// An annotation that is no override.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It is longer than any override.
    #[error("{0} bytes; the maximum is {MAX_ENTRY_BYTES}")]
    TooLong(usize),
    /// It is not JSON of the form expected.
    #[error("parse the override: {0}")]
    Form(String),
    /// A time in it is not one.
    #[error("{field} {value:?}: expected an RFC 3339 time")]
    Time {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// A field is longer than it may be.
    #[error("{field}: {bytes} bytes; the maximum is {most}")]
    FieldTooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
}

/// The JSON of an annotation. Fields that a newer version may add are passed over.
#[derive(Serialize, Deserialize)]
struct Written {
    desired: Order,
    /// An order to run a controller that never outranks the flags. `desired` is `default` then: to a version that does not
    /// know this field, the flags hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordered: Option<Order>,
    #[serde(default)]
    user: String,
    time: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(default)]
    version: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    replica: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    force: Option<bool>,
}

impl Entry {
    /// Reads an annotation's value.
    pub fn parse(value: &str) -> Result<Self, EntryError> {
        if value.len() > MAX_ENTRY_BYTES {
            return Err(EntryError::TooLong(value.len()));
        }
        let written: Written =
            serde_json::from_str(value).map_err(|error| EntryError::Form(error.to_string()))?;
        within("reason", &written.reason, MAX_REASON_BYTES)?;
        within("user", &written.user, MAX_USER_BYTES)?;
        within("replica", &written.replica, MAX_USER_BYTES)?;
        let (order, force) = match (written.desired, written.ordered) {
            (Order::Default, Some(Order::Enabled)) => (Order::Enabled, Some(false)),
            (desired, _) => (desired, written.force),
        };
        Ok(Self {
            order,
            time: time("time", &written.time)?,
            until: written.until.as_deref().map(|until| time("until", until)).transpose()?,
            user: written.user,
            reason: written.reason,
            version: written.version,
            replica: written.replica,
            force,
        })
    }

    /// The annotation's value.
    pub fn to_value(&self) -> Result<String, EntryError> {
        let within_flags = self.order == Order::Enabled && !self.outranks_flags();
        let written = Written {
            desired: if within_flags { Order::Default } else { self.order },
            ordered: within_flags.then_some(Order::Enabled),
            user: self.user.clone(),
            time: self.time.to_string(),
            reason: self.reason.clone(),
            until: self.until.map(|until| until.to_string()),
            version: self.version,
            replica: self.replica.clone(),
            force: self.force,
        };
        serde_json::to_string(&written).map_err(|error| EntryError::Form(error.to_string()))
    }

    /// Whether it counts: it orders something and its time is not over.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.order != Order::Default && self.until.is_none_or(|until| now < until)
    }

    /// Whether an order to run a controller outranks flags that leave the controller out. Entries of older versions and
    /// entries written by hand do: that is what they meant.
    pub fn outranks_flags(&self) -> bool {
        self.force != Some(false)
    }
}

fn time(field: &'static str, value: &str) -> Result<Timestamp, EntryError> {
    value.parse().map_err(|_| EntryError::Time { field, value: value.chars().take(64).collect() })
}

fn within(field: &'static str, value: &str, most: usize) -> Result<(), EntryError> {
    if value.len() > most {
        return Err(EntryError::FieldTooLong { field, bytes: value.len(), most });
    }
    Ok(())
}
