//! What a manager says of itself while it is simulated: what its caches see, what its reconciles plan, what it logs. All of that
//! are events of `tracing`, which only a run that is shown listens to.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::server::Server;

/// Has all that is said in this thread written down, until the guard is dropped. A directory of this name has another one in
/// each run.
pub(crate) fn listen(server: &Arc<Server>, directory: String) -> tracing::subscriber::DefaultGuard {
    let listener = Listener { server: Arc::clone(server), directory };
    tracing::subscriber::set_default(Registry::default().with(listener))
}

/// See the module.
struct Listener {
    server: Arc<Server>,
    directory: String,
}

/// The controller and the object of a reconcile.
struct Who(String);

/// The fields of an event or a span.
#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
}

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(held, _)| *held == name).map_or("", |(_, value)| value)
    }

    /// The message, and the other fields behind it.
    fn all(&self) -> String {
        let mut text = self.get("message").to_owned();
        for (name, value) in self.0.iter().filter(|(name, _)| *name != "message") {
            let _ = write!(text, " {name}={value}");
        }
        text
    }
}

/// An event in words.
fn told(who: &str, level: tracing::Level, fields: &Fields) -> String {
    match fields.get("message") {
        "seen" => {
            let what = match fields.get("change") {
                "deleted" => "is gone".to_owned(),
                change => format!("{change}, version {}", fields.get("version")),
            };
            format!("  seen: {} {} {what}", fields.get("kind"), fields.get("object"))
        }
        "planned" => {
            let again = match fields.get("requeue_after") {
                "" | "None" => String::new(),
                after => format!("; again after {}", after.trim_start_matches("Some(").trim_end_matches(')')),
            };
            format!("  {who} plans: {}{again}", fields.get("steps"))
        }
        _ if who.is_empty() => format!("  {} {}", level.as_str().to_lowercase(), fields.all()),
        _ => format!("  {} {who}: {}", level.as_str().to_lowercase(), fields.all()),
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        // Who asks whether it is listened to is no event yet, and no span.
        metadata.target().starts_with("coxswain") && (!metadata.is_span() || metadata.name() == "reconcile")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            let who = format!("{} {}", fields.get("controller"), fields.get("object"));
            span.extensions_mut().insert(Who(who));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let who = context
            .event_span(event)
            .and_then(|span| span.extensions().get::<Who>().map(|Who(who)| who.clone()));
        let told = told(&who.unwrap_or_default(), *event.metadata().level(), &fields);
        self.server.overheard(&told.replace(&self.directory, ""));
    }
}
