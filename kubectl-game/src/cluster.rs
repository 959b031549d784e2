//! The API server: where it is (as kubectl finds it), what is read from it, what is written.

use gamekeeper::api::names::WorkloadKind;
use gamekeeper::api::{GameDeployment, GameStatefulSet, HookRun};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::change::Change;
use crate::error::{Error, chain};
use crate::game::Game;
use crate::kind::{KINDS, Reference, full_name, short_name};
use crate::options::ClusterOptions;
use crate::scene::Scene;
use crate::suggest::closest;

/// Who writes, as `metadata.managedFields` shows it; the operator takes it for a person.
const FIELD_MANAGER: &str = "kubectl-game";
/// How often a write is decided anew when somebody else was faster.
const ATTEMPTS: usize = 5;

/// A cluster and the namespace to work in.
pub struct Cluster {
    client: Client,
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
            namespace,
        })
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
        let mut games = Vec::new();
        for kind in kinds {
            let found = self
                .workloads(*kind, all_namespaces)
                .list(&ListParams::default())
                .await;
            let found = found.map_err(|error| not_installed(*kind, error.into()))?;
            for object in found.items {
                games.push(read(*kind, object)?);
            }
        }
        games.sort_by_key(|game| (game.kind, game.namespace.clone(), game.name.clone()));
        Ok(games)
    }

    /// The workload of that name.
    pub async fn find(&self, reference: &Reference) -> Result<Game, Error> {
        let mut found = Vec::new();
        for kind in reference.kinds() {
            if let Some(object) = self.workloads(kind, false).get_opt(&reference.name).await? {
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
        let here = match self.list(&KINDS, false).await {
            Ok(games) => games,
            Err(error) => return error,
        };
        let namespace = &self.namespace;
        let missing = format!("no {reference} in namespace {namespace}");
        if let Some(other) = here.iter().find(|game| game.name == reference.name) {
            return Error::NotFound(format!("{missing}: did you mean {}?", other.short_name()));
        }
        // Whoever may not look beyond his namespace gets no hint about others.
        let elsewhere = self.list(&KINDS, true).await.unwrap_or_default();
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
        Ok(self.api::<K>().list(&params).await?.items)
    }

    /// Changes a workload, on the state that the change was decided on; decides anew when somebody
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
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let patch = Patch::Json::<()>(patch);
        let written = self
            .workloads(game.kind, false)
            .patch(&game.name, &params, &patch)
            .await?;
        read(game.kind, written)
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
        Error::Odd(format!("{}: {}", full_name(kind, &name), chain(error)))
    };
    let mut object = serde_json::to_value(object).map_err(|error| odd(&error))?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object["apiVersion"] = Value::from(gamekeeper::api::API_VERSION);
    object["kind"] = Value::from(kind.as_str());
    Game::read(kind, object).map_err(|error| odd(&error))
}

fn not_installed(kind: WorkloadKind, error: Error) -> Error {
    match &error {
        Error::Server(status) if status.code == 404 => Error::NotFound(format!(
            "the cluster does not know {}s ({}): install gamekeeper's CRDs first",
            kind.as_str(),
            short_name(kind, "NAME")
        )),
        _ => error,
    }
}

async fn config(options: &ClusterOptions) -> Result<Config, Error> {
    let told = |error: &dyn std::error::Error| Error::Config(chain(error));
    let kubeconfig = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = match kubeconfig {
        Ok(kubeconfig) => kubeconfig,
        Err(error) if options.kubeconfig.is_none() && options.context.is_none() => {
            return Config::incluster().map_err(|_| told(&error));
        }
        Err(error) => return Err(told(&error)),
    };
    if let Some(context) = &options.context {
        let names: Vec<&str> = kubeconfig
            .contexts
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        if !names.contains(&context.as_str()) {
            let hint = match closest(context, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are: {}", names.join(", ")),
            };
            return Err(Error::Config(format!(
                "context {context:?} does not exist: {hint}"
            )));
        }
    }
    let options = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| told(&error))
}
