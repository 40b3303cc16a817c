//! Policies checked against types that are made up, on a store that is filled by hand.

mod documents;
mod fixtures;
mod kinds;
mod statuses;
