//! Writes to workloads and pods. A change is decided again if another client has changed the object in the meantime.

use gamekeeper_core::api::names::PLUGIN_FIELD_MANAGER;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::Cluster;
use crate::change::Change;
use crate::error::Error;
use crate::game::Game;
use crate::kind::Reference;
use crate::scene::Scene;

/// Maximum number of attempts to write when other clients change the object in the meantime.
pub const MAX_ATTEMPTS: usize = 5;

/// What a change depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Workload,
    /// The workload and the objects that belong to it.
    Scene,
}

/// The outcome of changing a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodChange {
    Done,
    /// The pod no longer exists.
    NoPod,
}

impl Cluster {
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
                Needs::Scene => self.scene_of(game).await?,
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
        let params = PatchParams { dry_run, ..PatchParams::apply(PLUGIN_FIELD_MANAGER) };
        let patch = Patch::Json::<()>(patch);
        let workloads = self.workloads(game.kind, false);
        let write = async || workloads.patch(&game.name, &params, &patch).await;
        self.read(game.kind, self.send(write).await?)
    }

    /// Changes a pod with a merge patch, which is computed again if another client has changed the pod in the meantime.
    /// The patch has the pod's uid as a precondition, because another pod may have the same name by now.
    pub async fn change_pod(
        &self,
        pod: &Pod,
        patch: impl Fn(&Pod) -> Value,
        dry_run: bool,
    ) -> Result<PodChange, Error> {
        let name = pod.name_any();
        let mut pod = pod.clone();
        let mut attempt = 1;
        loop {
            let error = match self.patch_pod(&name, &patch(&pod), dry_run).await {
                Ok(()) => return Ok(PodChange::Done),
                Err(error) if error.is_404() => return Ok(PodChange::NoPod),
                Err(error) if error.is_conflict() || error.is_invalid() => error,
                Err(error) => return Err(error),
            };
            let may_retry = error.is_conflict() && attempt < MAX_ATTEMPTS;
            match self.pod(&name).await {
                Err(error) if error.is_404() => return Ok(PodChange::NoPod),
                // The API server refuses a patch with another pod's uid as invalid.
                Ok(found) if found.uid() != pod.uid() => return Ok(PodChange::NoPod),
                Ok(found) if may_retry => pod = found,
                Ok(_) => return Err(error),
                Err(error) => return Err(error),
            }
            attempt += 1;
        }
    }

    async fn patch_pod(&self, name: &str, patch: &Value, dry_run: bool) -> Result<(), Error> {
        let api = self.api::<Pod>();
        let params = PatchParams { dry_run, ..PatchParams::apply(PLUGIN_FIELD_MANAGER) };
        let patch = Patch::Merge(patch);
        self.send(async || api.patch(name, &params, &patch).await).await?;
        Ok(())
    }
}
