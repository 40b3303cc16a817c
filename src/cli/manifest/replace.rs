//! Writes a static pod into the place of a manifest. The kubelet runs every file of the manifests' directory, so a copy for the way back lies
//! elsewhere, and no second manifest is written there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{Manifest, starts_manager};

/// The size of the longest manifest that a kubelet reads, in bytes.
const LONGEST: u64 = 10 << 20;

/// The files of one replacement.
#[derive(Debug)]
pub(in crate::cli) struct Destination<'a> {
    /// The manifest that was converted.
    pub(in crate::cli) source: &'a Path,
    /// The file to write.
    pub(in crate::cli) output: &'a Path,
    /// The copy of kube-controller-manager's manifest; by default the file of the same name next to the manifests' directory.
    pub(in crate::cli) backup: Option<&'a Path>,
}

/// The effect of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Done {
    /// The file had this content.
    Unchanged,
    /// The file was written.
    Written {
        /// The copy of kube-controller-manager's manifest, if one was needed.
        backup: Option<PathBuf>,
    },
}

/// The files that a replacement creates or changes.
#[derive(Debug)]
pub(in crate::cli) struct Plan<'a> {
    output: &'a Path,
    /// The new content of the output; `None` if the file has it.
    text: Option<&'a str>,
    backup: Option<Backup>,
}

#[derive(Debug)]
struct Backup {
    path: PathBuf,
    /// The content of the copy; `None` if the copy exists.
    text: Option<String>,
}

impl Plan<'_> {
    /// Changes the files.
    ///
    /// # Errors
    /// A file cannot be written. The output has not changed then, but the copy may exist.
    pub(in crate::cli) fn apply(self) -> Result<Done, String> {
        let Some(text) = self.text else { return Ok(Done::Unchanged) };
        let output = self.output.display();
        if let Some(Backup { path, text: Some(existing) }) = &self.backup {
            create(path, existing)
                .map_err(|error| format!("copy {output} to {}: {error}", path.display()))?;
        }
        write_file(self.output, text).map_err(|error| format!("write {output}: {error}"))?;
        Ok(Done::Written { backup: self.backup.map(|backup| backup.path) })
    }
}

impl<'a> Destination<'a> {
    /// Returns the changes that put the text into the file. Changes no file.
    ///
    /// # Errors
    /// The kubelet would run two managers; no way back to kube-controller-manager would remain; or a file cannot be read.
    pub(in crate::cli) fn plan(&self, text: &'a str) -> Result<Plan<'a>, String> {
        let directory = directory_of(self.output)?;
        let existing = match fs::read_to_string(self.output) {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("read {}: {error}", self.output.display())),
        };
        if existing.as_deref() == Some(text) {
            return Ok(Plan { output: self.output, text: None, backup: None });
        }
        let is_source =
            existing.is_some() && fs::canonicalize(self.output).ok() == fs::canonicalize(self.source).ok();
        if !is_source && directory_of(self.source)? == directory {
            return Err(format!(
                "write {}: the kubelet runs every manifest in {}; write to {} itself or to a file in another directory",
                self.output.display(),
                directory.display(),
                self.source.display(),
            ));
        }
        let backup = if let Some(existing) = existing {
            self.keep(existing, &directory, is_source)?
        } else {
            refuse_second(self.output, &directory)?;
            None
        };
        Ok(Plan { output: self.output, text: Some(text), backup })
    }

    /// Makes sure that the way back remains once the file is replaced.
    fn keep(&self, existing: String, directory: &Path, is_source: bool) -> Result<Option<Backup>, String> {
        let output = self.output.display();
        let manifest = Manifest::parse(&existing).map_err(|error| {
            format!("replace {output}: the file is not a manifest of a controller manager: {error}")
        })?;
        let backup = if let Some(backup) = self.backup {
            backup.to_owned()
        } else {
            let above = directory.parent().unwrap_or(directory);
            above.join(self.output.file_name().unwrap_or_default())
        };
        let place = backup.display();
        if directory_of(&backup)?.starts_with(directory) {
            return Err(format!(
                "copy {output} to {place}: the kubelet runs every manifest in {}; use --backup to name a file outside of this directory",
                directory.display()
            ));
        }
        let kept = match fs::read_to_string(&backup) {
            Ok(kept) => Some(kept),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("read {place}: {error}")),
        };
        if manifest.image_of_coxswain().is_some() {
            // A file outside of the kubelet's directory is a draft.
            return match kept.map(|kept| Manifest::parse(&kept)) {
                _ if !is_source => Ok(None),
                Some(Ok(kept)) if kept.image_of_coxswain().is_none() => {
                    Ok(Some(Backup { path: backup, text: None }))
                }
                Some(_) => Err(format!(
                    "replace {output}: {place} is not a manifest of kube-controller-manager; use --backup to name the manifest to restore"
                )),
                None => Err(format!(
                    "replace {output}: the manifest already runs Coxswain, and the backup {place} does not exist; use --backup \
                     to name the manifest of kube-controller-manager to restore"
                )),
            };
        }
        match kept {
            Some(kept) if kept == existing => Ok(Some(Backup { path: backup, text: None })),
            Some(_) => Err(format!(
                "copy {output} to {place}: the file exists with other content; remove it, or name another file with --backup"
            )),
            None => Ok(Some(Backup { path: backup, text: Some(existing) })),
        }
    }
}

/// Refuses a new file next to a manifest that starts a controller manager. Kubelets skip directories and names that begin with a dot.
fn refuse_second(output: &Path, directory: &Path) -> Result<(), String> {
    let unreadable = |path: &Path, error: io::Error| format!("read {}: {error}", path.display());
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, error))? {
        let path = entry.map_err(|error| unreadable(directory, error))?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        let text = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= LONGEST => fs::read(&path),
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        match text {
            Ok(text) if std::str::from_utf8(&text).is_ok_and(starts_manager) => {
                return Err(format!(
                    "write {}: {} already starts a controller manager, and the kubelet runs every manifest in {}; write to the \
                     existing manifest or to a file in another directory",
                    output.display(),
                    path.display(),
                    directory.display(),
                ));
            }
            Ok(_) => {}
            // A symbolic link to nothing, or a file that was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&path, error)),
        }
    }
    Ok(())
}

/// The directory of a file, without symbolic links.
fn directory_of(file: &Path) -> Result<PathBuf, String> {
    let directory =
        file.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::canonicalize(directory).map_err(|error| format!("directory {}: {error}", directory.display()))
}

/// Creates a file that only its owner can read. A part of it does not remain after an error.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    });
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

/// Replaces a file as a whole, so that no reader sees a part of it, and a failure leaves it as it is. The name of the new file begins with a
/// dot meanwhile, and kubelets skip such files.
pub(in crate::cli) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(ErrorKind::InvalidFilename)?);
    name.push(format!(".{}", std::process::id()));
    let new = path.with_file_name(name);
    create(&new, text)?;
    fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new)))
}
