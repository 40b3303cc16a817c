//! Completion for kubectl: what may follow the words of a command line, as kubectl asks a plugin
//! (`kubectl_complete-coxswain`) for it. Looks at nothing but the commands, and the controllers of this version.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Arg, Command};

/// The command by which kubectl asks.
pub(in crate::cli) const COMPLETE: &str = "__complete";
/// Tells kubectl that there is nothing else, names of files for one.
const NOTHING_ELSE: u8 = 4;
/// Tells kubectl that any file may follow.
const FILES: u8 = 0;

/// What may follow, a candidate on a line with what it is, and what kubectl is to do with it. The last word is the one that is
/// being typed.
pub(in crate::cli) fn complete(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = super::completion::with_controllers(super::command());
    command.build();
    let (typed, before) =
        words.split_last().map_or(("", &[][..]), |(typed, before)| (typed.as_str(), before));
    let (candidates, directive) = candidates(&command, before, typed);
    let mut text = String::new();
    for (candidate, about) in candidates.iter().filter(|(candidate, _)| candidate.starts_with(typed)) {
        let _ = match about.as_str() {
            "" => writeln!(text, "{candidate}"),
            about => writeln!(text, "{candidate}\t{about}"),
        };
    }
    let _ = writeln!(text, ":{directive}");
    text
}

/// What may come after the words before, whatever has been typed of it; of flags only if a flag is being typed.
fn candidates(command: &Command, before: &[String], typed: &str) -> (Vec<(String, String)>, u8) {
    let mut command = command;
    let mut waiting: Option<&Arg> = None;
    let mut positions = 0;
    for word in before {
        if waiting.take().is_some() {
            // It is the value of the flag before it.
        } else if word.starts_with('-') {
            waiting = flag(command, word).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(found) = command.find_subcommand(word) {
            command = found;
        } else {
            positions += 1;
        }
    }
    if let Some(arg) = waiting {
        return values(arg);
    }
    if typed.starts_with('-') {
        let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let flags = flags.filter_map(|arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help()))));
        return (flags.collect(), NOTHING_ELSE);
    }
    let commands = command.get_subcommands().filter(|each| !each.is_hide_set());
    let mut all: Vec<_> =
        commands.map(|each| (each.get_name().to_owned(), about(each.get_about()))).collect();
    let many = |arg: &&&Arg| arg.get_num_args().is_some_and(|number| number.max_values() > 1);
    let positionals: Vec<&Arg> = command.get_positionals().collect();
    let next = positionals.get(positions).or_else(|| positionals.last().filter(many));
    all.extend(next.map(|arg| values(arg).0).unwrap_or_default());
    (all, NOTHING_ELSE)
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The flag that a word is: `--name`, `--name=value`, `-n`.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments();
    match word.strip_prefix("--") {
        Some(long) => {
            let long = long.split('=').next();
            all.find(|arg| arg.get_long() == long)
        }
        None => all.find(|arg| arg.get_short() == word.chars().last()),
    }
}

/// The values that an argument may have; any file where nothing is known of them.
fn values(arg: &Arg) -> (Vec<(String, String)>, u8) {
    let possible = arg.get_possible_values();
    let named = possible.iter().filter(|value| !value.is_hide_set());
    let named: Vec<_> = named.map(|value| (value.get_name().to_owned(), about(value.get_help()))).collect();
    let directive = if named.is_empty() { FILES } else { NOTHING_ELSE };
    (named, directive)
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(|text| text.to_string().lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The candidates without what they are, and the directive.
    fn asked(words: &[&str]) -> (Vec<String>, String) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let text = complete(&words);
        let mut lines: Vec<String> =
            text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect();
        let directive = lines.pop().unwrap_or_default();
        (lines, directive)
    }

    #[test]
    fn what_may_follow_is_listed() {
        let (commands, directive) = asked(&[""]);
        assert!(
            ["controllers", "events", "leader", "step-down"]
                .iter()
                .all(|each| commands.iter().any(|c| c == each))
        );
        assert!(!commands.iter().any(|command| command == COMPLETE), "{commands:?}");
        assert_eq!(directive, ":4");
        for (words, expected) in [
            (&["lea"][..], &["leader"][..]),
            (&["disable", "daemon"], &["daemonset-controller"]),
            (&["disable", "--reason", "disable", "daemon"], &["daemonset-controller"]),
            (&["--context", "enable", "disable", "ttl-c", "daemon"], &["daemonset-controller"]),
            (&["controller", "daemonset-controller", "daemon"], &[]),
            (&["controllers", "-o", "y"], &["yaml"]),
            (&["controllers", "--output", "js"], &["json"]),
            (&["step-down", "--dry"], &["--dry-run"]),
            (&["leader", "--certificate-a"], &["--certificate-authority"]),
            (&["completion", "z"], &["zsh"]),
            (&["install", "st"], &["static-pod"]),
            (&["install", "static-pod", "--fr"], &["--from"]),
        ] {
            let (found, directive) = asked(words);
            assert_eq!(
                (found, directive.as_str()),
                (expected.iter().map(ToString::to_string).collect(), ":4"),
                "{words:?}"
            );
        }
        // Of files the shell knows.
        assert_eq!(asked(&["leader", "--token-file", ""]), (Vec::new(), ":0".to_owned()));
        assert_eq!(asked(&[]).1, ":4");
    }
}
