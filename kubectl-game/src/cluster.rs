//! Reads from the API server and writes to it.

use std::time::Duration;

use gamekeeper_core::api::names::{HOOKS_NAMESPACE, PLUGIN_FIELD_MANAGER, WorkloadKind};
use gamekeeper_core::api::{
    Cluster as Lifecycle, GameDeployment, GameStatefulSet, HookRun, SidecarSet,
};
use gamekeeper_core::causes::with_causes;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::change::Change;
use crate::config::config;
use crate::error::Error;
use crate::game::Game;
use crate::kind::{Reference, full_name, short_name};
use crate::options::{ClusterOptions, limit};
use crate::scene::Scene;
use crate::sidecar_set;
use crate::suggest::closest;

/// Maximum number of attempts to write when other clients change the object in the meantime.
pub const MAX_ATTEMPTS: usize = 5;
/// Maximum number of retries of a request when the server is too busy.
const MAX_RETRIES: usize = 5;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A cluster and a namespace.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    request_timeout: Option<Duration>,
    pub namespace: String,
}

/// What a change depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Workload,
    /// The workload and the objects that belong to it.
    Scene,
}

impl Cluster {
    /// Finds the cluster as kubectl does: `--kubeconfig`, KUBECONFIG, `~/.kube/config`, then the
    /// service account of the pod.
    pub async fn connect(options: &ClusterOptions) -> Result<Self, Error> {
        let config = config(options).await?;
        let namespace = options
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        Ok(Cluster {
            client: Client::try_from(config)?,
            request_timeout: limit(options.request_timeout),
            namespace,
        })
    }

    #[cfg(test)]
    pub fn of(client: Client, namespace: &str) -> Self {
        Cluster {
            client,
            request_timeout: None,
            namespace: namespace.to_owned(),
        }
    }

    /// Sends a request, and repeats it while the server is too busy.
    pub async fn send<T>(&self, request: impl AsyncFn() -> kube::Result<T>) -> Result<T, Error> {
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

    /// The attempts at the scripts of Clusters.
    pub fn lifecycle_runs(&self) -> Api<HookRun> {
        Api::namespaced(self.client.clone(), HOOKS_NAMESPACE)
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// All workloads.
    pub async fn list(&self, all_namespaces: bool) -> Result<Vec<Game>, Error> {
        let any = ListParams::default();
        self.list_selected(&WorkloadKind::ALL, all_namespaces, &any)
            .await
    }

    /// The selected workloads of these kinds, sorted by kind, namespace and name. A kind that the cluster does not
    /// serve has none, but the cluster must serve at least one of the kinds.
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
                games.push(read(*kind, object)?);
            }
        }
        served.check()?;
        games.sort_by_key(|game| (game.kind, game.namespace.clone(), game.name.clone()));
        Ok(games)
    }

    /// All HookRuns: those of workloads, and those without a workload.
    pub async fn runs(&self, all_namespaces: bool) -> Result<(Vec<Scene>, Vec<HookRun>), Error> {
        let api = match all_namespaces {
            true => Api::all(self.client.clone()),
            false => self.api::<HookRun>(),
        };
        let params = ListParams::default();
        let runs = self.send(async || api.list(&params).await).await?;
        let games = self.list(all_namespaces).await?;
        Ok(Scene::of_runs(games, runs.items))
    }

    /// The workload with this name. A kind that the cluster does not serve has none: its CRD may have been deleted.
    pub async fn find(&self, reference: &Reference) -> Result<Game, Error> {
        let mut found = Vec::new();
        let mut served = Served::default();
        for kind in reference.kinds() {
            let workloads = self.workloads(kind, false);
            let name = &reference.name;
            let object = self.send(async || workloads.get_opt(name).await).await;
            if let Some(object) = served.record(kind, object)?.flatten() {
                found.push(read(kind, object)?);
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
        let here = match self.list(false).await {
            Ok(games) => games,
            Err(error) => return error,
        };
        let missing = format!("no {reference} in namespace {}", self.namespace);
        let hint = |other: String| Error::NotFound(format!("{missing}: did you mean {other}?"));
        if let Some(other) = here.iter().find(|game| game.name == reference.name) {
            return hint(other.short_name());
        }
        if reference.kind.is_none() && sidecar_set::exists(self, &reference.name).await {
            return hint(sidecar_set::short_name(&reference.name));
        }
        // A user without access to other namespaces gets no hint about them.
        let elsewhere = self.list(true).await.unwrap_or_default();
        let is_it =
            |game: &&Game| game.name == reference.name && reference.kinds().contains(&game.kind);
        if let Some(other) = elsewhere.iter().find(is_it) {
            return hint(format!("{} -n {}", other.short_name(), other.namespace));
        }
        let near = closest(&reference.name, here.iter().map(|game| game.name.as_str()));
        match here.iter().find(|game| Some(game.name.as_str()) == near) {
            Some(game) => hint(game.short_name()),
            None => Error::NotFound(format!("{missing}: see kubectl game get")),
        }
    }

    /// A workload with the objects that belong to it.
    pub async fn scene(&self, reference: &Reference) -> Result<Scene, Error> {
        let game = self.find(reference).await?;
        self.around(game).await
    }

    async fn around(&self, game: Game) -> Result<Scene, Error> {
        let pods = self.select::<Pod>(&game.selector);
        let runs = self.hook_runs(game.kind);
        let revisions = self.select::<ControllerRevision>(&game.revision_selector);
        let (pods, runs, revisions) = tokio::try_join!(pods, runs, revisions)?;
        Ok(Scene::new(game, pods, runs, revisions))
    }

    /// The HookRuns of workloads of a kind: none if their CRD was deleted.
    async fn hook_runs(&self, kind: WorkloadKind) -> Result<Vec<HookRun>, Error> {
        match self.select(kind.type_label()).await {
            Err(error) if error.is_not_served() => Ok(Vec::new()),
            runs => runs,
        }
    }

    /// The same cluster, with another namespace.
    pub fn within(&self, namespace: String) -> Self {
        Cluster {
            namespace,
            ..self.clone()
        }
    }

    /// The pods on a node.
    pub async fn pods_on(&self, node: &str, all_namespaces: bool) -> Result<Vec<Pod>, Error> {
        let api = match all_namespaces {
            true => Api::all(self.client.clone()),
            false => self.api::<Pod>(),
        };
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let found = self.send(async || api.list(&params).await).await?;
        Ok(found.items)
    }

    /// Whether new pods may start on a node; false if that cannot be read.
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

    /// Changes a pod by a merge patch.
    pub async fn patch_pod(&self, name: &str, patch: &Value, dry_run: bool) -> Result<(), Error> {
        let api = self.api::<Pod>();
        let params = PatchParams {
            dry_run,
            ..PatchParams::apply(PLUGIN_FIELD_MANAGER)
        };
        let patch = Patch::Merge(patch);
        self.send(async || api.patch(name, &params, &patch).await)
            .await?;
        Ok(())
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

    /// Changes a workload, and decides again if another client has changed it in the meantime. Returns the
    /// workload after the change.
    pub async fn change(
        &self,
        reference: &Reference,
        needs: Needs,
        dry_run: bool,
        decide: impl Fn(&Scene) -> Result<Change, Error>,
    ) -> Result<(Game, Change), Error> {
        let mut attempt = 1;
        loop {
            let game = self.find(reference).await?;
            let scene = match needs {
                Needs::Scene => self.around(game).await?,
                Needs::Workload => Scene::of_game(game),
            };
            let change = decide(&scene)?;
            match self.write(&scene.game, &change, dry_run).await {
                Ok(game) => return Ok((game, change)),
                Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(&self, game: &Game, change: &Change, dry_run: bool) -> Result<Game, Error> {
        let Some(patch) = change.patch(game) else {
            return Ok(game.clone());
        };
        let params = PatchParams {
            dry_run,
            ..PatchParams::apply(PLUGIN_FIELD_MANAGER)
        };
        let patch = Patch::Json::<()>(patch);
        let workloads = self.workloads(game.kind, false);
        let write = async || workloads.patch(&game.name, &params, &patch).await;
        read(game.kind, self.send(write).await?)
    }
}

pub fn resource(kind: WorkloadKind) -> ApiResource {
    match kind {
        WorkloadKind::GameDeployment => ApiResource::erase::<GameDeployment>(&()),
        WorkloadKind::GameStatefulSet => ApiResource::erase::<GameStatefulSet>(&()),
    }
}

/// Reads a workload, without its managed fields, which kubectl does not show either.
pub fn read(kind: WorkloadKind, object: DynamicObject) -> Result<Game, Error> {
    let name = full_name(kind, object.metadata.name.as_deref().unwrap_or_default());
    let unexpected = |error: &dyn std::error::Error| {
        Error::Unexpected(format!("{name}: {}", with_causes(error)))
    };
    let object = plain(kind.as_str(), object).map_err(|error| unexpected(&error))?;
    Game::read(kind, object).map_err(|error| unexpected(&error))
}

/// An object as kubectl prints it.
pub fn plain(kind: &str, object: DynamicObject) -> serde_json::Result<Value> {
    let mut object = serde_json::to_value(object)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object["apiVersion"] = Value::from(gamekeeper_core::api::API_VERSION);
    object["kind"] = Value::from(kind);
    Ok(object)
}

/// Which of the requested kinds the cluster serves.
#[derive(Default)]
struct Served {
    is_any: bool,
    missing: Option<WorkloadKind>,
}

impl Served {
    /// Records whether the cluster serves a kind. Returns the response, or None if it does not.
    fn record<T>(
        &mut self,
        kind: WorkloadKind,
        response: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match response {
            Err(error) if error.is_not_served() => {
                self.missing = Some(kind);
                Ok(None)
            }
            response => {
                self.is_any = true;
                response.map(Some)
            }
        }
    }

    /// Fails if the cluster serves none of the kinds.
    fn check(&self) -> Result<(), Error> {
        match self.missing {
            Some(kind) if !self.is_any => {
                Err(not_installed(kind.as_str(), &short_name(kind, "NAME")))
            }
            _ => Ok(()),
        }
    }
}

/// The cluster does not serve a kind. `name` is how `kubectl game` names an object of that kind.
pub fn not_installed(kind: &str, name: &str) -> Error {
    Error::NotFound(format!(
        "the cluster does not serve {kind}s ({name}): install gamekeeper's CRDs first"
    ))
}
