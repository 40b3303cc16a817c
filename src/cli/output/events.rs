//! Events for people: a line each.

use anstyle::Style;

use super::human::{NONE, millisecond, read_time};
use super::table::{Cell, Columns};
use super::{Format, Palette, clean, names};
use crate::admin::proto::{Event, EventsDropped, ObjectReference, Severity};

/// Turns events into lines that line up.
pub(in crate::cli) struct EventLines {
    columns: Columns,
    format: Format,
    palette: Palette,
}

impl EventLines {
    /// Lines in this form.
    pub(in crate::cli) fn new(format: Format, palette: Palette) -> Self {
        // Time and severity have their width; the others grow with what comes.
        let columns = if format.is_wide() { &[6, 24, 7][..] } else { &[24, 7][..] };
        Self { columns: Columns::at_least(columns), format, palette }
    }

    /// An event.
    pub(in crate::cli) fn event(&mut self, event: &Event) -> String {
        let palette = self.palette;
        let severity = names::severity(event.severity);
        let controller = if event.controller.is_empty() { NONE.to_owned() } else { clean(&event.controller) };
        let mut row = vec![
            Cell::styled(
                read_time(event.time.as_ref()).map_or_else(|| NONE.to_owned(), millisecond),
                palette.dim(),
            ),
            Cell::styled(severity.to_ascii_uppercase(), style(event.severity, palette)),
            Cell::from(names::event_type(event.r#type)),
            Cell::from(controller),
            Cell::from(event.object.as_ref().map_or_else(|| NONE.to_owned(), object)),
            Cell::from(clean(&event.message)),
        ];
        if self.format.is_wide() {
            row.insert(0, Cell::styled(event.sequence.to_string(), palette.dim()));
            row.push(Cell::styled(clean(&event.trace_id), palette.dim()));
        }
        self.columns.lines(&[row])
    }

    /// Events that are lost to this reader.
    pub(in crate::cli) fn dropped(&self, dropped: &EventsDropped) -> String {
        let style = self.palette.warning();
        format!(
            "{style}-- {} events lost: {} to {} --{style:#}\n",
            dropped.count, dropped.first_sequence, dropped.last_sequence
        )
    }
}

fn style(severity: i32, palette: Palette) -> Style {
    match Severity::try_from(severity) {
        Ok(Severity::Debug) => palette.dim(),
        Ok(Severity::Info) => palette.good(),
        Ok(Severity::Warning) => palette.warning(),
        Ok(Severity::Error) => palette.bad(),
        _ => Style::new(),
    }
}

/// `deployments.apps default/web`, as far as it is known.
pub(in crate::cli) fn object(object: &ObjectReference) -> String {
    let key = match object.namespace.as_str() {
        "" => object.name.clone(),
        namespace => format!("{namespace}/{}", object.name),
    };
    let text = if object.resource.is_empty() { key } else { format!("{} {key}", object.resource) };
    clean(text.trim_end())
}
