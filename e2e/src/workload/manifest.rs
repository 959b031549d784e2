//! A builder of short manifests.

use serde_json::{Map, Value, json};

use crate::workload::{GAME, SET};

/// A workload, by default a GameDeployment.
#[derive(Clone, Debug)]
pub struct Game(Value);

impl Game {
    /// A GameDeployment with image `game:v1` and the readiness gate, updated in place.
    pub fn in_place(replicas: i64) -> Self {
        Game::deployment("InplaceUpdate", replicas)
    }

    /// A GameDeployment with image `game:v1` and the readiness gate, updated by recreating pods.
    pub fn rolling(replicas: i64) -> Self {
        Game::deployment("RollingUpdate", replicas)
    }

    /// A GameDeployment with image `game:v1` and the readiness gate, updated by hot patches.
    pub fn hot_patch(replicas: i64) -> Self {
        Game::deployment("HotPatchUpdate", replicas)
    }

    fn deployment(strategy: &str, replicas: i64) -> Self {
        Game(json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "GameDeployment",
            "metadata": {"name": GAME, "labels": {"app": GAME}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": GAME}},
                "template": {
                    "metadata": {"labels": {"app": GAME}},
                    "spec": {
                        "readinessGates": [{"conditionType": "InPlaceUpdateReady"}],
                        "containers": [{"name": "game", "image": "game:v1"}],
                    },
                },
                "updateStrategy": {"type": strategy},
            },
        }))
    }

    /// A GameStatefulSet whose pods are created and deleted one at a time.
    pub fn ordered(replicas: i64) -> Self {
        let game = Game::deployment("RollingUpdate", replicas).set("/kind", "GameStatefulSet");
        game.named(SET)
    }

    /// A GameStatefulSet whose pods are created and deleted in parallel.
    pub fn parallel(replicas: i64) -> Self {
        Game::ordered(replicas).set("/spec/podManagementPolicy", "Parallel")
    }

    /// Sets updateStrategy.type.
    pub fn updated_by(self, strategy: &str) -> Self {
        self.set("/spec/updateStrategy/type", strategy)
    }

    /// Sets a field by JSON pointer; creates missing parents.
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let mut place = &mut self.0;
        for part in pointer.split('/').skip(1) {
            let key = part.replace("~1", "/").replace("~0", "~");
            if let (Value::Array(_), Ok(index)) = (&*place, key.parse::<usize>()) {
                place = &mut place[index];
                continue;
            }
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[key];
        }
        *place = value.into();
        self
    }

    /// Removes a field of the spec.
    pub fn without(mut self, field: &str) -> Self {
        if let Some(spec) = self.0["spec"].as_object_mut() {
            spec.remove(field);
        }
        self
    }

    /// Sets the name, and the selector and label that go with it.
    pub fn named(self, name: &str) -> Self {
        self.set("/metadata/name", name)
            .set("/spec/selector/matchLabels/app", name)
            .set("/spec/template/metadata/labels/app", name)
    }

    /// Sets updateStrategy.maxUnavailable.
    pub fn max_unavailable(self, limit: impl Into<Value>) -> Self {
        self.set("/spec/updateStrategy/maxUnavailable", limit)
    }

    /// Sets updateStrategy.maxSurge.
    pub fn max_surge(self, limit: impl Into<Value>) -> Self {
        self.set("/spec/updateStrategy/maxSurge", limit)
    }

    /// Sets updateStrategy.partition.
    pub fn partition(self, pods: impl Into<Value>) -> Self {
        self.set("/spec/updateStrategy/partition", pods)
    }

    /// Sets updateStrategy.canary.steps.
    pub fn steps(self, steps: Value) -> Self {
        self.set("/spec/updateStrategy/canary/steps", steps)
    }

    /// Sets the hook before deletions, by the name of its HookTemplate.
    pub fn pre_delete(self, template: &str) -> Self {
        self.set("/spec/preDeleteUpdateStrategy/hook/templateName", template)
    }

    /// Guards the pods (spec.protection). A hook that refuses is run again after a second.
    pub fn guarded(self) -> Self {
        self.set("/spec/protection/pods", "Guarded").set("/spec/protection/askAgainSeconds", 1)
    }

    /// Sets the hook before in-place updates.
    pub fn pre_inplace(self, template: &str) -> Self {
        self.set("/spec/preInplaceUpdateStrategy/hook/templateName", template)
    }

    /// Sets the hook after in-place updates.
    pub fn post_inplace(self, template: &str) -> Self {
        self.set("/spec/postInplaceUpdateStrategy/hook/templateName", template)
    }

    /// Sets the image of the template's container.
    pub fn image(self, image: &str) -> Self {
        self.set("/spec/template/spec/containers/0/image", image)
    }

    /// Sets an annotation of the template.
    pub fn annotated(self, key: &str, value: &str) -> Self {
        let key = key.replace('/', "~1");
        self.set(&format!("/spec/template/metadata/annotations/{key}"), value)
    }
}

impl From<Game> for Value {
    fn from(game: Game) -> Value {
        game.0
    }
}

impl std::fmt::Display for Game {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A HookTemplate with one web metric that measures once and requires an `age` above 30.
pub fn hook_template(name: &str, url: &str) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "HookTemplate",
        "metadata": {"name": name},
        "spec": {
            "metrics": [{
                "name": "webtest",
                "provider": {"web": {"url": url, "jsonPath": "{$.age}"}},
                "successCondition": "asInt(result) > 30",
            }],
        },
    })
}

/// A HookTemplate that measures until the `age` is above 30.
pub fn retrying_hook_template(name: &str, url: &str) -> Value {
    let mut template = hook_template(name, url);
    let metric = &mut template["spec"]["metrics"][0];
    metric["interval"] = json!("1s");
    metric["count"] = json!(1000);
    metric["failureLimit"] = json!(1000);
    metric["consecutiveErrorLimit"] = json!(1000);
    metric["successfulLimit"] = json!(1);
    template
}
