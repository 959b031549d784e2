//! Conflicts between a SidecarSet and the workloads that it may select: containers with the same name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::{Finding, sidecar_set};
use crate::api::{GameDeployment, GameStatefulSet, GameWorkload, SidecarSet};
use crate::sidecar_set::{Namespace, NamespacePolicy, Sidecars};

/// Namespaces with known labels, by name.
pub type Namespaces = BTreeMap<String, Namespace>;

/// Reads a Namespace, and returns it with its name; None for other kinds.
pub fn namespace(object: &Value) -> Option<(String, Namespace)> {
    let is_namespace = object["apiVersion"] == "v1" && object["kind"] == "Namespace";
    let name = object["metadata"]["name"].as_str().filter(|_| is_namespace)?;
    let labels = BTreeMap::deserialize(&object["metadata"]["labels"]);
    let namespace = Namespace { name: name.to_owned(), labels: labels.unwrap_or_default() };
    Some((name.to_owned(), namespace))
}

/// The parts of a workload that decide whether SidecarSets can be injected into its pods.
#[derive(Clone, Debug)]
pub struct Neighbor {
    kind: &'static str,
    /// Its namespace; empty in a manifest that does not name one.
    pub namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    containers: BTreeSet<String>,
}

impl Neighbor {
    /// Reads these parts of a workload.
    pub fn of<K: GameWorkload>(workload: &K) -> Self {
        let (meta, template) = (workload.meta(), workload.pod_template().parse());
        let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let labels =
            labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let lists = ["initContainers", "containers"].into_iter();
        let containers = lists.flat_map(|list| template["spec"][list].as_array());
        let names = containers.flatten().filter_map(|it| it["name"].as_str());
        Self {
            kind: K::KIND.as_str(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            labels: labels.collect(),
            containers: names.map(str::to_owned).collect(),
        }
    }

    /// Reads these parts of an object; None for other kinds, and if it cannot be decoded.
    pub fn read(object: &Value) -> Option<Self> {
        match object["kind"].as_str()? {
            "GameDeployment" => Some(Self::of(&GameDeployment::deserialize(object).ok()?)),
            "GameStatefulSet" => Some(Self::of(&GameStatefulSet::deserialize(object).ok()?)),
            _ => None,
        }
    }

    /// Whether the set selects the workload's pods, but cannot be injected into them. The labels of the namespace are
    /// not considered.
    pub fn conflicts_with(&self, set: &SidecarSet, policy: &NamespacePolicy) -> bool {
        let lists = [&set.spec.init_containers, &set.spec.containers];
        let mut names = lists.into_iter().flatten().map(name_of);
        names.any(|it| self.containers.contains(it)) && self.is_selected(set, None, policy)
    }

    /// Whether the set selects the workload's pods. A namespace with unknown labels counts as selected.
    fn is_selected(
        &self,
        set: &SidecarSet,
        namespace: Option<&Namespace>,
        policy: &NamespacePolicy,
    ) -> bool {
        let mut set = set.clone();
        if namespace.is_none() {
            set.spec.namespace_selector = None;
        }
        if self.namespace.is_empty() {
            set.spec.namespace = None;
        }
        let unknown = Namespace { name: self.namespace.clone(), ..Namespace::default() };
        Sidecars::of(&set).is_some_and(|sidecars| {
            let namespace = namespace.unwrap_or(&unknown);
            sidecars.reach.reaches(namespace, policy) && sidecars.reach.selects(&self.labels)
        })
    }

    /// The workload's kind and name, for messages.
    fn title(&self) -> String {
        let (kind, name) = (self.kind, &self.name);
        match self.namespace.as_str() {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        }
    }
}

/// If this object is a SidecarSet, warnings about its conflicts with containers of workloads. `namespaces` are those
/// with known labels.
pub fn conflicts_with_workloads(
    object: &Value,
    workloads: &[Neighbor],
    namespaces: &Namespaces,
) -> Vec<Finding> {
    let Some(set) = sidecar_set(object).filter(|_| !workloads.is_empty()) else {
        return Vec::new();
    };
    // The webhook has already left out workloads in the operator's own namespace. The linter does not know which
    // namespace that is.
    let policy = NamespacePolicy::default();
    let selected = workloads.iter();
    let selected =
        selected.filter(|it| it.is_selected(&set, namespaces.get(&it.namespace), &policy));
    selected.flat_map(|it| same_names(&set, it)).collect()
}

/// A warning for each container of the set that has the name of a container of the workload.
fn same_names(set: &SidecarSet, workload: &Neighbor) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (list, containers) in
        [("initContainers", &set.spec.init_containers), ("containers", &set.spec.containers)]
    {
        for (index, name) in containers.iter().map(name_of).enumerate() {
            if workload.containers.contains(name) {
                let field = format!("spec.{list}[{index}].name");
                let why = format!(
                    "{} has a container {name:?}; rename one of the two, or this set is left out of its pods",
                    workload.title()
                );
                findings.push(Finding::invalid(field, name, why).as_warning());
            }
        }
    }
    findings
}

fn name_of(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: Value) -> Value {
        let mut set = json!({
            "kind": "SidecarSet",
            "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": {"app": "arena"}},
                "containers": [{"name": "ship"}, {"name": "log"}],
            },
        });
        let fields = set["spec"].as_object_mut().expect("a spec");
        fields.extend(spec.as_object().expect("fields").clone());
        set
    }

    fn workload(kind: &str, namespace: &str, app: &str, list: &str) -> Neighbor {
        let mut object = json!({
            "kind": kind,
            "metadata": {"name": "arena", "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": app}},
                "template": {
                    "metadata": {"labels": {"app": app}},
                    "spec": {"containers": [{"name": "game"}]},
                },
            },
        });
        let spec = &mut object["spec"]["template"]["spec"];
        match list {
            "containers" => spec["containers"] = json!([{"name": "game"}, {"name": "log"}]),
            list => spec[list] = json!([{"name": "log"}]),
        }
        Neighbor::read(&object).expect("a workload")
    }

    #[test]
    fn a_container_name_shared_with_a_selected_workload_gives_a_warning_that_names_the_workload() {
        let none = BTreeMap::new();
        for (kind, namespace, list, title) in [
            ("GameDeployment", "games", "containers", "GameDeployment games/arena"),
            ("GameStatefulSet", "", "initContainers", "GameStatefulSet arena"),
        ] {
            let workloads = [workload(kind, namespace, "arena", list)];
            let found = conflicts_with_workloads(&set(json!({})), &workloads, &none);
            assert_eq!(found.len(), 1);
            assert!(!found[0].is_error());
            let expected = format!(
                "spec.containers[1].name: Invalid value: \"log\": {title} has a container \"log\"; rename one of \
                 the two, or this set is left out of its pods"
            );
            assert_eq!(found[0].to_string(), expected);
        }
        let unrelated = set(json!({"containers": [{"name": "ship"}]}));
        let workloads = [workload("GameDeployment", "games", "arena", "containers")];
        assert!(conflicts_with_workloads(&unrelated, &workloads, &none).is_empty());
        let init = set(json!({"initContainers": [{"name": "game"}]}));
        let found = conflicts_with_workloads(&init, &workloads, &none);
        assert_eq!(found[0].field, "spec.initContainers[0].name");
    }

    #[test]
    fn only_selected_workloads_give_warnings() {
        let by_team = || json!({"namespaceSelector": {"matchLabels": {"team": "games"}}});
        let known = |labels: Value| {
            let namespace = Namespace {
                name: "games".into(),
                labels: serde_json::from_value(labels).expect("labels"),
            };
            BTreeMap::from([("games".to_owned(), namespace)])
        };
        let disabled = json!({"gamekeeper.tkex.tencent.com/sidecars": "disabled"});
        for (spec, namespace, app, namespaces, warned) in [
            (json!({}), "games", "arena", BTreeMap::new(), true),
            (json!({}), "games", "lobby", BTreeMap::new(), false),
            (json!({}), "kube-system", "arena", BTreeMap::new(), false),
            (json!({}), "games", "arena", known(disabled), false),
            (json!({"namespace": "games"}), "games", "arena", BTreeMap::new(), true),
            (json!({"namespace": "games"}), "", "arena", BTreeMap::new(), true),
            (json!({"namespace": "web"}), "games", "arena", BTreeMap::new(), false),
            (by_team(), "games", "arena", BTreeMap::new(), true),
            (by_team(), "games", "arena", known(json!({"team": "games"})), true),
            (by_team(), "games", "arena", known(json!({})), false),
        ] {
            let workloads = [workload("GameDeployment", namespace, app, "containers")];
            let found = conflicts_with_workloads(&set(spec.clone()), &workloads, &namespaces);
            assert_eq!(!found.is_empty(), warned, "{spec} {namespace} {app}");
        }
    }
}
