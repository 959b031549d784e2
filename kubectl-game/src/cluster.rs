//! The API server: where it is (as kubectl finds it), what is read from it, what is written.

use std::time::Duration;

use gamekeeper_core::api::names::{PLUGIN_FIELD_MANAGER, WorkloadKind};
use gamekeeper_core::api::{GameDeployment, GameStatefulSet, HookRun};
use gamekeeper_core::causes::with_causes;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::change::Change;
use crate::config::config;
use crate::error::{Error, is_foreign};
use crate::game::Game;
use crate::kind::{Reference, full_name, short_name};
use crate::options::{ClusterOptions, limit};
use crate::scene::Scene;
use crate::suggest::closest;

/// How often a write is decided again when somebody else was faster.
const ATTEMPTS: usize = 5;
/// How often a busy server is asked again, and how long after.
const RETRIES: usize = 5;
const RETRY: Duration = Duration::from_secs(1);

/// A cluster and the namespace to work in.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// Longest wait for the answer to a request; None is forever.
    patience: Option<Duration>,
    /// The namespace.
    pub namespace: String,
}

/// What a change has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The workload.
    Workload,
    /// Everything that belongs to it, too.
    Scene,
}

impl Cluster {
    /// Finds the cluster as kubectl does: `--kubeconfig`, KUBECONFIG, `~/.kube/config`, then the
    /// cluster that this runs in.
    pub async fn connect(options: &ClusterOptions) -> Result<Self, Error> {
        let config = config(options).await?;
        let namespace = options
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        Ok(Cluster {
            client: Client::try_from(config)?,
            patience: limit(options.request_timeout),
            namespace,
        })
    }

    /// A cluster that is reached so.
    #[cfg(test)]
    pub fn of(client: Client, namespace: &str) -> Self {
        Cluster {
            client,
            patience: None,
            namespace: namespace.to_owned(),
        }
    }

    /// The answer to a request, or that there is none in time. Who is told to come again later, does.
    async fn answer<T>(&self, request: impl AsyncFn() -> kube::Result<T>) -> Result<T, Error> {
        let answer = async {
            for _ in 0..RETRIES {
                match request().await {
                    Err(kube::Error::Api(status)) if status.code == 429 => sleep(RETRY).await,
                    answer => return answer,
                }
            }
            request().await
        };
        match self.patience {
            None => Ok(answer.await?),
            Some(limit) => match timeout(limit, answer).await {
                Ok(answer) => Ok(answer?),
                Err(_) => Err(Error::no_answer(limit)),
            },
        }
    }

    /// Workloads of a kind, in the namespace (or in all).
    pub fn workloads(&self, kind: WorkloadKind, all_namespaces: bool) -> Api<DynamicObject> {
        let resource = resource(kind);
        if all_namespaces {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        }
    }

    /// Objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// All workloads of these kinds, by kind, namespace and name.
    pub async fn list(
        &self,
        kinds: &[WorkloadKind],
        all_namespaces: bool,
    ) -> Result<Vec<Game>, Error> {
        let any = ListParams::default();
        self.list_selected(kinds, all_namespaces, &any).await
    }

    /// Those of them that are selected.
    pub async fn list_selected(
        &self,
        kinds: &[WorkloadKind],
        all_namespaces: bool,
        params: &ListParams,
    ) -> Result<Vec<Game>, Error> {
        let mut games = Vec::new();
        for kind in kinds {
            let workloads = self.workloads(*kind, all_namespaces);
            let found = self.answer(async || workloads.list(params).await).await;
            let found = found.map_err(|error| not_installed(*kind, error))?;
            for object in found.items {
                games.push(read(*kind, object)?);
            }
        }
        games.sort_by_key(|game| (game.kind, game.namespace.clone(), game.name.clone()));
        Ok(games)
    }

    /// All HookRuns: those of workloads with them, and those of nobody.
    pub async fn runs(&self, all_namespaces: bool) -> Result<(Vec<Scene>, Vec<HookRun>), Error> {
        let api = match all_namespaces {
            true => Api::all(self.client.clone()),
            false => self.api::<HookRun>(),
        };
        let params = ListParams::default();
        let runs = self.answer(async || api.list(&params).await).await?;
        let games = self.list(&WorkloadKind::ALL, all_namespaces).await?;
        Ok(Scene::of_runs(games, runs.items))
    }

    /// The workload of that name.
    pub async fn find(&self, reference: &Reference) -> Result<Game, Error> {
        let mut found = Vec::new();
        for kind in reference.kinds() {
            let workloads = self.workloads(kind, false);
            let name = &reference.name;
            if let Some(object) = self.answer(async || workloads.get_opt(name).await).await? {
                found.push(read(kind, object)?);
            }
        }
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

    /// Says what there is instead: a name like it, or the same name in another namespace.
    async fn not_found(&self, reference: &Reference) -> Error {
        let here = match self.list(&WorkloadKind::ALL, false).await {
            Ok(games) => games,
            Err(error) => return error,
        };
        let namespace = &self.namespace;
        let missing = format!("no {reference} in namespace {namespace}");
        if let Some(other) = here.iter().find(|game| game.name == reference.name) {
            return Error::NotFound(format!("{missing}: did you mean {}?", other.short_name()));
        }
        // Whoever may not look beyond his namespace gets no hint about others.
        let elsewhere = self
            .list(&WorkloadKind::ALL, true)
            .await
            .unwrap_or_default();
        let is_it =
            |game: &&Game| game.name == reference.name && reference.kinds().contains(&game.kind);
        if let Some(other) = elsewhere.iter().find(is_it) {
            return Error::NotFound(format!(
                "{missing}: did you mean {} -n {}?",
                other.short_name(),
                other.namespace
            ));
        }
        let near = closest(&reference.name, here.iter().map(|game| game.name.as_str()));
        let near = here.iter().find(|game| Some(game.name.as_str()) == near);
        match near {
            Some(game) => {
                Error::NotFound(format!("{missing}: did you mean {}?", game.short_name()))
            }
            None => Error::NotFound(format!("{missing}: see kubectl game get")),
        }
    }

    /// A workload with everything that belongs to it.
    pub async fn scene(&self, reference: &Reference) -> Result<Scene, Error> {
        let game = self.find(reference).await?;
        self.around(game).await
    }

    async fn around(&self, game: Game) -> Result<Scene, Error> {
        let pods = self.select::<Pod>(&game.selector);
        let runs = self.select::<HookRun>(game.kind.type_label());
        let revisions = self.select::<ControllerRevision>(&game.revision_selector);
        let (pods, runs, revisions) = tokio::try_join!(pods, runs, revisions)?;
        Ok(Scene::new(game, pods, runs, revisions))
    }

    async fn select<K>(&self, selector: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let params = ListParams::default().labels(selector);
        let api = self.api::<K>();
        let found = self.answer(async || api.list(&params).await).await?;
        Ok(found.items)
    }

    /// Changes a workload, on the state that the change was decided on; decides again when somebody
    /// else was faster. Returns it as it is then.
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
                Needs::Workload => Scene::new(game, Vec::new(), Vec::new(), Vec::new()),
            };
            let change = decide(&scene)?;
            match self.write(&scene.game, &change, dry_run).await {
                Ok(game) => return Ok((game, change)),
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
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
        read(game.kind, self.answer(write).await?)
    }
}

/// Where the kind is served.
pub fn resource(kind: WorkloadKind) -> ApiResource {
    match kind {
        WorkloadKind::GameDeployment => ApiResource::erase::<GameDeployment>(&()),
        WorkloadKind::GameStatefulSet => ApiResource::erase::<GameStatefulSet>(&()),
    }
}

/// Reads an object of that kind, without the bookkeeping that kubectl leaves out too.
pub fn read(kind: WorkloadKind, object: DynamicObject) -> Result<Game, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let odd = |error: &dyn std::error::Error| {
        Error::Odd(format!(
            "{}: {}",
            full_name(kind, &name),
            with_causes(error)
        ))
    };
    let mut object = serde_json::to_value(object).map_err(|error| odd(&error))?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object["apiVersion"] = Value::from(gamekeeper_core::api::API_VERSION);
    object["kind"] = Value::from(kind.as_str());
    Game::read(kind, object).map_err(|error| odd(&error))
}

fn not_installed(kind: WorkloadKind, error: Error) -> Error {
    match &error {
        Error::Server(status) if status.code == 404 && !is_foreign(status) => {
            Error::NotFound(format!(
                "the cluster does not serve {}s ({}): install gamekeeper's CRDs first",
                kind.as_str(),
                short_name(kind, "NAME")
            ))
        }
        _ => error,
    }
}
