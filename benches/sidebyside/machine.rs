//! What the figures were taken on, and of what.

use std::fs;
use std::path::Path;
use std::process::Command;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, binaries};

/// The machine, both programs and the day.
pub(crate) struct Machine {
    pub(crate) day: String,
    pub(crate) cores: usize,
    processor: String,
    memory_gib: u64,
    kernel: String,
    pub(crate) go: String,
    pub(crate) coxswain: String,
    /// The profile that Coxswain was built with, as the directory of its binary tells.
    pub(crate) profile: String,
    /// Of Coxswain's binary.
    digest: String,
}

impl Machine {
    /// This one, now.
    pub(crate) fn look() -> Self {
        let binary = ControlPlane::coxswain_binary();
        let folder = Path::new(&binary).parent().and_then(Path::file_name);
        let profile = folder.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal").unwrap_or_default();
        let kib: u64 = kib.trim_end_matches(" kB").parse().unwrap_or(0);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        // The release; what follows is the distributor's.
        let kernel = kernel.trim().split(['-', '+']).next().unwrap_or_default().to_owned();
        Self {
            day: SystemClock.now().strftime("%Y-%m-%d").to_string(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            memory_gib: kib.div_ceil(1 << 20),
            kernel,
            go: version(&binaries().join("kube-controller-manager")),
            coxswain: version(Path::new(&binary)),
            profile,
            digest: digest(Path::new(&binary)),
        }
    }

    /// Whether Coxswain is built as it ships.
    pub(crate) fn ships(&self) -> bool {
        self.profile == "dist"
    }

    /// The machine and both programs without the day, in short: what has the same here can be compared.
    pub(crate) fn of(&self) -> String {
        let Self { cores, processor, memory_gib, kernel, go, digest, .. } = self;
        format!(
            "{cores} cores of {processor}, {memory_gib} GiB, Linux {kernel}, {go}, Coxswain sha256:{digest}"
        )
    }

    /// In a paragraph.
    pub(crate) fn words(&self) -> String {
        let Self { day, cores, processor, memory_gib, kernel, go, coxswain, profile, .. } = self;
        format!(
            "{day}: {cores} cores of {processor}, {memory_gib} GiB, Linux {kernel}, which API server, etcd, scheduler and kwok \
             share with the managers. Go: kube-controller-manager, {go}. {coxswain}, profile `{profile}`."
        )
    }

    /// The same.
    pub(crate) fn json(&self) -> Value {
        json!({
            "day": self.day,
            "cores": self.cores,
            "processor": self.processor,
            "memoryGiB": self.memory_gib,
            "kernel": self.kernel,
            "go": self.go,
            "coxswain": self.coxswain,
            "profile": self.profile,
        })
    }
}

/// The SHA-256 of a file, in hex.
fn digest(path: &Path) -> String {
    let content = fs::read(path).expect("the binary");
    let digest = ring::digest::digest(&ring::digest::SHA256, &content);
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output().expect("it says its version");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
