//! Names, labels and annotations of the objects that the operator creates.
//!
//! Those of bk-bcs are kept unchanged. The operator's own labels and annotations are in the domain
//! `gamekeeper.tkex.tencent.com` or a subdomain of it.

mod hook_point;
mod unique;
mod workload_kind;

pub use hook_point::HookPoint;
pub use unique::{
    MAX_NAME, MAX_WORKLOAD_NAME, budget_name, fnv32, instance_id, job_name, lifecycle_run_name,
    safe_hash,
};
pub use workload_kind::WorkloadKind;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The operator's name in managed fields.
pub const FIELD_MANAGER: &str = "gamekeeper";
/// The name of `kubectl game` in managed fields. Its writes count as those of a user.
pub const PLUGIN_FIELD_MANAGER: &str = "kubectl-game";

/// Pod label: the ControllerRevision that the pod was created from or updated to (Kubernetes convention).
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// Pod label: the five characters at the end of the pod's name.
pub const INSTANCE_LABEL: &str = "tkex.bkbcs.tencent.com/gamedeployment-instance-id";
/// Pod annotation, set from the start of the PreDelete or PreInplace hook until the guarded action is done or
/// canceled.
pub const DELETING_ANNOTATION: &str = "io.tencent.bcs.dev/game-pod-deleting";
/// Pod annotation: cost of deleting the pod (Kubernetes convention); pods with a lower cost are deleted first.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Node annotation: cost of deleting a pod on this node.
pub const NODE_DELETION_COST: &str = "io.tencent.bcs.dev/node-deletion-cost";
/// Workload annotation: `ascend` (default) or `descend` order of the pod deletion cost.
pub const COST_SORT_METHOD: &str = "io.tencent.bcs.dev/pod-deletion-cost-sort-method";
/// Workload label: when the workload may be deleted, `Always` or `Cascading` (once it has no pods).
pub const DELETION_ALLOW: &str = "io.tencent.bcs.dev/deletion-allow";
/// Pod annotation that requests a change of images without a restart, if the kubelet supports that.
pub const HOT_PATCH_ANNOTATION: &str = "io.kubernetes.hotpatch.container";
/// Pod annotation: port pools from which a webhook of bcs-ingress-controller allocates ports for the pod.
pub const PORT_POOLS_ANNOTATION: &str = "portpools.networkextension.bkbcs.tencent.com";
/// Readiness gate that keeps traffic away from a pod while it is updated in place.
pub const IN_PLACE_GATE: &str = "InPlaceUpdateReady";
/// Pod annotation: the last in-place update or hot patch, with old and new values.
pub const IN_PLACE_RECORD: &str = "gamekeeper.tkex.tencent.com/in-place-record";
/// Pod annotation of bk-bcs' operators: the state that an in-place update started from. It remains after the update.
pub const BCS_IN_PLACE_STATE: &str = "inplace-update-state";
/// Pod annotation of bk-bcs' operators: the change that they make when the grace period ends. The pod already has
/// the label of the new revision.
pub const BCS_IN_PLACE_GRACE: &str = "inplace-update-grace";
/// Workload annotation: the operator's own pause (revision, step hash, index, reason, time).
pub const PAUSE_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/pause";
/// Workload annotation: a rollout (revision, step hash) whose canary steps the user skips.
pub const PROMOTE_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/promote";
/// Workload annotation: the revision of a rollout that the user rolls back to the stable template. The operator removes it.
pub const UNDO_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/undo";
/// Workload annotation: the revision to which `kubectl game undo` has rolled back last.
pub const ROLLED_BACK_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/rolled-back";
/// Workload annotation: the reason for its last change (Kubernetes convention); copied to its new revisions.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
/// Workload annotation: a retry in progress (points and generation).
pub const RETRY_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/retry";
/// HookRun annotation: uid of its pod.
pub const RUN_POD_UID: &str = "gamekeeper.tkex.tencent.com/pod-uid";
/// HookRun annotation: revision that the guarded action leads to; empty for a deletion that is not part of an update.
pub const RUN_TARGET: &str = "gamekeeper.tkex.tencent.com/target-revision";
/// HookRun annotation: for an update in place, the containers whose image or resources it changes, separated by commas.
/// HookRuns for deletions do not have it.
pub const RUN_CHANGES: &str = "gamekeeper.tkex.tencent.com/changed-containers";
/// HookRun annotation: hash of the hook's template name and arguments.
pub const RUN_HOOK_HASH: &str = "gamekeeper.tkex.tencent.com/hook-hash";
/// HookRun annotation: the workload's generation when the run was created.
pub const RUN_GENERATION: &str = "gamekeeper.tkex.tencent.com/workload-generation";
/// HookRun annotation: uid of the workload.
pub const RUN_WORKLOAD_UID: &str = "gamekeeper.tkex.tencent.com/workload-uid";
/// Job annotation: the Job of a measurement is suspended until the HookRun's status records its uid.
pub const JOB_AWAITS_RECORD: &str = "gamekeeper.tkex.tencent.com/awaits-record";
/// HookRun label of pod hooks: the pod's revision.
pub const RUN_POD_REVISION_LABEL: &str = "PodControllerRevision";
/// HookRun label of pod hooks: the pod's instance id or ordinal.
pub const RUN_INSTANCE_LABEL: &str = "InstanceID";
/// HookRun label of canary steps: the step's index.
pub const RUN_STEP_LABEL: &str = "step-index";
/// HookRun label that bk-bcs' newer operators set: the hook point.
pub const RUN_TYPE_LABEL: &str = "hookrun-type";
/// HookRun label that bk-bcs' newer operators set: the update revision of a canary step, or the pod's revision.
pub const RUN_WORKLOAD_REVISION_LABEL: &str = "workload-revision";
/// HookRun label that bk-bcs' newer operators set: the pod's instance id or ordinal.
pub const RUN_INSTANCE_ID_LABEL: &str = "instance-id";
/// HookRun label that bk-bcs' newer operators set: the index of a canary step.
pub const RUN_STEP_INDEX_LABEL: &str = "canary-step-index";

/// Label of a GameStatefulSet's pods: their name, for a service that selects one pod.
pub const POD_NAME_LABEL: &str = "gamestatefulset.kubernetes.io/pod-name";
/// Label of a GameStatefulSet's pods: their ordinal.
pub const POD_ORDINAL_LABEL: &str = "gamestatefulset.kubernetes.io/pod-ordinal";
/// Label of a GameStatefulSet's pods: their ordinal (Kubernetes convention).
pub const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
/// Annotation of a GameDeployment: "true" gives each new pod an index.
pub const INDEX_ON: &str = "tkex.bkbcs.tencent.com/gamedeployment-index-on";
/// Annotation of a GameDeployment: the range of its pods' indexes, as JSON.
pub const INDEX_RANGE: &str = "tkex.bkbcs.tencent.com/gamedeployment-index-range";
/// Annotation of a GameDeployment's pods: their index.
pub const INDEX_ID: &str = "tkex.bkbcs.tencent.com/gamedeployment-index-id";
/// Environment variable of a GameDeployment's containers: the index of their pod.
pub const INDEX_ENV: &str = "POD_INDEX";
/// Prefix of the pod annotations that record what a SidecarSet injected. The set's name follows the prefix.
pub const SIDECARS_PREFIX: &str = "sidecars.gamekeeper.tkex.tencent.com/";
/// Namespace label: with `enabled`, pods of all controllers get sidecars; with `disabled`, no pods do.
pub const SIDECARS_LABEL: &str = "gamekeeper.tkex.tencent.com/sidecars";
/// Label of a SidecarSet's ControllerRevisions: the set's name.
pub const SIDECAR_SET_LABEL: &str = "gamekeeper.tkex.tencent.com/sidecar-set";
/// Environment variable of injected containers (OpenKruise).
pub const IS_INJECTED: &str = "IS_INJECTED";
/// Pod annotation: the container that kubectl logs and exec use (Kubernetes convention).
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Annotation of objects: what kubectl applied last (Kubernetes convention).
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation of a GameStatefulSet's template: force-delete pods on lost nodes.
pub const FORCE_DELETE_ON_LOST_NODES: &str =
    "pod.gamestatefulset.bkbcs.tencent.com/node-lost-force-delete";

/// Pod label: the pod is guarded. The value is the uid of the pod's workload. PodDisruptionBudgets that guard
/// pods have the same label.
pub const GUARDED_LABEL: &str = "gamekeeper.tkex.tencent.com/guarded";
/// Finalizer of a workload with guarded pods.
pub const GUARD_FINALIZER: &str = "gamekeeper.tkex.tencent.com/guarded";
/// Pod annotation of `kubectl game release`: the pod no longer needs a hook, and is not guarded again.
pub const RELEASED_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/released";
/// Pod annotation of `kubectl game move`: the pod must be replaced as soon as its hook and the budget allow it.
pub const MOVE_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/move-requested";
/// The value of [`MOVE_ANNOTATION`] that the operator sets when the pod's node is going to be removed.
pub const MOVE_NODE_GOING: &str = "node-going";
/// Pod annotation: how the pod's last hook ended. It is set only in a namespace that is being deleted, where no HookRun
/// can be created to show it.
pub const HOOK_RESULT_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/hook-result";
/// Pod annotation, set with [`DELETING_ANNOTATION`] on guarded pods: when the PreDelete hook was first needed.
pub const WAITING_SINCE_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/waiting-since";
/// Pod annotations that keep autoscalers from removing the pod's node, with the values that guarded pods have.
pub const AUTOSCALER_ANNOTATIONS: [(&str, &str); 2] = [
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
];

/// Domains of the pod annotations that have a meaning for Kubernetes or the operator. Subdomains are included.
const RESERVED_DOMAINS: [&str; 6] = [
    "kubernetes.io",
    "k8s.io",
    "tkex.tencent.com",
    "tkex.bkbcs.tencent.com",
    "gamestatefulset.bkbcs.tencent.com",
    "io.tencent.bcs.dev",
];

/// Whether a pod annotation has a meaning for Kubernetes or the operator, so that a SidecarSet cannot set it.
pub fn is_reserved_annotation(key: &str) -> bool {
    let is_within = |domain: &str, parent: &str| {
        let rest = domain.strip_suffix(parent);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let domain = key.split_once('/').map(|(domain, _)| domain);
    let is_reserved = |domain| RESERVED_DOMAINS.iter().any(|it| is_within(domain, it));
    let names = [HOT_PATCH_ANNOTATION, BCS_IN_PLACE_STATE, BCS_IN_PLACE_GRACE];
    let autoscalers = AUTOSCALER_ANNOTATIONS.map(|(name, _)| name);
    domain.is_some_and(is_reserved) || names.contains(&key) || autoscalers.contains(&key)
}

/// The annotations of [`AUTOSCALER_ANNOTATIONS`] that a pod has with the value for guarded pods. They are removed with
/// the pod's guard. An annotation with another value stays, because a user has set it.
pub fn autoscaler_annotations(
    annotations: &BTreeMap<String, String>,
) -> impl Iterator<Item = &'static str> {
    let all = AUTOSCALER_ANNOTATIONS.into_iter();
    let ours = all.filter(|(key, value)| annotations.get(*key).is_some_and(|it| it == value));
    ours.map(|(key, _)| key)
}

/// Annotation of a guarded workload: its PreDelete HookTemplate as last observed, because
/// `kubectl delete -f FOLDER` may delete the template first.
pub const KEPT_HOOK_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/pre-delete-hook";
/// Annotation of the operator's own Deployment while `gamekeeper unguard` has stopped it: its previous number of
/// replicas.
pub const REPLICAS_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/replicas";
/// Finalizer that the API server sets for `--cascade=orphan`.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// The namespace of Clusters' scripts and of the Jobs that run them.
pub const HOOKS_NAMESPACE: &str = "gamekeeper-hooks";
/// Finalizer of a Cluster, removed when its delete hooks have passed.
pub const LIFECYCLE_FINALIZER: &str = "gamekeeper.tkex.tencent.com/lifecycle";
/// Node annotation: which steps of which Cluster have passed on the node.
pub const NODE_RECORD: &str = "gamekeeper.tkex.tencent.com/lifecycle-record";
/// Taint with which a kubelet may register its node; it is removed when the node's install is complete.
pub const NOT_INSTALLED_TAINT: &str = "gamekeeper.tkex.tencent.com/not-installed";
/// HookRun label: the hook of a Cluster, spelled as in the name of the run.
pub const RUN_HOOK_LABEL: &str = "gamekeeper.tkex.tencent.com/hook";
/// HookRun annotation: the step of a Cluster.
pub const RUN_STEP: &str = "gamekeeper.tkex.tencent.com/lifecycle-step";
/// HookRun annotation: the node on which the script runs.
pub const RUN_NODE: &str = "gamekeeper.tkex.tencent.com/node";
/// HookRun annotation: uid of that node.
pub const RUN_NODE_UID: &str = "gamekeeper.tkex.tencent.com/node-uid";
/// HookRun annotation: the number of the attempt, from 1.
pub const RUN_ATTEMPT: &str = "gamekeeper.tkex.tencent.com/attempt";

/// The owner reference of an object's controller.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// The name of a claim template, and of its volume in each pod.
pub fn claim_template_name(template: &serde_json::Value) -> &str {
    let name = template.pointer("/metadata/name");
    name.and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// The number that follows the prefix in a name. None if there is no such number, or if it has leading zeros.
pub fn ordinal_after(prefix: &str, name: &str) -> Option<i64> {
    let digits = name.strip_prefix(prefix)?;
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    let is_plain = !is_padded && digits.bytes().all(|it| it.is_ascii_digit());
    let ordinal = digits.parse::<u32>().ok().filter(|_| is_plain)?;
    Some(i64::from(ordinal))
}

/// The prefix and the ordinal of a name that ends in an ordinal.
///
/// ```
/// use gamekeeper_core::api::names::split_ordinal;
///
/// assert_eq!(split_ordinal("lobby-12"), Some(("lobby-", 12)));
/// assert_eq!(split_ordinal("lobby-x7k2p"), None);
/// ```
pub fn split_ordinal(name: &str) -> Option<(&str, i64)> {
    let (_, digits) = name.rsplit_once('-')?;
    let prefix = &name[..name.len() - digits.len()];
    Some((prefix, ordinal_after(prefix, name)?))
}
