//! A refused write never stops the rest and never spins.
//!
//! Each cell runs one controller of the unchanged manager with three sets of objects that are alike. One of its writes for one set,
//! the victim, gets an answer other than its effect for ten minutes: 403, 404, 409, 422, 429, 500, 503, a timeout after or before it took effect, or success
//! that a webhook undoes. Meanwhile the other sets must be written within seconds, and the victim's write must not be sent more
//! often than the queue's backoff allows. Afterwards the victim must get into the same state as the others.
//!
//! The rows (`rows/`) are the writes that the descriptors of controllers declare (`Descriptor::writes`). A declared write without
//! a row fails `every_declared_write_has_a_row`; so does a row of a write that is not declared, and a request that neither has.

mod cell;
mod fault;
mod rows;
mod seeder;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::{Descriptor, EVENTS_GRANT, Grant};

use crate::{by_depth, side_by_side};
use cell::{CellResult, Recovery, run};
pub(crate) use fault::{Aim, undone};
use fault::{FAULTS, Fault, Planted};
use rows::{NEVER_SENT, Row, rows};

/// The tags of the three sets of objects. The victim is neither the first nor the last in any order by name.
const FIRST: &str = "aa-first";
const VICTIM: &str = "mm-victim";
const LAST: &str = "zz-last";
const TAGS: [&str; 3] = [FIRST, VICTIM, LAST];
/// An annotation by which an object is changed without effect.
const TOUCHED: &str = "matrix.test/touched";

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Returns a declared write as rows name it.
fn named(grant: &Grant, verb: &str) -> String {
    let (resource, sub) = grant.resource.split_once('/').unwrap_or((grant.resource, ""));
    let dot = if grant.group.is_empty() { "" } else { "." };
    let slash = if sub.is_empty() { "" } else { "/" };
    format!("{verb} {resource}{dot}{}{slash}{sub}", grant.group)
}

/// Returns the writes that a controller declares, Events not counted: one recorder, which all controllers share, sends those.
fn declared(descriptor: &Descriptor) -> BTreeSet<String> {
    let grants = descriptor.writes.iter().filter(|grant| grant.resource != EVENTS_GRANT.resource);
    let writes = |grant: &'static Grant| {
        let verbs = grant.verbs.iter().filter(|verb| WRITES.contains(verb));
        verbs.map(|verb| named(grant, verb)).collect::<Vec<_>>()
    };
    grants.flat_map(writes).collect()
}

/// Whether a write is one of those that a declared one with wildcards stands for.
fn stands_for(declared: &str, write: &str) -> bool {
    let (Some((verb, pattern)), Some((sent, resource))) = (declared.split_once(' '), write.split_once(' '))
    else {
        return false;
    };
    let matches = match pattern {
        "*.*" => !resource.contains('/'),
        "*.*/scale" => resource.ends_with("/scale"),
        _ => pattern == resource,
    };
    verb == sent && matches
}

#[test]
fn every_declared_write_has_a_row() {
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for descriptor in REGISTRY.iter().filter(|descriptor| descriptor.build.is_some()) {
        let name = descriptor.name;
        let declared = declared(descriptor);
        let rows: Vec<&str> = rows().filter(|row| row.controller == name).map(|row| row.write).collect();
        let never = NEVER_SENT.iter().filter(|never| never.controller == name).map(|never| never.write);
        for write in rows.iter().copied().chain(never) {
            known.insert((name, write));
            if !declared.iter().any(|declared| declared == write || stands_for(declared, write)) {
                wrong.push(format!("{name} does not declare {write}"));
            }
        }
        for write in &declared {
            let is_it = |known: &str| known == write || stands_for(write, known);
            // Linear: there are some 150 writes.
            if !known.iter().any(|(of, known)| *of == name && is_it(known)) {
                wrong.push(format!("{name} declares {write}, which has no row"));
            }
        }
    }
    let unknown = rows().map(|row| row.controller).find(|name| !REGISTRY.iter().any(|row| row.name == *name));
    assert_eq!(unknown, None, "a controller that does not exist");
    assert_eq!(wrong, [""; 0], "add a row in tests/simulation/matrix/rows/");
    let all = rows().count() + NEVER_SENT.len();
    assert_eq!(known.len(), all, "a write is listed twice");
}

/// Cells, as `CELL=TEXT` selects them: `replicaset-controller create pods Forbidden`.
fn is_selected(row: &Row, fault: Fault) -> bool {
    let Some(wanted) = std::env::var_os("CELL") else { return true };
    let name = format!("{} {} {fault:?}", row.controller, row.write);
    wanted.to_str().is_some_and(|wanted| wanted.split(',').any(|part| name.contains(part)))
}

/// Whether a cell runs in `make test`: each row with one of the ten answers, and each answer with a tenth of the rows.
fn is_in_slice(at: usize, fault: Fault) -> bool {
    let number = FAULTS.iter().position(|other| *other == fault).unwrap_or_default();
    by_depth((at + number).is_multiple_of(10), true)
}

#[test]
fn a_refused_write_stops_nothing_and_does_not_spin() {
    let all = rows().enumerate().flat_map(|(at, row)| FAULTS.map(|fault| (at, row, fault)));
    let is_whole = std::env::var_os("CELL").is_some();
    let cells: Vec<(usize, &'static Row, Fault)> = all
        .filter(|(at, row, fault)| {
            fault.can_befall(row) && is_selected(row, *fault) && (is_whole || is_in_slice(*at, *fault))
        })
        .collect();
    let began = Instant::now();
    let found = side_by_side(&cells, |(_, row, fault)| {
        let from = Instant::now();
        let found = std::panic::catch_unwind(|| run(row, *fault, None));
        let found = found.unwrap_or_else(|_| CellResult::panicked());
        let name = format!("{} {} {fault:?}", row.controller, row.write);
        let (tries, reads) = (found.log.attempts.len(), found.log.reads);
        let took = from.elapsed().as_millis();
        println!("{took:>5} ms {name}: {tries} tries, {reads} reads, {:?}", found.recovery);
        for complaint in &found.complaints {
            println!("!! {name}: {complaint}");
        }
        (*row, name, found)
    });
    let mut wrong = Vec::new();
    let mut sent: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (row, name, found) in &found {
        wrong.extend(found.complaints.iter().map(|complaint| format!("{name}: {complaint}")));
        sent.entry(row.controller).or_default().extend(found.log.writes.iter().cloned());
    }
    println!("{} cells in {:.1} s", found.len(), began.elapsed().as_secs_f64());
    wrong.extend(unknown_writes(&sent));
    if !is_whole && by_depth(false, true) {
        let recoveries = found.iter().map(|(row, _, found)| (*row, found.recovery));
        wrong.extend(stale_exceptions(&recoveries.collect::<Vec<_>>()));
    }
    assert!(wrong.is_empty(), "{} complaints:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the rows whose victim recovers from each answer, although the row says that it may stay as it is. Takes the results of all cells.
fn stale_exceptions(recoveries: &[(&'static Row, Recovery)]) -> Vec<String> {
    let stays = |row: &Row| {
        let of_row =
            |(of, recovery): &(&Row, Recovery)| std::ptr::eq(*of, row) && *recovery == Recovery::Never;
        // Linear: a few rows have the exception.
        recoveries.iter().any(of_row)
    };
    rows()
        .filter(|row| row.may_stay.is_some() && !stays(row))
        .map(|row| format!("{} {}: the victim always recovers; remove `may_stay`", row.controller, row.write))
        .collect()
}

/// Returns the writes that were sent but have no row, including writes listed in [`NEVER_SENT`]. If a declared write has wildcards, one row
/// covers all writes that it matches.
fn unknown_writes(sent: &BTreeMap<&str, BTreeSet<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (controller, writes) in sent {
        // Linear: there are some 50 controllers, with some 150 rows.
        let descriptor = REGISTRY.iter().find(|descriptor| descriptor.name == *controller);
        let declared = descriptor.map(declared).unwrap_or_default();
        let is_wildcard = |pattern: &&String| pattern.contains('*');
        for write in writes {
            let stand_for =
                |row: &Row, pattern: &String| stands_for(pattern, row.write) && stands_for(pattern, write);
            let is_of = |row: &Row| {
                row.write == write
                    || declared.iter().filter(is_wildcard).any(|pattern| stand_for(row, pattern))
            };
            if rows().any(|row| row.controller == *controller && is_of(row)) {
                continue;
            }
            let never =
                NEVER_SENT.iter().find(|never| never.controller == *controller && never.write == write);
            let listed = never.map_or("it has no row", |never| never.reason);
            wrong.push(format!("{controller} sent {write}: {listed}"));
        }
    }
    wrong
}

/// Each planted bug is found in a cell in which nothing is wrong without it.
#[test]
fn planted_bugs_are_found_by_the_matrix() {
    let row = |write| rows().find(|row| row.controller == "replicaset-controller" && row.write == write);
    let row = row("create pods").expect("a row");
    for (planted, complaint) in [
        (Planted::StopsTheRest, "was never written"),
        (Planted::Spins, "times, more than"),
        (Planted::GivesUp, "never recovered"),
    ] {
        let found = run(row, Fault::Forbidden, Some(planted));
        let is_found = found.complaints.iter().any(|found| found.contains(complaint));
        assert!(is_found, "{planted:?}: {:?}", found.complaints);
    }
    assert_eq!(run(row, Fault::Forbidden, None).complaints, [""; 0]);
}
