//! Reads from the API server: workloads, and what belongs to them. Requests are retried if the server is too busy.

mod change;
mod served;
mod untyped;

pub use change::{MAX_ATTEMPTS, Needs, PodChange};
pub use served::not_installed;
use untyped::read;
pub use untyped::{plain, resource};

use std::time::Duration;

use gamekeeper_core::api::names::{HOOKS_NAMESPACE, WorkloadKind};
use gamekeeper_core::api::{Cluster as Lifecycle, HookRun, SidecarSet};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use self::served::Served;
use crate::config::config;
use crate::error::Error;
use crate::game::Game;
use crate::kind::Reference;
use crate::options::{ClusterOptions, limit};
use crate::scene::Scene;
use crate::sidecar_set;
use crate::suggest::closest;

/// Maximum number of retries of a request when the server is too busy.
const MAX_RETRIES: usize = 5;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A cluster and a namespace.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    request_timeout: Option<Duration>,
    pub namespace: String,
    /// The options that reach this cluster, as they are typed.
    options: String,
}

impl Cluster {
    /// Finds the cluster as kubectl does: `--kubeconfig`, KUBECONFIG, `~/.kube/config`, then the
    /// service account of the pod.
    pub async fn connect(options: &ClusterOptions) -> Result<Self, Error> {
        let config = config(options).await?;
        let namespace =
            options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Cluster {
            client: Client::try_from(config)?,
            request_timeout: limit(options.request_timeout),
            namespace,
            options: options.as_typed(),
        })
    }

    /// A cluster that this client reaches.
    pub fn of(client: Client, namespace: &str) -> Self {
        let (namespace, options) = (namespace.to_owned(), String::new());
        Cluster { client, request_timeout: None, namespace, options }
    }

    /// Reads a workload of this cluster.
    pub fn read(&self, kind: WorkloadKind, object: DynamicObject) -> Result<Game, Error> {
        let mut game = read(kind, object)?;
        game.options.push_str(&self.options);
        Ok(game)
    }

    /// Sends a request, and retries it while the server is too busy.
    pub async fn send<T, R>(&self, request: impl Fn() -> R) -> Result<T, Error>
    where
        R: Future<Output = kube::Result<T>>,
    {
        let response = async {
            for _ in 0..MAX_RETRIES {
                match request().await {
                    Err(kube::Error::Api(status)) if status.code == 429 => sleep(RETRY_DELAY).await,
                    response => return response,
                }
            }
            request().await
        };
        match self.request_timeout {
            None => Ok(response.await?),
            Some(limit) => match timeout(limit, response).await {
                Ok(response) => Ok(response?),
                Err(_) => Err(Error::no_response(limit)),
            },
        }
    }

    pub fn workloads(&self, kind: WorkloadKind, all_namespaces: bool) -> Api<DynamicObject> {
        let resource = resource(kind);
        if all_namespaces {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        }
    }

    /// The objects of any kind, in one namespace or all.
    pub fn objects(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Asks what the user may do.
    pub fn access_reviews(&self) -> Api<SelfSubjectAccessReview> {
        Api::all(self.client.clone())
    }

    /// The version of the API server.
    pub async fn version(&self) -> Result<String, Error> {
        let version = self.send(async || self.client.apiserver_version().await).await?;
        Ok(version.git_version)
    }

    /// Clusters, which run lifecycle hooks.
    pub fn lifecycles(&self) -> Api<Lifecycle> {
        Api::all(self.client.clone())
    }

    pub fn sidecar_sets(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<SidecarSet>(&()))
    }

    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// The pods of one namespace, or of all namespaces.
    pub fn pods_in(&self, namespace: Option<&str>) -> Api<Pod> {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// The HookRuns of Clusters: one for each attempt at a script.
    pub fn lifecycle_runs(&self) -> Api<HookRun> {
        Api::namespaced(self.client.clone(), HOOKS_NAMESPACE)
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The objects of the namespace, or of all namespaces.
    pub fn scoped<K>(&self, all_namespaces: bool) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match all_namespaces {
            true => Api::all(self.client.clone()),
            false => self.api(),
        }
    }

    /// All workloads of the namespace, or of all namespaces.
    pub async fn list(&self, all_namespaces: bool) -> Result<Vec<Game>, Error> {
        let any = ListParams::default();
        self.list_selected(&WorkloadKind::ALL, all_namespaces, &any).await
    }

    /// The selected workloads of these kinds, sorted by kind, namespace and name. Kinds that the cluster does not serve
    /// are skipped, but the cluster must serve at least one of them.
    pub async fn list_selected(
        &self,
        kinds: &[WorkloadKind],
        all_namespaces: bool,
        params: &ListParams,
    ) -> Result<Vec<Game>, Error> {
        let mut games = Vec::new();
        let mut served = Served::default();
        for kind in kinds {
            let workloads = self.workloads(*kind, all_namespaces);
            let found = self.send(async || workloads.list(params).await).await;
            let found = served.record(*kind, found)?;
            for object in found.into_iter().flat_map(|list| list.items) {
                games.push(self.read(*kind, object)?);
            }
        }
        served.check()?;
        games.sort_by_key(|game| (game.kind, game.namespace.clone(), game.name.clone()));
        Ok(games)
    }

    /// All HookRuns: those of workloads, and those without a workload.
    pub async fn runs(&self, all_namespaces: bool) -> Result<(Vec<Scene>, Vec<HookRun>), Error> {
        let runs = self.all_runs(all_namespaces).await?;
        let games = self.list(all_namespaces).await?;
        Ok(Scene::group_runs(games, runs))
    }

    /// Adds their HookRuns to workloads. If the user may not list HookRuns, none are added, and the server's refusal is
    /// returned, too. None are added either if their CRD was deleted.
    pub async fn with_runs(
        &self,
        games: Vec<Game>,
        all_namespaces: bool,
    ) -> Result<(Vec<Scene>, Option<Error>), Error> {
        let (runs, refusal) = match self.all_runs(all_namespaces).await {
            Err(error) if error.is_forbidden() => (Vec::new(), Some(error)),
            Err(error) if error.is_404() => (Vec::new(), None),
            runs => (runs?, None),
        };
        let (scenes, _) = Scene::group_runs(games, runs);
        Ok((scenes, refusal))
    }

    async fn all_runs(&self, all_namespaces: bool) -> Result<Vec<HookRun>, Error> {
        let api: Api<HookRun> = self.scoped(all_namespaces);
        let params = ListParams::default();
        let found = self.send(async || api.list(&params).await).await?;
        Ok(found.items)
    }

    /// The workload with this name. Kinds that the cluster does not serve are skipped: a CRD may have been deleted.
    pub async fn find(&self, reference: &Reference) -> Result<Game, Error> {
        let mut found = Vec::new();
        let mut served = Served::default();
        for kind in reference.kinds() {
            let workloads = self.workloads(kind, false);
            let name = &reference.name;
            let object = self.send(async || workloads.get_opt(name).await).await;
            if let Some(object) = served.record(kind, object)?.flatten() {
                found.push(self.read(kind, object)?);
            }
        }
        served.check()?;
        match (found.pop(), found.pop()) {
            (Some(game), None) => Ok(game),
            (Some(second), Some(first)) => Err(Error::Usage(format!(
                "{} and {} have the same name: write {} or {}",
                first.full_name(),
                second.full_name(),
                first.short_name(),
                second.short_name()
            ))),
            (None, _) => Err(self.not_found(reference).await),
        }
    }

    /// An error that suggests a similar name, or the same name in another namespace.
    async fn not_found(&self, reference: &Reference) -> Error {
        let games = match self.list(false).await {
            Ok(games) => games,
            Err(error) => return error,
        };
        let missing = format!("no {reference} in namespace {}", self.namespace);
        let hint = |other: String| Error::NotFound(format!("{missing}: did you mean {other}?"));
        if let Some(other) = games.iter().find(|game| game.name == reference.name) {
            return hint(other.short_name());
        }
        if reference.kind.is_none() && sidecar_set::exists(self, &reference.name).await {
            return hint(sidecar_set::short_name(&reference.name));
        }
        // A user without access to other namespaces gets no hint about them.
        let all_games = self.list(true).await.unwrap_or_default();
        let is_match =
            |game: &&Game| game.name == reference.name && reference.kinds().contains(&game.kind);
        if let Some(other) = all_games.iter().find(is_match) {
            return hint(format!("{} -n {}", other.short_name(), other.namespace));
        }
        let near = closest(&reference.name, games.iter().map(|game| game.name.as_str()));
        match games.iter().find(|game| Some(game.name.as_str()) == near) {
            Some(game) => hint(game.short_name()),
            None => Error::NotFound(format!("{missing}: see kubectl game get")),
        }
    }

    /// A workload with the objects that belong to it.
    pub async fn scene(&self, reference: &Reference) -> Result<Scene, Error> {
        let game = self.find(reference).await?;
        self.scene_of(game).await
    }

    async fn scene_of(&self, game: Game) -> Result<Scene, Error> {
        let pods = self.select::<Pod>(&game.selector);
        let runs = self.hook_runs(game.kind);
        let revisions = self.select::<ControllerRevision>(&game.revision_selector);
        let (pods, runs, revisions) = tokio::try_join!(pods, runs, revisions)?;
        Ok(Scene::new(game, pods, runs, revisions))
    }

    /// The HookRuns of workloads of a kind: none if the CRD of HookRuns was deleted.
    async fn hook_runs(&self, kind: WorkloadKind) -> Result<Vec<HookRun>, Error> {
        match self.select(kind.type_label()).await {
            Err(error) if error.is_404() => Ok(Vec::new()),
            runs => runs,
        }
    }

    /// The same cluster, with another namespace.
    pub fn in_namespace(&self, namespace: String) -> Self {
        Cluster { namespace, ..self.clone() }
    }

    /// The pods on a node.
    pub async fn pods_on(&self, node: &str, all_namespaces: bool) -> Result<Vec<Pod>, Error> {
        let api: Api<Pod> = self.scoped(all_namespaces);
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let found = self.send(async || api.list(&params).await).await?;
        Ok(found.items)
    }

    /// Whether new pods may start on a node; false if the node cannot be read.
    pub async fn is_schedulable(&self, node: &str) -> bool {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = self.send(async || api.get(node).await).await;
        let spec = node.ok().and_then(|node| node.spec);
        spec.is_some_and(|spec| spec.unschedulable != Some(true))
    }

    pub async fn pod(&self, name: &str) -> Result<Pod, Error> {
        let api = self.api::<Pod>();
        self.send(async || api.get(name).await).await
    }

    pub async fn select<K>(&self, selector: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let params = ListParams::default().labels(selector);
        let api = self.api::<K>();
        let found = self.send(async || api.list(&params).await).await?;
        Ok(found.items)
    }
}
