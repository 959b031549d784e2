//! What a pod of a GameStatefulSet has in common with its predecessor: name, host name, ordinal, volumes.
//!
//! A pod's name contains its ordinal, and names are unique, so there are never two pods with the same ordinal.

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::{
    GameStatefulSet, GameWorkload, JsonText, PodManagementPolicy, PvcRetentionPolicy,
};
use crate::observed::Pod;
use crate::workload::spec::Workload;

/// What determines the identities of a GameStatefulSet's pods.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The first ordinal.
    pub start: i64,
    /// Whether pods are created and deleted one after the other.
    pub ordered: bool,
    /// The headless Service that governs the pods' DNS names.
    pub service: &'a str,
    set: &'a GameStatefulSet,
    /// Whether claims are deleted together with the workload, or with a pod that is scaled in. See `scale::claims`.
    pub retention: PvcRetentionPolicy,
    /// Whether pods on lost nodes are force-deleted.
    pub forced_off_lost_nodes: bool,
}

impl<'a> Identity<'a> {
    /// The identity that a GameStatefulSet gives to its pods.
    pub fn of(gsts: &'a GameStatefulSet) -> Self {
        let spec = &gsts.spec;
        Self {
            start: i64::from(spec.ordinals.start),
            ordered: spec.pod_management_policy == PodManagementPolicy::OrderedReady,
            service: &spec.service_name,
            set: gsts,
            retention: spec.persistent_volume_claim_retention_policy,
            forced_off_lost_nodes: gsts.forces_pods_off_lost_nodes(),
        }
    }

    /// The templates of the claims that each pod gets.
    pub fn claim_templates(&self) -> impl Iterator<Item = ClaimTemplate<'a>> {
        let templates = self.set.claim_templates().iter();
        let names = self.set.claim_template_names();
        let named = templates.zip(names).zip(self.set.claim_prefixes());
        named.map(|((template, name), prefix)| ClaimTemplate { name, prefix, template })
    }
}

/// The template of a claim that each pod gets.
pub struct ClaimTemplate<'a> {
    /// Its name, which is also the name of a volume.
    name: String,
    /// The prefix of its claims' names; the ordinal follows.
    pub prefix: String,
    template: &'a JsonText,
}

impl ClaimTemplate<'_> {
    /// The name of the claim for the pod with this ordinal.
    pub fn claim_name(&self, ordinal: i64) -> String {
        format!("{}{ordinal}", self.prefix)
    }
}

impl Workload<'_> {
    /// The name of the pod with this ordinal.
    pub fn pod_name(&self, ordinal: i64) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// A pod's ordinal, taken from its name; None if this workload does not create pods with such a name.
    pub fn ordinal(&self, pod: &Pod) -> Option<i64> {
        let suffix = pod.name.strip_prefix(&self.name)?;
        names::ordinal_after("-", suffix)
    }
}

/// The labels that contain a pod's name and ordinal.
pub(crate) fn labels(name: &str, ordinal: i64) -> [(&'static str, String); 3] {
    [
        (names::POD_NAME_LABEL, name.to_owned()),
        (names::POD_ORDINAL_LABEL, ordinal.to_string()),
        (names::POD_INDEX_LABEL, ordinal.to_string()),
    ]
}

/// Gives a new pod its identity: labels, host name, subdomain and claims. A claim replaces the template's volume of the
/// same name.
pub(crate) fn assign(identity: &Identity, ordinal: i64, pod: &mut Value) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for (key, value) in labels(&name, ordinal) {
        pod["metadata"]["labels"][key] = Value::String(value);
    }
    let spec = &mut pod["spec"];
    spec["hostname"] = json!(name);
    if !identity.service.is_empty() {
        spec["subdomain"] = json!(identity.service);
    }
    let claim_volumes: Vec<Value> = identity
        .claim_templates()
        .map(|template| {
            let claim = template.claim_name(ordinal);
            json!({"name": template.name, "persistentVolumeClaim": {"claimName": claim}})
        })
        .collect();
    if claim_volumes.is_empty() {
        return;
    }
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let is_replaced = |volume: &Value| claim_volumes.iter().any(|it| it["name"] == volume["name"]);
    let volumes = volumes.into_iter().filter(|volume| !is_replaced(volume));
    spec["volumes"] = Value::Array(volumes.chain(claim_volumes.clone()).collect());
}

/// The claim to create from a template, with this name.
pub(crate) fn claim(
    workload: &Workload,
    template: &ClaimTemplate,
    name: &str,
    owners: Vec<Value>,
) -> Value {
    let template = template.template.parse();
    let metadata = template.get("metadata");
    let part = |field: &str| metadata.and_then(|it| it.get(field)).cloned();
    let mut labels = part("labels").unwrap_or_else(|| json!({}));
    for (key, value) in &workload.match_labels {
        labels[key] = json!(value);
    }
    let mut meta = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("namespace".to_owned(), json!(workload.namespace)),
        ("labels".to_owned(), labels),
    ]);
    for field in ["annotations", "finalizers"] {
        if let Some(value) = part(field).filter(|it| !it.is_null()) {
            meta.insert(field.to_owned(), value);
        }
    }
    if !owners.is_empty() {
        meta.insert("ownerReferences".to_owned(), Value::Array(owners));
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": template.get("spec").cloned().unwrap_or_default(),
    })
}
