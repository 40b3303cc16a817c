//! What a network and an API server under stress do: cut watches, expired versions, lost answers, restarts. At the end
//! the caches are what a fresh list says, there is no pod too many, and controllers have done what they do without faults.

mod blocks;
mod caches;
mod churn;
mod cidrs;
mod collector;
mod duplicates;
mod endpoints;
mod jobs;
mod line;
mod mirrors;
mod namespaces;
mod quotas;
mod restores;
mod served;
mod slices;
mod stage;
