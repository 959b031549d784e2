//! A workload with everything that belongs to it: what `tree`, `status`, `history` and `hooks` show.

use std::collections::HashMap;

use gamekeeper_core::api::names::{self, HookPoint};
use gamekeeper_core::api::{GROUP, HookRun, JsonText};
use gamekeeper_core::revision::recorded_template;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;

use crate::game::Game;

#[derive(Clone, Debug)]
pub struct Scene {
    pub game: Game,
    /// Its pods, sorted by ordinal or name.
    pub pods: Vec<Pod>,
    /// Its HookRuns, sorted by name.
    pub runs: Vec<HookRun>,
    /// Its revisions, newest first.
    pub revisions: Vec<ControllerRevision>,
}

impl Scene {
    /// A workload without the objects that it controls.
    pub fn of_game(game: Game) -> Self {
        Scene::new(game, Vec::new(), Vec::new(), Vec::new())
    }

    /// A workload, with those of the given objects that it controls.
    pub fn new(
        game: Game,
        mut pods: Vec<Pod>,
        mut runs: Vec<HookRun>,
        mut revisions: Vec<ControllerRevision>,
    ) -> Self {
        let is_own = |meta: &ObjectMeta| controller(meta) == Some(&game.uid);
        pods.retain(|pod| is_own(&pod.metadata));
        runs.retain(|run| is_own(&run.metadata));
        revisions.retain(|revision| is_own(&revision.metadata));
        let prefix = format!("{}-", game.name);
        pods.sort_by_cached_key(|pod| {
            let name = pod.name_any();
            (names::ordinal_after(&prefix, &name), name)
        });
        runs.sort_by_cached_key(ResourceExt::name_any);
        revisions.sort_by_key(|revision| std::cmp::Reverse(revision.revision));
        Scene { game, pods, runs, revisions }
    }

    /// Groups HookRuns by the workload that controls them. The second list contains those that none of these workloads
    /// controls.
    pub fn group_runs(games: Vec<Game>, runs: Vec<HookRun>) -> (Vec<Self>, Vec<HookRun>) {
        let mut by_owner: HashMap<String, Vec<HookRun>> = HashMap::new();
        for run in runs {
            let owner = controller(&run.metadata).unwrap_or_default().to_owned();
            by_owner.entry(owner).or_default().push(run);
        }
        let mut scenes = Vec::new();
        for game in games {
            let runs = by_owner.remove(&game.uid).unwrap_or_default();
            scenes.push(Scene::new(game, Vec::new(), runs, Vec::new()));
        }
        let mut others: Vec<HookRun> = by_owner.into_values().flatten().collect();
        others.sort_by_cached_key(|run| (run.namespace(), run.name_any()));
        (scenes, others)
    }

    pub fn point(&self, run: &HookRun) -> Option<HookPoint> {
        run.point(self.game.kind)
    }

    /// The pod of a run, if it exists.
    pub fn pod_of(&self, run: &HookRun) -> Option<&Pod> {
        self.pods.iter().find(|pod| is_for_pod(run, pod))
    }

    /// The pod or the canary step of a run.
    pub fn subject(&self, run: &HookRun) -> String {
        let label = |key: &str| run.labels().get(key).map_or("?", String::as_str);
        match self.pod_of(run) {
            Some(pod) => pod.name_any(),
            None if self.point(run) == Some(HookPoint::Step) => {
                format!("step {}", label(names::RUN_STEP_LABEL))
            }
            None => format!("{}-{}", self.game.name, label(names::RUN_INSTANCE_LABEL)),
        }
    }

    pub fn pods_at(&self, revision: &str) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| revision_of(pod) == revision)
    }

    /// The role of a revision in the rollout.
    pub fn role(&self, revision: &str) -> &'static str {
        let status = &self.game.status;
        match (revision == status.update_revision, revision == status.canary.revision) {
            (true, true) => "current",
            (true, false) => "update",
            (false, true) => "stable",
            (false, false) => "",
        }
    }
}

/// The uid of an object's controller.
fn controller(meta: &ObjectMeta) -> Option<&str> {
    names::controller_of(meta).map(|owner| owner.uid.as_str())
}

/// The owner reference of the workload that controls a pod.
pub fn workload_of(pod: &Pod) -> Option<&OwnerReference> {
    let owner = names::controller_of(&pod.metadata)?;
    let group = owner.api_version.split('/').next();
    (group == Some(GROUP)).then_some(owner)
}

pub fn is_for_pod(run: &HookRun, pod: &Pod) -> bool {
    let uid = run.annotations().get(names::RUN_POD_UID);
    uid.is_some() && uid == pod.metadata.uid.as_ref()
}

pub fn revision_of(pod: &Pod) -> &str {
    pod.labels().get(names::REVISION_LABEL).map_or("", String::as_str)
}

/// The pod template of a revision, without the directive that makes it a patch.
pub fn template_of(revision: &ControllerRevision) -> Option<Value> {
    let data = JsonText::from(&revision.data.as_ref()?.0);
    let template = recorded_template(&data).parse();
    template.is_object().then_some(template)
}
