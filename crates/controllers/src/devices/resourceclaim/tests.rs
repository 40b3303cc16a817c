//! Tables of what is made, recorded, reserved, freed and deleted, on stores that are filled by hand.

mod claims;
mod fixtures;
mod keys;
mod owners;
