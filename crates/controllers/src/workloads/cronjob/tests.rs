//! Tables of schedules, of what is due, of plans and of whole reconciles.

mod differential;
mod fixtures;
mod keys;
mod plans;
mod reconciles;
mod records;
mod schedules;
mod timing;
