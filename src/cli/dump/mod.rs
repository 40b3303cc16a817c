//! The support bundle of `debug dump`: texts by name, without secrets and bounded in size, as a compressed archive with a table of contents.

mod redact;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use redact::redact;

/// The longest part in bytes. The metrics of 49 controllers have less than 1 MiB.
pub(super) const LONGEST_PART: usize = 16 << 20;
/// The most bytes of all parts together.
const LONGEST: usize = 64 << 20;
/// The table of contents.
const CONTENTS: &str = "contents.json";

/// A part of a bundle.
#[derive(Debug)]
struct Part {
    file: String,
    about: &'static str,
    text: Result<String, String>,
    is_cut: bool,
}

/// A bundle in the making.
#[derive(Debug)]
pub(super) struct Bundle {
    parts: Vec<Part>,
    /// The longest part in bytes.
    longest_part: usize,
    /// The bytes that are left for further parts.
    left: usize,
}

impl Default for Bundle {
    fn default() -> Self {
        Self { parts: Vec::new(), longest_part: LONGEST_PART, left: LONGEST }
    }
}

impl Bundle {
    /// Adds a text, or the reason why it could not be read. Secrets are removed, and what exceeds the limits is cut off.
    pub(super) fn add(&mut self, file: impl Into<String>, about: &'static str, text: Result<String, String>) {
        let mut is_cut = false;
        let text = text.map(|text| {
            let mut text = redact(&text);
            let limit = self.longest_part.min(self.left);
            if text.len() > limit {
                is_cut = true;
                text.truncate(text.floor_char_boundary(limit));
            }
            self.left -= text.len();
            text
        });
        let text = text.map_err(|error| redact(&error));
        self.parts.push(Part { file: file.into(), about, text, is_cut });
    }

    /// The parts that are missing or incomplete, with the reasons.
    pub(super) fn gaps(&self) -> Vec<String> {
        let gap = |part: &Part| match &part.text {
            Err(error) => Some(format!("{}: {error}", part.file)),
            Ok(_) if part.is_cut => Some(format!("{}: cut off", part.file)),
            Ok(_) => None,
        };
        self.parts.iter().filter_map(gap).collect()
    }

    /// The table of contents.
    fn contents(&self, facts: &Value) -> Value {
        let part = |part: &Part| {
            json!({
                "file": part.file,
                "about": part.about,
                "bytes": part.text.as_ref().map_or(0, String::len),
                "cutOff": part.is_cut,
                "error": part.text.as_ref().err(),
            })
        };
        json!({ "bundle": facts, "parts": self.parts.iter().map(part).collect::<Vec<_>>() })
    }

    /// Writes the archive: everything in one folder, the table of contents first. `facts` is about the bundle as a whole; `time` is in
    /// seconds since 1970.
    pub(super) fn write(&self, to: impl Write, folder: &str, facts: &Value, time: u64) -> io::Result<()> {
        let mut archive = Builder::new(GzEncoder::new(to, Compression::default()));
        let contents = serde_json::to_string_pretty(&self.contents(facts))? + "\n";
        let read = self.parts.iter().filter_map(|part| Some((part.file.as_str(), part.text.as_ref().ok()?)));
        for (file, text) in [(CONTENTS, &contents)].into_iter().chain(read) {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o600);
            header.set_mtime(time);
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, format!("{folder}/{file}"), text.as_bytes())?;
        }
        archive.into_inner()?.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use serde_json::{Value, json};

    use super::Bundle;

    fn unpack(bundle: &Bundle) -> BTreeMap<String, String> {
        let mut bytes = Vec::new();
        bundle.write(&mut bytes, "dump", &json!({ "replica": "node-1_a" }), 7).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            assert_eq!((entry.header().mode().unwrap(), entry.header().mtime().unwrap()), (0o600, 7));
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (name, text)
        });
        entries.collect()
    }

    #[test]
    fn bundle_names_what_it_has_and_what_it_lacks() {
        let mut bundle = Bundle::default();
        bundle.add("a.txt", "first", Ok("token: s3cr3t\n".to_owned()));
        bundle.add("b.txt", "second", Err("HTTP 403 for https://u:hunter2@x".to_owned()));
        assert_eq!(bundle.gaps(), ["b.txt: HTTP 403 for https://REDACTED@x"]);
        let files = unpack(&bundle);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["dump/a.txt", "dump/contents.json"]);
        assert_eq!(files["dump/a.txt"], "token: REDACTED\n");
        let contents: Value = serde_json::from_str(&files["dump/contents.json"]).unwrap();
        assert_eq!(contents["bundle"]["replica"], "node-1_a");
        assert_eq!(
            contents["parts"][0],
            json!({ "file": "a.txt", "about": "first", "bytes": 16, "cutOff": false, "error": null })
        );
        assert_eq!(contents["parts"][1]["error"], "HTTP 403 for https://REDACTED@x");
    }

    #[test]
    fn bundle_is_bounded_and_says_so() {
        let mut bundle = Bundle { longest_part: 10, left: 35, ..Bundle::default() };
        for part in 0..5 {
            bundle.add(format!("{part}.txt"), "long", Ok("ä".repeat(9)));
        }
        bundle.add("short.txt", "short", Ok(String::new()));
        let cut: Vec<String> = (0..5).map(|part| format!("{part}.txt: cut off")).collect();
        assert_eq!(bundle.gaps(), cut);
        let files = unpack(&bundle);
        let lengths: Vec<usize> = (0..5).map(|part| files[&format!("dump/{part}.txt")].len()).collect();
        assert_eq!(lengths, [10, 10, 10, 4, 0]);
    }
}
