//! A parsed SidecarSet: which pods it selects, and what is injected into them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde::Deserialize;
use serde_json::{Value, json};

use super::containers::Sidecar;
use super::reach::{Reach, ReachFields};
use super::revision::{NewPods, SetRevision, choose};
use crate::api::names::{is_reserved_annotation, safe_hash};
use crate::api::{
    PatchPolicy, PodInjectPolicy, PodMetadataPatch, SidecarSet, SidecarSetSpec,
    SidecarUpdateStrategy,
};
use crate::observed::{SidecarMark, SidecarMarks};

/// The field that holds the annotations of new pods, both in a set's spec and in what [`injected`] returns.
const ANNOTATIONS: &str = "patchPodMetadata";

/// A parsed SidecarSet.
#[derive(Clone, Debug)]
pub struct Sidecars {
    /// The set's name.
    pub name: String,
    /// The revision of what is injected.
    pub revision: String,
    /// The hash of everything in that revision that cannot be changed in a running pod: all except annotations and the
    /// images of containers that keep running.
    pub shape: String,
    /// Whether nothing is injected into new pods.
    pub paused: bool,
    /// How the containers of running pods are updated.
    pub update: SidecarUpdateStrategy,
    /// Selects those of the set's pods that the update strategy chooses; None if the strategy's selector is invalid.
    chosen: Option<Selector>,
    /// Which revision new pods get.
    pub(super) new_pods: NewPods,
    /// Whose pods it selects.
    pub reach: Reach,
    pub(super) init_containers: Vec<Sidecar>,
    pub(super) containers: Vec<Sidecar>,
    pub(super) volumes: Vec<Value>,
    pub(super) pull_secrets: Vec<Value>,
    pub(super) annotations: Vec<PodAnnotation>,
}

/// An annotation of new pods.
#[derive(Clone, Debug)]
pub(super) struct PodAnnotation {
    pub key: String,
    pub value: String,
    /// Whether it replaces the pod's own value.
    pub overwrites: bool,
}

impl Sidecars {
    /// Parses a set. None if it selects no pods: it is being deleted, or its selectors are empty or invalid.
    pub fn of(set: &SidecarSet) -> Option<Self> {
        if set.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = &set.spec;
        let reach = Reach::of(&ReachFields {
            selector: spec.selector.clone(),
            namespace: spec.namespace.clone(),
            namespace_selector: spec.namespace_selector.clone(),
        })?;
        let name = set.metadata.name.clone()?;
        let revision = revision_name(&name, &injected(spec), collisions(set));
        let content = Content::of(injected(spec));
        Some(Self {
            revision,
            name,
            paused: spec.injection_strategy.paused,
            chosen: selector_or_all(spec.update_strategy.selector.as_ref()),
            update: spec.update_strategy.clone(),
            new_pods: NewPods::Newest,
            reach,
            shape: content.shape,
            init_containers: content.init_containers,
            containers: content.containers,
            volumes: content.volumes,
            pull_secrets: content.pull_secrets,
            annotations: content.annotations,
        })
    }

    /// Whether a pod from which the set was left out for this reason would still lack it if it were created now: the set
    /// has not changed since, or it still has what the reason names.
    pub(super) fn may_clash(&self, mark: &SidecarMark, why: &str) -> bool {
        let containers = self.init_containers.iter().chain(&self.containers);
        let volumes = self.volumes.iter().filter_map(|it| it["name"].as_str());
        let mut names = containers.map(|it| it.name.as_str()).chain(volumes);
        mark.revision == self.revision || names.any(|name| why.contains(&format!("{name:?}")))
    }

    /// The set with its ControllerRevisions, which decide what new pods get. What a revision records counts, so that
    /// the shape of its containers does not depend on defaults that the user has written out since.
    #[must_use]
    pub fn with_revisions(mut self, set: &SidecarSet, revisions: &[Arc<SetRevision>]) -> Self {
        let content = injected(&set.spec);
        if let Some(same) = SetRevision::with_content(&content, revisions) {
            self = self.at(same);
        }
        self.new_pods = choose(&self, set, revisions);
        self
    }

    /// The set as it was at a revision.
    pub(super) fn at(&self, revision: &SetRevision) -> Self {
        let content = Content::of(revision.content.clone());
        Self {
            revision: revision.name.clone(),
            new_pods: NewPods::Newest,
            shape: content.shape,
            init_containers: content.init_containers,
            containers: content.containers,
            volumes: content.volumes,
            pull_secrets: content.pull_secrets,
            annotations: content.annotations,
            ..self.clone()
        }
    }

    /// The set at the revision that a new pod with these labels gets.
    pub fn for_new_pod(&self, labels: &BTreeMap<String, String>) -> &Self {
        self.new_pods.older(labels).unwrap_or(self)
    }

    /// A string that identifies what new pods get.
    pub fn new_pods_identity(&self) -> String {
        self.new_pods.identity(&self.revision)
    }

    /// Whether the update strategy chooses a pod with these labels, which the set selects.
    pub fn chooses(&self, labels: &BTreeMap<String, String>) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_some_and(|it| it.matches(labels))
    }

    /// Whether a pod with this mark has the newest containers. Annotations do not count, because only new pods get
    /// them: a revision that differs only in annotations is no reason to update or recreate a pod.
    pub fn is_applied_to(&self, mark: &SidecarMark) -> bool {
        has_same_containers(&self.name, &mark.revision, &self.revision)
    }

    /// Whether the set has native sidecars.
    pub fn has_native(&self) -> bool {
        self.images().any(|it| it.native)
    }

    /// The images that can be changed in a running pod, by container: all except those of init containers that end.
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

/// A selector, or one that selects everything if there is none; None if it is invalid.
fn selector_or_all(selector: Option<&LabelSelector>) -> Option<Selector> {
    selector.map_or_else(|| Some(Selector::default()), self::selector)
}

/// The sets whose containers a new pod with these labels gets, each at the revision that the pod gets.
pub fn selected<'a>(
    sets: &'a [Arc<Sidecars>],
    labels: &BTreeMap<String, String>,
) -> impl Iterator<Item = &'a Sidecars> {
    let sets = sets.iter().map(AsRef::as_ref);
    let selecting = sets.filter(|set: &&Sidecars| !set.paused && set.reach.selects(labels));
    selecting.map(|set| set.for_new_pod(labels))
}

/// Whether a pod is up to date: it has a mark of every set that would be injected into a new pod with these labels, and
/// each mark has the revision that the new pod would get.
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

/// What a revision of a set injects, parsed.
struct Content {
    shape: String,
    init_containers: Vec<Sidecar>,
    containers: Vec<Sidecar>,
    volumes: Vec<Value>,
    pull_secrets: Vec<Value>,
    annotations: Vec<PodAnnotation>,
}

impl Content {
    /// Parses what [`injected`] returns.
    fn of(mut injected: Value) -> Self {
        let items = |field: &str| injected[field].as_array().cloned().unwrap_or_default();
        let sidecars = |field, place| -> Vec<Sidecar> {
            items(field).iter().map(|it| Sidecar::of(it, place)).collect()
        };
        let init_containers = sidecars("initContainers", PodInjectPolicy::AfterAppContainer);
        let containers = sidecars("containers", PodInjectPolicy::BeforeAppContainer);
        let (volumes, secrets) = (items("volumes"), items("imagePullSecrets"));
        let annotations = annotations(&injected);
        reduce_to_shape(&mut injected);
        Self {
            annotations,
            shape: hash(&injected),
            init_containers,
            containers,
            volumes,
            pull_secrets: secrets.iter().map(|it| json!({"name": it["name"]})).collect(),
        }
    }
}

/// The part of a set that its revisions record: everything that is injected, without selectors and strategies. All
/// defaults are filled in, so a revision does not depend on whether the user has written them out.
pub(super) fn injected(spec: &SidecarSetSpec) -> Value {
    let list = |list: &[Value], place| -> Vec<Value> {
        list.iter().map(|it| super::defaults::completed(it, place)).collect()
    };
    let mut injected = json!({
        "initContainers": list(&spec.init_containers, PodInjectPolicy::AfterAppContainer),
        "containers": list(&spec.containers, PodInjectPolicy::BeforeAppContainer),
        "volumes": spec.volumes,
        "imagePullSecrets": spec.image_pull_secrets,
    });
    if !spec.patch_pod_metadata.is_empty() {
        let mut patches = spec.patch_pod_metadata.clone();
        for patch in &mut patches {
            patch.patch_policy.get_or_insert_default();
        }
        injected[ANNOTATIONS] = json!(patches);
    }
    injected
}

/// The name of the revision with this content. If the content has annotations, their hash follows that of the
/// other fields.
pub(super) fn revision_name(set: &str, injected: &Value, collisions: i32) -> String {
    let mut fields = injected.clone();
    let annotations = fields.as_object_mut().and_then(|it| it.remove(ANNOTATIONS));
    let mut text = fields.to_string();
    if collisions > 0 {
        text.push_str(&collisions.to_string());
    }
    let name = format!("{set}-{}", safe_hash(text.as_bytes()));
    annotations.map_or(name.clone(), |it| format!("{name}-{}", hash(&it)))
}

/// Whether two revisions of a set have the same containers, and differ at most in the annotations of new pods.
pub fn has_same_containers(set: &str, one: &str, other: &str) -> bool {
    hash_without_annotations(set, one) == hash_without_annotations(set, other)
}

/// The hash in a revision's name that identifies everything except the annotations of new pods.
fn hash_without_annotations<'r>(set: &str, revision: &'r str) -> Option<&'r str> {
    let hashes = revision.strip_prefix(set)?.strip_prefix('-')?;
    hashes.split('-').next()
}

/// The annotations of new pods, in the order in which they are set.
fn annotations(injected: &Value) -> Vec<PodAnnotation> {
    let patches = Vec::<PodMetadataPatch>::deserialize(&injected[ANNOTATIONS]).unwrap_or_default();
    let all = patches.into_iter().flat_map(|patch| {
        let overwrites = patch.patch_policy == Some(PatchPolicy::Overwrite);
        let annotations = patch.annotations.into_iter();
        annotations.map(move |(key, value)| PodAnnotation { key, value, overwrites })
    });
    // The webhook refuses reserved ones, but it may have been unavailable.
    all.filter(|it| !is_reserved_annotation(&it.key)).collect()
}

/// Removes the images that can be changed in a running pod, and the annotations, which only new pods get.
fn reduce_to_shape(injected: &mut Value) {
    if let Some(fields) = injected.as_object_mut() {
        fields.remove(ANNOTATIONS);
    }
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

/// How many times the name of a revision was taken by another object.
pub(super) fn collisions(set: &SidecarSet) -> i32 {
    let status = set.status.as_ref();
    status.map_or(0, |status| status.collision_count)
}

fn hash(value: &Value) -> String {
    safe_hash(value.to_string().as_bytes())
}
