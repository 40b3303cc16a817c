//! The image: the stages of `deploy/Containerfile`, by their scripts, into a layout that a registry would take.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{file, said, script, text};
use crate::harness::{ControlPlane, by_depth};

/// All that is in it, besides directories and the libraries of the architecture.
const CONTENTS: [&str; 13] = [
    "etc/group",
    "etc/nsswitch.conf",
    "etc/os-release",
    "etc/passwd",
    "etc/ssl/certs/ca-certificates.crt",
    "usr/local/bin/coxswain",
    "usr/local/bin/kubectl-coxswain",
    "usr/share/doc/coxswain/LICENSE",
    "usr/share/doc/coxswain/sbom.cdx.json",
    "var/lib/dpkg/status.d/base-files",
    "var/lib/dpkg/status.d/ca-certificates",
    "var/lib/dpkg/status.d/libc6",
    "var/lib/dpkg/status.d/libgcc-s1",
];
/// The SBOM, which contains no hash of itself.
const SBOM: &str = "usr/share/doc/coxswain/sbom.cdx.json";
/// What the program is linked with.
const LIBRARIES: [&str; 4] = ["ld-linux", "libc.so.6", "libgcc_s.so.1", "libm.so.6"];

/// The files of a directory, by their paths in it.
fn files(root: &Path, at: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(at).expect("a directory").flatten() {
        if entry.file_type().expect("a type").is_dir() {
            found.extend(files(root, &entry.path()));
        } else {
            let path = entry.path().strip_prefix(root).expect("within it").to_path_buf();
            found.insert(text(&path).to_owned());
        }
    }
    found
}

/// `make image`, of the build under test, into a directory.
fn make(layout: &Path) {
    let output = Command::new("make")
        .args(["--no-print-directory", "image"])
        .current_dir(file(""))
        .env("COXSWAIN", ControlPlane::coxswain_binary())
        .env("OUT", layout)
        .output()
        .expect("make");
    assert!(output.status.success(), "{}", said(&output));
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// What a descriptor is of.
fn blob(layout: &Path, descriptor: &Value) -> Value {
    let digest = descriptor["digest"].as_str().expect("a digest").replace(':', "/");
    json(&layout.join("blobs").join(digest))
}

/// What the stages of the Containerfile run, with the build under test, in a directory in the place of theirs; gives the root
/// filesystem that comes of it.
fn build_stages(containerfile: &str, dir: &Path) -> PathBuf {
    let built = "\"$(deploy/image/build.sh \"$TARGETARCH\")\"";
    assert!(containerfile.contains(built), "the program is built by its script");
    let containerfile = containerfile.replace(built, &ControlPlane::coxswain_binary());
    let runs = containerfile.lines().filter_map(|line| line.strip_prefix("RUN "));
    // The rest brings the compiler of another architecture.
    let runs: Vec<&str> = runs.filter(|run| !run.starts_with("if [ \"$TARGETARCH\"")).collect();
    assert_eq!(runs.len(), 3, "{runs:?}");
    for run in runs {
        let mut command = format!(" {run}");
        for place in ["/out", "/rootfs"] {
            for before in [" ", "="] {
                command = command
                    .replace(&format!("{before}{place}"), &format!("{before}{}{place}", dir.display()));
            }
        }
        let output =
            Command::new("bash").args(["-euc", &command]).current_dir(file("")).output().expect("bash");
        assert!(output.status.success(), "{run}: {}", said(&output));
    }
    dir.join("rootfs")
}

/// The Containerfile makes the same image: of the same files, run in the same way.
fn assert_containerfile_makes(rootfs: &Path, config: &Value, dir: &Path) {
    let containerfile = fs::read_to_string(file("deploy/Containerfile")).expect("a file");
    let built = build_stages(&containerfile, dir);
    let paths = files(rootfs, rootfs);
    assert_eq!(files(&built, &built), paths);
    for path in paths {
        let [ours, theirs] = [rootfs, &built].map(|root| fs::read(root.join(&path)).expect("a file"));
        assert!(ours == theirs, "{path} is another one");
    }
    let (_, last) = containerfile.rsplit_once("FROM scratch\n").expect("nothing else is in the image");
    let said: Vec<&str> = last.lines().collect();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let ports: Vec<&String> = config["ExposedPorts"].as_object().expect("ports").keys().collect();
    let expected = [
        "COPY --from=rootfs /rootfs /".to_owned(),
        format!("ENV {}", text(&config["Env"][0])),
        format!("WORKDIR {}", text(&config["WorkingDir"])),
        format!("USER {}", text(&config["User"])),
        format!("EXPOSE {}", ports[0]),
        format!("ENTRYPOINT {}", config["Entrypoint"]),
    ];
    assert_eq!(said, expected);
}

/// Checks that each file belongs to a component with a version and the hash of the file, and that scanners find `expected` packages.
fn assert_each_file_is_of_a_component(rootfs: &Path, parts: &[Value], expected: usize) {
    let is_of = |part: &&Value, kind: &str| part["purl"].as_str().is_some_and(|purl| purl.starts_with(kind));
    let mut described = BTreeSet::new();
    for part in parts.iter().filter(|part| is_of(part, "pkg:deb/debian/") || is_of(part, "pkg:generic/")) {
        assert!(part["version"].as_str().is_some_and(|version| !version.is_empty()), "{part}");
        for file in part["components"].as_array().expect("files") {
            let path = file["name"].as_str().expect("a path");
            let sum = Command::new("sha256sum").arg(rootfs.join(path)).output().expect("sha256sum");
            let hash = file["hashes"][0]["content"].as_str().expect("a hash");
            assert!(said(&sum).starts_with(&format!("{hash} ")), "{path}: {}", said(&sum));
            assert!(described.insert(path.to_owned()), "{path} belongs to two components");
        }
    }
    described.insert(SBOM.to_owned());
    assert_eq!(files(rootfs, rootfs), described);
    let packages: Vec<&Value> = parts.iter().filter(|part| is_of(part, "pkg:deb/debian/")).collect();
    assert_eq!(packages.len(), expected, "{packages:?}");
    for package in packages {
        let (name, version) =
            (package["name"].as_str().expect("text"), package["version"].as_str().expect("text"));
        let status =
            fs::read_to_string(rootfs.join("var/lib/dpkg/status.d").join(name)).expect("for scanners");
        assert!(status.contains(&format!("\nVersion: {version}\n")), "{name} {version}: {status}");
    }
}

/// The image trusts the authorities of the package, not those that the owner of the build machine has added to its bundle.
fn assert_authorities_are_of_the_package(rootfs: &Path) {
    let listed = Command::new("dpkg-query").args(["-L", "ca-certificates"]).output().expect("dpkg-query");
    let listed = said(&listed);
    let of_package = listed.lines().filter(|line| line.contains("/mozilla/") && file(line).is_file());
    let expected: BTreeSet<String> =
        of_package.map(|path| fs::read_to_string(path).expect("a certificate").trim().to_owned()).collect();
    assert!(expected.len() > 50, "{listed}");
    let bundle = fs::read_to_string(rootfs.join("etc/ssl/certs/ca-certificates.crt")).expect("a bundle");
    let begin = "-----BEGIN CERTIFICATE-----";
    let found = bundle.split(begin).skip(1).map(|rest| format!("{begin}{}", rest.trim_end()));
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
}

/// Assembles the root filesystem of a program in `dir`, by a copy of `rootfs.sh` that `edit` changes, with the packages of a directory.
fn assemble(
    dir: &Path,
    program: &str,
    packages: Option<&Path>,
    edit: impl FnOnce(String) -> String,
) -> Output {
    let at = dir.join("deploy/image");
    fs::create_dir_all(&at).expect("a directory");
    for path in ["LICENSE", "Cargo.toml"] {
        fs::copy(file(path), dir.join(path)).expect("copied");
    }
    let list = dir.join("sbom.json");
    fs::write(&list, "{\n  \"components\": [\n    { \"name\": \"tokio\" }\n  ]\n}\n").expect("written");
    let script = at.join("rootfs.sh");
    fs::write(&script, edit(fs::read_to_string(file("deploy/image/rootfs.sh")).expect("a script")))
        .expect("written");
    let mut bash = Command::new("bash");
    bash.arg(&script).arg(program).arg(dir.join("rootfs"));
    bash.env("SBOM", &list).env("SOURCE_DATE_EPOCH", "0");
    if let Some(packages) = packages {
        bash.env("PACKAGES", packages);
    }
    bash.output().expect("bash")
}

/// Assembles the root filesystem of the build under test by a changed script; returns the error.
fn refusal(edit: impl FnOnce(String) -> String) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let output = assemble(dir.path(), &ControlPlane::coxswain_binary(), None, edit);
    assert!(!output.status.success(), "the build does not fail");
    said(&output)
}

#[test]
fn image_build_fails_with_a_file_of_unknown_origin() {
    let before = "\n# The CA certificates of the package";
    let planted = refusal(|script| {
        assert!(script.contains(before), "{script}");
        script.replace(before, &format!("\ntouch \"$root/etc/planted\"{before}"))
    });
    assert!(planted.contains("etc/planted belongs to no component of the SBOM"), "{planted}");

    // Libraries of a directory that no package owns.
    let sysroot = tempfile::tempdir().expect("a directory");
    let interpreter = "readelf -l \"$0\" | sed -n 's/.*interpreter: \\(.*\\)]/\\1/p'";
    let loader = Command::new("bash").args(["-c", interpreter, &ControlPlane::coxswain_binary()]).output();
    let loader = said(&loader.expect("bash"));
    let name = loader.trim().rsplit('/').next().expect("a name");
    fs::create_dir(sysroot.path().join("lib")).expect("a directory");
    fs::copy(loader.trim(), sysroot.path().join("lib").join(name)).expect("copied");
    let foreign = refusal(|script| {
        let places = "places=(\"\")";
        assert!(script.contains(places), "{script}");
        script.replace(places, &format!("places=({:?})", sysroot.path()))
    });
    assert!(foreign.contains(&format!("lib/{name} belongs to no Debian package")), "{foreign}");

    // A file that somebody changed after its package was installed.
    let changed = refusal(|script| {
        script.replace("note_origin \"${loader#/}\" \"$library\"", "verify libc6 /etc/hostname")
    });
    assert!(changed.contains("differs from the file in the package libc6"), "{changed}");
}

/// Writes a program, or a library, with the header of one for arm64.
#[cfg(target_arch = "x86_64")]
fn write_foreign_binary(to: &Path) {
    fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
    let mut bytes = fs::read("/bin/true").expect("a program");
    // The field e_machine, and the path of the loader.
    bytes[18..20].copy_from_slice(&183_u16.to_le_bytes());
    let (own, foreign) = (b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-linux-aarch64.so.1\0\0");
    let loader = bytes.windows(own.len()).position(|window| window == own).expect("the loader");
    bytes[loader..loader + foreign.len()].copy_from_slice(foreign);
    fs::write(to, bytes).expect("written");
}

/// Builds a package for arm64 from a directory with its files.
#[cfg(target_arch = "x86_64")]
fn build_package(packages: &Path, name: &str, version: &str, tree: &Path) {
    fs::create_dir_all(tree.join("DEBIAN")).expect("a directory");
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: arm64\nMaintainer: nobody <nobody@example.org>\n\
         Description: for a test\n"
    );
    fs::write(tree.join("DEBIAN/control"), control).expect("written");
    let archive = packages.join(format!("{name}_{version}_arm64.deb"));
    let args = ["--build", "--root-owner-group", text(tree), text(&archive)];
    let built = Command::new("dpkg-deb").args(args).output().expect("dpkg-deb");
    assert!(built.status.success(), "{}", said(&built));
}

/// The test builds the packages, with versions that no machine has.
#[cfg(target_arch = "x86_64")]
#[test]
fn image_for_another_architecture_has_the_libraries_of_debian_packages_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("program");
    write_foreign_binary(&program);
    let packages = dir.path().join("packages");
    fs::create_dir(&packages).expect("a directory");
    let run = |name: &str| {
        let dir = dir.path().join(name);
        fs::create_dir(&dir).expect("a directory");
        let output = assemble(&dir, text(&program), Some(&packages), |script| script);
        (dir.join("rootfs"), output)
    };

    // The build never uses libraries of a cross compiler, which this machine may have.
    let (_, output) = run("empty");
    let expected = format!("no package in {0}: run deploy/image/packages.sh arm64 {0}", packages.display());
    assert!(!output.status.success() && said(&output).contains(&expected), "{}", said(&output));

    let base = dir.path().join("base-files");
    fs::create_dir_all(base.join("usr/lib")).expect("a directory");
    let release = fs::read_to_string("/usr/lib/os-release").expect("a file");
    fs::write(base.join("usr/lib/os-release"), &release).expect("written");
    let release = release.lines().find_map(|line| line.strip_prefix("VERSION_ID=")).expect("a version");
    let release = release.trim_matches('"');
    build_package(&packages, "base-files", "77.1", &base);
    let (_, output) = run("without-libraries");
    let expected = "has ld-linux-aarch64.so.1 for arm64: deploy/image/packages.sh arm64";
    assert!(!output.status.success() && said(&output).contains(expected), "{}", said(&output));

    let library = dir.path().join("libc6");
    write_foreign_binary(&library.join("lib/ld-linux-aarch64.so.1"));
    write_foreign_binary(&library.join("lib/aarch64-linux-gnu/libc.so.6"));
    build_package(&packages, "libc6", "9.99-1", &library);
    let (rootfs, output) = run("complete");
    assert!(output.status.success(), "{}", said(&output));
    for path in ["lib/ld-linux-aarch64.so.1", "lib/aarch64-linux-gnu/libc.so.6"] {
        let [in_image, in_package] =
            [&rootfs, &library].map(|root| fs::read(root.join(path)).expect("a file"));
        assert!(in_image == in_package, "{path} is another file");
    }
    let parts = json(&rootfs.join(SBOM));
    let parts = parts["components"].as_array().expect("components");
    let purls: Vec<&str> = parts.iter().filter_map(|part| part["purl"].as_str()).collect();
    for package in ["base-files@77.1", "libc6@9.99-1"] {
        let purl = format!("pkg:deb/debian/{package}?arch=arm64&distro=debian-{release}");
        assert!(purls.contains(&purl.as_str()), "{purls:?}");
    }
    assert_each_file_is_of_a_component(&rootfs, parts, 3);
}

#[test]
fn the_image_holds_the_program_and_nothing_to_start_another_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = dir.path().join("image");
    make(&layout);
    let manifest = blob(&layout, &json(&layout.join("index.json"))["manifests"][0]);
    let config = blob(&layout, &manifest["config"]);
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/coxswain");
    let version = &config["config"]["Labels"]["org.opencontainers.image.version"];
    assert_eq!(version, env!("CARGO_PKG_VERSION"));

    let rootfs = dir.path().join("rootfs");
    let umoci = script("scripts/tool.sh", &["umoci"]);
    let image = format!("{}:{}", layout.display(), env!("CARGO_PKG_VERSION"));
    let unpack = ["raw", "unpack", "--rootless", "--image", &image, text(&rootfs)];
    let unpacked = Command::new(umoci.trim()).args(unpack).output().expect("umoci");
    assert!(unpacked.status.success(), "{}", said(&unpacked));
    let (libraries, rest): (BTreeSet<String>, BTreeSet<String>) =
        files(&rootfs, &rootfs).into_iter().partition(|path| path.starts_with("lib"));
    assert_eq!(rest, CONTENTS.map(str::to_owned).into());
    for library in &libraries {
        let name = library.rsplit('/').next().expect("a name");
        assert!(LIBRARIES.iter().any(|known| name.starts_with(known)), "{libraries:?}");
    }
    let parts = json(&rootfs.join(SBOM));
    let parts = parts["components"].as_array().expect("components");
    let licensed = |name: &str| parts.iter().any(|part| part["name"] == name && !part["licenses"].is_null());
    assert!(parts.len() > 100 && licensed("rustls") && licensed("tokio"), "{} parts", parts.len());
    assert_each_file_is_of_a_component(&rootfs, parts, 4);
    assert_authorities_are_of_the_package(&rootfs);

    let stages = dir.path().join("stages");
    fs::create_dir(&stages).expect("a directory");
    assert_containerfile_makes(&rootfs, &config["config"], &stages);

    let version =
        script("deploy/image/run.sh", &[text(&rootfs), "--", "/usr/local/bin/coxswain", "--version"]);
    assert_eq!(version.split_whitespace().nth(1), Some(concat!("v", env!("CARGO_PKG_VERSION"))));
    let shell = ["--", "/bin/sh", "-c", "true"];
    let shell = Command::new(file("deploy/image/run.sh")).arg(&rootfs).args(shell).output().expect("bash");
    assert!(!shell.status.success(), "there is a shell in it");

    if by_depth(false, true) {
        let again = dir.path().join("again");
        make(&again);
        let paths = files(&layout, &layout);
        assert_eq!(files(&again, &again), paths);
        for path in paths {
            let [first, second] = [&layout, &again].map(|root| fs::read(root.join(&path)).expect("a file"));
            assert!(first == second, "{path} is not the same twice");
        }
    }
}
