//! A parsed SidecarSet: which pods it selects, and what is injected into them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};

use super::containers::Sidecar;
use crate::api::names::{SIDECARS_LABEL, safe_hash};
use crate::api::{PodInjectPolicy, SidecarSet, SidecarSetSpec, SidecarUpdateStrategy};
use crate::plan::observed::SidecarMarks;

/// The parts of a namespace on which SidecarSets depend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl Namespace {
    /// Whether no pod in it gets sidecars.
    pub fn is_closed(&self) -> bool {
        self.name.starts_with("kube-") || self.label() == Some("disabled")
    }

    /// Whether pods of other controllers get sidecars as well.
    pub fn is_open_to_all(&self) -> bool {
        !self.is_closed() && self.label() == Some("enabled")
    }

    fn label(&self) -> Option<&str> {
        self.labels.get(SIDECARS_LABEL).map(String::as_str)
    }
}

/// A parsed SidecarSet.
#[derive(Clone, Debug)]
pub struct Sidecars {
    /// The set's name.
    pub name: String,
    /// The revision of what is injected.
    pub revision: String,
    /// The hash of everything in that revision that a running pod cannot change: all except images.
    pub shape: String,
    /// Whether nothing is injected into new pods.
    pub paused: bool,
    /// How the containers of running pods are updated.
    pub update: SidecarUpdateStrategy,
    selector: Selector,
    /// The only namespace, if there is one.
    pub namespace: Option<String>,
    namespaces: Option<Selector>,
    pub(super) init_containers: Vec<Sidecar>,
    pub(super) containers: Vec<Sidecar>,
    pub(super) volumes: Vec<Value>,
    pub(super) pull_secrets: Vec<Value>,
}

impl Sidecars {
    /// Parses a set. None if it selects no pods: it is being deleted, or its selectors are empty or invalid.
    pub fn of(set: &SidecarSet) -> Option<Self> {
        if set.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = &set.spec;
        let selector = selector(&spec.selector).filter(|it| !it.selects_all())?;
        let namespaces = match &spec.namespace_selector {
            Some(namespaces) => Some(self::selector(namespaces)?),
            None => None,
        };
        let name = set.metadata.name.clone()?;
        let sidecars = |list: &[Value], place| -> Vec<Sidecar> {
            list.iter().map(|it| Sidecar::of(it, place)).collect()
        };
        let secrets = spec.image_pull_secrets.iter();
        let mut injected = injected(spec);
        let revision = format!("{name}-{}", hash(&injected));
        remove_images(&mut injected);
        Some(Self {
            revision,
            shape: hash(&injected),
            name,
            paused: spec.injection_strategy.paused,
            update: spec.update_strategy.clone(),
            selector,
            namespace: spec.namespace.clone(),
            namespaces,
            init_containers: sidecars(&spec.init_containers, PodInjectPolicy::AfterAppContainer),
            containers: sidecars(&spec.containers, PodInjectPolicy::BeforeAppContainer),
            volumes: spec.volumes.clone(),
            pull_secrets: secrets.map(|it| json!({"name": it.name})).collect(),
        })
    }

    /// Whether pods in a namespace can get its containers.
    pub fn reaches(&self, namespace: &Namespace) -> bool {
        let is_named = self
            .namespace
            .as_ref()
            .is_none_or(|it| *it == namespace.name);
        let labels = &namespace.labels;
        let is_selected = self.namespaces.as_ref().is_none_or(|it| it.matches(labels));
        is_named && is_selected && !namespace.is_closed()
    }

    /// Whether a pod with these labels gets its containers, provided that it reaches the pod's namespace.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// The images that a running pod can change, by container: all except those of init containers that end.
    pub fn images(&self) -> impl Iterator<Item = SidecarImage<'_>> {
        let native = self.init_containers.iter().filter(|it| it.keeps_running());
        let all = native.map(|it| (it, true));
        let all = all.chain(self.containers.iter().map(|it| (it, false)));
        all.map(|(sidecar, native)| SidecarImage {
            container: &sidecar.name,
            image: sidecar.image(),
            native,
        })
    }
}

/// The image of a sidecar.
#[derive(Clone, Copy, Debug)]
pub struct SidecarImage<'a> {
    /// The container's name.
    pub container: &'a str,
    /// Its image.
    pub image: &'a str,
    /// Whether it is a native sidecar, whose image kubelets before 1.32 do not change.
    pub native: bool,
}

fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok()
}

/// The sets whose containers a new pod with these labels gets.
pub fn selected<'a>(
    sets: &'a [Arc<Sidecars>],
    labels: &BTreeMap<String, String>,
) -> impl Iterator<Item = &'a Sidecars> {
    let sets = sets.iter().map(AsRef::as_ref);
    sets.filter(move |set| !set.paused && set.selects(labels))
}

/// Whether a pod is up to date: every set that selects it was considered at the set's newest revision.
pub fn is_current(
    sets: &[Arc<Sidecars>],
    labels: &BTreeMap<String, String>,
    marks: &SidecarMarks,
) -> bool {
    selected(sets, labels).all(|set| {
        let mark = marks.get(&set.name);
        mark.is_some_and(|mark| mark.revision == set.revision)
    })
}

/// What is injected, as the revision identifies it: without selectors and strategies, and with all defaults, so that it
/// does not depend on whether they are written out.
fn injected(spec: &SidecarSetSpec) -> Value {
    let list = |list: &[Value], place| -> Vec<Value> {
        list.iter()
            .map(|it| super::defaults::completed(it, place))
            .collect()
    };
    json!({
        "initContainers": list(&spec.init_containers, PodInjectPolicy::AfterAppContainer),
        "containers": list(&spec.containers, PodInjectPolicy::BeforeAppContainer),
        "volumes": spec.volumes,
        "imagePullSecrets": spec.image_pull_secrets,
    })
}

/// Removes the images that a running pod can change.
fn remove_images(injected: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = injected[list].as_array_mut().into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let keeps_running = container.get("restartPolicy") == Some(&json!("Always"));
            if list == "containers" || keeps_running {
                container.remove("image");
            }
        }
    }
}

fn hash(value: &Value) -> String {
    safe_hash(value.to_string().as_bytes())
}
