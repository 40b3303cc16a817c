//! The rooms' tables, on stores that are filled by hand.

mod fixtures;
mod keys;
mod pods;
mod rules;
mod verdicts;
