//! SidecarSets: their containers, conflicts with other sets, and fields that are accepted but have no effect.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;
use serde_json::Value;

use super::{Finding, labels, pods};
use crate::api::names::is_reserved_annotation;
use crate::api::{PodMetadataPatch, SidecarSet, SidecarSetSpec};
use crate::sidecar_set::{Sidecars, is_same_volume};

/// The lists of containers in a set.
const LISTS: [&str; 2] = ["initContainers", "containers"];

pub(super) fn check_sidecar_set(set: &SidecarSet, object: &Value) -> Vec<Finding> {
    let spec = &object["spec"];
    let mut findings = pods::check_spec("spec", spec, &[]);
    findings.extend(restart_all_rules(spec));
    findings.extend(check_annotations(&set.spec.patch_pod_metadata));
    let selectors = [
        ("spec.selector", Some(&set.spec.selector)),
        ("spec.namespaceSelector", set.spec.namespace_selector.as_ref()),
        ("spec.updateStrategy.selector", set.spec.update_strategy.selector.as_ref()),
    ];
    for (field, selector) in selectors {
        let parsed = selector.map(|it| Selector::try_from(it.clone()));
        if let Some(Err(error)) = parsed {
            findings.push(Finding::error(field, format!("Invalid value: {error}")));
        }
    }
    findings.extend(without_effect(spec));
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let has_set_prefix = |revision: &str| revision.starts_with(&format!("{name}-"));
    findings
        .extend(pinned(set).filter(|it| !has_set_prefix(it)).map(|it| not_a_revision(name, it)));
    findings
}

/// The name of the revision that the set pins for new pods, if any.
fn pinned(set: &SidecarSet) -> impl Iterator<Item = &str> {
    set.spec.injection_strategy.pinned().into_iter()
}

fn not_a_revision(set: &str, name: &str) -> Finding {
    let field = "spec.injectionStrategy.revision.revisionName";
    let fix = format!(
        "is not a revision of this set; write one that kubectl game history sidecarset/{set} shows"
    );
    Finding::invalid(field, name, fix)
}

/// Finds a revision that a SidecarSet pins but that does not exist. `known` are the names of the set's
/// ControllerRevisions.
pub fn unknown_revision(object: &Value, known: &[String]) -> Vec<Finding> {
    let Some(set) = sidecar_set(object) else {
        return Vec::new();
    };
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let current = Sidecars::of(&set).map(|it| it.revision);
    // A name without the set's prefix is reported by `check_sidecar_set`, which does not know the revisions.
    let is_known = |it: &&str| {
        let is_current = current.as_deref() == Some(*it);
        is_current || known.iter().any(|known| known == it) || !it.starts_with(&format!("{name}-"))
    };
    let unknown = pinned(&set).filter(|it| !is_known(it));
    unknown.map(|it| not_a_revision(name, it)).collect()
}

/// Finds restart rules by which a sidecar would restart the game.
fn restart_all_rules(spec: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for list in LISTS {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let rules = container["restartPolicyRules"].as_array();
            for (number, rule) in rules.into_iter().flatten().enumerate() {
                if rule["action"] == "RestartAllContainers" {
                    let field = format!("spec.{list}[{index}].restartPolicyRules[{number}].action");
                    let fix = "would restart the game with its sidecar; write Restart";
                    findings.push(Finding::invalid(field, "RestartAllContainers", fix));
                }
            }
        }
    }
    findings
}

/// Finds annotations that new pods cannot get.
fn check_annotations(patches: &[PodMetadataPatch]) -> Vec<Finding> {
    let why = "is reserved for Kubernetes and its controllers; choose another annotation";
    let mut findings = Vec::new();
    let mut known = BTreeSet::new();
    for (index, patch) in patches.iter().enumerate() {
        let field = format!("spec.patchPodMetadata[{index}].annotations");
        findings.extend(labels::invalid_keys(&field, patch.annotations.keys()));
        for key in patch.annotations.keys() {
            if is_reserved_annotation(key) {
                findings.push(Finding::invalid(&field, key, why));
            }
            if !known.insert(key) {
                findings.push(Finding::duplicate(&field, key, "remove one of the two"));
            }
        }
    }
    findings
}

/// Warnings about OpenKruise settings for the order of pod updates. They have no effect here.
fn without_effect(spec: &Value) -> Vec<Finding> {
    let strategy = &spec["updateStrategy"];
    let ignored = ["priorityStrategy", "scatterStrategy"].into_iter();
    let ignored = ignored.filter(|field| !strategy[*field].is_null());
    let why = "Invalid value: has no effect: pods that are not ready are updated first, then those that have waited \
               longest; remove it";
    let findings = ignored
        .map(|field| Finding::error(format!("spec.updateStrategy.{field}"), why).as_warning());
    findings.collect()
}

/// Decodes a SidecarSet; None for other kinds, and if the object cannot be decoded.
pub fn sidecar_set(object: &Value) -> Option<SidecarSet> {
    let is_sidecar_set = object["kind"] == "SidecarSet";
    is_sidecar_set.then(|| SidecarSet::deserialize(object).ok())?
}

/// If this object is a SidecarSet, warnings about its conflicts with other sets.
pub fn conflicts_of_sidecar_sets<'a>(
    object: &Value,
    others: impl IntoIterator<Item = &'a SidecarSet>,
) -> Vec<Finding> {
    let Some(set) = sidecar_set(object) else {
        return Vec::new();
    };
    let others = others.into_iter();
    others.flat_map(|other| conflicts_between(&set, other)).collect()
}

/// Warnings about what a SidecarSet cannot inject together with another one: containers with the same name, and volumes
/// with the same name but other contents. They are only warnings, because whether both sets select a pod depends on its
/// labels.
fn conflicts_between(set: &SidecarSet, other: &SidecarSet) -> Vec<Finding> {
    let names = [set, other].map(|it| it.metadata.name.as_deref().unwrap_or_default());
    let [name, other_name] = names;
    if name == other_name || !may_select_same_pods(&set.spec, &other.spec) {
        return Vec::new();
    }
    let left_out = names.into_iter().max().unwrap_or_default();
    let warning = |field: String, item: &Value, what: &str| {
        let why = format!(
            "SidecarSet {other_name:?} may select the same pods and has {what} too; rename one of the two, or \
             {left_out:?} is left out of these pods"
        );
        Finding::invalid(field, name_of(item), why).as_warning()
    };
    let is_taken = |container: &Value| {
        let mut others = other.spec.init_containers.iter().chain(&other.spec.containers);
        others.any(|it| name_of(it) == name_of(container))
    };
    let mut findings = Vec::new();
    let lists = [&set.spec.init_containers, &set.spec.containers];
    for (list, containers) in LISTS.into_iter().zip(lists) {
        for (index, container) in containers.iter().enumerate() {
            if is_taken(container) {
                let field = format!("spec.{list}[{index}].name");
                findings.push(warning(field, container, "a container of this name"));
            }
        }
    }
    for (index, volume) in set.spec.volumes.iter().enumerate() {
        let mut others = other.spec.volumes.iter();
        if others.any(|it| name_of(it) == name_of(volume) && !is_same_volume(it, volume)) {
            let field = format!("spec.volumes[{index}].name");
            findings.push(warning(field, volume, "another volume of this name"));
        }
    }
    findings
}

fn name_of(object: &Value) -> &str {
    object["name"].as_str().unwrap_or_default()
}

/// Whether there may be a pod that both sets select.
fn may_select_same_pods(one: &SidecarSetSpec, other: &SidecarSetSpec) -> bool {
    let namespaces_may_overlap = match (&one.namespace, &other.namespace) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    let selectors_may_overlap = match (&one.namespace_selector, &other.namespace_selector) {
        (Some(one), Some(other)) => may_both_match(one, other),
        _ => true,
    };
    namespaces_may_overlap
        && selectors_may_overlap
        && may_both_match(&one.selector, &other.selector)
}

/// Whether there may be an object that both selectors match. There is none if they require different values of a label.
fn may_both_match(one: &LabelSelector, other: &LabelSelector) -> bool {
    let others = required(other);
    required(one).iter().all(|(label, values)| {
        let others = others.get(label);
        others.is_none_or(|others| !values.is_disjoint(others))
    })
}

/// The values that a selector allows for labels that must be present.
fn required(selector: &LabelSelector) -> BTreeMap<&str, BTreeSet<&str>> {
    let expressions = selector.match_expressions.iter().flatten();
    let listed = expressions.filter(|it| it.operator == "In").map(|it| {
        let values = it.values.iter().flatten().map(String::as_str);
        (it.key.as_str(), values.collect())
    });
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(label, value)| (label.as_str(), BTreeSet::from([value.as_str()])));
    listed.chain(labels).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str, spec: Value) -> SidecarSet {
        let mut set = json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": "arena"}},
                "containers": [{"name": "log", "image": "log:1"}],
                "volumes": [{"name": "logs", "emptyDir": {}}],
            },
        });
        let fields = set["spec"].as_object_mut().expect("a spec");
        fields.extend(spec.as_object().expect("fields").clone());
        serde_json::from_value(set).expect("a set")
    }

    fn fields(set: &SidecarSet, other: &SidecarSet) -> Vec<String> {
        let findings = conflicts_between(set, other).into_iter();
        findings.map(|it| it.field).collect()
    }

    #[test]
    fn a_container_name_shared_with_another_set_gives_a_warning_that_names_the_set_left_out() {
        let found = conflicts_between(&set("mesh", json!({})), &set("agent", json!({})));
        assert_eq!(found.len(), 1, "equal volumes are shared");
        assert!(!found[0].is_error());
        assert_eq!(
            found[0].to_string(),
            "spec.containers[0].name: Invalid value: \"log\": SidecarSet \"agent\" may select the same pods and has \
             a container of this name too; rename one of the two, or \"mesh\" is left out of these pods"
        );
        let more = json!({
            "containers": [{"name": "ship"}],
            "initContainers": [{"name": "init"}, {"name": "log"}],
            "volumes": [{"name": "logs", "hostPath": {"path": "/logs"}}],
        });
        let expected = ["spec.initContainers[1].name", "spec.volumes[0].name"];
        assert_eq!(fields(&set("a", more), &set("b", json!({}))), expected);
        assert!(fields(&set("a", json!({})), &set("a", json!({}))).is_empty());
        let [raw, stored] = [json!({"path": "/logs"}), json!({"path": "/logs", "type": ""})]
            .map(|it| json!({"volumes": [{"name": "logs", "hostPath": it}]}));
        let found = fields(&set("a", raw), &set("b", stored));
        assert_eq!(found, ["spec.containers[0].name"], "defaults make no difference");
    }

    #[test]
    fn a_pin_must_name_a_revision_of_the_set() {
        let pin = |name: &str| json!({"injectionStrategy": {"revision": {"revisionName": name}}});
        let newest = Sidecars::of(&set("log", json!({}))).expect("a set").revision;
        for (name, offline_findings, online_findings) in
            [("", 0, 0), ("log-1", 0, 0), (&newest, 0, 0), ("log-2", 0, 1), ("mesh-1", 1, 0)]
        {
            let mut set = serde_json::to_value(set("log", pin(name))).expect("a value");
            set["kind"] = json!("SidecarSet");
            let parsed = sidecar_set(&set).expect("a set");
            assert_eq!(check_sidecar_set(&parsed, &set).len(), offline_findings, "{name}");
            let found = unknown_revision(&set, &["log-1".to_owned()]);
            assert_eq!(found.len(), online_findings, "{name}");
        }
        let finding = not_a_revision("log", "log-2").to_string();
        assert_eq!(
            finding,
            "spec.injectionStrategy.revision.revisionName: Invalid value: \"log-2\": is not a revision of this set; \
             write one that kubectl game history sidecarset/log shows"
        );
    }

    #[test]
    fn only_sets_that_may_select_the_same_pods_conflict() {
        let labels = |value: &str| json!({"matchLabels": {"team": value}});
        let one_of = |values: Value| json!({"matchExpressions": [{"key": "team", "operator": "In", "values": values}]});
        let not_in = |value: &str| json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": [value]}]});
        for (field, one, other, may_conflict) in [
            ("namespace", json!("games"), json!("games"), true),
            ("namespace", json!("games"), json!("tools"), false),
            ("namespace", json!("games"), Value::Null, true),
            ("selector", labels("a"), labels("a"), true),
            ("selector", labels("a"), labels("b"), false),
            ("selector", labels("a"), one_of(json!(["a", "b"])), true),
            ("selector", labels("c"), one_of(json!(["a", "b"])), false),
            ("selector", labels("a"), json!({"matchLabels": {"app": "arena"}}), true),
            ("selector", labels("a"), not_in("b"), true),
            ("namespaceSelector", labels("a"), labels("b"), false),
            ("namespaceSelector", labels("a"), Value::Null, true),
        ] {
            let [one, other] = [("one", one), ("other", other)]
                .map(|(name, value)| set(name, json!({field: value})));
            assert_eq!(!fields(&one, &other).is_empty(), may_conflict, "{one:?} {other:?}");
            assert_eq!(!fields(&other, &one).is_empty(), may_conflict, "{one:?} {other:?}");
        }
    }
}
