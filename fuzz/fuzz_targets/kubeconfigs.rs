//! Whatever a kubeconfig holds, it is taken or refused by an error that names the file and quotes nothing secret.

#![no_main]

use std::cell::RefCell;
use std::fs;

use coxswain_machinery::client::Connection;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

/// What stands for a secret wherever it is.
const SECRET: &str = "hush-hush";

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(Builder::new_current_thread().enable_all().build().expect("a runtime"));
}

fuzz_target!(|text: &[u8]| {
    // Files that a kubeconfig names are read; those of the system never end.
    if text.windows(4).any(|window| window == b"/dev" || window == b"/pro") {
        return;
    }
    let path = std::env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
    fs::write(&path, text).expect("written");
    let loaded = RUNTIME
        .with(|runtime| runtime.borrow().block_on(Connection::from_kubeconfig("--kubeconfig", &path, None)));
    match loaded {
        Ok(connection) => assert!(!format!("{connection:?}").contains(SECRET), "{connection:?}"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("--kubeconfig "), "{said}");
            // The names of contexts, clusters and files may be told, and are bounded by the file.
            assert!(said.len() <= text.len() * 4 + 1000, "{said}");
        }
    }
});
