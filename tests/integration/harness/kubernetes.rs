//! A client of the cluster, as tests use it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace as CoreNamespace, Pod, ServiceAccount};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How often an object is sent that admission refuses because a quota changes under it.
const ADMISSIONS: u32 = 20;

/// A cluster, reached as its administrator.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The same without a client's own retries: it tells of refusals that may be over in a moment (429).
    pub(crate) once: Client,
}

/// A namespace of one test.
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn connect(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is complete");
        let mut once = config.clone();
        once.default_retry = false;
        let client = |config| Client::try_from(config).expect("a client");
        Self { client: client(config), once: client(once) }
    }

    /// A new namespace with a name of its own.
    pub(crate) async fn namespace(&self, prefix: &str) -> Namespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let api: Api<CoreNamespace> = Api::all(self.client.clone());
        let object = object(json!({ "metadata": { "name": name } }));
        api.create(&PostParams::default(), &object).await.expect("the namespace is created");
        Namespace { name, client: self.client.clone() }
    }
}

/// A typed object from JSON.
pub(crate) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Creates an object that no quota counts, wherever it is.
pub(crate) async fn create<K>(api: Api<K>, value: Value)
where
    K: Clone + Debug + DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &object(value)).await.expect("it is created");
}

impl Namespace {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Creates an object. Admission gives up with a conflict when a quota's counts have changed under it three times, and
    /// has created nothing then: as a client is told to, this asks again.
    pub(crate) async fn create<K>(&self, value: Value) -> K
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + serde::Serialize
            + DeserializeOwned
            + Clone
            + Debug,
        K::DynamicType: Default,
    {
        let (api, object) = (self.api::<K>(), object(value));
        for _ in 0..ADMISSIONS {
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.reason == "Conflict" => {}
                created => return created.expect("the object is created"),
            }
        }
        panic!("{ADMISSIONS} times a quota has changed while this was created: {object:?}");
    }

    /// Sees to it that pods can be created: nobody may make service accounts here, or somebody may have been faster.
    pub(crate) async fn default_account(&self) {
        let account = object(json!({ "metadata": { "name": "default" } }));
        match self.api::<ServiceAccount>().create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            created => drop(created.expect("the service account is created")),
        }
    }

    /// Creates a Deployment of `app=NAME` pods; `spec` is merged over the defaults.
    pub(crate) async fn deployment(&self, name: &str, replicas: i32, spec: Value) -> Deployment {
        let mut body = json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "web", "image": "nginx:1" }] },
                },
            },
        });
        merge(&mut body["spec"], spec);
        self.create(body).await
    }

    /// Creates a ReplicaSet of `app=NAME` pods.
    pub(crate) async fn replica_set(&self, name: &str, replicas: usize) -> ReplicaSet {
        let template = json!({ "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": "image" }] } });
        let spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template });
        self.create(json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    pub(crate) async fn patch_deployment(&self, name: &str, patch: Value) -> Deployment {
        self.api::<Deployment>()
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .expect("the deployment is patched")
    }

    /// Replaces the image of the one container.
    pub(crate) async fn set_image(&self, name: &str, image: &str) -> Deployment {
        let containers = json!([{ "name": "web", "image": image }]);
        self.patch_deployment(
            name,
            json!({ "spec": { "template": { "spec": { "containers": containers } } } }),
        )
        .await
    }

    pub(crate) async fn get_deployment(&self, name: &str) -> Deployment {
        self.api::<Deployment>().get(name).await.expect("the deployment")
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.expect("pods").items
    }

    /// Replica sets by name.
    pub(crate) async fn replica_sets(&self) -> BTreeMap<String, ReplicaSet> {
        let list = self.api::<ReplicaSet>().list(&ListParams::default()).await.expect("replica sets");
        list.items.into_iter().map(|each| (each.metadata.name.clone().unwrap_or_default(), each)).collect()
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
