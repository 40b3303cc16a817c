//! Flag values that are more than a number or a list: certificates by name, quantities, settings per component,
//! verbosity per module, and the version request.

use super::value::{FlagValue, Repetition, ValueError, Verbosity, parse_bool};
use super::versions;

/// A serving certificate and the names it serves: `CERT,KEY` or `CERT,KEY:NAME,*.NAME,...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedCertKey {
    /// File with the certificate and its chain.
    pub cert_file: String,
    /// File with its private key.
    pub key_file: String,
    /// The names it serves; empty for those of the certificate itself.
    pub names: Vec<String>,
}

impl FlagValue for Vec<NamedCertKey> {
    const TYPE: &'static str = "namedCertKey";

    fn set(&mut self, text: &str, repetition: Repetition) -> Result<(), ValueError> {
        let expected =
            || ValueError::new("expected CERT,KEY or CERT,KEY:NAME,NAME,... with both files named");
        let (files, names) = match text.split_once(':') {
            Some((files, names)) => (files, names.split(',').map(|n| n.trim().to_owned()).collect()),
            None => (text, Vec::new()),
        };
        let (cert, key) = files.split_once(',').ok_or_else(expected)?;
        let (cert, key) = (cert.trim(), key.trim());
        if cert.is_empty() || key.is_empty() || key.contains(',') || names.iter().any(String::is_empty) {
            return Err(expected());
        }
        if repetition == Repetition::First {
            self.clear();
        }
        self.push(NamedCertKey { cert_file: cert.to_owned(), key_file: key.to_owned(), names });
        Ok(())
    }

    fn show(&self) -> String {
        let one = |pair: &NamedCertKey| {
            let names =
                if pair.names.is_empty() { String::new() } else { format!(":{}", pair.names.join(",")) };
            format!("{},{}{names}", pair.cert_file, pair.key_file)
        };
        format!("[{}]", self.iter().map(one).collect::<Vec<_>>().join(";"))
    }
}

/// A number of bytes as Kubernetes writes it: `512`, `1k`, `2Ki`, `3e6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteQuantity(pub u64);

impl From<u64> for ByteQuantity {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

const SUFFIXES: [(&str, u64); 11] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

impl FlagValue for ByteQuantity {
    const TYPE: &'static str = "quantity";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        let expected = || ValueError::new("expected a number of bytes such as 512, 64k, 2Ki or 1.5Mi");
        let (number, scale) = SUFFIXES
            .iter()
            .find_map(|(suffix, scale)| text.strip_suffix(suffix).map(|number| (number, *scale)))
            .unwrap_or((text, 1));
        if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
            return Err(expected());
        }
        let value: f64 = number.parse().map_err(|_| expected())?;
        let bytes = (value * scale as f64).ceil();
        if !(0.0..=9.0e18).contains(&bytes) {
            return Err(expected());
        }
        *self = Self(bytes as u64);
        Ok(())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// `NAME=VALUE` settings, each for a component: `A=true,kube:B=false`. Which names and values there are is for
/// whoever reads them to know; the order given is kept, and the last setting of a name wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentSettings(pub Vec<ComponentSetting>);

/// One setting of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentSetting {
    /// The component; `kube` when none was named.
    pub component: String,
    /// Whether the component was named.
    pub named: bool,
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

impl FlagValue for ComponentSettings {
    const TYPE: &'static str = "colonSeparatedMultimapStringString";

    fn set(&mut self, text: &str, repetition: Repetition) -> Result<(), ValueError> {
        let mut settings = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let named = part.split_once(':');
            let (component, setting) = named.unwrap_or((versions::COMPONENT, part));
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                ValueError::new(format!("{setting} has no value; expected {setting}=true or {setting}=false"))
            })?;
            settings.push(ComponentSetting {
                component: component.trim().to_owned(),
                named: named.is_some(),
                name: name.trim().to_owned(),
                value: value.trim().to_owned(),
            });
        }
        if repetition == Repetition::First {
            self.0.clear();
        }
        self.0.append(&mut settings);
        Ok(())
    }

    fn show(&self) -> String {
        self.0.iter().map(|s| format!("{}:{}={}", s.component, s.name, s.value)).collect::<Vec<_>>().join(",")
    }
}

/// Verbosity by module: the first pattern that matches a module decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleVerbosity(pub Vec<(String, Verbosity)>);

impl FlagValue for ModuleVerbosity {
    const TYPE: &'static str = "pattern=N,...";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        let mut patterns = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (pattern, level) = part
                .split_once('=')
                .filter(|(pattern, _)| !pattern.is_empty())
                .ok_or_else(|| ValueError::new("expected PATTERN=LEVEL pairs, separated by commas"))?;
            patterns.push((pattern.to_owned(), Verbosity::parse(level)?));
        }
        self.0 = patterns;
        Ok(())
    }

    fn show(&self) -> String {
        self.0.iter().map(|(pattern, level)| format!("{pattern}={level}")).collect::<Vec<_>>().join(",")
    }
}

/// What `--version` was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VersionRequest {
    /// Nothing: run.
    #[default]
    No,
    /// One line.
    Line,
    /// All detail.
    Raw,
    /// Run, and report this as the Kubernetes version.
    Report(String),
}

impl FlagValue for VersionRequest {
    const TYPE: &'static str = "version";
    const IMPLIED: Option<&'static str> = Some("true");

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = if text == "raw" {
            Self::Raw
        } else if text.starts_with('v') {
            Self::Report(versions::reported(text)?)
        } else if parse_bool(text).map_err(|_| {
            ValueError::new("expected true, false, raw, or a version that starts with v1.36.3")
        })? {
            Self::Line
        } else {
            Self::No
        };
        Ok(())
    }

    fn show(&self) -> String {
        match self {
            Self::No => "false".to_owned(),
            Self::Line => "true".to_owned(),
            Self::Raw => "raw".to_owned(),
            Self::Report(version) => version.clone(),
        }
    }
}
