//! A manager is killed behind each of the four writes that bind a claim, before it hears the answer. The next one remembers nothing,
//! writes the rest, and nothing twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use coxswain_machinery::client::HttpService;
use coxswain_machinery::environment::Environment;

use crate::actors;
use crate::faults::{Faults, Muted};
use crate::fleet::until;
use crate::managers::manager;
use crate::run::{EPOCH, in_virtual_time};
use crate::server::Server;
use crate::trace::Trace;
use apiserver_model::text;

const FLAGS: &[&str] = &["--leader-elect=false", "--controllers=persistentvolume-binder-controller"];
/// What binds the claim `data` to the volume that fits it best, in order.
const WRITES: [&str; 4] = [
    "PUT /api/v1/persistentvolumes/fits",
    "PUT /api/v1/persistentvolumes/fits/status",
    "PUT /api/v1/namespaces/default/persistentvolumeclaims/data",
    "PUT /api/v1/namespaces/default/persistentvolumeclaims/data/status",
];
/// Volumes with their sizes.
const VOLUMES: [(&str, &str); 3] = [("also", "2Gi"), ("fits", "1Gi"), ("large", "3Gi")];
const LIMIT: Duration = Duration::from_mins(2);

/// Writes of volumes and claims that the API server has carried out, in order.
type Written = Arc<Mutex<Vec<String>>>;

/// A line on which the answer to this write is the last that does not arrive: `dead` is cancelled instead.
fn dying(
    inner: HttpService,
    written: Written,
    behind: Option<usize>,
    dead: CancellationToken,
) -> HttpService {
    HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
        let (inner, written, dead) = (inner.clone(), Arc::clone(&written), dead.clone());
        async move {
            let (path, is_read) = (request.uri().path().to_owned(), request.method() == Method::GET);
            let what = format!("{} {path}", request.method());
            let answer = inner.oneshot(request).await?;
            if !is_read && path.contains("/persistentvolume") && answer.status().is_success() {
                let count = {
                    let mut written = written.lock();
                    written.push(what);
                    written.len()
                };
                if behind == Some(count) {
                    dead.cancel();
                    std::future::pending::<()>().await;
                }
            }
            Ok(answer)
        }
    }))
}

/// Runs a manager until it is dead behind a write, or until something is so.
async fn run(
    server: &Arc<Server>,
    number: u32,
    written: &Written,
    behind: Option<usize>,
    what: &str,
    is_so: impl Fn(&Server) -> bool,
) {
    let (alive, dead) = (CancellationToken::new(), CancellationToken::new());
    let line = dying(
        server.service(number, alive.clone(), &Arc::default()),
        Arc::clone(written),
        behind,
        dead.clone(),
    );
    let environment = Environment::simulated(server.now(), line);
    tokio::select! {
        biased;
        () = server.violated.cancelled() => {}
        () = dead.cancelled() => {}
        () = until(server, LIMIT, what, is_so) => {}
        ended = manager(FLAGS, CancellationToken::new(), environment) => panic!("the manager has ended: {ended:?}"),
        () = actors::bookmarks(Arc::clone(server)) => {}
    }
    alive.cancel();
}

fn claim(server: &Server, name: &str) {
    let claim = json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "resources": { "requests": { "storage": "1Gi" } } },
    });
    server.with(|model| {
        drop(model.create("user", "persistentvolumeclaims", "default", claim).expect("a claim"));
    });
}

fn volumes(server: &Server) {
    for (name, size) in VOLUMES {
        let volume = json!({
            "metadata": { "name": name },
            "spec": { "storageClassName": "by-hand", "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": "csi.example.com", "volumeHandle": name } },
        });
        server.with(|model| drop(model.create("user", "persistentvolumes", "", volume).expect("a volume")));
    }
}

fn the_volume(server: &Server, name: &str) -> Json {
    server.with(|model| model.look("persistentvolumes", "", name).clone())
}

fn the_claim(server: &Server, name: &str) -> Json {
    server.with(|model| model.look("persistentvolumeclaims", "default", name).clone())
}

fn is_bound(server: &Server, name: &str) -> bool {
    text(&the_claim(server, name), "/status/phase") == "Bound"
}

/// What each volume is kept for: the claim's name and UID, or nothing.
fn kept_for(server: &Server) -> Vec<(String, String)> {
    let of = |(name, _): (&str, &str)| {
        let volume = the_volume(server, name);
        (text(&volume, "/spec/claimRef/name").to_owned(), text(&volume, "/spec/claimRef/uid").to_owned())
    };
    VOLUMES.into_iter().map(of).collect()
}

async fn story(behind: usize) {
    let epoch = Timestamp::from_second(EPOCH).expect("a time");
    let server = Server::new(epoch, 1, Faults::new(1, false, Muted::new()), Trace::new(false), None);
    let written = Written::default();
    volumes(&server);
    let are_free = |server: &Server| {
        VOLUMES.iter().all(|(name, _)| text(&the_volume(server, name), "/status/phase") == "Available")
    };
    Box::pin(run(&server, 1, &written, None, "the volumes are free", are_free)).await;
    written.lock().clear();

    claim(&server, "data");
    let never = |_: &Server| false;
    Box::pin(run(&server, 2, &written, Some(behind), "the manager is killed", never)).await;
    assert_eq!(*written.lock(), WRITES[..behind]);
    assert_eq!(is_bound(&server, "data"), behind == WRITES.len(), "killed behind write {behind}");
    sleep(Duration::from_secs(10)).await;

    // Somebody else wants a volume, too, and all that the next manager knows is what was written.
    claim(&server, "rival");
    let are_bound = |server: &Server| is_bound(server, "data") && is_bound(server, "rival");
    Box::pin(run(&server, 3, &written, None, "both claims are bound", are_bound)).await;
    let of_data: Vec<String> = {
        let written = written.lock();
        assert_eq!(written.len(), 2 * WRITES.len(), "each write once: {written:?}");
        written.iter().filter(|what| what.contains("/fits") || what.contains("/data")).cloned().collect()
    };
    assert_eq!(of_data, WRITES, "the rest is written, and nothing twice");
    let (data, rival) = (the_claim(&server, "data"), the_claim(&server, "rival"));
    let uid = |claim: &Json| text(claim, "/metadata/uid").to_owned();
    let expected =
        [("rival".to_owned(), uid(&rival)), ("data".to_owned(), uid(&data)), (String::new(), String::new())];
    assert_eq!(kept_for(&server), expected);
    assert_eq!((text(&data, "/spec/volumeName"), text(&rival, "/spec/volumeName")), ("fits", "also"));
    let (violations, ..) = server.finish();
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn a_manager_is_killed_behind_each_write_of_a_binding_and_nothing_is_bound_twice() {
    for behind in 1..=WRITES.len() {
        in_virtual_time(behind as u64, move || story(behind));
    }
}
