//! The graph in the DOT language, for `/debug/controllers/garbage-collector-controller/graph`.

use std::fmt::{self, Write};

use super::node::{Node, NodeId};
use super::{Graph, Uid};
use coxswain_machinery::random::HashSet;

impl Graph {
    /// Writes the graph: a node per object, an arrow from each to its owners. With `only`, these objects and all that
    /// are connected with them as owners of owners or dependents of dependents.
    pub fn write_dot(&self, only: Option<&[Uid]>, out: &mut dyn Write) -> fmt::Result {
        let wanted = only.map(|uids| self.related(uids));
        let shown = |id: NodeId| wanted.as_ref().is_none_or(|wanted| wanted.contains(&id));
        writeln!(out, "strict digraph full {{")?;
        for (_, node) in self.nodes.iter().filter(|(id, _)| shown(*id)) {
            write_node(node, out)?;
        }
        for (_, node) in self.nodes.iter().filter(|(id, _)| shown(*id)) {
            for owner in node.owners.iter().filter(|edge| shown(edge.owner)) {
                if let Some(owner) = self.nodes.get(owner.owner) {
                    writeln!(out, "  {} -> {};", quoted(&node.uid.to_str()), quoted(&owner.uid.to_str()))?;
                }
            }
        }
        writeln!(out, "}}")
    }

    fn related(&self, uids: &[Uid]) -> HashSet<NodeId> {
        let roots: Vec<NodeId> = uids.iter().filter_map(|uid| self.nodes.find(uid)).collect();
        let mut found: HashSet<NodeId> = roots.iter().copied().collect();
        let up = |node: &Node| node.owners.iter().map(|edge| edge.owner).collect::<Vec<_>>();
        let down = |node: &Node| node.dependents().iter().map(|held| held.node).collect::<Vec<_>>();
        for step in [&up as &dyn Fn(&Node) -> Vec<NodeId>, &down] {
            let mut seen = HashSet::default();
            let mut next = roots.clone();
            while let Some(id) = next.pop() {
                if seen.insert(id)
                    && let Some(node) = self.nodes.get(id)
                {
                    next.extend(step(node));
                }
            }
            found.extend(seen);
        }
        found
    }
}

fn write_node(node: &Node, out: &mut dyn Write) -> fmt::Result {
    let uid = node.uid.to_str();
    let (group, version, kind) = node.row.map_or(("", "", ""), |kind| (kind.group, kind.version, kind.kind));
    let label = format!("uid={uid}\nnamespace={}\n{kind}.{version}.{group}/{}", node.namespace, node.name);
    write!(out, "  {} [label={}", quoted(&uid), quoted(&label))?;
    let attributes = [
        ("group", group),
        ("version", version),
        ("kind", kind),
        ("namespace", node.namespace.as_str()),
        ("name", node.name.as_str()),
        ("uid", uid.as_str()),
    ];
    for (name, value) in attributes {
        write!(out, " {name}={}", quoted(value))?;
    }
    let flags = [
        ("being_deleted", node.state.deleting),
        ("deleting_dependents", node.state.foreground_deleting),
        ("virtual", node.is_virtual()),
    ];
    for (name, value) in flags {
        write!(out, " {name}=\"{value}\"")?;
    }
    writeln!(out, "];")
}

/// A quoted DOT identifier.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}
