//! Time zones: by name, and the process's own.
//!
//! The system's data come first, as an administrator may have newer ones than this program; data in the binary serve where the
//! system has none. Names are those of IANA, letter by letter.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Where the process's own zone is when `TZ` is not set.
const LOCAL_TIME: &str = "/etc/localtime";

/// Where systems have zones.
const DIRECTORIES: [&str; 4] =
    ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"];

/// Knows time zones. Cheap to clone.
#[derive(Clone)]
pub struct Zones {
    /// Asked in this order.
    databases: Vec<TimeZoneDatabase>,
    /// Where zones are files that no database lists, such as `posix/Europe/Berlin`, asked last.
    directories: Vec<PathBuf>,
    local: TimeZone,
}

impl Zones {
    /// Those of the system, then those of the binary. `variable` reads environment variables: `TZ` names the process's own zone,
    /// `ZONEINFO` a directory of zones that is asked first.
    pub fn system(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let of_directory = |path: String| TimeZoneDatabase::from_dir(path).ok();
        let named = variable("ZONEINFO");
        let directories = named.iter().map(String::as_str).chain(DIRECTORIES).map(PathBuf::from).collect();
        let first = named.and_then(of_directory);
        let databases: Vec<_> =
            first.into_iter().chain([TimeZoneDatabase::from_env(), TimeZoneDatabase::bundled()]).collect();
        let mut zones = Self { databases, directories, local: TimeZone::UTC };
        zones.local = zones.local_by(variable("TZ").as_deref());
        zones
    }

    /// Those of the binary, and UTC as the process's own.
    pub fn bundled() -> Self {
        Self { databases: vec![TimeZoneDatabase::bundled()], directories: Vec::new(), local: TimeZone::UTC }
    }

    /// The zone of this name; `None` for a name that nobody knows.
    pub fn named(&self, name: &str) -> Option<TimeZone> {
        match name {
            "" | "UTC" => Some(TimeZone::UTC),
            "Local" => Some(self.local()),
            _ => {
                let found = self.databases.iter().filter_map(|database| database.get(name).ok());
                // Databases do not tell upper case from lower case.
                let found = found.into_iter().find(|zone| zone.iana_name() == Some(name));
                found.or_else(|| self.in_directories(name))
            }
        }
    }

    /// The zone in the file of this name, as Go finds zones. No name leads out of the directories.
    fn in_directories(&self, name: &str) -> Option<TimeZone> {
        if name.starts_with('/') || name.contains('\\') || name.contains("..") {
            return None;
        }
        let mut files = self.directories.iter().map(|directory| directory.join(name));
        files.find_map(|file| TimeZone::tzif(name, &std::fs::read(file).ok()?).ok())
    }

    /// The process's own zone.
    pub fn local(&self) -> TimeZone {
        self.local.clone()
    }

    /// The zone that the value of `TZ` means: a name or the path of a file, with or without a colon before it. UTC if it means
    /// none.
    fn local_by(&self, tz: Option<&str>) -> TimeZone {
        let found = match tz.map(|tz| tz.strip_prefix(':').unwrap_or(tz)) {
            None => in_file(LOCAL_TIME),
            Some(path) if path.starts_with('/') => in_file(path),
            // That would be itself.
            Some("Local") => None,
            Some(name) => self.named(name),
        };
        found.unwrap_or(TimeZone::UTC)
    }
}

fn in_file(path: &str) -> Option<TimeZone> {
    let data = std::fs::read(Path::new(path)).ok()?;
    TimeZone::tzif("Local", &data).ok()
}

impl fmt::Debug for Zones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zones").field("local", &self.local).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// Hours east of Greenwich on a day in July.
    fn hours(zone: &TimeZone) -> i32 {
        let july: Timestamp = "2026-07-01T00:00:00Z".parse().unwrap();
        zone.to_offset(july).seconds() / 3600
    }

    /// A file without transitions: one type of local time, an hour east.
    fn hour_east() -> Vec<u8> {
        let mut data = Vec::new();
        for _ in 0..2 {
            data.extend(b"TZif2");
            data.extend([0; 15]);
            for count in [0_u32, 0, 0, 0, 1, 4] {
                data.extend(count.to_be_bytes());
            }
            data.extend(3600_i32.to_be_bytes());
            data.extend([0, 0]);
            data.extend(b"CET\0");
        }
        data.extend(b"\nCET-1\n");
        data
    }

    #[test]
    fn zones_that_are_files_alone_are_known_and_no_name_leads_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let zones = directory.path().join("zones");
        for place in ["posix/Test", "right"] {
            std::fs::create_dir_all(zones.join(place)).unwrap();
        }
        for file in ["posix/Test/City", "right/City", "../outside"] {
            std::fs::write(zones.join(file), hour_east()).unwrap();
        }
        std::fs::write(zones.join("right/text"), "no zone").unwrap();
        let zones = Zones::system(&|name| (name == "ZONEINFO").then(|| zones.to_str().unwrap().to_owned()));
        for (name, expected) in [
            ("posix/Test/City", Some(1)),
            ("right/City", Some(1)),
            ("right/text", None),
            ("posix/Test", None),
            ("right/city", None),
            ("../outside", None),
            ("right/../right/City", None),
        ] {
            assert_eq!(zones.named(name).as_ref().map(hours), expected, "{name}");
        }
        let absolute = directory.path().join("outside");
        assert!(zones.named(absolute.to_str().unwrap()).is_none());
    }

    #[test]
    fn zones_are_known_without_any_file() {
        let zones = Zones::bundled();
        for (name, expected) in [
            ("", Some(0)),
            ("UTC", Some(0)),
            ("Local", Some(0)),
            ("Etc/UTC", Some(0)),
            ("Europe/Berlin", Some(2)),
            ("America/New_York", Some(-4)),
            ("Asia/Kathmandu", Some(5)),
            ("europe/berlin", None),
            ("Utc", None),
            ("Mars/Olympus", None),
            ("../../etc/localtime", None),
            ("/etc/localtime", None),
        ] {
            assert_eq!(zones.named(name).as_ref().map(hours), expected, "{name}");
        }
    }

    #[test]
    fn the_variable_names_the_zone_of_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("zone");
        std::fs::write(&file, hour_east()).unwrap();
        let path = file.to_str().unwrap();
        for (tz, expected) in [
            ("", 0),
            ("UTC", 0),
            ("Europe/Berlin", 2),
            (":Europe/Berlin", 2),
            (path, 1),
            (&format!(":{path}"), 1),
            ("/nowhere/zone", 0),
            ("Mars/Olympus", 0),
            ("Local", 0),
            // A rule is no name, as in the original.
            ("EST5EDT4,M3.2.0,M11.1.0", 0),
        ] {
            let variable = |name: &str| (name == "TZ").then(|| tz.to_owned());
            let zones = Zones::system(&variable);
            assert_eq!(hours(&zones.local()), expected, "{tz}");
            assert_eq!(zones.named("Local").as_ref().map(hours), Some(expected), "{tz}");
        }
    }

    #[test]
    fn a_directory_that_is_named_is_asked_first() {
        let directory = tempfile::tempdir().unwrap();
        let zones = Zones::system(&|name| {
            (name == "ZONEINFO").then(|| directory.path().to_str().unwrap().to_owned())
        });
        assert_eq!(zones.named("Europe/Berlin").as_ref().map(hours), Some(2), "what it lacks others have");
        let zones = Zones::system(&|name| (name == "ZONEINFO").then(|| "/nowhere".to_owned()));
        assert_eq!(zones.named("Asia/Tokyo").as_ref().map(hours), Some(9));
    }
}
