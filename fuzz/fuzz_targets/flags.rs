//! Whatever a command line says, the manager has a configuration or says what is wrong, each time the same.
//!
//! A line feed parts arguments; every other byte is an argument's.

#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::options::{Invocation, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if text.windows(4).any(|window| window == b"/dev" || window == b"/pro") {
        return;
    }
    let arguments = || text.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    let read = || match parse(arguments(), REGISTRY) {
        Ok(Invocation::Print(text)) => Ok(text),
        Ok(Invocation::Run(startup)) => Ok(format!("{:?}", startup.given)),
        Err(errors) => Err(errors.to_string()),
    };
    let first = read();
    if let Err(said) = &first {
        assert!(!said.is_empty(), "an error says something");
    }
    assert_eq!(first, read());
});
