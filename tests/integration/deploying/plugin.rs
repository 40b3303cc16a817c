//! The client as a plugin of kubectl: found under its name, complained of under its name, completed; and what is released.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;

use super::{file, said, script, text};
use crate::harness::{ControlPlane, binaries, by_depth};

/// The module of the client in Go.
const MODULE: &str = "github.com/coxswain-dev/coxswain/clients/go";

/// kubectl with the plugin on the path.
fn kubectl(programs: &Path, args: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut kubectl = Command::new(binaries().join("kubectl"));
    kubectl.env("PATH", format!("{}:{path}", programs.display())).args(args).output().expect("kubectl runs")
}

#[test]
fn kubectl_runs_and_completes_it() {
    let dir = tempfile::tempdir().expect("a directory");
    symlink(ControlPlane::coxswain_binary(), dir.path().join("kubectl-coxswain")).expect("a link");
    let script = "kubectl_complete-coxswain";
    symlink(file("deploy/krew").join(script), dir.path().join(script)).expect("a link");
    let run = |args: &[&str]| kubectl(dir.path(), args);

    assert!(said(&run(&["coxswain", "version"])).starts_with("Coxswain v"));
    // The manager's own flags are none of the plugin's.
    for args in [&["coxswain", "--leader-elect=true"][..], &["coxswain"], &["coxswain", "lead"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains("Usage: kubectl coxswain"), "{args:?}: {}", said(&output));
    }
    for (args, expected) in [
        (&["__complete", "coxswain", "lead"][..], "leader"),
        (&["__complete", "coxswain", "disable", "deplo"], "deployment-controller"),
        (&["__complete", "coxswain", "controllers", "--out"], "--output"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = said.lines().next().unwrap_or_default();
        assert_eq!(first.split('\t').next(), Some(expected), "{args:?}: {said}");
        assert!(said.trim_end().ends_with(":4"), "{args:?}: {said}");
    }
}

/// Runs a program, and panics with its words when it fails.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

/// The same sources in another place.
fn another_checkout(at: &Path) {
    run(Command::new("git").args(["clone", "--quiet", "--no-checkout"]).arg(file("")).arg(at));
    let copy = "git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory=\"$0\"";
    run(Command::new("bash").args(["-c", copy, text(at)]).current_dir(file("")));
    run(Command::new("git").args(["add", "--all"]).current_dir(at));
}

fn release(from: &Path, to: &Path) -> BTreeMap<String, Vec<u8>> {
    let output = Command::new("make")
        .args(["--no-print-directory", "dist"])
        .current_dir(from)
        .env("COXSWAIN", ControlPlane::coxswain_binary())
        .env("OUT", to)
        .output()
        .expect("make");
    assert!(output.status.success(), "{}", said(&output));
    let files = fs::read_dir(to).expect("a directory").flatten();
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().expect("text");
    // The mark of a directory that is made anew.
    files
        .filter(|entry| name(entry) != ".coxswain-dist")
        .map(|entry| (name(&entry), fs::read(entry.path()).expect("a file")))
        .collect()
}

/// `OUT=$HOME make image` removes nothing.
#[test]
fn directory_with_other_files_is_not_removed_for_a_build() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = dir.path().join("file");
    let empty = || {
        let script = Command::new(file("scripts/empty.sh")).arg(dir.path()).arg("oci-layout").output();
        script.expect("bash")
    };
    assert!(empty().status.success(), "an empty directory");
    fs::write(&other, "mine").expect("written");
    let refused = empty();
    assert!(!refused.status.success() && other.exists(), "{}", said(&refused));
    fs::write(dir.path().join("oci-layout"), "{}").expect("written");
    assert!(empty().status.success());
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0);
    for path in ["scripts/image.sh", "scripts/dist.sh"] {
        let text = fs::read_to_string(file(path)).expect("a script");
        assert!(text.contains("scripts/empty.sh \"$out\"") && !text.contains("rm -rf \"$out\""), "{path}");
    }
}

/// The manifest of a plugin, with the fields that krew knows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Manifest {
    api_version: String,
    kind: String,
    metadata: Name,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    version: String,
    homepage: String,
    short_description: String,
    description: String,
    caveats: String,
    platforms: Vec<Platform>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Platform {
    selector: Selector,
    uri: String,
    sha256: String,
    bin: String,
    files: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

/// Copies what `from` matches in the archive.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    from: String,
    to: String,
}

/// Does with a manifest, and the archives that it names in a directory, what krew would, for each platform in a directory of its own
/// under `to`. Gives the plugins.
fn install_as_krew(manifest: &str, archives: &Path, to: &Path) -> Vec<PathBuf> {
    let manifest: Manifest = serde_yaml_ng::from_str(manifest).expect("a manifest");
    assert_eq!(manifest.api_version, "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((manifest.kind.as_str(), manifest.metadata.name.as_str()), ("Plugin", "coxswain"));
    let spec = manifest.spec;
    assert_eq!(spec.version, concat!("v", env!("CARGO_PKG_VERSION")));
    assert!(!spec.short_description.is_empty() && spec.short_description.len() <= 50, "krew asks for that");
    assert!(
        !spec.short_description.contains('\n') && !spec.description.is_empty() && !spec.caveats.is_empty()
    );
    let released = format!("{}/releases/download/{}/", spec.homepage, spec.version);
    let mut seen = BTreeSet::new();
    let mut install = |platform: &Platform| {
        let of = |label: &str| platform.selector.match_labels[label].as_str();
        let (os, arch) = (of("os"), of("arch"));
        assert_eq!(platform.selector.match_labels.len(), 2, "krew knows no other labels");
        assert!(seen.insert((os.to_owned(), arch.to_owned())), "{os}/{arch} is there twice");
        let archive = format!("kubectl-coxswain-{}-{os}-{arch}.tar.gz", env!("CARGO_PKG_VERSION"));
        assert_eq!(platform.uri, format!("{released}{archive}"));
        let archive = archives.join(archive);
        let sum = run(Command::new("sha256sum").arg(&archive));
        assert_eq!(sum.split(' ').next(), Some(platform.sha256.as_str()), "{}", archive.display());

        let (unpacked, installed) = (to.join(arch).join("archive"), to.join(arch).join("plugin"));
        for dir in [&unpacked, &installed] {
            fs::create_dir_all(dir).expect("a directory");
        }
        let tar = ["--extract", "--gzip", "--file", text(&archive), "--directory", text(&unpacked)];
        run(Command::new("tar").args(tar));
        for Rule { from, to } in &platform.files {
            assert_eq!(to, ".", "that all is in one directory is what the archive is like");
            let copy =
                ["-c", "cd \"$1\" && cp -- $2 \"$3\"", "copy", text(&unpacked), from, text(&installed)];
            run(Command::new("bash").args(copy));
        }
        let plugin = installed.join(&platform.bin);
        assert!(plugin.is_file() && installed.join("LICENSE").is_file(), "{}", plugin.display());
        plugin
    };
    spec.platforms.iter().map(&mut install).collect()
}

#[test]
fn the_manifest_for_krew_has_a_platform_for_each_archive() {
    let dir = tempfile::tempdir().expect("a directory");
    let archives = ["amd64", "arm64"].map(|arch| {
        let name = format!("kubectl-coxswain-{}-linux-{arch}", env!("CARGO_PKG_VERSION"));
        let (within, archive) = (dir.path().join(&name), dir.path().join(format!("{name}.tar.gz")));
        fs::create_dir(&within).expect("a directory");
        for file in ["kubectl-coxswain", "LICENSE"] {
            fs::write(within.join(file), arch).expect("written");
        }
        run(Command::new("tar")
            .args(["--create", "--gzip", "--file"])
            .arg(&archive)
            .arg("-C")
            .arg(dir.path())
            .arg(&name));
        archive
    });
    let [amd64, arm64] = archives.each_ref().map(|archive| text(archive));
    let manifest = script("deploy/krew/manifest.sh", &[env!("CARGO_PKG_VERSION"), amd64, arm64]);
    let plugins = install_as_krew(&manifest, dir.path(), &dir.path().join("krew"));
    let plugins = plugins.iter().map(|plugin| fs::read_to_string(plugin).expect("text"));
    assert_eq!(plugins.collect::<Vec<_>>(), ["amd64", "arm64"]);
}

#[test]
fn what_is_released_is_the_same_twice() {
    // It packs a program for development, which is large.
    if !by_depth(false, true) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second, elsewhere) =
        (dir.path().join("first"), dir.path().join("second"), dir.path().join("elsewhere"));
    another_checkout(&elsewhere);
    let (files, again) = (release(&file(""), &first), release(&elsewhere, &second));
    assert!(files.len() > 11 && files.keys().eq(again.keys()), "{:?}", files.keys());
    for (name, bytes) in &files {
        assert!(*bytes == again[name], "{name} is not the same twice");
    }
    let check =
        Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&first).output();
    let check = check.expect("sha256sum");
    assert!(check.status.success(), "{}", said(&check));
    let listed = String::from_utf8_lossy(&files["SHA256SUMS"]).lines().count();
    assert_eq!(listed, files.len() - 1, "each file has a checksum");

    assert_clients_can_be_used(&first, dir.path());

    let krew = String::from_utf8_lossy(&files["coxswain.krew.yaml"]).into_owned();
    let installed = dir.path().join("krew");
    let plugin = install_as_krew(&krew, &first, &installed).pop().expect("a platform");
    let version = Command::new(&plugin).arg("version").output().expect("the plugin");
    assert!(said(&version).contains(concat!("v", env!("CARGO_PKG_VERSION"))), "{}", said(&version));
}

#[test]
fn signature_of_a_release_is_verified_with_the_public_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let openssl = |args: &[&str]| Command::new("openssl").args(args).current_dir(dir.path()).output();
    let generate = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key"];
    for args in [&generate[..], &["pkey", "-in", "key", "-pubout", "-out", "coxswain.pub"]] {
        let output = openssl(args).expect("openssl");
        assert!(output.status.success(), "{}", said(&output));
    }
    let sums = dir.path().join("SHA256SUMS");
    fs::write(&sums, "0123  coxswain.tgz\n").expect("written");
    let sign = |key: &str| {
        let mut sign = Command::new(file("scripts/sign.sh"));
        sign.arg(&sums).env("SIGNING_KEY", dir.path().join(key)).output().expect("bash")
    };
    assert!(!sign("missing").status.success());
    assert!(!dir.path().join("SHA256SUMS.sig").exists());
    let signed = sign("key");
    assert!(signed.status.success(), "{}", said(&signed));
    let document = fs::read_to_string(file("docs/releases.md")).expect("the page");
    let verify =
        "openssl dgst -sha256 -verify coxswain.pub -signature <(base64 -d SHA256SUMS.sig) SHA256SUMS";
    assert!(document.contains(verify), "{document}");
    let verified = || {
        let bash = Command::new("bash").args(["-c", verify]).current_dir(dir.path()).output();
        bash.expect("bash").status.success()
    };
    assert!(verified());
    fs::write(&sums, "4567  coxswain.tgz\n").expect("written");
    assert!(!verified(), "another list has the same signature");
}

/// What each language's own tools make of its client.
fn assert_clients_can_be_used(release: &Path, dir: &Path) {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let python = script("clients/python/environment.sh", &[]);
    let wheel = release.join(format!("coxswain_admin-{VERSION}-py3-none-any.whl"));
    let site = dir.join("site");
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"];
    run(Command::new(python.trim()).args(install).arg(&site).arg(&wheel));
    let import = "import coxswain.admin as admin; print(admin.__file__)";
    let found =
        Command::new(python.trim()).args(["-c", import]).env("PYTHONPATH", &site).current_dir(dir).output();
    let found = said(&found.expect("python"));
    assert!(found.starts_with(text(&site)), "{found}");

    // Beside the packages that it rests on.
    let modules = dir.join("npm/node_modules");
    fs::create_dir_all(modules.join("@coxswain-dev")).expect("a directory");
    for scope in ["@bufbuild", "@connectrpc"] {
        symlink(file("clients/typescript/node_modules").join(scope), modules.join(scope)).expect("a link");
    }
    let package = release.join(format!("coxswain-dev-admin-{VERSION}.tgz"));
    let at = modules.join("@coxswain-dev");
    run(Command::new("tar").args(["--extract", "--gzip", "--file"]).arg(package).arg("--directory").arg(&at));
    fs::rename(at.join("package"), at.join("admin")).expect("moved");
    let import =
        "const admin = await import('@coxswain-dev/admin'); console.log(Object.keys(admin).join(' '))";
    let node = ["--preserve-symlinks", "--input-type=module", "--eval", import];
    let found = run(Command::new("node").args(node).current_dir(dir.join("npm")));
    assert!(found.contains("connect"), "{found}");

    let proxy = dir.join("proxy");
    let at = proxy.join(MODULE).join("@v");
    fs::create_dir_all(&at).expect("a directory");
    let version = format!("v{VERSION}");
    let zip = release.join(format!("coxswain-client-go-{VERSION}.zip"));
    fs::copy(zip, at.join(format!("{version}.zip"))).expect("copied");
    fs::copy(file("clients/go/go.mod"), at.join(format!("{version}.mod"))).expect("copied");
    fs::write(at.join(format!("{version}.info")), format!(r#"{{"Version":"{version}"}}"#)).expect("written");
    // It refuses a zip that is not as it demands.
    let mut download = Command::new("go");
    download.args(["mod", "download", "-json", &format!("{MODULE}@{version}")]).current_dir(dir);
    download.env("GOPROXY", format!("file://{}", proxy.display())).env("GONOSUMDB", "*").env("GOWORK", "off");
    download.env("GOMODCACHE", dir.join("go")).env("GOFLAGS", "-modcacherw");
    run(&mut download);
    assert!(dir.join("go").join(format!("{MODULE}@{version}/coxswain.go")).exists());
}
