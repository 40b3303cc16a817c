//! Whatever a kubeconfig holds beside a token, it is taken or refused by an error that names the file and does not quote the token.

#![no_main]

use std::cell::RefCell;
use std::fs;

use coxswain_machinery::client::Connection;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

const TOKEN: &str = "hush-hush";

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(Builder::new_current_thread().enable_all().build().expect("a runtime"));
}

fuzz_target!(|text: &[u8]| {
    // Files that a kubeconfig names are read; those of the system never end.
    let is_system = text.windows(4).any(|window| window == b"/dev" || window == b"/pro");
    // A text that says it itself may be quoted.
    if is_system || text.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes()) {
        return;
    }
    let path = std::env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
    let user = format!("users: [{{name: u, user: {{token: {TOKEN}}}}}]\n");
    fs::write(&path, [user.as_bytes(), text].concat()).expect("written");
    let loaded = RUNTIME
        .with(|runtime| runtime.borrow().block_on(Connection::from_kubeconfig("--kubeconfig", &path, None)));
    match loaded {
        Ok(connection) => assert!(!format!("{connection:?}").contains(TOKEN), "{connection:?}"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("--kubeconfig ") && !said.contains(TOKEN), "{said}");
            // The names of contexts, clusters and files may be told, and are bounded by the file.
            assert!(said.len() <= text.len() * 4 + 1000, "{said}");
        }
    }
});
