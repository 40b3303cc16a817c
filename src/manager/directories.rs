//! The directories that are volumes on the manager's own machine: they are made, and removed, for the controller that binds volumes.
//!
//! Only what is below `/tmp` is touched, also where links lead elsewhere. It is for development clusters. The work is done on threads of
//! its own, because a directory may have millions of files.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use coxswain_machinery::environment::Threads;
use coxswain_machinery::executor::{FinishError, Finisher};
use coxswain_machinery::framework::BlockingPool;
use coxswain_machinery::wire::text::raw_bytes;

/// Where directories may be.
const BELOW: &str = "/tmp";

/// Directories that are removed at the same time.
const PLACES: usize = 4;

/// Makes and removes directories.
pub(super) struct Directories(BlockingPool);

impl Directories {
    pub(super) fn new(threads: Threads) -> Self {
        Self(BlockingPool::new(threads, PLACES))
    }
}

impl Finisher for Directories {
    fn finish<'a>(
        &'a self,
        object: &'a [u8],
        details: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        async move {
            let (is_made, path) = match (details["make"].as_str(), details["remove"].as_str()) {
                (Some(path), None) => (true, file_name(path)),
                (None, Some(path)) => (false, file_name(path)),
                _ => return Err(FinishError::Unfit("expected exactly one of make and remove".to_owned())),
            };
            let done = self.0.run(move || if is_made { make(&path) } else { remove(&path) }).await;
            done.map(|()| object.to_vec()).map_err(|error| FinishError::Failed(error.to_string()))
        }
        .boxed()
    }
}

/// The path with this text form. Names of files are byte strings, as strings of the API are.
fn file_name(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    OsString::from_vec(raw_bytes(path).into_owned()).into()
}

fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if !is_plain(path) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the directory must be below /tmp"));
    }
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)
}

/// Removes what is at a path, if that is below `/tmp`; elsewhere everything stays, and that is no failure.
fn remove(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|_| is_plain(path)) else { return Ok(()) };
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    let is_below = match (parent.canonicalize(), Path::new(BELOW).canonicalize()) {
        (Ok(parent), Ok(below)) => parent.starts_with(below),
        (Err(error), _) | (_, Err(error)) => return gone(error),
    };
    if !is_below {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).or_else(gone),
        Ok(_) => fs::remove_file(path).or_else(gone),
        Err(error) => gone(error),
    }
}

/// Whether a path is below `/tmp` as it is written, without detours.
fn is_plain(path: &Path) -> bool {
    let is_straight = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    is_straight && path != Path::new(BELOW) && path.starts_with(BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::wire::text::held_text;
    use serde_json::json;

    fn order(details: &Value) -> Result<Vec<u8>, FinishError> {
        let here = Directories(BlockingPool::inline());
        here.finish(b"object", details).now_or_never().expect("it is done at once")
    }

    #[tokio::test]
    async fn directory_is_removed_off_the_thread_of_the_controllers() {
        let root = format!("/tmp/coxswain-directories-beside-{}", std::process::id());
        fs::create_dir_all(&root).unwrap();
        let pool = BlockingPool::new(Threads::Own, 1);
        let (release, blocked) = std::sync::mpsc::sync_channel(1);
        let busy = pool.clone();
        let mut first = Box::pin(busy.run(move || blocked.recv()));
        assert!(futures::poll!(&mut first).is_pending());
        let (directories, details) = (Directories(pool), json!({ "remove": root }));
        let mut removing = directories.finish(b"object", &details);
        assert!(futures::poll!(&mut removing).is_pending(), "it waits for a thread");
        assert!(Path::new(&root).exists());
        release.send(()).unwrap();
        first.await.unwrap();
        assert_eq!(removing.await.unwrap(), b"object");
        assert!(!Path::new(&root).exists());
    }

    #[test]
    fn directory_whose_name_is_not_utf8_is_removed() {
        use std::os::unix::ffi::OsStringExt as _;
        let root = format!("/tmp/coxswain-directories-bytes-{}", std::process::id());
        let name = [root.as_bytes(), b"/\xff"].concat();
        fs::create_dir_all(PathBuf::from(OsString::from_vec(name.clone()))).unwrap();
        order(&json!({ "remove": held_text(&name) })).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        fs::remove_dir(&root).unwrap();
    }

    #[test]
    fn directories_are_made_and_removed_below_tmp_only() {
        let root = format!("/tmp/coxswain-directories-{}", std::process::id());
        let inner = format!("{root}/a/b");
        assert_eq!(order(&json!({ "make": inner })).unwrap(), b"object");
        assert_eq!(order(&json!({ "make": inner })).unwrap(), b"object", "it may be there");
        fs::write(format!("{inner}/file"), "x").unwrap();
        std::os::unix::fs::symlink("/usr", format!("{root}/out")).unwrap();
        for kept in ["/usr/bin/env", "/tmp", "/tmp/../usr", "tmp/x"] {
            order(&json!({ "remove": kept })).unwrap();
        }
        order(&json!({ "remove": format!("{root}/out/bin") })).unwrap();
        assert!(Path::new("/usr/bin").exists(), "it was behind a link");
        order(&json!({ "remove": root })).unwrap();
        assert!(!Path::new(&root).exists());
        order(&json!({ "remove": root })).unwrap();
        assert!(matches!(order(&json!({ "make": "/usr/x" })), Err(FinishError::Failed(_))));
        assert!(matches!(order(&json!({})), Err(FinishError::Unfit(_))));
    }
}
