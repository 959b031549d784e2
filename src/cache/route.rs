//! Who must look when something changed: from objects to the keys of the workloads they concern.
//!
//! Both the old and the new object count, so that nobody misses that something was taken away.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use kube::core::{Selector, SelectorExt};

use super::kinds::{CachedGameDeployment, CachedHookRun, CachedHookTemplate, CachedRevision};
use super::store::{Cached, ObjectKey, Transition};
use crate::api::{CanaryStep, GameDeploymentSpec};
use crate::plan::Pod;

/// Takes keys that must be looked at; must not block.
pub type Sink = Box<dyn Fn(ObjectKey) + Send + Sync>;

/// Takes objects that cannot be read: their kind, their name, and why. Must not block.
pub type BrokenSink = Box<dyn Fn(&'static str, &ObjectKey, &str) + Send + Sync>;

/// Routes changes to the queues of the controllers.
pub struct Router {
    /// Workloads by uid.
    workloads: RwLock<HashMap<String, Arc<CachedGameDeployment>>>,
    to_game_deployments: Sink,
    to_hook_runs: Sink,
    to_broken: BrokenSink,
}

impl Router {
    /// A router into these queues.
    pub fn new(to_game_deployments: Sink, to_hook_runs: Sink, to_broken: BrokenSink) -> Self {
        Self {
            workloads: RwLock::default(),
            to_game_deployments,
            to_hook_runs,
            to_broken,
        }
    }

    /// A workload changed: it looks itself.
    pub fn game_deployment(&self, (old, new): &Transition<CachedGameDeployment>) {
        let mut workloads = self
            .workloads
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old {
            workloads.remove(old.uid());
        }
        if let Some(new) = new {
            workloads.insert(new.uid().to_owned(), Arc::clone(new));
        }
        drop(workloads);
        for side in [old, new].into_iter().flatten() {
            (self.to_game_deployments)(side.key());
        }
    }

    /// An object of this kind cannot be read.
    pub fn broken(&self, kind: &'static str, key: &ObjectKey, reason: &str) {
        (self.to_broken)(kind, key, reason);
    }

    /// A run changed: its own controller and the workload that waits for it look.
    pub fn hook_run(&self, transition: &Transition<CachedHookRun>) {
        for side in sides(transition) {
            (self.to_hook_runs)(side.key());
        }
        self.owners(transition);
    }

    /// A pod changed: whoever controls it looks, and who might adopt it when nobody does.
    pub fn pod(&self, transition: &Transition<Pod>) {
        self.owners(transition);
        for orphan in sides(transition).filter(|pod| pod.controller.is_none()) {
            self.selecting(&orphan.namespace, &orphan.labels);
        }
    }

    /// A revision changed.
    pub fn revision(&self, transition: &Transition<CachedRevision>) {
        self.owners(transition);
        for orphan in sides(transition).filter(|revision| revision.controller().is_none()) {
            self.selecting(orphan.namespace(), &orphan.labels);
        }
    }

    /// A template changed: the workloads that name it look.
    pub fn hook_template(&self, transition: &Transition<CachedHookTemplate>) {
        for template in sides(transition) {
            self.workloads_where(template.namespace(), |workload| {
                templates_of(&workload.object.spec).contains(template.name())
            });
        }
    }

    fn owners<T: Cached>(&self, transition: &Transition<T>) {
        let controllers: BTreeSet<&str> = sides(transition)
            .filter_map(|side| side.controller())
            .collect();
        let workloads = self.read();
        for uid in controllers {
            if let Some(workload) = workloads.get(uid) {
                (self.to_game_deployments)(workload.key());
            }
        }
    }

    fn selecting(&self, namespace: &str, labels: &std::collections::BTreeMap<String, String>) {
        self.workloads_where(namespace, |workload| {
            selector(&workload.object.spec).is_some_and(|selector| selector.matches(labels))
        });
    }

    fn workloads_where(&self, namespace: &str, concerned: impl Fn(&CachedGameDeployment) -> bool) {
        for workload in self.read().values() {
            if workload.namespace() == namespace && concerned(workload) {
                (self.to_game_deployments)(workload.key());
            }
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, Arc<CachedGameDeployment>>> {
        self.workloads
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn sides<T>(transition: &Transition<T>) -> impl Iterator<Item = &Arc<T>> {
    [&transition.0, &transition.1].into_iter().flatten()
}

/// The selector of a workload; None for one that is empty or cannot be read, which selects nothing.
pub fn selector(spec: &GameDeploymentSpec) -> Option<Selector> {
    let selector = Selector::try_from(spec.selector.clone()).ok()?;
    (!selector.selects_all()).then_some(selector)
}

/// The templates that a workload names.
pub fn templates_of(spec: &GameDeploymentSpec) -> BTreeSet<&str> {
    let points = [
        &spec.pre_delete_update_strategy,
        &spec.pre_inplace_update_strategy,
        &spec.post_inplace_update_strategy,
    ];
    let steps = spec.update_strategy.canary.as_ref();
    let steps = steps.map_or(&[] as &[CanaryStep], |canary| &canary.steps);
    let of_pods = points.iter().filter_map(|point| point.hook.as_ref());
    let of_steps = steps.iter().filter_map(|step| step.hook.as_ref());
    of_pods
        .chain(of_steps)
        .map(|hook| hook.template_name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::cache::{Interner, Sight, Whole, slim};

    /// A router that knows one workload, and the keys that it hands out.
    fn router() -> (Router, Arc<Mutex<BTreeSet<String>>>) {
        let told = Arc::new(Mutex::new(BTreeSet::new()));
        let sink = |what: &'static str| -> Sink {
            let told = Arc::clone(&told);
            Box::new(move |key| {
                told.lock().unwrap().insert(format!("{what} {key}"));
            })
        };
        let broken: BrokenSink = Box::new(|_, _, _| {});
        let router = Router::new(sink("workload"), sink("run"), broken);
        let lobby = json!({
            "metadata": {"namespace": "games", "name": "lobby", "uid": "lobby-uid"},
            "spec": {
                "selector": {"matchLabels": {"app": "lobby"}},
                "template": {},
                "preDeleteUpdateStrategy": {"hook": {"templateName": "drained"}},
                "updateStrategy": {"canary": {"steps": [{"hook": {"templateName": "healthy"}}]}},
            },
        });
        let lobby = Whole::new(serde_json::from_value(lobby).unwrap(), false);
        router.game_deployment(&(None, Some(Arc::new(lobby))));
        told.lock().unwrap().clear();
        (router, told)
    }

    fn pod(labels: Value, owner: Option<&str>) -> Option<Arc<Pod>> {
        let owners = owner.map(|uid| {
            json!([{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                "name": "lobby", "uid": uid, "controller": true,
            }])
        });
        let pod = json!({"metadata": {
            "namespace": "games", "name": "a", "labels": labels, "ownerReferences": owners,
        }});
        let pod = serde_json::from_value(pod).unwrap();
        slim(None, Sight::Watched, pod, &mut Interner::default()).map(Arc::new)
    }

    fn told(told: &Mutex<BTreeSet<String>>) -> Vec<String> {
        std::mem::take(&mut *told.lock().unwrap())
            .into_iter()
            .collect()
    }

    #[test]
    fn a_pod_that_is_deleted_or_let_go_concerns_its_owner() {
        let (router, keys) = router();
        router.pod(&(pod(json!({"app": "lobby"}), Some("lobby-uid")), None));
        assert_eq!(told(&keys), ["workload games/lobby"]);
        let let_go = pod(json!({"app": "other"}), None);
        router.pod(&(pod(json!({"app": "lobby"}), Some("lobby-uid")), let_go));
        assert_eq!(told(&keys), ["workload games/lobby"]);
    }

    #[test]
    fn an_orphan_concerns_who_selects_it() {
        let (router, keys) = router();
        router.pod(&(None, pod(json!({"app": "lobby"}), None)));
        assert_eq!(told(&keys), ["workload games/lobby"]);
        router.pod(&(None, pod(json!({"app": "other"}), None)));
        router.pod(&(None, pod(json!({"app": "lobby"}), Some("another-uid"))));
        assert!(told(&keys).is_empty());
    }

    #[test]
    fn a_template_concerns_the_workloads_that_name_it() {
        let (router, keys) = router();
        let template = |namespace: &str, name: &str| {
            let template = json!({
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"metrics": []},
            });
            let template = Whole::new(serde_json::from_value(template).unwrap(), true);
            router.hook_template(&(Some(Arc::new(template)), None));
            told(&keys)
        };
        assert_eq!(template("games", "drained"), ["workload games/lobby"]);
        assert_eq!(template("games", "healthy"), ["workload games/lobby"]);
        assert!(template("games", "unused").is_empty());
        assert!(template("other", "drained").is_empty());
    }

    #[test]
    fn a_run_concerns_its_controller_and_its_owner() {
        let (router, keys) = router();
        let run = json!({
            "metadata": {
                "namespace": "games", "name": "check",
                "ownerReferences": [{
                    "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                    "name": "lobby", "uid": "lobby-uid", "controller": true,
                }],
            },
            "spec": {"metrics": []},
        });
        let run = Whole::new(serde_json::from_value(run).unwrap(), true);
        router.hook_run(&(Some(Arc::new(run)), None));
        assert_eq!(told(&keys), ["run games/check", "workload games/lobby"]);
    }
}
