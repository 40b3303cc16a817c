//! From arguments to flags, by the rules of the original's command line: `--name=value` or `--name value`; a boolean
//! never takes the next argument; `-v4`, `-v=4` and `-v 4`; underscores in names are dashes; `--` ends the flags.
//! It reads everything before it reports anything, and judges no value beyond its syntax.

use super::error::{OptionError, nearest};
use super::flag::Flag;
use super::flags::{Flags, TABLE};
use super::value::Repetition;
use crate::random::HashMap;

/// A flag of a command line, and its value as it is written there.
#[derive(Clone, Debug)]
pub struct WrittenFlag {
    /// The flag's row in the table.
    pub flag: &'static Flag,
    /// The value. A flag that implies a value has that one if none is written.
    pub value: String,
}

/// What a command line says.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) flags: Flags,
    /// The rows of the flags that were given, in the order of their first appearance.
    pub(super) given: Vec<&'static Flag>,
    /// Every flag with its value as it is written, in order.
    pub(super) written: Vec<WrittenFlag>,
    pub(super) errors: Vec<OptionError>,
}

/// Reads a command line, without the program's name.
pub(super) fn parse(arguments: &[String]) -> Parsed {
    let mut parser =
        Parser { by_name: TABLE.iter().map(|flag| (flag.name(), flag)).collect(), parsed: Parsed::default() };
    let mut rest = arguments;
    while let [argument, after @ ..] = rest {
        rest = after;
        if argument == "--" {
            for argument in rest {
                parser.positional(argument);
            }
            break;
        } else if let Some(body) = argument.strip_prefix("--") {
            parser.long(argument, body, &mut rest);
        } else if argument.len() > 1 && argument.starts_with('-') {
            parser.short(argument, &mut rest);
        } else if !argument.is_empty() {
            parser.positional(argument);
        }
    }
    parser.parsed
}

struct Parser {
    by_name: HashMap<String, &'static Flag>,
    parsed: Parsed,
}

impl Parser {
    fn positional(&mut self, argument: &str) {
        self.parsed.errors.push(OptionError::Positional { argument: argument.to_owned() });
    }

    fn long(&mut self, argument: &str, body: &str, rest: &mut &[String]) {
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        if name.is_empty() || name.starts_with('-') {
            self.parsed.errors.push(OptionError::Syntax { argument: argument.to_owned() });
            return;
        }
        let name = name.replace('_', "-");
        let Some(flag) = self.by_name.get(name.as_str()).copied() else {
            let known =
                TABLE.iter().filter(|flag| flag.deprecated.is_none()).map(Flag::name).collect::<Vec<_>>();
            let nearest = nearest(&name, known.iter().map(String::as_str));
            let nearest = nearest.iter().map(|name| format!("--{name}")).collect();
            self.parsed.errors.push(OptionError::UnknownFlag { flag: format!("--{name}"), nearest });
            // What follows is as likely its value as a mistake of its own; one error is enough.
            if value.is_none() && rest.first().is_some_and(|next| !next.starts_with('-')) {
                *rest = &rest[1..];
            }
            return;
        };
        match value.or(flag.implied) {
            Some(value) => self.set(flag, value),
            None => self.take_next(flag, format!("--{name}"), rest),
        }
    }

    /// A cluster of one-letter flags: each but the last must be a boolean one, or the rest is its value.
    fn short(&mut self, argument: &str, rest: &mut &[String]) {
        let mut letters = argument[1..].chars();
        while let Some(letter) = letters.next() {
            let Some(flag) = TABLE.iter().find(|flag| flag.shorthand() == Some(letter)) else {
                self.parsed
                    .errors
                    .push(OptionError::UnknownFlag { flag: format!("-{letter}"), nearest: Vec::new() });
                return;
            };
            let tail = letters.as_str();
            if let Some(value) = tail.strip_prefix('=') {
                return self.set(flag, value);
            }
            match flag.implied {
                Some(value) => self.set(flag, value),
                None if !tail.is_empty() => return self.set(flag, tail),
                None => return self.take_next(flag, format!("-{letter}"), rest),
            }
        }
    }

    fn take_next(&mut self, flag: &'static Flag, written: String, rest: &mut &[String]) {
        match rest {
            [value, after @ ..] => {
                *rest = after;
                self.set(flag, value);
            }
            [] => self.parsed.errors.push(OptionError::MissingValue { flag: written, kind: flag.kind }),
        }
    }

    fn set(&mut self, flag: &'static Flag, value: &str) {
        let again = self.parsed.given.iter().any(|given| given.field == flag.field);
        let repetition = if again { Repetition::Again } else { Repetition::First };
        self.parsed.written.push(WrittenFlag { flag, value: value.to_owned() });
        match (flag.set)(&mut self.parsed.flags, value, repetition) {
            Ok(()) if again => {}
            Ok(()) => self.parsed.given.push(flag),
            Err(problem) => self.parsed.errors.push(OptionError::Value {
                flag: format!("--{}", flag.name()),
                value: value.to_owned(),
                problem,
            }),
        }
    }
}
