//! What a network and an API server under stress do: cut watches, expired versions, lost answers, restarts. At the end
//! the caches are what a fresh list says, and there is no pod too many.

mod caches;
mod churn;
mod duplicates;
mod endpoints;
mod mirrors;
mod ordeal;
mod served;
mod slices;
