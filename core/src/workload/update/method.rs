//! How a pod is updated from its revision to the update revision.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::{Reason, WhenImpossible};
use crate::observed::{OldKubelet, Pod, PodUid, RevisionName};
use crate::workload::decision::Blocked;
use crate::workload::in_place;
use crate::workload::in_place::{InPlaceChange, NotInPlace};
use crate::workload::spec::UpdateType;
use crate::workload::spec::Workload;
use crate::workload::update::Scene;
use crate::workload::world::World;

/// How a pod is updated to the update revision.
pub(crate) enum Method {
    /// It is deleted, and recreated.
    Recreate,
    /// Its containers are restarted.
    InPlace(InPlaceChange),
    /// Its containers are changed while they keep running.
    HotPatch(InPlaceChange),
    /// It cannot be changed in place, and must not be recreated.
    Refused(NotInPlace),
}

/// How each of the old pods is updated to the update revision.
pub(crate) struct Methods<'a> {
    world: &'a World,
    /// By the revision of a pod.
    methods: BTreeMap<RevisionName<'a>, Method>,
    /// By revision and kubelet version, where the kubelet version makes a difference.
    on_old_kubelets: BTreeMap<(RevisionName<'a>, &'a str), Method>,
    /// For pods that lack parts of the revision that their label names, for pods whose in-place update has begun, and
    /// for pods whose QoS class would change.
    of_pods: BTreeMap<PodUid<'a>, Method>,
}

impl<'a> Methods<'a> {
    /// The methods for the pods that the rollout updates.
    pub(crate) fn new(scene: &Scene<'a>) -> Self {
        let mut methods = BTreeMap::new();
        let mut on_old_kubelets = BTreeMap::new();
        let mut of_pods = BTreeMap::new();
        for pod in &scene.to_update.old {
            let revision = pod.revision();
            let method = methods.entry(revision);
            let method = method.or_insert_with(|| method_from(scene, revision));
            if in_place::is_unfinished(pod) {
                let method = method.with_missing_parts(pod, &scene.workload.template);
                of_pods.insert(pod.uid(), method);
            }
            // A hot patch would lose the rest of an update that has begun in place.
            if let Method::HotPatch(change) = &*method
                && in_place::is_patched(pod)
            {
                of_pods.insert(pod.uid(), Method::InPlace(change.clone()));
            }
            if let Some(other) = method.for_class_of(pod, scene.workload) {
                of_pods.insert(pod.uid(), other);
            }
            if let Some(kubelet) = old_kubelet_of(scene.world, pod)
                && let Some(other) = on_old_kubelet(scene.workload, method, kubelet)
            {
                on_old_kubelets.insert((revision, &*kubelet.version), other);
            }
        }
        Self { world: scene.world, methods, on_old_kubelets, of_pods }
    }

    /// The method for a pod.
    pub(crate) fn of(&self, pod: &'a Pod) -> &Method {
        let revision = pod.revision();
        let kubelet = old_kubelet_of(self.world, pod);
        let special = kubelet.and_then(|it| self.on_old_kubelets.get(&(revision, &*it.version)));
        let special = special.or_else(|| self.of_pods.get(&pod.uid()));
        special.unwrap_or_else(|| &self.methods[&revision])
    }

    /// Why some pods cannot be updated.
    pub(crate) fn refusal(&self) -> Option<Blocked> {
        let special = self.on_old_kubelets.values().chain(self.of_pods.values());
        self.methods.values().chain(special).find_map(Method::refusal)
    }
}

impl Method {
    /// The same method, for a pod that lacks parts of the revision that its label names.
    fn with_missing_parts(&self, pod: &Pod, template: &Value) -> Self {
        match self {
            Method::Recreate => Method::Recreate,
            Method::InPlace(change) => {
                Method::InPlace(in_place::with_missing_parts(pod, change, template))
            }
            Method::HotPatch(change) => {
                Method::HotPatch(in_place::with_missing_parts(pod, change, template))
            }
            Method::Refused(why) => Method::Refused(why.clone()),
        }
    }

    /// The method for a pod whose QoS class the change would change; None if it would not.
    fn for_class_of(&self, pod: &Pod, workload: &Workload) -> Option<Self> {
        let Method::InPlace(change) = self else {
            return None;
        };
        let refusal = in_place::why_class_would_change(pod, &change.resources)?;
        Some(refuse_or_recreate(workload, refusal))
    }

    /// What users are told if the change cannot be made.
    fn refusal(&self) -> Option<Blocked> {
        let Method::Refused(error) = self else {
            return None;
        };
        Some(Blocked {
            reason: Reason::NotInPlace,
            message: format!(
                "{error}; revert the change, or set updateStrategy.inPlaceUpdateStrategy.whenImpossible: \
                 Recreate or updateStrategy.type: RollingUpdate to recreate pods"
            ),
        })
    }
}

/// Why the change from the stable to the update revision is refused because it cannot be made in place. While it is
/// refused, new pods are created at the stable revision.
pub(crate) fn refused_in_place(scene: &Scene) -> Option<Blocked> {
    let Scene { workload, revisions, sizes, own, .. } = scene;
    if recreates(workload)
        || workload.when_impossible == WhenImpossible::Recreate
        || sizes.stable == revisions.update.name()
    {
        return None;
    }
    let method = method_from(scene, sizes.stable);
    let stable = own.iter().filter(|pod| pod.revision() == sizes.stable);
    let mut of_pods = stable.filter_map(|pod| method.for_class_of(pod, workload));
    method.refusal().or_else(|| of_pods.find_map(|it| it.refusal()))
}

/// Whether pods are never changed, only recreated.
fn recreates(workload: &Workload) -> bool {
    matches!(workload.update, UpdateType::RollingUpdate | UpdateType::OnDelete)
}

/// How pods of a revision are updated to the update revision.
fn method_from(scene: &Scene, old: RevisionName) -> Method {
    let Scene { workload, revisions, .. } = scene;
    if recreates(workload) {
        return Method::Recreate;
    }
    let unknown = || NotInPlace {
        path: String::new(),
        why: format!("cannot be compared with revision {:?}, which does not exist", old.as_str()),
    };
    let change = revisions.get(old).ok_or_else(unknown).and_then(|revision| {
        let old = revision.template.parse();
        in_place::change_between(&old, &workload.template)
    });
    let hot = workload.update == UpdateType::HotPatchUpdate;
    match change {
        Ok(change) if hot && !change.resources.is_empty() => refuse_or_recreate(
            workload,
            NotInPlace {
                path: "spec.containers[].resources".to_owned(),
                why: "cannot be changed by a hot patch".to_owned(),
            },
        ),
        Ok(change) if hot => Method::HotPatch(change),
        Ok(change) => Method::InPlace(change),
        Err(error) => refuse_or_recreate(workload, error),
    }
}

/// A pod's kubelet, if it cannot make every change. None for a pod that has already been changed: its update is
/// continued anyway.
fn old_kubelet_of<'a>(world: &'a World, pod: &Pod) -> Option<&'a OldKubelet> {
    let kubelet = world.old_kubelets.get(pod.node.as_ref()?)?;
    (!in_place::is_patched(pod)).then_some(kubelet)
}

/// The method for a pod with this kubelet; None if it is the same as for other pods. If the kubelet could not make the
/// change, the pod's gate would stay closed, because the change would never be observed to be complete.
fn on_old_kubelet(workload: &Workload, method: &Method, kubelet: &OldKubelet) -> Option<Method> {
    let Method::InPlace(change) = method else {
        return None;
    };
    let OldKubelet { version, .. } = kubelet;
    let refusal = match &change.native_sidecar_path {
        Some(path) if !kubelet.restarts_sidecars() => NotInPlace {
            path: path.clone(),
            why: format!(
                "is the image of a native sidecar, and kubelets before 1.32 do not restart these: a node has {version}"
            ),
        },
        _ if !change.resources.is_empty() => NotInPlace {
            path: "spec.containers[].resources".to_owned(),
            why: format!(
                "cannot be changed in a running pod by kubelets before 1.33: a node has {version}"
            ),
        },
        _ => return None,
    };
    Some(refuse_or_recreate(workload, refusal))
}

fn refuse_or_recreate(workload: &Workload, error: NotInPlace) -> Method {
    match workload.when_impossible {
        WhenImpossible::Refuse => Method::Refused(error),
        WhenImpossible::Recreate => Method::Recreate,
    }
}
