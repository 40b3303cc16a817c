//! FlexVolume drivers: none is run, so that those which are installed are worth a word.

use std::fs;
use std::path::Path;

use super::Check;

const FLAG: &str = "flex-volume-plugin-dir";
/// For these the original runs them.
const RUN_FOR: [&str; 2] = ["persistentvolume-attach-detach-controller", "selinux-warning-controller"];

impl Check<'_> {
    pub(super) fn drivers(&mut self) {
        if !RUN_FOR.iter().any(|name| self.runs(name)) {
            return;
        }
        let found = installed(Path::new(&self.flags.flex_volume_plugin_dir));
        if !found.is_empty() {
            let message = format!(
                "found FlexVolume drivers ({}), which Coxswain does not run; their volumes will not be attached or \
                 detached",
                found.join(", ")
            );
            self.warn(FLAG, message);
        }
    }
}

/// The drivers in a directory: each in a folder named `VENDOR~DRIVER`, or `DRIVER`, as a file named DRIVER.
fn installed(directory: &Path) -> Vec<String> {
    let folders = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<String> = folders
        .filter_map(|folder| {
            let name = folder.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
            let driver = name.rsplit_once('~').map_or(name.as_str(), |(_, driver)| driver);
            folder.path().join(driver).is_file().then(|| name.replacen('~', "/", 1))
        })
        .collect();
    found.sort();
    found
}
