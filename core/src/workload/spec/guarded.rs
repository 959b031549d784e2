//! How the pods of a workload are guarded against deletions by other clients.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::names::{
    AUTOSCALER_ANNOTATIONS, GUARD_FINALIZER, HookPoint, KEPT_HOOK_ANNOTATION, ORPHAN_FINALIZER,
};
use crate::api::{AnnotationLimits, GameWorkload, HookTemplate, HookTemplateSpec, PodProtection};
use crate::observed::Pod;
use crate::workload::spec::Workload;

/// The longest interval until a hook is run again, as a multiple of the first one.
const MAX_INTERVAL_FACTOR: i32 = 10;

/// spec.protection of a workload whose pods are guarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarded {
    /// The first interval until a hook that has refused the deletion is run again.
    pub rerun_after: SignedDuration,
    /// The maximum time for which a pod waits for its hook.
    pub deadline: Option<SignedDuration>,
}

impl Guarded {
    /// The protection of a workload's pods; None if they are not guarded.
    pub fn of(workload: &impl GameWorkload) -> Option<Self> {
        let protection = workload.protection()?;
        let seconds = |seconds: i32| SignedDuration::from_secs(i64::from(seconds));
        (protection.pods == PodProtection::Guarded).then(|| Self {
            rerun_after: seconds(protection.ask_again_seconds.max(1)),
            deadline: protection.deadline_seconds.map(seconds),
        })
    }

    /// The interval until the hook is run again for a pod that has waited this long. Each interval is as long as all
    /// earlier ones together, within limits.
    pub fn interval(&self, waited: SignedDuration) -> SignedDuration {
        waited.clamp(self.rerun_after, self.rerun_after * MAX_INTERVAL_FACTOR)
    }
}

/// What a workload's metadata shows about its guard.
#[derive(Clone, Debug, Default)]
pub struct GuardMarks {
    /// metadata.finalizers.
    pub finalizers: Vec<String>,
    /// Whether the workload is being deleted.
    pub deleting: bool,
    /// The name and content of the PreDelete HookTemplate that was kept in the workload's annotation. Read only while
    /// the workload is being deleted.
    pub kept_template: Option<(String, HookTemplate)>,
}

/// A HookTemplate as kept in a workload's annotation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeptTemplate {
    /// Its name.
    pub template_name: String,
    /// Its spec.
    pub spec: HookTemplateSpec,
}

impl GuardMarks {
    /// Reads the marks from a workload's metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        let deleting = meta.deletion_timestamp.is_some();
        let annotations = meta.annotations.as_ref().filter(|_| deleting);
        let kept = annotations.and_then(|it| it.get(KEPT_HOOK_ANNOTATION));
        let kept: Option<KeptTemplate> = kept.and_then(|text| AnnotationLimits::HOOK.read(text));
        Self {
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting,
            kept_template: kept.map(|it| {
                let template = HookTemplate::new(&it.template_name, it.spec);
                (it.template_name, template)
            }),
        }
    }

    /// Whether the workload has the guard's finalizer, and so may have a budget and labeled pods.
    pub fn has_finalizer(&self) -> bool {
        self.has(GUARD_FINALIZER)
    }

    /// Whether the workload is being deleted with `--cascade=orphan`.
    pub fn is_orphaning(&self) -> bool {
        self.deleting && self.has(ORPHAN_FINALIZER)
    }

    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| it == finalizer)
    }
}

impl Workload<'_> {
    /// Leaves the pods unguarded, whatever the spec says, if the operator was installed without the guard.
    pub fn guarded_if(mut self, guards_pods: bool) -> Self {
        if !guards_pods {
            self.lacks_guard = self.guarded.take().is_some();
        }
        self
    }

    /// Whether the pod's label names this workload as its guard.
    pub fn guards(&self, pod: &Pod) -> bool {
        pod.guarded_by() == Some(self.uid.as_str())
    }

    /// Whether new pods get the label of guarded pods. Without its finalizer, a workload could be gone before its guard.
    pub fn labels_new_pods(&self) -> bool {
        self.guarded.is_some()
            && self.guard_marks.has_finalizer()
            && self.hooks.hook(HookPoint::PreDelete).is_some()
    }

    /// Whether a user released this pod from its guard.
    pub fn is_released(&self, pod: &Pod) -> bool {
        pod.released && self.guarded.is_some()
    }
}

/// The autoscaler annotations that guarded pods get, except those that the template sets itself.
pub(crate) fn guard_annotations(
    template: &Value,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let annotations = template.pointer("/metadata/annotations");
    let is_in_template = move |key: &str| annotations.is_some_and(|it| it.get(key).is_some());
    let all = AUTOSCALER_ANNOTATIONS.into_iter();
    all.filter(move |(key, _)| !is_in_template(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_ten_times_the_first() {
        let guarded = Guarded { rerun_after: SignedDuration::from_secs(60), deadline: None };
        let mut waited = SignedDuration::ZERO;
        let mut intervals = Vec::new();
        for _ in 0..7 {
            let interval = guarded.interval(waited);
            intervals.push(interval.as_secs());
            waited += interval;
        }
        assert_eq!(intervals, [60, 60, 120, 240, 480, 600, 600]);
    }
}
