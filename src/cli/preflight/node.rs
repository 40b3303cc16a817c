//! A control-plane node: the files that flags name, and the port.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use coxswain_machinery::options::WrittenFlag;

use super::{Check, FILE, Finding, PORT};
use crate::cli::manifest::{Manifest, ManifestError, NodePath, judge};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Programs that may use the port: kube-controller-manager ends before Coxswain starts. The kernel cuts names off after 15 bytes. Differs: no.
const MANAGERS: [&str; 2] = ["kube-controller", "coxswain"];

/// Checks the files that the flags of a manifest name, on a node whose root is at `root`.
///
/// # Errors
/// The manifest has mounts that are no list.
pub(in crate::cli) fn check_files(manifest: &Manifest, root: &Path) -> Result<Check, ManifestError> {
    let mut findings = Vec::new();
    let (mut flags, mut number) = (Vec::new(), 0);
    for written in manifest.flags() {
        let name = written.flag.name();
        let is_file = ["-file", "kubeconfig", "-config"].iter().any(|end| name.ends_with(end));
        if !is_file || !written.value.starts_with('/') {
            flags.push(written.clone());
            continue;
        }
        number += 1;
        match manifest.path_on_node(&written.value)? {
            NodePath::Host(path) => {
                let path = root.join(path.trim_start_matches('/'));
                flags.push(WrittenFlag { value: path.to_string_lossy().into_owned(), ..written.clone() });
            }
            NodePath::NoVolume => {
                let message = format!("--{name}: no volume of the manifest holds {}", written.value);
                findings.push(Finding::new(FILE, message));
            }
            // Its content is not a file of the node.
            NodePath::OtherVolume => {}
        }
    }
    findings.extend(judge(&flags).files.into_iter().map(|error| Finding::new(FILE, error.to_string())));
    Ok(Check::made("files", format!("{number} flags that name files"), findings))
}

/// Checks that nothing but a controller manager listens on the port. `proc` is the proc file system of the node.
pub(in crate::cli) fn check_port(address: IpAddr, port: u16, proc: &Path) -> Check {
    const NAME: &str = "port";
    let place = format!("{address}:{port}");
    let mut inodes = BTreeSet::new();
    let mut is_read = false;
    for file in ["net/tcp", "net/tcp6"] {
        if let Ok(text) = fs::read_to_string(proc.join(file)) {
            is_read = true;
            inodes.extend(listeners(&text, address, port));
        }
    }
    if !is_read {
        return Check::skipped(NAME, format!("cannot read {}/net/tcp", proc.display()));
    }
    if inodes.is_empty() {
        return Check::made(NAME, format!("{place} is free"), Vec::new());
    }
    let programs = programs(&inodes, proc);
    let shown = if programs.is_empty() {
        "a program that this user is not allowed to see".to_owned()
    } else {
        programs.iter().cloned().collect::<Vec<_>>().join(", ")
    };
    let is_manager =
        !programs.is_empty() && programs.iter().all(|program| MANAGERS.contains(&program.as_str()));
    let message = format!("{shown} listens on {place}");
    let findings = if is_manager { Vec::new() } else { vec![Finding::new(PORT, message.clone())] };
    Check::made(NAME, message, findings)
}

/// Returns the inodes of sockets that keep this address from being used, from the text of `/proc/net/tcp` or `/proc/net/tcp6`.
fn listeners(text: &str, address: IpAddr, port: u16) -> Vec<String> {
    let octets: Vec<u8> = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    // The kernel prints each word of an address in the byte order of the machine.
    let words = octets.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
    let wanted = words.map(|word| format!("{:08X}", u32::from_ne_bytes(word))).collect::<Vec<_>>().concat();
    let is_in_the_way =
        |bound: &str| address.is_unspecified() || bound == wanted || bound.bytes().all(|digit| digit == b'0');
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (bound, at) = fields.get(1)?.split_once(':')?;
        let is_port = u16::from_str_radix(at, 16) == Ok(port);
        let listens = fields.get(3) == Some(&LISTEN);
        let inode = fields.get(9)?;
        (is_port && listens && is_in_the_way(bound)).then(|| (*inode).to_owned())
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Returns the names of the programs that have one of these sockets open.
fn programs(inodes: &BTreeSet<String>, proc: &Path) -> BTreeSet<String> {
    let sockets: BTreeSet<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut programs = BTreeSet::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        if targets.any(|target| sockets.contains(target.to_string_lossy().as_ref()))
            && let Ok(name) = fs::read_to_string(process.path().join("comm"))
        {
            programs.insert(name.trim().to_owned());
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                       0: 0100007F:2811 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n   \
                       1: 0200007F:2811 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0\n   \
                       2: 00000000:2812 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0\n   \
                       3: 0100007F:2811 0100007F:0001 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0\n";

    #[test]
    fn listeners_in_the_way_are_those_of_the_port_and_the_address() {
        for (address, port, expected) in [
            ("127.0.0.1", 10257, &["11"][..]),
            ("127.0.0.3", 10257, &[]),
            ("0.0.0.0", 10257, &["11", "12"]),
            ("127.0.0.1", 10258, &["13"]),
            ("127.0.0.1", 1, &[]),
        ] {
            assert_eq!(listeners(TCP, address.parse().unwrap(), port), expected, "{address}:{port}");
        }
    }

    #[test]
    fn port_of_another_program_blocks_and_that_of_a_manager_does_not() {
        let proc = tempfile::tempdir().unwrap();
        let at = |name: &str| proc.path().join(name);
        let check = || check_port("127.0.0.1".parse().unwrap(), 10257, proc.path());
        assert!(check().is_skipped);
        fs::create_dir_all(at("net")).unwrap();
        fs::write(at("net/tcp"), TCP.lines().next().unwrap()).unwrap();
        assert_eq!(check().detail, "127.0.0.1:10257 is free");
        fs::write(at("net/tcp"), TCP).unwrap();
        assert_eq!(
            check().findings[0].message,
            "a program that this user is not allowed to see listens on 127.0.0.1:10257"
        );
        fs::create_dir_all(at("7/fd")).unwrap();
        std::os::unix::fs::symlink("socket:[11]", at("7/fd/3")).unwrap();
        for (program, blocks) in [("nginx", true), ("kube-controller", false), ("coxswain", false)] {
            fs::write(at("7/comm"), format!("{program}\n")).unwrap();
            assert_eq!(check().findings.len(), usize::from(blocks), "{program}");
            assert!(check().detail.starts_with(program));
        }
    }
}
