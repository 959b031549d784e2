//! Carries out single actions: one write for each.

use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::Selector;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;
use tracing::debug;

use super::{Applier, Target, body};
use crate::go_json;
use crate::runtime::objects::{Deleted, Kind, ObjectKey, Write};
use crate::runtime::request::{
    Content, Refusal, RequestResult, Requests, ResponseMetadata, to_bytes,
};
use gamekeeper_core::api::{HookRun, names};
use gamekeeper_core::workload::OtherBudget;
use gamekeeper_core::write::{Action, Budget, PodRef};

/// The message with which the chart's policy refuses the operator's dry run. No other refusal contains it.
const POLICY_MESSAGE: &str = "the guard of pods is in force";
const NO_POLICY: &str = "the ValidatingAdmissionPolicy for guarded pods is not in force: install the chart with \
                         admission.guardedPods=true, or wait until the API server has read it";

const NO_HOOK_RUNS: &str =
    "HookRuns cannot be created; install the CRD hookruns.tkex.tencent.com from the chart";

type OnWrite<'a> = &'a (dyn Fn(Write) + Send + Sync);

impl Applier {
    /// Carries out one action, unless that cannot begin before the deadline. `on_write` receives each write that the
    /// next plan must observe: a new version of an object, a deletion, or a write whose outcome is unknown.
    pub(super) async fn act(
        &self,
        target: &Target,
        action: &Action,
        deadline: Instant,
        now: Timestamp,
        on_write: OnWrite<'_>,
    ) -> RequestResult {
        let writer = WorkloadWriter {
            applier: self,
            requests: self.requests.sent_before(deadline),
            target,
            on_write,
        };
        match action {
            Action::PatchWorkload(patch) => {
                let body = body::workload(patch, &target.resource_version);
                let id = (target.name.as_str(), target.uid.as_str());
                writer.patch(target.kind.into(), id, "", Content::MergePatch, &body).await
            }
            Action::CreateRevision(new) => {
                let body = go_json::to_bytes(&body::revision(new, target));
                writer.create(Kind::Revision, &new.name, body).await
            }
            Action::RenumberRevision { name, number } => {
                let body = serde_json::json!({"revision": number});
                writer.patch(Kind::Revision, (name, ""), "", Content::MergePatch, &body).await
            }
            Action::DeleteRevision { name, uid } => {
                writer.delete(Kind::Revision, name, uid, None).await
            }
            Action::AdoptRevision { name, uid } => {
                let body = body::adopt(uid, target);
                let content = Content::StrategicPatch;
                writer.patch(Kind::Revision, (name, uid), "", content, &body).await
            }
            Action::AdoptPod(pod) => {
                writer.patch_pod(pod, "", &body::adopt_pod(&pod.uid, target)).await
            }
            Action::ReleasePod(pod) => {
                writer.patch_pod(pod, "", &body::release(&pod.uid, target)).await
            }
            Action::DryRun { pod, .. } => writer.dry_run(pod).await,
            Action::CreatePod(new) => {
                writer.create(Kind::Pod, &new.name, new.pod.text().as_bytes().to_vec()).await
            }
            Action::DeletePod(deletion) => {
                let PodRef { name, uid, version, .. } = &deletion.pod;
                writer.delete(Kind::Pod, name, uid, *version).await
            }
            Action::ForceDeletePod(pod) => writer.force_delete(pod).await,
            Action::LabelPod { pod, labels } => {
                writer.patch_pod(pod, "", &body::label(&pod.uid, labels)).await
            }
            Action::CreateClaim(new) => {
                writer.create(Kind::Claim, &new.name, to_bytes(&new.claim)).await
            }
            Action::OwnClaim(change) => {
                let id = (change.name.as_str(), change.uid.as_str());
                let body = body::claim_owners(change);
                writer.patch(Kind::Claim, id, "", Content::StrategicPatch, &body).await
            }
            Action::GuardPod { pod, label, annotations } => {
                let body = body::guard(&pod.uid, label.as_deref(), annotations);
                writer.patch_pod(pod, "", &body).await
            }
            Action::RequestMove { pod, requested } => {
                let value = requested.then_some(names::MOVE_NODE_GOING);
                writer.annotate(pod, &[(names::MOVE_ANNOTATION, value)]).await
            }
            Action::MarkDeleting { pod, since } => {
                let since = since.map(|since| since.to_string());
                let marked = (names::DELETING_ANNOTATION, Some("true"));
                let waiting_since = (names::WAITING_SINCE_ANNOTATION, since.as_deref());
                writer.annotate(pod, &[marked, waiting_since]).await
            }
            Action::UnmarkDeleting(pod) => {
                let marks = [names::DELETING_ANNOTATION, names::WAITING_SINCE_ANNOTATION];
                writer.annotate(pod, &marks.map(|key| (key, None))).await
            }
            Action::CreateHookRun(run) => writer.create_run(run).await,
            Action::DeleteHookRun { name, uid } => {
                writer.delete(Kind::HookRun, name, uid, None).await
            }
            Action::CloseGate { pod, revision, .. } => {
                writer.set_gate(pod, Some(revision), now).await
            }
            Action::OpenGate(pod) => writer.set_gate(pod, None, now).await,
            Action::PatchInPlace(patch) => {
                let id = (patch.pod.name.as_str(), patch.pod.uid.as_str());
                let body = body::in_place(patch);
                writer.patch(Kind::Pod, id, "", Content::JsonPatch, &body).await
            }
            Action::ResizePod { pod, resources } => {
                writer.patch_pod(pod, "/resize", &body::resize(&pod.uid, resources)).await
            }
            Action::FinishInPlace { pod, record } => {
                let record = body::record_text(record);
                writer.annotate(pod, &[(names::IN_PLACE_RECORD, Some(&record))]).await
            }
            Action::ApplyBudget(budget) => writer.apply_budget(budget).await,
            Action::ProbeGuard { budget } => writer.probe_guard(budget).await,
            Action::DeleteBudget { name } => writer.delete_budget(name).await,
        }
    }
}

impl Applier {
    /// The PodDisruptionBudgets of other clients in the namespace. They do not weaken the guard, so none are reported
    /// if they cannot be read.
    pub(super) async fn other_budgets(&self, target: &Target) -> Vec<OtherBudget> {
        let budgets = PodDisruptionBudget::url_path(&(), Some(&target.namespace));
        let without_ours = format!("%21{}", names::GUARDED_LABEL.replace('/', "%2F"));
        let path = format!("{budgets}?labelSelector={without_ours}&resourceVersion=0");
        let request = self.requests.read::<List<PodDisruptionBudget>>(&path);
        let list = request.await.inspect_err(|error| {
            debug!(%error, namespace = target.namespace, "cannot list PodDisruptionBudgets");
        });
        let items = list.map_or_else(|_| Vec::new(), |list| list.items);
        let other_budget = |budget: PodDisruptionBudget| {
            let name = budget.name_any();
            let selector = Selector::try_from(budget.spec?.selector?).ok()?;
            Some(OtherBudget { name, selector })
        };
        items.into_iter().filter_map(other_budget).collect()
    }
}

/// Writes the objects of one workload.
struct WorkloadWriter<'a> {
    applier: &'a Applier,
    requests: Requests,
    target: &'a Target,
    on_write: OnWrite<'a>,
}

impl WorkloadWriter<'_> {
    fn path(&self, kind: Kind, name: &str) -> String {
        kind.path(&self.target.namespace, name)
    }

    fn collection(&self, kind: Kind) -> String {
        kind.collection(Some(&self.target.namespace))
    }

    fn report_written(&self, kind: Kind, metadata: &ResponseMetadata) {
        (self.on_write)(Write::Version(kind, metadata.version()));
    }

    fn report_deleted(&self, kind: Kind, name: &str, uid: &str) {
        (self.on_write)(Write::Deleted(Deleted {
            kind,
            key: ObjectKey::new(&*self.target.namespace, name),
            uid: uid.to_owned(),
        }));
    }

    async fn create(&self, kind: Kind, name: &str, body: Vec<u8>) -> RequestResult {
        let requests = &self.requests;
        match requests.create(&self.collection(kind), body).await {
            Ok(created) => {
                self.report_written(kind, &created);
                Ok(created)
            }
            Err(Refusal::AlreadyExists(message)) => {
                let existing = requests.get(&self.path(kind, name)).await?;
                if kind == Kind::HookRun && existing.is_orphaned_run() {
                    self.delete(kind, name, &existing.uid, None).await?;
                    return Err(Refusal::Conflict(message));
                }
                // The planner judges the owners of an existing claim once the cache shows it.
                if kind != Kind::Claim && !existing.is_controlled_by(&self.target.uid) {
                    let message = format!("{message}; it does not belong to this workload");
                    return Err(Refusal::AlreadyExists(message));
                }
                // The next plan must observe the existing object.
                self.report_written(kind, &existing);
                Err(Refusal::Conflict(message))
            }
            // The collection itself is missing, so a newer cache would not help.
            Err(Refusal::NotFound(message)) if kind == Kind::HookRun => {
                let message = format!("{NO_HOOK_RUNS}: {}", message.trim());
                Err(Refusal::Rejected(message))
            }
            Err(refusal) => Err(self.report_unknown(kind, refusal)),
        }
    }

    /// Creates a HookRun. If the workload is being deleted with its namespace, the run is kept in this process instead.
    async fn create_run(&self, run: &HookRun) -> RequestResult {
        let name = run.metadata.name.as_deref().unwrap_or_default();
        match self.create(Kind::HookRun, name, to_bytes(run)).await {
            Err(Refusal::NamespaceTerminating(_)) if self.target.deleting => {
                debug!(
                    run = name,
                    "the namespace is being deleted; running the hook without a stored HookRun"
                );
                (self.applier.keep_unstored)(run.clone());
                Ok(ResponseMetadata::default())
            }
            result => result,
        }
    }

    /// If the response is missing, reports the write as unknown, so that the next plan does not guess whether it was
    /// made.
    fn report_unknown(&self, kind: Kind, refusal: Refusal) -> Refusal {
        if matches!(refusal, Refusal::Unavailable { .. }) {
            (self.on_write)(Write::Unknown(kind));
        }
        refusal
    }

    async fn dry_run(&self, pod: &Value) -> RequestResult {
        let requests = &self.requests;
        let collection = self.collection(Kind::Pod);
        match requests.dry_run_create(&collection, to_bytes(pod)).await {
            // The API server checks the name last, so the pod is valid.
            Err(Refusal::AlreadyExists(_)) => Ok(ResponseMetadata::default()),
            result => result,
        }
    }

    async fn delete(
        &self,
        kind: Kind,
        name: &str,
        uid: &str,
        version: Option<u64>,
    ) -> RequestResult {
        let path = self.path(kind, name);
        match self.requests.delete(&path, uid, version).await {
            Err(Refusal::NotFound(_)) => {
                self.report_deleted(kind, name, uid);
                Ok(ResponseMetadata::default())
            }
            Err(refusal) => Err(self.report_unknown(kind, refusal)),
            Ok(metadata) => {
                self.report_deleted(kind, name, uid);
                Ok(metadata)
            }
        }
    }

    async fn force_delete(&self, pod: &PodRef) -> RequestResult {
        let path = self.path(Kind::Pod, &pod.name);
        let deleted = self.requests.force_delete(&path, &pod.uid).await;
        // The pod is Terminating already, so only its absence proves the deletion.
        if matches!(deleted, Ok(_) | Err(Refusal::Unavailable { .. })) {
            (self.on_write)(Write::Unknown(Kind::Pod));
        }
        deleted
    }

    async fn patch(
        &self,
        kind: Kind,
        (name, uid): (&str, &str),
        subresource: &str,
        content: Content,
        body: &Value,
    ) -> RequestResult {
        let path = format!("{}{subresource}", self.path(kind, name));
        let requests = &self.requests;
        match requests.patch(&path, content, to_bytes(body)).await {
            Ok(patched) => {
                self.report_written(kind, &patched);
                Ok(patched)
            }
            Err(Refusal::NotFound(message)) => {
                self.report_deleted(kind, name, uid);
                Err(Refusal::Conflict(message))
            }
            Err(refusal) => Err(self.report_unknown(kind, refusal)),
        }
    }

    async fn patch_pod(&self, pod: &PodRef, subresource: &str, body: &Value) -> RequestResult {
        let id = (pod.name.as_str(), pod.uid.as_str());
        self.patch(Kind::Pod, id, subresource, Content::StrategicPatch, body).await
    }

    async fn annotate(&self, pod: &PodRef, values: &[(&str, Option<&str>)]) -> RequestResult {
        let mut body = body::annotate(&pod.uid, values);
        body::require_version(&mut body["metadata"], pod);
        self.patch_pod(pod, "", &body).await
    }

    fn budget_path(&self, name: &str) -> String {
        PodDisruptionBudget::url_path(&(), Some(&self.target.namespace)) + "/" + name
    }

    async fn apply_budget(&self, budget: &Budget) -> RequestResult {
        let path = self.budget_path(&budget.name);
        let body = to_bytes(&budget.budget);
        self.requests.apply(&path, body).await
    }

    /// Succeeds if the policy refuses the deletion, because that shows that the guard is in force. Any other response
    /// is returned as an error.
    async fn probe_guard(&self, budget: &str) -> RequestResult {
        let path = self.budget_path(budget);
        match self.requests.dry_run_delete(&path).await {
            Err(Refusal::Rejected(message)) if message.contains(POLICY_MESSAGE) => {
                Ok(ResponseMetadata::default())
            }
            Ok(_) => Err(Refusal::Rejected(NO_POLICY.to_owned())),
            result => result,
        }
    }

    async fn delete_budget(&self, name: &str) -> RequestResult {
        match self.applier.requests.delete_unconditionally(&self.budget_path(name)).await {
            Err(Refusal::NotFound(_)) => Ok(ResponseMetadata::default()),
            result => result,
        }
    }

    /// Closes a pod's gate for an update to a revision; with None, opens the gate.
    async fn set_gate(
        &self,
        pod: &PodRef,
        closed_for: Option<&str>,
        now: Timestamp,
    ) -> RequestResult {
        let body = body::gate(pod, closed_for, now);
        self.patch_pod(pod, "/status", &body).await
    }
}
