//! The text of `--help`: every flag that is not deprecated, by section.

use std::fmt::Write as _;

use super::flag::{Flag, FlagEffect};
use super::flags::TABLE;
use super::gates::{self, Stage};
use super::versions::CURRENT;
use crate::framework::{DefaultState, Descriptor};

/// The width that text is wrapped at.
const WIDTH: usize = 120;
/// The least width left for what a flag does, however long its name.
const LEAST: usize = 50;

const INTRODUCTION: &str = "\
Coxswain runs the controllers of Kubernetes 1.36, which bring the cluster to its desired state.
With flags only, coxswain runs as the manager. It accepts the command line of kube-controller-manager, which it replaces.

Usage:
  coxswain [flags]
  coxswain COMMAND     run a command of the client, such as controllers, enable, disable, reset, events, leader, sync or
                       explain; coxswain help lists all commands
";

/// All of it.
pub(super) fn text(registry: &[Descriptor]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut sections: Vec<(&str, Vec<&Flag>)> = Vec::new();
    for flag in TABLE.iter().filter(|flag| flag.deprecated.is_none()) {
        match sections.last_mut() {
            Some((section, flags)) if *section == flag.section => flags.push(flag),
            _ => sections.push((flag.section, vec![flag])),
        }
    }
    for (section, flags) in sections {
        let _ = write!(text, "\n{section} flags:\n\n");
        let left = flags.iter().map(|flag| usage(flag).len()).max().unwrap_or(0) + 3;
        for flag in flags {
            row(&mut text, flag, left, registry);
        }
    }
    text
}

/// How a flag is written: `  -v, --v Level`.
fn usage(flag: &Flag) -> String {
    let name = flag.name();
    let shorthand = flag.shorthand().map_or_else(|| "      ".to_owned(), |letter| format!("  -{letter}, "));
    match (flag.kind, flag.implied) {
        ("bool", _) => format!("{shorthand}--{name}"),
        (kind, None) => format!("{shorthand}--{name} {kind}"),
        (kind, Some(implied)) => format!("{shorthand}--{name} {kind}[={implied}]"),
    }
}

fn row(text: &mut String, flag: &Flag, left: usize, registry: &[Descriptor]) {
    let mut help = flag.help.to_owned();
    let default = flag.default();
    if !matches!(default.as_str(), "" | "0" | "0s" | "false" | "[]") {
        let quoted = if flag.kind == "string" { format!("{default:?}") } else { default };
        let _ = write!(help, " (default {quoted})");
    }
    match flag.effect {
        FlagEffect::LeftOut(why) => {
            let _ = write!(help, " (no effect: {why})");
        }
        FlagEffect::Cloud => {
            help.push_str(" (no effect: for cloud controller managers only)");
        }
        FlagEffect::Built | FlagEffect::Moot | FlagEffect::None => {}
    }
    let mut lines = wrap(&help, WIDTH.saturating_sub(left).max(LEAST));
    lines.extend(more(flag, registry, WIDTH.saturating_sub(left).max(LEAST)));
    for (i, line) in lines.iter().enumerate() {
        let start = if i == 0 { usage(flag) } else { String::new() };
        let _ = writeln!(text, "{start:left$}{line}");
    }
}

/// What only the program knows: which controllers and which gates there are.
fn more(flag: &Flag, registry: &[Descriptor], width: usize) -> Vec<String> {
    match flag.name().as_str() {
        "controllers" => {
            let names: Vec<&str> = registry.iter().map(|descriptor| descriptor.name).collect();
            let off: Vec<&str> = registry
                .iter()
                .filter(|d| d.default == DefaultState::Off)
                .map(|descriptor| descriptor.name)
                .collect();
            let mut lines = wrap(&format!("All controllers: {}", names.join(", ")), width);
            lines.extend(wrap(&format!("Off by default: {}", off.join(", ")), width));
            lines
        }
        "feature-gates" => gates::TABLE
            .iter()
            .flat_map(|gate| {
                let Some(phase) = gate.at(CURRENT) else { return Vec::new() };
                if !matches!(phase.stage, Stage::Alpha | Stage::Beta) || phase.locked {
                    return Vec::new();
                }
                let default = if phase.default { "on" } else { "off" };
                let without_effect = gates::WITHOUT_EFFECT.iter().find(|(name, _)| *name == gate.name);
                let why = without_effect.map_or_else(String::new, |(_, why)| format!("; no effect: {why}"));
                wrap(&format!("{} ({}, {default}{why})", gate.name, phase.stage.label()), width)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Breaks a text at spaces so that no line is wider than `width`, unless a single word is.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
